"""Ray itself: connecting to it, and sharing its resources among actors."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import pyarrow as pa
import ray

import biaseval
from biaseval.errors import BiasevalError, InputError
from biaseval.spec import ExecutionSpec

logger = logging.getLogger(__name__)

_SPARE_CPUS = 2
"""Logical CPUs beside the actors': Ray Data's reading tasks must find a slot, or it waits for ever."""


@dataclass(frozen=True)
class Allocation:
    """What one actor gets."""

    n_actors: int | tuple[int, int]
    """A number, or (at least, at most)."""
    num_cpus: float
    num_gpus: int
    n_threads: int | None


@contextmanager
def connected(execution: ExecutionSpec) -> Iterator[bool]:
    """Connect to Ray; yield whether it is this machine's own.

    A job or a ``RAY_ADDRESS`` decides for a cluster; otherwise a Ray of this run's own starts and ends with it, and no
    address file of a cluster that is gone is picked up.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray reports each actor pool's arguments as an error, which they are not while this process lives.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    # Ray's coming default: a task without a GPU keeps the machine's CUDA_VISIBLE_DEVICES. Unset, it warns each time.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if ray.is_initialized():
        yield len(ray.nodes()) == 1
        return
    address = os.environ.get("RAY_ADDRESS") or "local"
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == "local":
        n_actors = 1 if execution.actors == "auto" else execution.actors
        options |= {
            "num_cpus": n_actors * max(1, n_cores() // n_actors) + _SPARE_CPUS,
            "include_dashboard": False,
        }
    else:
        # Workers run this very code, installed there or not.
        options["runtime_env"] = {"py_modules": [str(Path(biaseval.__file__).parent)]}
    try:
        with _without_chatter():
            ray.init(address=address, **options)
    except Exception as error:  # Ray raises bare ones where a node does not start
        raise BiasevalError(f"Ray cannot be started or reached at {address!r}: {error}; check RAY_ADDRESS") from error
    try:
        yield address == "local"
    finally:
        ray.shutdown()


@contextmanager
def _without_chatter() -> Iterator[None]:
    """Keep off standard error what Ray's core prints there below Python; its failures come as exceptions."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def map_parts(
    parts: Sequence[Mapping[str, Any]],
    actor: type,
    arguments: Mapping[str, Any],
    allocation: Allocation,
    prepare: Callable[..., pa.Table] | None = None,
    prepare_arguments: Mapping[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield what an actor returns for each part, as soon as it does; actors that die are replaced, their parts redone.

    Args:
        parts: JSON values.
        actor: its instances take a table of one row, ``part`` as JSON and what ``prepare`` adds, and return `answer`.
        arguments: of the actor's constructor.
        allocation: how many actors, and what each gets.
        prepare: what a CPU task does with the row before an actor has it, while actors work on others.
        prepare_arguments: of ``prepare``.

    Raises:
        InputError, BiasevalError: as `answer` carried them here.
        BiasevalError: Ray failed; complete parts stay.
    """
    _quiet_context()
    rows = [{"part": json.dumps(dict(part))} for part in parts]
    mapped: ray.data.Dataset = ray.data.from_items(rows, override_num_blocks=len(rows))
    if prepare is not None:
        mapped = mapped.map_batches(
            cast(Any, prepare),  # Ray's annotations know no Arrow table
            batch_size=1,
            batch_format="pyarrow",
            num_cpus=min(1.0, allocation.num_cpus) or 1.0,
            fn_kwargs=dict(prepare_arguments or {}),
        )
    mapped = mapped.map_batches(
        actor,
        batch_size=1,
        batch_format="pyarrow",
        compute=_pool(allocation),
        num_cpus=allocation.num_cpus,
        num_gpus=allocation.num_gpus,
        fn_constructor_kwargs=dict(arguments),
    )
    try:
        for row in mapped.iter_rows():
            if row["error"] is not None:
                kind, message = json.loads(row["error"])
                raise (InputError if kind == InputError.__name__ else BiasevalError)(message)
            yield json.loads(row["done"])
    except (ray.exceptions.RayError, RuntimeError) as error:
        lines = [line for line in str(error).strip().splitlines() if line.strip()] or [repr(error)]
        raise BiasevalError(f"scoring failed: {lines[-1]}; run the same command again to resume") from error


def answer(work: Callable[[], dict[str, Any]]) -> pa.Table:
    """Return what an actor made of a part, as a row: JSON, or our own error, which Ray would wrap and so lose."""
    done = error = None
    try:
        done = json.dumps(work())
    except BiasevalError as caught:
        error = as_row(caught)
    return pa.table({"done": pa.array([done], pa.string()), "error": pa.array([error], pa.string())})


def allocate(execution: ExecutionSpec, n_parts: int, *, is_local: bool) -> Allocation:
    """Return what each actor gets, for work in ``n_parts`` parts.

    Raises:
        InputError: this machine has fewer GPUs than an actor is to have.
    """
    resources = ray.cluster_resources()
    total_gpus = int(resources.get("GPU", 0))
    num_gpus = min(1, total_gpus) if execution.gpus_per_actor == "auto" else execution.gpus_per_actor
    if is_local and num_gpus > total_gpus:
        raise InputError(
            f"execution.gpus_per_actor: {num_gpus} asked for and this machine has {total_gpus}; "
            "lower it, or submit the run to a cluster with GPUs"
        )
    if num_gpus:
        at_most = max(1, min(n_parts, 1000))
        n_actors = (1, at_most) if execution.actors == "auto" else execution.actors
        if is_local and execution.actors == "auto":
            n_actors = min(at_most, total_gpus // num_gpus)
        # An actor that waits for its GPU takes no CPU slot, which Ray Data's reading tasks need.
        return Allocation(n_actors, num_cpus=0, num_gpus=num_gpus, n_threads=None)
    nodes = [cpus for node in ray.nodes() if node["Alive"] and (cpus := node["Resources"].get("CPU", 0))]
    if not is_local and execution.gpus_per_actor == "auto":
        logger.warning(
            "scoring on CPUs: the cluster shows no GPU; where GPU nodes come on demand, set execution.gpus_per_actor"
        )
    n_actors = (1 if is_local else max(1, len(nodes))) if execution.actors == "auto" else execution.actors
    n_actors = min(n_actors, n_parts)
    if is_local:
        threads = max(1, n_cores() // n_actors)
        # A Ray that somebody else started may have fewer slots than this machine has cores.
        slots = max(0.5, min(threads, (sum(nodes) - _SPARE_CPUS) / n_actors))
        return Allocation(n_actors, num_cpus=_slots(slots), num_gpus=0, n_threads=threads)
    per_actor = _slots(max(0.5, min(min(nodes, default=1) - 1, (sum(nodes) - _SPARE_CPUS) / n_actors)))
    return Allocation(n_actors, num_cpus=per_actor, num_gpus=0, n_threads=max(1, int(per_actor)))


def _slots(number: float) -> float:
    """Return a number of CPUs that Ray takes: a fraction below one, whole above."""
    return number if number < 1 else float(int(number))


def _pool(allocation: Allocation) -> ray.data.ActorPoolStrategy:
    if isinstance(allocation.n_actors, int):
        return ray.data.ActorPoolStrategy(size=allocation.n_actors)
    at_least, at_most = allocation.n_actors
    return ray.data.ActorPoolStrategy(min_size=at_least, max_size=at_most)


def device_of(num_gpus: int) -> Literal["cpu", "cuda", "auto"]:
    """Return where a model lies that has ``num_gpus`` GPUs: several share it (``device_map``)."""
    if num_gpus == 0:
        return "cpu"
    return "cuda" if num_gpus == 1 else "auto"


def n_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _quiet_context() -> None:
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    # Loading a large model while a node starts can outlast any fixed limit.
    context.execution_no_progress_timeout_s = -1
    logging.getLogger("ray.data").setLevel(logging.ERROR)


def quiet_worker() -> None:
    """Keep libraries in a worker from phoning home and from warning."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")


def as_row(error: BiasevalError) -> str:
    """Return our own error as text that `map_parts` turns into it again."""
    return json.dumps([type(error).__name__, str(error)])
