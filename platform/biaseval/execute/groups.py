"""What a group of workers does: trains units one after another, with the base model in memory, on Ray Train."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import ray
import ray.train

from biaseval.execute.budget import HALT
from biaseval.execute.devices import refuse_unusable_gpu
from biaseval.execute.machine import n_cores, quiet_worker
from biaseval.execute.messages import outcome_file, progress_file
from biaseval.execute.resources import Groups
from biaseval.execute.versions import versions
from biaseval.execute.workers import fit
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


@ray.remote(num_cpus=0, max_retries=0)
def lead(job: Job, units: list[Unit]) -> None:
    """Have a group train its units; when a worker or its node dies, what nothing came of yet."""
    from biaseval.training.checkpoints import newest_checkpoint, place_of

    run = Run.open(job.run_uri)

    def config() -> dict[str, Any]:
        # A worker may have died between the last file of a unit and what it says of it.
        there = {unit.number for unit in missing_units(run, units)}
        left = [unit for unit in units if unit.number in there and not run.has(outcome_file(unit))]
        kept = (
            [] if job.recipe.checkpoint_steps is None else [newest_checkpoint(run, place_of(own.work)) for own in left]
        )
        return {"job": job, "units": left, "start": [own.n_steps for own in kept if own is not None]}

    fit(run, _train, config, job.recipe.training.SECTION, job.groups)


def _train(config: dict[str, Any]) -> None:
    """Train units one after another; runs in every worker of a group, the first of which writes."""
    quiet_worker()
    import torch

    from biaseval.training.outcome import train
    from biaseval.training.preparation import load_base

    job: Job = config["job"]
    refuse_unusable_gpu(job.groups.use_gpu)
    run = Run.open(job.run_uri)
    context = ray.train.get_context()
    torch.set_num_threads(job.groups.threads(n_cores(), context.get_local_world_size()))
    rank = context.get_world_rank()
    base: Base | None = None
    for unit in config["units"]:
        if job.is_bounded and is_halted(run, rank, context.get_world_size()):
            return
        recipe = job.recipes.get(unit.number, job.recipe)
        if base is None or recipe.adapter is None:  # an adapter is taken off again, all else has become another
            base = None  # two of them need not fit a device
            base = load_base(recipe, ray.train.torch.get_device(), rank, context.get_world_size())
        started = time.perf_counter()
        work = job.work(run, unit.work, base, **job.arguments)
        folder = work.folder or str(PurePosixPath(unit.files[-1]).parent)
        is_heard = rank == 0 and recipe.checkpoint_steps is not None
        outcome = train(run, base, work, recipe, folder, _Saying(run, unit) if is_heard else _nothing)
        if rank == 0:
            facts = {**asdict(outcome), **work.facts, "seconds": time.perf_counter() - started}
            facts["versions"] = versions()
            facts["is_complete"] = outcome.is_complete or work.row is not None  # which says what became of it
            run.write_text(outcome_file(unit), json.dumps(facts) + "\n")


def is_halted(run: Run, rank: int, n_workers: int) -> bool:
    """Return whether no other unit should begin: what the first worker of a group finds, for all of them."""
    found = [rank == 0 and run.has(HALT)]
    if n_workers > 1:
        import torch.distributed

        torch.distributed.broadcast_object_list(found, src=0)
    return found[0]


def _nothing(record: StepRecord) -> None:
    """Say nothing of a step."""


class _Saying:
    """Writes now and then how far a training is."""

    def __init__(self, run: Run, unit: Unit) -> None:
        self._run, self._unit = run, unit
        self._said_at = -math.inf

    def __call__(self, record: StepRecord) -> None:
        if time.monotonic() - self._said_at >= SECONDS_BETWEEN_LOOKS:
            self._said_at = time.monotonic()
            said = {
                "model": self._unit.work.get("model"),
                "n_steps": record.step + 1,
                "loss": record.loss,
                "seconds": record.seconds,
            }
            self._run.write_text(progress_file(self._unit), json.dumps(said) + "\n")
