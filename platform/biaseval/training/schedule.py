"""When training makes its steps: which rows each has, and its learning rate."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from biaseval.spec import LoraSpec


def n_steps_of(n_rows: int, lora: LoraSpec) -> int:
    """Return the number of optimizer steps: the last of an epoch may have fewer rows. 16 rows make 2 an epoch."""
    return lora.epochs * math.ceil(n_rows / (lora.batch_size * lora.accumulation))


def learning_rate_at(step: int, n_steps: int, lora: LoraSpec) -> float:
    """Return the learning rate of a step (0-based): a linear rise over the warm-up, then a linear fall towards 0."""
    n_warmup = math.ceil(lora.warmup * n_steps)
    if step < n_warmup:
        return lora.learning_rate * step / n_warmup
    return lora.learning_rate * (n_steps - step) / max(1, n_steps - n_warmup)


def step_rows(n_rows: int, lora: LoraSpec) -> Iterator[tuple[int, list[int]]]:
    """Yield the epoch (0-based) and the rows of each step: every row once an epoch, in an order of its own.

    Orders are drawn from ``lora.seed``. P1's code leaves them to its trainer, and the protocol does not record them. An
    epoch's last rows make a step of their own if they are too few for a whole one.
    """
    generator = np.random.default_rng(lora.seed)
    size = lora.batch_size * lora.accumulation
    for epoch in range(lora.epochs):
        order = generator.permutation(n_rows).tolist()
        for start in range(0, n_rows, size):
            yield epoch, order[start : start + size]
