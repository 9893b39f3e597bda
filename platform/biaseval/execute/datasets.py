"""Parts on Ray Data: one actor, one loop.

While an actor works on a part, CPU tasks prepare the next ones, and it writes the one before: an actor that waits is
an accelerator that waits.
Ray restarts actors that die, and has their parts made again.
"""

from __future__ import annotations

import json
import logging
import pickle
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from biaseval.errors import BiasevalError, InputError, TransientError
from biaseval.execute.budget import HALT, GpuHours
from biaseval.execute.devices import blamed, forget_attempts, is_broken_device, leave_broken_device, refuse_unusable_gpu
from biaseval.execute.machine import quiet_worker
from biaseval.execute.resources import Allocation, Ask, Resources, allocate
from biaseval.execute.stalls import Stalls
from biaseval.execute.tasks import ATTEMPTS, Made, Making, Task, Worker, as_ours, attempted, failure, prepared_part
from biaseval.execute.versions import Versions, versions
from biaseval.execute.waiting import Wait
from biaseval.parsing import json_value
from biaseval.progress import heard, say
from biaseval.store import Digest, Run, is_refusal
from biaseval.units import Done, Unit, files_of, missing_units

if TYPE_CHECKING:
    import ray.data

    from biaseval.execute.cluster import Cluster
    from biaseval.execute.pace import Pace

logger = logging.getLogger(__name__)

_MOST_DEATHS = 3
"""Actors that may die one after another while they load their model."""

_PAUSES_S = (5.0, 25.0)

_TICK_S = 0.1
"""Seconds after which the thread that looks at a wait checks whether the block has ended."""

_PAUSE_S = 1.0
"""Seconds after which that thread tries again where Ray's tables did not answer."""

_CALLS = 2
"""Of an actor at a time: one part is made while another one is written."""

_IN_FLIGHT = 3
"""Parts that are sent to an actor: those, and the next, so that it need not wait for it."""


def made_on_ray(
    parts: Making, run: Run, missing: Sequence[Unit], cluster: Cluster, pace: Pace
) -> Generator[Done, None, None]:
    """Make the missing units of a stage on a cluster, in any order, and yield each when it is complete.

    Raises:
        InputError, BiasevalError: our own, from a worker.
        BiasevalError: Ray failed; complete parts stay.
    """
    from ray.data.exceptions import ExecutionTimeoutError
    from ray.exceptions import RayError

    resources = cluster.resources()
    allocation = allocate(parts.execution, len(missing), resources, parts.weights_bytes)
    if allocation.caution is not None:
        logger.warning("%s %s", parts.name, allocation.caution)
    units, left = {unit.number: unit for unit in missing}, {unit.number for unit in missing}
    hours = GpuHours(run, parts.execution.max_gpu_hours, allocation.num_gpus)
    pace.n_actors = max(1, allocation.n_actors if isinstance(allocation.n_actors, int) else allocation.n_actors[0])
    versions_of, stalls = Versions(), Stalls(parts.name, missing)
    try:
        with (
            _looked_after(Wait(parts.name, parts.execution, resources), allocation, pace, stalls) as step,
            # Closed with the block: an error that somebody keeps would keep the actors, too.
            closing(_rows(_mapped(parts, run, missing, allocation, resources, step))) as rows,
        ):
            for row in rows:
                for text in row["said"]:
                    say(f"{text} (in an actor)")
                if row["error"] is not None:
                    kind, message = json_value(row["error"])
                    raise {"InputError": InputError, "TransientError": TransientError}.get(kind, BiasevalError)(message)
                if row["done"] is None:  # left for another process
                    continue
                found = json_value(row["done"])
                versions_of.hear(found.pop("versions"))
                digests = {name: Digest(*own) for name, own in found.pop("digests").items()}
                done = Done(units[found.pop("number")], digests=digests, **found)
                hours.add(done)
                stalls.add(done)
                left.discard(done.unit.number)  # made, or failed
                yield done
        if hours.is_used_up and missing_units(run, [units[number] for number in left]):
            raise hours.error()
    except ExecutionTimeoutError as error:
        raise TransientError(str(error)) from error
    except (RayError, RuntimeError) as error:
        lines = [line for line in str(error).strip().splitlines() if line.strip()] or [repr(error)]
        raise TransientError(f"{parts.name} failed: {lines[-1]}; run the same command again to resume") from error
    finally:
        hours.close()
        forget_attempts(run)


def _rows(mapped: ray.data.Dataset) -> Generator[dict[str, Any], None, None]:
    """Yield each row when it is there: Ray Data would hold it back until it has the next."""
    for batch in mapped.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
        yield from cast(pa.Table, batch).to_pylist()


@contextmanager
def _looked_after(wait: Wait, allocation: Allocation, pace: Pace, stalls: Stalls) -> Iterator[type]:
    """Watch in the block whether an actor has its place, its current part, and its speed, or hangs.

    A thread watches, because Ray Data's own loop stands still while there is no node.

    Yields:
        A callback for each step of Ray Data, which turns an endless wait into an error.
    """
    from ray.data._internal.execution.execution_callback import ExecutionCallback
    from ray.data.exceptions import ExecutionTimeoutError
    from ray.exceptions import RayError

    from biaseval.execute.holdings import n_placed

    amounts = {"CPU": allocation.num_cpus, "GPU": allocation.num_gpus}
    actor, preparing = Ask("an actor", amounts), Ask("a task that prepares", {"CPU": _preparing_cpus(allocation)})
    ended, executors, problems = threading.Event(), list[Any](), list[TransientError]()

    class Step(ExecutionCallback):
        def on_execution_step(self, executor: Any) -> None:
            executors[:] = [executor]
            if problems:  # of other errors Ray Data prints the traceback
                raise ExecutionTimeoutError(str(problems[0])) from problems[0]

    def asked() -> Ask | None:
        if not n_placed(_Actor.__name__):
            return actor
        n_active = [one.num_active_tasks() for one in executors[0]._topology] if executors else [1]
        return preparing if any(n_active) and not n_active[-1] else None  # the last operator has the actors

    def look() -> None:
        while not problems and not ended.wait(_TICK_S):
            try:
                if wait.is_due():
                    pace.look()
                    stalls.look(executors)
                    wait.look(asked())
            except TransientError as error:
                problems.append(error)
            except (RayError, RuntimeError) as error:
                # Ray Data meets it too, if it lasts.
                logger.debug("Ray's tables do not answer", exc_info=error)
                ended.wait(_PAUSE_S)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield Step
    finally:
        ended.set()
        thread.join()
        for executor in executors:  # Collected later, it would ask a Ray that has ended, and print a traceback.
            executor.shutdown(force=False)


def _mapped(
    parts: Making, run: Run, missing: Sequence[Unit], allocation: Allocation, resources: Resources, step: type
) -> ray.data.Dataset:
    import ray.data

    _set_context(resources)
    rows = [{"task": json.dumps([unit.number, dict(unit.work), unit.files])} for unit in missing]
    arguments = {"name": parts.name, "run_uri": run.uri, "arguments": dict(parts.arguments)}
    mapped: ray.data.Dataset = ray.data.from_items(rows, override_num_blocks=len(rows))
    if parts.prepare is not None:
        mapped = mapped.map_batches(
            cast(Any, _prepare),  # Ray's annotations know no Arrow table
            batch_size=1,
            batch_format="pyarrow",
            compute=ray.data.TaskPoolStrategy(size=min(allocation.n_preparing, len(rows))),  # of more Ray Data warns
            num_cpus=_preparing_cpus(allocation),
            fn_kwargs={**arguments, "prepare": parts.prepare},
        )
    mapped = mapped.map_batches(
        _Actor, batch_size=1, batch_format="pyarrow", compute=_pool(allocation), num_cpus=allocation.num_cpus,
        num_gpus=allocation.num_gpus,
        fn_constructor_kwargs={
            **arguments, "worker": parts.worker, "allocation": allocation,
            "is_bounded": parts.execution.max_gpu_hours is not None,
        },
    )  # fmt: skip
    mapped.context.custom_execution_callback_classes = [step]
    return mapped


def _preparing_cpus(allocation: Allocation) -> float:
    """Return what a task that prepares takes: Ray Data would fuse it with an actor that asks for as much."""
    return 0.9 * (min(1.0, allocation.num_cpus) or 1.0)


def _prepare(
    batch: pa.Table, *, name: str, run_uri: str, arguments: Mapping[str, Any], prepare: Callable[..., Any]
) -> pa.Table:
    """Add what a worker needs for a part; runs in a CPU task."""
    quiet_worker()
    prepared = error = None
    try:
        made = prepared_part(prepare, Run.open(run_uri), _task(batch), name, arguments)
        prepared = pickle.dumps(made.facts, protocol=5)
    except Exception as caught:
        error = _as_row(caught, name)
    return pa.table(
        {
            "task": batch["task"],
            "prepared": pa.array([prepared], pa.large_binary()),
            "error": pa.array([error], pa.string()),
        }
    )


class _Actor:
    """Holds a worker, lets it make one part at a time, writes the part, and reports whether it exists."""

    def __init__(
        self,
        name: str,
        run_uri: str,
        arguments: Mapping[str, Any],
        worker: Callable[..., Worker],
        allocation: Allocation,
        is_bounded: bool,
    ) -> None:
        import ray

        quiet_worker()
        self._is_restarted = ray.get_runtime_context().was_current_actor_reconstructed
        self._is_bounded = is_bounded
        self._name = name
        self._id = uuid.uuid4().hex
        self._making = threading.Lock()
        self._versions = versions()
        self._said, self._hearing = list[str](), ExitStack()  # as long as the process lives
        self._hearing.enter_context(heard(self._said.append))
        self._error: str | None = None
        self._worker: Worker | None = None
        self._run = Run.open(run_uri)
        try:
            refuse_unusable_gpu(allocation.num_gpus)
            self._worker = _made(lambda: worker(self._run, allocation, **arguments))
        except BiasevalError as caught:
            # Ray would start the actor again and again; said with the first part instead.
            self._error = _as_row(caught, name)

    def __call__(self, batch: pa.Table) -> pa.Table:
        from ray._private import worker

        arrived = time.monotonic()
        error = self._error or (batch["error"][0].as_py() if "error" in batch.column_names else None)
        done = None
        if error is None:
            attempt = cast(Any, worker.global_worker).core_worker.get_current_task_attempt_number()
            try:
                done = self._done(batch, arrived, attempt)
            except Exception as caught:
                if is_broken_device(caught):
                    leave_broken_device(self._run, _task(batch).number, attempt, caught)
                error = _as_row(caught, self._name)
        said = [self._said.pop(0) for _ in range(len(self._said))]
        columns = {"done": pa.array([done], pa.string()), "error": pa.array([error], pa.string())}
        return pa.table({**columns, "said": pa.array([said], pa.list_(pa.string()))})

    def _done(self, batch: pa.Table, arrived: float, attempt: int) -> str | None:
        """Return the outcome of a part as JSON, or None if it is left for another process."""
        task = _task(batch)
        own = {"number": task.number, "versions": self._versions, "actor": self._id, "arrived_s": arrived}
        # It may have died between the write of a part and its report.
        if self._is_restarted and files_of(self._run, task.files).issuperset(task.files):
            return json.dumps({**own, "digests": {}, "ended_s": arrived})
        # Made by `_prepare` in this very run, never read from a file.
        is_prepared = "prepared" in batch.column_names
        facts = pickle.loads(batch["prepared"][0].as_buffer()) if is_prepared else {"prepared": None}
        with self._making:
            if self._is_bounded and self._run.has(HALT):
                return None
            started = time.monotonic()
            if (why := blamed(self._run, task.number, attempt)) is not None:
                made = Made({}, failure(f"{self._name} failed: {why}", ATTEMPTS, has_ended=True))
            elif "prepared" not in facts:
                made = Made({}, facts)
            else:
                make = cast(Worker, self._worker).make  # without one there was an error
                made = attempted(lambda: make(task, facts["prepared"]), self._name, is_broken_device)
            busy = time.monotonic() - started
        own |= {"digests": made.write(self._run), "facts": dict(made.facts), "tokens": task.work.get("tokens", 0)}
        return json.dumps({**own, "ended_s": time.monotonic(), "busy_s": busy})


def _made(make: Callable[[], Worker]) -> Worker:
    """Return the worker; make up to three attempts if a network, a hub or a store does not answer."""
    for pause_s in _PAUSES_S:
        try:
            return make()
        except (BiasevalError, OSError) as error:
            if not _may_pass(error):
                raise
            logger.warning("tried again in %g s", pause_s, exc_info=error)
        time.sleep(pause_s)
    return make()


def _may_pass(error: BaseException | None) -> bool:
    """Return whether an error comes from outside and may be gone soon."""
    if isinstance(error, FileNotFoundError | PermissionError | None) or is_refusal(error):
        return False
    return isinstance(error, OSError | TransientError) or _may_pass(error.__cause__)


def _task(batch: pa.Table) -> Task:
    number, work, files = json_value(batch["task"][0].as_py())
    return Task(number, work, tuple(files))


def _as_row(error: Exception, name: str) -> str:
    """Return an error as text, from which the driver restores it; Ray would wrap the error and lose its type."""
    own = as_ours(error, name)
    if own is not error:
        logger.error("%s failed", name, exc_info=error)
    return json.dumps([type(own).__name__, str(own)])


def _pool(allocation: Allocation) -> ray.data.ActorPoolStrategy:
    import ray.data

    n_actors = allocation.n_actors
    at_least, at_most = (n_actors, n_actors) if isinstance(n_actors, int) else n_actors
    return ray.data.ActorPoolStrategy(
        min_size=at_least,
        max_size=at_most,
        max_tasks_in_flight_per_actor=_IN_FLIGHT,
        max_concurrent_calls_per_actor=_CALLS,
        enable_true_multi_threading=True,
    )


def _set_context(resources: Resources) -> None:
    import ray.data

    context = ray.data.DataContext.get_current()
    context.max_consecutive_actor_init_deaths = _MOST_DEATHS
    if resources.types:
        # Ray Data asks for twice its resources, and an autoscaler grants a whole request or nothing.
        context.execution_options.resource_limits = ray.data.ExecutionResources.for_limits(
            cpu=resources.most("CPU"), gpu=resources.most("GPU")
        )
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    # Loading a large model while a node starts can outlast any fixed limit.
    context.execution_no_progress_timeout_s = -1
    logging.getLogger("ray.data").setLevel(logging.ERROR)
