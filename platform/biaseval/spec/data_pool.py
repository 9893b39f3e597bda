"""The pool of a label-bias task, and which of its rows are demonstrations, BiasScore rows and training examples."""

from __future__ import annotations

POOL_SIZE = 96
N_DEMONSTRATIONS = 64
"""Of the pool of 96, the first 64 may be demonstrations and the last 32 are the BiasScore rows (P1 section 3.1)."""

MIN_INSTANCES = 396
"""The smallest task of the published suite: the pool of 96 and 300 evaluation rows (P1 section 3.1)."""


def training_positions(n_demos: int, demo_set: int, n_examples: int) -> list[int]:
    """Return the pool positions of an adapter's training examples, in order (P1's code; protocol section 8).

    They follow the demonstrations of the set, ``n_examples`` or more apart from one set to the next, and go on at the
    pool's beginning behind its 64 demonstrations. For 16 examples: from 16i on for no demonstration, from k + 16i for
    fewer than 16, from k(i + 1) for more.
    """
    start = n_demos + max(n_demos, n_examples) * demo_set
    return [(start + number) % N_DEMONSTRATIONS for number in range(n_examples)]
