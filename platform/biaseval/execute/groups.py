"""What a group of workers does: trains units one after another, with the base model in memory, on Ray Train."""

from __future__ import annotations

import itertools
import json
import math
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import ray
import ray.train

from biaseval.execute.budget import HALT
from biaseval.execute.devices import refuse_unusable_gpu
from biaseval.execute.machine import n_cores, quiet_worker
from biaseval.execute.messages import Queue, outcome_file, progress_file
from biaseval.execute.resources import Groups
from biaseval.execute.versions import versions
from biaseval.execute.workers import fit, this_node
from biaseval.store import Run
from biaseval.training.recipe import Recipe
from biaseval.units import Unit, missing_units

if TYPE_CHECKING:
    from biaseval.training.loop import StepRecord
    from biaseval.training.preparation import Base
    from biaseval.training.work import Work

SECONDS_BETWEEN_LOOKS = 5.0


@dataclass(frozen=True)
class Job:
    """What all groups are told."""

    run_uri: str
    recipe: Recipe
    work: Callable[..., Work]
    arguments: Mapping[str, Any]
    groups: Groups
    recipes: Mapping[int, Recipe] = field(default_factory=dict)
    """Of units that are trained otherwise, by their number."""
    is_bounded: bool = False
    """There may come a word to begin no other unit."""


def queued(units: Sequence[Unit]) -> Any:
    """Return a `Queue` that groups on any machine may ask, as an actor of the process that leads the run."""
    return ray.remote(num_cpus=0)(Queue).options(scheduling_strategy=this_node()).remote(units)


@ray.remote(num_cpus=0, max_retries=0)
def lead(job: Job, queue: Any, group: int) -> None:
    """Let a group train the units of the queue (`queued`) one after another; restart it if a worker or node dies."""
    run = Run.open(job.run_uri)
    leader = ray.get_runtime_context().get_worker_id()

    had: dict[int, Unit] = {}
    """Its unfinished units, by number."""

    def config() -> dict[str, Any]:
        n_ended, unit = ray.get(queue.begin.remote(group, leader))
        if unit is not None:
            had[unit.number] = unit
        return {"job": job, "queue": queue, "group": group, "n_ended": n_ended, "start": _kept(run, job, had.values())}

    try:
        fit(run, _train, config, job.recipe.training.SECTION, job.groups)
    finally:
        with suppress(ValueError):  # in another thread Ray Train sets none; this one would keep its controller for ever
            signal.signal(signal.SIGINT, signal.default_int_handler)
        ray.get(queue.leave.remote(group))


def _kept(run: Run, job: Job, units: Iterable[Unit]) -> list[int]:
    """Return up to where checkpoints of units that have not ended go."""
    from biaseval.training.checkpoints import newest_checkpoint, place_of

    if job.recipe.checkpoint_steps is None:
        return []
    kept = [newest_checkpoint(run, place_of(unit.work)) for unit in units if not run.has(outcome_file(unit))]
    return [checkpoint.n_steps for checkpoint in kept if checkpoint is not None]


def _train(config: dict[str, Any]) -> None:
    """Train units one after another; runs in every worker of a group, the first of which writes."""
    quiet_worker()
    import torch

    from biaseval.training.loop import steps_of
    from biaseval.training.outcome import train
    from biaseval.training.preparation import load_base

    job: Job = config["job"]
    refuse_unusable_gpu(job.groups.use_gpu)
    run = Run.open(job.run_uri)
    context = ray.train.get_context()
    torch.set_num_threads(job.groups.threads(n_cores(), context.get_local_world_size()))
    rank = context.get_world_rank()
    base: Base | None = None
    following = _following(run, job, config["queue"], config["group"]) if rank == 0 else itertools.repeat(None)
    for unit in for_all(following, context.get_world_size()):
        recipe = job.recipes.get(unit.number, job.recipe)
        if base is None or recipe.adapter is None:  # an adapter is taken off again, all else has become another
            base = None  # two of them need not fit a device
            base = load_base(recipe, ray.train.torch.get_device(), rank, context.get_world_size())
        started = time.perf_counter()
        work = job.work(run, unit.work, base, **job.arguments)
        folder = work.folder or str(PurePosixPath(unit.files[-1]).parent)
        is_heard = rank == 0 and recipe.checkpoint_steps is not None
        heard = _Saying(run, unit, len(steps_of(work.objective, recipe))) if is_heard else lambda record: None
        outcome = train(run, base, work, recipe, folder, heard)
        if rank == 0:
            facts = {**asdict(outcome), **work.facts, "seconds": time.perf_counter() - started}
            facts["versions"] = versions()
            facts["is_complete"] = outcome.is_complete or work.row is not None  # which says what became of it
            run.write_text(outcome_file(unit), json.dumps(facts) + "\n")


def _following(run: Run, job: Job, queue: Any, group: int) -> Iterator[Unit]:
    """Yield one unit of the queue after another, until none is left or none is to be begun."""
    while not (job.is_bounded and run.has(HALT)):
        unit: Unit | None = ray.get(queue.take.remote(group))
        if unit is None:
            return
        # A worker may have died between the last file of a unit and its report.
        if missing_units(run, [unit]) and not run.has(outcome_file(unit)):
            yield unit


def for_all(following: Iterator[Unit | None], n_workers: int) -> Iterator[Unit]:
    """Yield in each worker of a group what its first worker is to begin."""
    while True:
        found = [next(following, None)]
        if n_workers > 1:
            import torch.distributed

            torch.distributed.broadcast_object_list(found, src=0)
        if found[0] is None:
            return
        yield found[0]


class _Saying:
    """Writes now and then how far a training is."""

    def __init__(self, run: Run, unit: Unit, n_planned: int) -> None:
        self._run, self._unit, self._n_planned = run, unit, n_planned
        self._said_at = -math.inf

    def __call__(self, record: StepRecord) -> None:
        if time.monotonic() - self._said_at >= SECONDS_BETWEEN_LOOKS:
            self._said_at = time.monotonic()
            said = {
                "model": self._unit.work.get("model"),
                "n_steps": record.step + 1,
                "n_planned": self._n_planned,
                "loss": record.loss,
                "seconds": record.seconds,
            }
            self._run.write_text(progress_file(self._unit), json.dumps(said) + "\n")
