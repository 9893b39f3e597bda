"""How small a change a planned run could see: what there is to say before a model answers (Card et al. 2020)."""

from __future__ import annotations

from math import sqrt

POWER_FACTOR = 2.8
"""Standard errors that a two-sided test of 5 % finds with a power of 80 %: 1.96 + 0.84."""

FAMILY_FACTOR = 1.3
"""How much larger a difference has to be for simultaneous tests of a whole page, about."""

CHANGED = 0.1
"""Answers that are right on one side only: what two similar methods have."""

SPREAD = 0.05
"""Standard deviation of true changes of accuracy between tasks."""

ABOVE_CHANCE = 0.4
"""How far a model is from chance to always right."""

DEVIATION = 0.2
"""Standard deviation of a label's probability within a gold label."""

DRAW_DEVIATION = 0.1
"""Standard deviation of weighted F1 between draws of the demonstrations of one setting; SmolLM2-135M had 0.11."""

EXACT_MATCH = 0.8
"""The share of exact answers of a reader."""


def smallest_detectable(n_tasks: int, n_rows: float) -> float:
    """Return the change of mean accuracy that a comparison of two methods on the same rows finds with a power of 80 %.

    Assumes that `CHANGED` of the answers are right on one side only and that changes spread by `SPREAD` between tasks;
    the runs' marts have the figure of what was really measured (``smallest_detectable``). Of one task nothing is said
    of others. Simultaneous tests of a whole page find about `FAMILY_FACTOR` times as much.

    Args:
        n_tasks: of the suite.
        n_rows: of a task, on average.
    """
    of_rows = CHANGED / max(n_rows, 1)
    return POWER_FACTOR * sqrt(of_rows if n_tasks == 1 else (of_rows + SPREAD**2) / max(n_tasks, 1))


def smallest_gap(n_questions: int, sample: int, *, replacement: bool) -> float | None:
    """Return the gap in exact match between halves of a data set whose bias is found in four of five runs, 0 to 1.

    At a threshold that is given: a search takes more for noise. Assumes that `EXACT_MATCH` of the answers are exact and
    that questions are independent. A bias is the gap without the reach of the bootstrap's bounds on both sides
    (``expected_significance``), and has to be above what chance makes of it. None where a half is smaller than a
    sample.

    Args:
        n_questions: of the data set.
        sample: questions in a trial of the bootstrap.
        replacement: whether it draws them with replacement.
    """
    half = n_questions // 2
    if half < max(sample, 2):
        return None
    deviation = sqrt(EXACT_MATCH * (1 - EXACT_MATCH))
    reach = 2 * 1.8777 * deviation / sqrt(sample) * (1 if replacement else sqrt((half - sample) / (half - 1)))
    error = deviation * sqrt(2 / half)
    return max(POWER_FACTOR * error, reach + (POWER_FACTOR - 1.96) * error)
