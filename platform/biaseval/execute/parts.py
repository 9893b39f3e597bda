"""A stage whose units are parts: one actor, one loop over parts on Ray Data.

While an actor works on a part, CPU tasks prepare the next ones: an actor that waits is an accelerator that waits. A
worker writes each file itself, in one step, and what travels back is a line of facts. So a part is complete when its
files exist, whatever dies before or after. Actors that die are replaced, and their parts done again.
"""

from __future__ import annotations

import json
import logging
import pickle
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

import pyarrow as pa

from biaseval.errors import BiasevalError, InputError, TransientError
from biaseval.execute.machine import quiet_worker
from biaseval.execute.resources import Allocation, allocate
from biaseval.spec import ExecutionSpec
from biaseval.store import Run
from biaseval.units import Done, Unit

if TYPE_CHECKING:
    import ray.data

    from biaseval.execute.cluster import Cluster

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Task:
    """One part, as workers see it."""

    number: int
    work: Mapping[str, Any]
    files: tuple[str, ...]
    """Those that are missing."""


class Worker(Protocol):
    """What an actor holds: makes the files of one part after another."""

    def make(self, task: Task, prepared: Any) -> Mapping[str, Any]:
        """Write the files that a task lacks, and return facts of how; JSON values."""


class Recorder(Protocol):
    """Notes how a stage is made, in ``environment.json``, while it is."""

    def add(self, done: Done) -> None:
        """Hear of a finished part."""

    def close(self) -> None:
        """Hear that the sitting ends, however it does."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """A stage of parts that are independent of each other."""

    name: str
    """What is done, for messages: ``scoring``."""
    verb: str
    """What has happened to a part that is complete: ``scored``."""
    noun: str = "rows"
    """What units are measured in."""
    units: Sequence[Unit]
    execution: ExecutionSpec
    worker: Callable[..., Worker]
    """Makes the worker in its actor: ``worker(run, allocation, **arguments)``."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    prepare: Callable[..., Any] | None = None
    """What a CPU task does before: ``prepare(run, task, **arguments)``; the worker gets what it returns."""
    recorder: Callable[[Run], Recorder] | None = None

    def begun(self, run: Run) -> int:
        """Return 0: a part is there or it is not."""
        return 0

    def make(self, run: Run, missing: Sequence[Unit], cluster: Cluster) -> Iterator[Done]:
        """Make the missing units in any order, and yield each when it is complete.

        Raises:
            InputError, BiasevalError: our own, from a worker.
            BiasevalError: Ray failed; complete parts stay.
        """
        from ray.exceptions import RayError

        allocation = allocate(self.execution, len(missing), cluster.resources())
        if allocation.caution is not None:
            logger.warning("%s %s", self.name, allocation.caution)
        units = {unit.number: unit for unit in missing}
        recorder = None if self.recorder is None else self.recorder(run)
        try:
            for row in self._mapped(run, missing, allocation).iter_rows():
                if row["error"] is not None:
                    kind, message = json.loads(row["error"])
                    raise (InputError if kind == InputError.__name__ else BiasevalError)(message)
                found = json.loads(row["done"])
                unit = units[found.pop("number")]
                done = Done(unit, tokens=unit.work.get("tokens", 0), **found)
                if recorder is not None:
                    recorder.add(done)
                yield done
        except (RayError, RuntimeError) as error:
            lines = [line for line in str(error).strip().splitlines() if line.strip()] or [repr(error)]
            raise TransientError(f"{self.name} failed: {lines[-1]}; run the same command again to resume") from error
        finally:
            if recorder is not None:
                recorder.close()

    def _mapped(self, run: Run, missing: Sequence[Unit], allocation: Allocation) -> ray.data.Dataset:
        import ray.data

        _quiet_context()
        rows = [{"task": json.dumps([unit.number, dict(unit.work), unit.files])} for unit in missing]
        arguments = {"name": self.name, "run_uri": run.uri, "arguments": dict(self.arguments)}
        mapped: ray.data.Dataset = ray.data.from_items(rows, override_num_blocks=len(rows))
        if self.prepare is not None:
            mapped = mapped.map_batches(
                cast(Any, _prepare),  # Ray's annotations know no Arrow table
                batch_size=1,
                batch_format="pyarrow",
                compute=ray.data.TaskPoolStrategy(size=allocation.n_preparing),
                num_cpus=min(1.0, allocation.num_cpus) or 1.0,
                fn_kwargs={**arguments, "prepare": self.prepare},
            )
        return mapped.map_batches(
            _Actor,
            batch_size=1,
            batch_format="pyarrow",
            compute=_pool(allocation),
            num_cpus=allocation.num_cpus,
            num_gpus=allocation.num_gpus,
            fn_constructor_kwargs={**arguments, "worker": self.worker, "allocation": allocation},
        )


def _prepare(
    batch: pa.Table, *, name: str, run_uri: str, arguments: Mapping[str, Any], prepare: Callable[..., Any]
) -> pa.Table:
    """Add what a worker needs for a part; runs in a CPU task."""
    quiet_worker()
    prepared = error = None
    try:
        prepared = pickle.dumps(prepare(Run.open(run_uri), _task(batch), **arguments), protocol=5)
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
    """Holds a worker; has it make a part, and says what came of it."""

    def __init__(
        self,
        name: str,
        run_uri: str,
        arguments: Mapping[str, Any],
        worker: Callable[..., Worker],
        allocation: Allocation,
    ) -> None:
        quiet_worker()
        self._name = name
        self._id = uuid.uuid4().hex
        self._error: str | None = None
        self._worker: Worker | None = None
        try:
            self._worker = worker(Run.open(run_uri), allocation, **arguments)
        except BiasevalError as caught:
            # Ray would start the actor again and again; said with the first part instead.
            self._error = _as_row(caught, name)

    def __call__(self, batch: pa.Table) -> pa.Table:
        arrived = time.monotonic()
        error = self._error or (batch["error"][0].as_py() if "error" in batch.column_names else None)
        done = None
        if error is None:
            try:
                done = json.dumps(self._made(batch, arrived))
            except Exception as caught:
                error = _as_row(caught, self._name)
        return pa.table({"done": pa.array([done], pa.string()), "error": pa.array([error], pa.string())})

    def _made(self, batch: pa.Table, arrived: float) -> dict[str, Any]:
        task = _task(batch)
        # Made by `_prepare` in this very run, never read from a file.
        prepared = pickle.loads(batch["prepared"][0].as_buffer()) if "prepared" in batch.column_names else None
        started = time.monotonic()
        facts = cast(Worker, self._worker).make(task, prepared)  # without one there was an error
        ended = time.monotonic()
        times = {"arrived_s": arrived, "ended_s": ended, "busy_s": ended - started}
        return {"number": task.number, "facts": facts, "actor": self._id, **times}


def _task(batch: pa.Table) -> Task:
    number, work, files = json.loads(batch["task"][0].as_py())
    return Task(number, work, tuple(files))


def _as_row(error: Exception, name: str) -> str:
    """Return an error as text that the driver turns into it again: Ray would wrap it, and so lose what it is."""
    if isinstance(error, BiasevalError):
        return json.dumps([type(error).__name__, str(error)])
    reason = " ".join(str(error).split()) or "no reason is given"
    logger.error("%s failed", name, exc_info=error)
    message = f"{name} failed: {type(error).__name__}: {reason}; mend this and run the same command again to resume"
    return json.dumps([BiasevalError.__name__, message])


def _pool(allocation: Allocation) -> ray.data.ActorPoolStrategy:
    import ray.data

    if isinstance(allocation.n_actors, int):
        return ray.data.ActorPoolStrategy(size=allocation.n_actors)
    at_least, at_most = allocation.n_actors
    return ray.data.ActorPoolStrategy(min_size=at_least, max_size=at_most)


def _quiet_context() -> None:
    import ray.data

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    # Loading a large model while a node starts can outlast any fixed limit.
    context.execution_no_progress_timeout_s = -1
    logging.getLogger("ray.data").setLevel(logging.ERROR)
