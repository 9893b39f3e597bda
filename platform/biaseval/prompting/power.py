"""The smallest change that a planned run can detect, before a model answers (Card et al. 2020)."""

from math import sqrt

POWER_FACTOR = 2.8
"""Standard errors that a two-sided test at 5 % detects with a power of 80 %: 1.96 + 0.84."""

FAMILY_FACTOR = 1.3
"""The approximate factor by which a difference must be larger for simultaneous tests of a whole page."""

CHANGED = 0.1
"""The assumed share of answers that only one of two methods gets right, as for two similar methods."""

SPREAD = 0.05
"""The assumed standard deviation of true changes of accuracy between tasks."""

ABOVE_CHANCE = 0.4
"""The assumed position of a model between chance (0) and always right (1)."""

DEVIATION = 0.2
"""The assumed standard deviation of a label's probability within a gold label."""

DRAW_DEVIATION = 0.1
"""The assumed standard deviation of weighted F1 between draws of a setting's demonstrations; SmolLM2-135M had 0.11."""

EXACT_MATCH = 0.8
"""The assumed share of exact answers of a reader."""


def smallest_detectable(n_tasks: int, n_rows: float) -> float:
    """Return the change of mean accuracy that a comparison of two methods on the same rows detects with a power of 80
    %.

    Assumes that only one method gets `CHANGED` of the answers right, and that changes vary by `SPREAD` between tasks.
    The runs' marts have the figure from the measured data (``smallest_detectable``). For a single task the figure does
    not generalise to other tasks. Simultaneous tests of a whole page detect about `FAMILY_FACTOR` times as much.
    ``n_rows`` are those of a task, on average.
    """
    of_rows = CHANGED / max(n_rows, 1)
    return POWER_FACTOR * sqrt(of_rows if n_tasks == 1 else (of_rows + SPREAD**2) / max(n_tasks, 1))


def smallest_gap(n_questions: int, sample: int, *, replacement: bool) -> float | None:
    """Return the gap in exact match between halves of a data set whose bias a run detects with a power of 80 %, 0 to 1.

    The threshold is given, because a search takes more differences for noise. Assumes that `EXACT_MATCH` of the answers
    are exact and that questions are independent. The bias is the gap minus the reach of the bootstrap's bounds on both
    sides (``expected_significance``). It must exceed its chance level. None if a half is smaller than a sample, which
    has the questions of a trial of the bootstrap, drawn with or without replacement.
    """
    half = n_questions // 2
    if half < max(sample, 2):
        return None
    deviation = sqrt(EXACT_MATCH * (1 - EXACT_MATCH))
    reach = 2 * 1.8777 * deviation / sqrt(sample) * (1 if replacement else sqrt((half - sample) / (half - 1)))
    error = deviation * sqrt(2 / half)
    return max(POWER_FACTOR * error, reach + (POWER_FACTOR - 1.96) * error)
