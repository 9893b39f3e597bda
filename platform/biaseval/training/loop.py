"""The one loop that trains: makes the steps of an objective on a prepared model."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from biaseval.training.objectives import Objective, Share
from biaseval.training.optimization import Optimization
from biaseval.training.recipe import Recipe
from biaseval.training.schedule import learning_rate_at, planned_steps


@dataclass(frozen=True)
class StepRecord:
    """One row of the table ``training``, without the columns of the unit."""

    step: int
    epoch: int
    loss: float
    """Before the step; nats."""
    grad_norm: float | None
    """Before clipping; infinite where it was too large for float16."""
    learning_rate: float
    seconds: float
    n_tokens: int | None = None
    """Of all texts of the step, where they are many."""
    eval_loss: float | None = None
    """The loss on held-out rows after the step; None if it was not computed."""
    is_skipped: bool = False
    """The step was not made, as the gradient was too large for float16, and training goes on with a smaller scale."""

    @property
    def is_finite(self) -> bool:
        """Whether loss and gradient were finite, or the step was skipped, so that training goes on."""
        return self.is_skipped or (self.grad_norm is not None and math.isfinite(self.grad_norm))


def training_steps(
    optimization: Optimization, objective: Objective, recipe: Recipe, share: Share, start: int = 0
) -> Iterator[StepRecord]:
    """Make the steps, up to the first whose loss or gradient is not finite, and yield each.

    Workers of a group call this at once, and each yields the same. After the last step of an epoch, the loss on
    held-out rows is computed. The optimization has the state after ``start`` steps that were made before.
    """
    planned = steps_of(objective, recipe)
    for step, (epoch, rows) in list(enumerate(planned))[start:]:
        started = time.perf_counter()
        # Dropout depends on the step alone, not on earlier steps: a resumed training drops the same units.
        torch.manual_seed(int(np.random.SeedSequence([recipe.seed, step, share.rank]).generate_state(1)[0]))
        learning_rate = learning_rate_at(step, len(planned), recipe.training, recipe.schedule)
        done = optimization.step(objective.batches(rows, share), learning_rate)
        is_last_of_epoch = step == len(planned) - 1 or planned[step + 1][0] != epoch
        eval_loss = None
        if is_last_of_epoch and objective.held_out is not None and done.grad_norm is not None:
            eval_loss = _mean_loss(optimization, objective.held_out, recipe, share)
        record = StepRecord(
            step=step, epoch=epoch, loss=done.loss, grad_norm=done.grad_norm, learning_rate=learning_rate,
            seconds=time.perf_counter() - started, n_tokens=objective.n_tokens(rows), eval_loss=eval_loss,
            is_skipped=done.is_skipped,
        )  # fmt: skip
        yield record
        if not record.is_finite:
            return


def steps_of(objective: Objective, recipe: Recipe) -> list[tuple[int, list[int]]]:
    """Return the epoch and the rows of every step of a training."""
    return planned_steps(objective.n_rows, recipe, objective.lengths if recipe.groups_lengths else None)


def _mean_loss(optimization: Optimization, objective: Objective, recipe: Recipe, share: Share) -> float:
    """Return the loss over all rows, of as many at once as a step has."""
    at_once = recipe.training.batch_size * recipe.training.accumulation
    total = weight = 0.0
    for start in range(0, objective.n_rows, at_once):
        rows = range(start, min(start + at_once, objective.n_rows))
        own = objective.weight(rows)
        total += own * optimization.evaluate(objective.batches(rows, share))
        weight += own
    return total / weight
