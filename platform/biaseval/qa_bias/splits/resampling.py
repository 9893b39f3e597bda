"""RESAM: training questions repeated until both segments of a heuristic are equally large (P3 section 4.3)."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from biaseval.errors import InputError


def resampled(values: Sequence[float | None], threshold: float, seed: int) -> npt.NDArray[np.int64]:
    """Return questions resampled: the missing ones are drawn from the smaller segment, with replacement.

    The smaller segment is the one with fewer questions, whichever the model answers better. P3 has no code of it and
    says "repeat"; drawn at random, no order of the file decides which questions stand there most often (protocol
    section 8).

    Args:
        values: of the heuristic, one for each question; None where it is undefined.
        threshold: values at or below it are the lower segment.
        seed: of the draws.

    Returns:
        0-based numbers of questions: each once, in order, then those that were drawn.

    Raises:
        InputError: a segment has no question.
    """
    found = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    lower, higher = np.flatnonzero(found <= threshold), np.flatnonzero(found > threshold)
    if not len(lower) or not len(higher):
        side = "at or below" if not len(lower) else "above"
        raise InputError(
            f"resample: none of {len(found):,} training questions has a value {side} {threshold:g}; choose another "
            "threshold, or leave the bias out"
        )
    smaller = lower if len(lower) < len(higher) else higher
    drawn = np.random.default_rng(seed).choice(smaller, abs(len(lower) - len(higher)))
    return np.concatenate([np.arange(len(found)), drawn])
