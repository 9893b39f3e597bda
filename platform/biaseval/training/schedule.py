"""When training makes its steps: which rows each has, and its learning rate."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice
from typing import Literal

import numpy as np

from biaseval.spec import TrainingSpec
from biaseval.training.recipe import Recipe

_STEPS_SORTED = 50
"""Steps among whose rows those of like length are found, as in Hugging Face's sampler."""


def n_steps_of(n_rows: int, training: TrainingSpec) -> int:
    """Return the number of optimizer steps: the last of an epoch may have fewer rows. 16 rows make 2 an epoch."""
    return training.epochs * math.ceil(n_rows / (training.batch_size * training.accumulation))


def learning_rate_at(
    step: int, n_steps: int, training: TrainingSpec, schedule: Literal["linear", "cosine"] = "linear"
) -> float:
    """Return the learning rate of a step: a linear rise over the warm-up, then a fall towards 0.

    Steps are counted from 0, below ``n_steps``. The fall is linear, or half a cosine.
    """
    n_warmup = min(math.ceil(training.warmup * n_steps), n_steps - 1)  # a single step is no warm-up
    if step < n_warmup:
        return training.learning_rate * step / n_warmup
    left = (n_steps - step) / max(1, n_steps - n_warmup)
    return training.learning_rate * (left if schedule == "linear" else (1 - math.cos(math.pi * left)) / 2)


def step_rows(
    n_rows: int, training: TrainingSpec, seed: int, *, is_endless: bool = False, lengths: Sequence[int] | None = None
) -> Iterator[tuple[int, list[int]]]:
    """Yield the epoch (0-based) and the rows of each step: every row once an epoch, in an order of its own.

    Orders are drawn from ``seed``. P1's code leaves them to its trainer, and the protocol does not record them. An
    epoch's last rows make a step of their own if they are too few for a whole one.

    Args:
        n_rows: of an epoch.
        training: rows of a step, and epochs.
        seed: of the orders.
        is_endless: as many epochs as somebody asks for.
        lengths: of each row; those of like length among some dozens of steps then make a step together.
    """
    generator = np.random.default_rng(seed)
    size = training.batch_size * training.accumulation
    epochs: Iterable[int] = count() if is_endless else range(training.epochs)
    for epoch in epochs:
        order = generator.permutation(n_rows).tolist()
        steps = [order[start : start + size] for start in range(0, n_rows, size)]
        if lengths is not None:
            steps = _of_like_length(order, size, lengths)
            steps = [steps[number] for number in generator.permutation(len(steps)).tolist()]
        for step in steps:
            yield epoch, step


def _of_like_length(order: Sequence[int], size: int, lengths: Sequence[int]) -> list[list[int]]:
    """Return the rows of an epoch as steps: sorted by length among those of `_STEPS_SORTED` steps at a time."""
    steps = []
    for start in range(0, len(order), size * _STEPS_SORTED):
        own = sorted(order[start : start + size * _STEPS_SORTED], key=lambda row: -lengths[row])
        steps += [own[first : first + size] for first in range(0, len(own), size)]
    return steps


def planned_steps(n_rows: int, recipe: Recipe, lengths: Sequence[int] | None = None) -> list[tuple[int, list[int]]]:
    """Return the epoch and the rows of every step of a training, see `step_rows`.

    Lengths of the rows are given where the recipe groups rows by them.
    """
    steps = step_rows(n_rows, recipe.training, recipe.seed, is_endless=recipe.goes_by_steps, lengths=lengths)
    return list(islice(steps, recipe.max_steps))
