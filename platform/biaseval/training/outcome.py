"""The training of one unit: steps in the table ``training``, checkpoints, and an adapter or a model."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow.compute as pc
import torch
import torch.distributed as dist

from biaseval.errors import BiasevalError
from biaseval.models import CONFIG_FILE, adapter_files
from biaseval.store import Run, part_name
from biaseval.tables import EVALUATIONS, TRAINED_MODELS, TRAINING, TableSchema
from biaseval.training.checkpoints import folders_of, keep_only, newest_checkpoint, read_states, write_checkpoint
from biaseval.training.evaluation import Scores, Selection
from biaseval.training.loop import StepRecord, steps_of, training_steps
from biaseval.training.model_files import complete_model, write_weights
from biaseval.training.objectives import Share
from biaseval.training.preparation import Base, Prepared, prepared
from biaseval.training.recipe import Recipe
from biaseval.training.rows import MODEL_CONFIG
from biaseval.training.work import Work

Row = dict[str, Any]

_KEPT = "best-"
"""What the folder of the best weights begins with; the number of their step follows."""

_N_NAMED = 5
"""Questions that a message names."""

_SCORES = [column.name for column in fields(Scores)]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a unit."""

    first_step: int
    """The first step of this process, 0-based; above 0 after a checkpoint."""
    n_steps: int
    """Steps of all processes; a last step that was not finite was not applied."""
    loss: float
    """Of the last step."""
    grad_norm: float | None
    """Of the last step."""
    step_seconds: float
    """Seconds of optimizer steps in this process: forward, backward and update."""
    evaluation_seconds: float = 0.0
    """Seconds of evaluations in this process."""
    best_step: int | None = None
    """Behind which the weights are that were kept; None where nothing was."""
    problem: str | None = None
    """Why there is no adapter or model: loss or gradient was not finite at the last step, or no evaluation was."""
    is_stopped: bool = False
    """A search ended it early."""

    @property
    def is_complete(self) -> bool:
        """Whether there is an adapter or a model."""
        return self.problem is None


def train(
    run: Run, base: Base, work: Work, recipe: Recipe, folder: str, on_step: Callable[[StepRecord], None]
) -> Outcome:
    """Train one unit and write its results; workers of a group call this at once, and each returns the same.

    Its steps are a part of the table ``training``, written before each checkpoint and before the adapter or the model,
    whose last file, in ``folder``, makes the unit complete. The row of ``trained_models`` follows, also if a reader was
    given up. ``on_step`` receives each step.
    """
    share, objective = base.share, work.objective
    planned = steps_of(objective, recipe)
    if work.watch is not None and recipe.adapter is not None:
        raise ValueError("an adapter is not watched: the weights that are kept on the way are a model's")
    notes = _Notes(run, work, is_first=share.rank == 0)
    _begin_anew(run, work, folder, share)
    start = 0
    with prepared(base, recipe, objective) as ready:
        if recipe.checkpoint_steps is not None:
            start = _restored(run, base, ready, work, notes)
        for record in training_steps(ready.optimization, objective, recipe, share, start):
            on_step(record)
            notes.add(record)
            n_done = record.step + 1
            is_last = n_done == len(planned)
            if work.watch is not None and record.is_finite and (is_last or n_done % work.watch.every == 0):
                if notes.ask(ready, share):
                    write_weights(run, _kept(work, record.step), ready, share, recipe.saved_dtype)
                    notes.drop_others()
                if notes.is_over or notes.stopped is not None:
                    break
            is_due = recipe.checkpoint_steps is not None and n_done % recipe.checkpoint_steps == 0
            if is_due and not is_last and record.is_finite:
                notes.write()
                write_checkpoint(run, work.checkpoints, n_done, ready, share)
                notes.hold()
        notes.write()
        problem = notes.stopped or _problem(record, notes.best_step, work, planned[record.step][1])
        if problem is None and notes.best_step is not None:
            _write_kept(run, base, work, recipe, folder, notes.best_step)
        elif problem is None:
            _write_last(run, base, ready, recipe, folder)
    outcome = notes.outcome(start, record, problem)
    if share.rank == 0:
        if work.row is not None:
            _write_row(run, base, work, folder, outcome)
        if outcome.is_complete or outcome.is_stopped:
            _drop_served(run, work)
    return outcome


def _problem(record: StepRecord, best_step: int | None, work: Work, rows: Sequence[int]) -> str | None:
    """Return why a training ended without a result at this step, of these rows; None: it did not."""
    if record.is_finite:
        return "no evaluation was finite" if work.watch is not None and best_step is None else None
    norm, names = "unknown" if record.grad_norm is None else f"{record.grad_norm:.4g}", work.objective.names(rows)
    more = f" and {len(names) - _N_NAMED} more" if len(names) > _N_NAMED else ""
    of = f" (questions {', '.join(names[:_N_NAMED])}{more})" if names else ""
    hint = "" if work.hint is None else f"; {work.hint}"
    return f"loss {record.loss:.4g}, gradient norm {norm} at step {record.step}{of}{hint}"


def _write_row(run: Run, base: Base, work: Work, folder: str, outcome: Outcome) -> None:
    """Write the row of ``trained_models``, which makes a reader complete, or says why it is not there."""
    device = base.device
    row = {
        **(work.row or {}),
        "path": folder if outcome.is_complete else None,
        "steps": outcome.n_steps,
        "best_step": outcome.best_step,
        "problem": outcome.problem,
        "is_stopped": outcome.is_stopped,
        "n_windows": work.objective.n_rows,
        "n_workers": base.share.n_workers,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
    }
    run.write_part(TRAINED_MODELS.name, work.part, TRAINED_MODELS.rows([row]))


def _drop_served(run: Run, work: Work) -> None:
    """Delete what a unit went on from, once it is complete: until then a killed process needs it."""
    if work.row is not None:
        run.delete(work.checkpoints)
        return
    for name in folders_of(run, work.checkpoints, _KEPT):
        run.delete(f"{work.checkpoints}/{name}")


class _Notes:
    """The records of a unit's training besides its weights: steps and evaluations."""

    def __init__(self, run: Run, work: Work, *, is_first: bool) -> None:
        self._step_seconds = self._evaluation_seconds = 0.0
        self._steps: list[Row] = []
        self._evaluations: list[Row] = []
        self._selection = None if work.watch is None else Selection(work.watch)
        self.stopped: str | None = None
        """Why a search ends it here; None: it does not."""
        self._asked_behind = 0
        self._held_step: int | None = None
        """The best one that the last checkpoint knows: training goes on from it, if it is killed."""
        self._run, self._work, self._is_first = run, work, is_first

    @property
    def best_step(self) -> int | None:
        """The step after which the best weights are so far."""
        return None if self._selection is None else self._selection.best_step

    @property
    def is_over(self) -> bool:
        """Whether nothing better is to be expected."""
        return self._selection is not None and self._selection.is_over

    def add(self, record: StepRecord) -> None:
        """Note a step."""
        self._steps.append({**self._work.key, **asdict(record)})
        self._step_seconds += record.seconds

    def ask(self, ready: Prepared, share: Share) -> bool:
        """Evaluate the model after the step noted last; return whether it is the best so far."""
        sets = () if self._work.watch is None else self._work.watch.sets
        scores = [own.scores(ready.optimization, share) for own in sets]
        self._evaluation_seconds += sum(own.seconds or 0.0 for own in scores)
        return self._hear(self._steps[-1]["step"], scores)

    def _hear(self, step: int, scores: Sequence[Scores]) -> bool:
        if self._work.watch is not None:
            self.stopped = self._work.watch.stops(self._asked_behind, step + 1, scores)
            self._asked_behind = step + 1
        self._evaluations += [{"model": self._work.key["model"], "step": step, **asdict(own)} for own in scores]
        return self._selection is not None and self._selection.add(step, scores)

    def outcome(self, start: int, last: StepRecord, problem: str | None) -> Outcome:
        """Return the outcome of a training from step ``start`` of this process to its last."""
        return Outcome(
            first_step=start, n_steps=last.step + 1, loss=last.loss, grad_norm=last.grad_norm,
            step_seconds=self._step_seconds, evaluation_seconds=self._evaluation_seconds, best_step=self.best_step,
            problem=problem, is_stopped=self.stopped is not None,
        )  # fmt: skip

    def read(self, n_steps: int) -> None:
        """Read the first ``n_steps`` steps, and the evaluations between them.

        Raises:
            BiasevalError: some are missing.
        """
        there = [row for rows in _own_rows(self._run, TRAINING, self._work).values() for row in rows]
        # A step may stand in two parts, where a process was killed while it made one of several.
        steps = {row["step"]: row for row in there if row["step"] < n_steps}
        if len(steps) < n_steps:
            place = self._work.checkpoints
            raise BiasevalError(
                f"{self._run.uri}: the table training has {len(steps)} of the {n_steps} steps before the last "
                f"checkpoint; restore it, or delete {place} and run the same command again to begin again"
            )
        self._steps = [steps[step] for step in range(n_steps)]
        for rows in _own_rows(self._run, EVALUATIONS, self._work).values():
            for step, scores in groupby((row for row in rows if row["step"] < n_steps), itemgetter("step")):
                self._hear(step, [Scores(**{name: row[name] for name in _SCORES if name in row}) for row in scores])

    def hold(self) -> None:
        """Record that the checkpoint, which exists now, has the best step so far."""
        self._held_step = self.best_step
        self.drop_others()

    def drop_others(self) -> None:
        """Delete the stored weights of all steps but the best and the step that the checkpoint records."""
        if self._is_first and self._selection is not None:
            steps = {step for step in (self.best_step, self._held_step) if step is not None}
            wanted = {_kept(self._work, step) for step in steps}
            for name in folders_of(self._run, self._work.checkpoints, _KEPT):
                if f"{self._work.checkpoints}/{name}" not in wanted:
                    self._run.delete(f"{self._work.checkpoints}/{name}")

    def write(self) -> None:
        """Write them; workers but the first do not."""
        if not self._is_first:
            return
        self._run.write_part(TRAINING.name, self._work.part, TRAINING.rows(self._steps))
        if self._work.watch is not None:
            self._run.write_part(EVALUATIONS.name, self._work.part, EVALUATIONS.rows(self._evaluations))


def _begin_anew(run: Run, work: Work, folder: str, share: Share) -> None:
    """Delete partial results of a killed process, and results that it completed without recording them."""
    if share.rank == 0:
        if work.row is not None:
            run.delete(f"{TRAINED_MODELS.name}/{part_name(work.part)}")
        for marker in (MODEL_CONFIG, CONFIG_FILE):  # without which no half of it looks whole
            run.delete(f"{folder}/{marker}")
        run.delete(folder)
    if share.n_workers > 1:
        dist.barrier()


def _restored(run: Run, base: Base, ready: Prepared, work: Work, notes: _Notes) -> int:
    """Continue after the last checkpoint, if any, and return its steps; delete records of later steps."""
    checkpoint = newest_checkpoint(run, work.checkpoints)
    n_steps = 0 if checkpoint is None else checkpoint.n_steps
    if checkpoint is not None:
        ready.optimization.restore(read_states(run, checkpoint, ready.trained), n_steps, checkpoint.loss_scale)
    notes.read(n_steps)
    if base.share.n_workers > 1:
        dist.barrier()  # nothing goes before all have read it
    notes.write()
    notes.hold()
    if base.share.rank == 0:
        keep_only(run, work.checkpoints, checkpoint)
        # Older versions wrote a part for each checkpoint.
        for part in _own_rows(run, TRAINING, work).keys() - {work.part}:
            run.delete(f"{TRAINING.name}/{part_name(part)}")
    return n_steps


def _own_rows(run: Run, table: TableSchema, work: Work) -> dict[int, list[Row]]:
    """Return what a table has of a unit, by the part that holds it, in order."""
    model = pc.field("model") == work.key["model"]
    # Of a reader older versions have none.
    there = run.parts(table.name) if work.row is None else {work.part} & run.parts(table.name)
    parts = {part: run.read_part(table.name, part).filter(model) for part in sorted(there)}
    return {part: rows.to_pylist() for part, rows in parts.items() if rows.num_rows}


def _kept(work: Work, step: int) -> str:
    """Return the folder of the run for the weights after a step, while it is the best."""
    return f"{work.checkpoints}/{_KEPT}{step:08d}"


def _write_kept(run: Run, base: Base, work: Work, recipe: Recipe, folder: str, step: int) -> None:
    """Make a model of the weights that were kept after a step; the first worker does."""
    if base.share.rank > 0:
        return
    kept = _kept(work, step)
    names = run.files(kept)
    if not names:
        raise BiasevalError(
            f"{run.uri}/{kept}: the weights of the best step are not there; restore them, or delete "
            f"{work.checkpoints} and run the same command again to begin again"
        )
    for name in sorted(names):
        run.write_bytes(f"{folder}{name.removeprefix(kept)}", run.read_bytes(name))
    complete_model(run, folder, base, recipe.saved_dtype)


def _write_last(run: Run, base: Base, ready: Prepared, recipe: Recipe, folder: str) -> None:
    """Write the adapter or the model as it is after the last step."""
    if ready.adapter is None:
        write_weights(run, folder, ready, base.share, recipe.saved_dtype)
        complete_model(run, folder, base, recipe.saved_dtype)
        return
    with ready.optimization.gathered():
        files = adapter_files(ready.adapter)
    for name, content in files.items() if base.share.rank == 0 else ():
        run.write_bytes(f"{folder}/{name}", content)
