"""The pool of a label-bias task, and its rows for demonstrations, BiasScore and adapter training."""

POOL_SIZE = 96
N_DEMONSTRATIONS = 64
"""Demonstrations come from the first 64 of the pool's 96 rows; the last 32 are the BiasScore rows (P1 section 3.1)."""

MIN_INSTANCES = 396
"""The smallest task of the published suite: the pool of 96 and 300 evaluation rows (P1 section 3.1)."""


def training_positions(n_demos: int, demo_set: int, n_examples: int) -> list[int]:
    """Return the pool positions of an adapter's training examples, in order (P1's code; protocol section 8).

    They come after the demonstrations of the set. The examples of two consecutive sets start at least ``n_examples``
    positions apart. After the 64th demonstration the positions continue at the start of the pool. With 16 examples, set
    i with k demonstrations starts at 16i for k = 0, at k + 16i for k below 16, and at k(i + 1) for larger k.
    """
    start = n_demos + max(n_demos, n_examples) * demo_set
    return [(start + number) % N_DEMONSTRATIONS for number in range(n_examples)]
