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
