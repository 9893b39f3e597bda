"""When training makes its steps: which rows each has, and its learning rate."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import numpy as np

from biaseval.spec import TrainingSpec
from biaseval.training.recipe import Recipe


def n_steps_of(n_rows: int, training: TrainingSpec) -> int:
    """Return the number of optimizer steps: the last of an epoch may have fewer rows. 16 rows make 2 an epoch."""
    return training.epochs * math.ceil(n_rows / (training.batch_size * training.accumulation))


def learning_rate_at(
    step: int, n_steps: int, training: TrainingSpec, schedule: Literal["linear", "cosine"] = "linear"
) -> float:
    """Return the learning rate of a step (0-based): a linear rise over the warm-up, then a fall towards 0.

    Args:
        step: below ``n_steps``.
        n_steps: of the whole training.
        training: learning rate and warm-up.
        schedule: the fall is linear, or half a cosine.
    """
    n_warmup = min(math.ceil(training.warmup * n_steps), n_steps - 1)  # a single step is no warm-up
    if step < n_warmup:
        return training.learning_rate * step / n_warmup
    left = (n_steps - step) / max(1, n_steps - n_warmup)
    return training.learning_rate * (left if schedule == "linear" else (1 - math.cos(math.pi * left)) / 2)


def step_rows(n_rows: int, training: TrainingSpec, seed: int) -> Iterator[tuple[int, list[int]]]:
    """Yield the epoch (0-based) and the rows of each step: every row once an epoch, in an order of its own.

    Orders are drawn from ``seed``. P1's code leaves them to its trainer, and the protocol does not record them. An
    epoch's last rows make a step of their own if they are too few for a whole one.
    """
    generator = np.random.default_rng(seed)
    size = training.batch_size * training.accumulation
    for epoch in range(training.epochs):
        order = generator.permutation(n_rows).tolist()
        for start in range(0, n_rows, size):
            yield epoch, order[start : start + size]


def planned_steps(n_rows: int, recipe: Recipe) -> list[tuple[int, list[int]]]:
    """Return the epoch and the rows of every step of a training, see `step_rows`."""
    return list(step_rows(n_rows, recipe.training, recipe.seed))[: recipe.max_steps]
