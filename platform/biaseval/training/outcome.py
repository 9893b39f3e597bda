"""What comes of one unit: its steps in the table ``training``, checkpoints on the way, an adapter or a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow.compute as pc
import torch.distributed as dist

from biaseval.models import adapter_files
from biaseval.store import Run, part_name
from biaseval.tables import TRAINING
from biaseval.training.checkpoints import keep_only, newest_checkpoint, read_states, write_checkpoint
from biaseval.training.loop import StepRecord, training_steps
from biaseval.training.model_files import write_model
from biaseval.training.preparation import Base, Prepared, prepared
from biaseval.training.recipe import Recipe
from biaseval.training.schedule import planned_steps
from biaseval.training.work import Work

Row = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What came of a unit."""

    first_step: int
    """Of this sitting, 0-based; above 0 where it went on behind a checkpoint."""
    n_steps: int
    """That there are now, all sittings together; the last was not made where it was not finite."""
    loss: float
    """Of the last step."""
    grad_norm: float | None
    """Of the last step."""
    is_complete: bool
    """False if loss or gradient was not finite at the last step, so that there is no adapter or model."""
    step_seconds: float
    """In optimizer steps of this sitting: forward, backward and update."""


def train(
    run: Run,
    base: Base,
    work: Work,
    recipe: Recipe,
    folder: str,
    on_step: Callable[[StepRecord], None],
) -> Outcome:
    """Train one unit and write what comes of it; workers of a group call this at once, and each returns the same.

    Its steps are a part of the table ``training``, written before each checkpoint, and before the adapter or the model,
    whose last file makes it complete.

    Args:
        run: the run directory.
        base: the base model, as this worker holds it.
        work: what to train.
        recipe: how.
        folder: of the run, for the adapter or the model.
        on_step: hears of each step.
    """
    share, objective = base.share, work.objective
    n_steps = len(planned_steps(objective.n_rows, recipe))
    steps: list[Row] = []
    step_seconds = 0.0
    with prepared(base, recipe, objective) as ready:
        if recipe.checkpoint_steps is not None:
            steps = _restored(run, base, ready, work)
        start = len(steps)
        for record in training_steps(ready.optimization, objective, recipe, share, start):
            on_step(record)
            steps.append({**work.key, **asdict(record)})
            step_seconds += record.seconds
            n_done = record.step + 1
            is_due = recipe.checkpoint_steps is not None and n_done % recipe.checkpoint_steps == 0
            if is_due and n_done < n_steps and record.is_finite:
                _write_steps(run, base, work, steps)
                write_checkpoint(run, work.checkpoints, n_done, ready, share)
        _write_steps(run, base, work, steps)
        _write_result(run, base, ready, recipe, folder, is_complete=record.is_finite)
    return Outcome(start, n_done, record.loss, record.grad_norm, record.is_finite, step_seconds)


def _restored(run: Run, base: Base, ready: Prepared, work: Work) -> list[Row]:
    """Go on behind the last checkpoint, if there is one, and return the steps before; what came behind it goes."""
    checkpoint = newest_checkpoint(run, work.checkpoints)
    if checkpoint is not None:
        ready.optimization.restore(read_states(run, checkpoint, ready.trained), checkpoint.n_steps)
    n_steps = 0 if checkpoint is None else checkpoint.n_steps
    steps = [step for rows in _own_steps(run, work).values() for step in rows if step["step"] < n_steps]
    if base.share.n_workers > 1:
        dist.barrier()  # nothing goes before all have read it
    if base.share.rank == 0:
        keep_only(run, work.checkpoints, checkpoint)
        # Older versions wrote a part for each checkpoint.
        for part in _own_steps(run, work).keys() - {work.part}:
            run.delete(f"{TRAINING.name}/{part_name(part)}")
        _write_steps(run, base, work, steps)
    return steps


def _own_steps(run: Run, work: Work) -> dict[int, list[Row]]:
    """Return the steps of a unit by the part of the table that holds them, in order."""
    model = pc.field("model") == work.key["model"]
    parts = {part: run.read_part(TRAINING.name, part).filter(model) for part in sorted(run.parts(TRAINING.name))}
    return {part: rows.to_pylist() for part, rows in parts.items() if rows.num_rows}


def _write_steps(run: Run, base: Base, work: Work, steps: list[Row]) -> None:
    if base.share.rank == 0:
        run.write_part(TRAINING.name, work.part, TRAINING.rows(steps))


def _write_result(run: Run, base: Base, ready: Prepared, recipe: Recipe, folder: str, *, is_complete: bool) -> None:
    share = base.share
    if share.rank == 0:
        run.delete(folder)  # what a killed process began
    if share.n_workers > 1:
        dist.barrier()
    if not is_complete:
        return
    if ready.adapter is None:
        write_model(run, folder, base, ready, recipe.training.precision)
        return
    with ready.optimization.gathered():
        files = adapter_files(ready.adapter)
    for name, content in files.items() if share.rank == 0 else ():
        run.write_bytes(f"{folder}/{name}", content)
