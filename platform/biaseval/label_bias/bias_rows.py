"""Choose the BiasScore rows of a data set: each label equally often, and more rows if some are left over."""

from collections.abc import Callable, Sequence

import numpy as np

from biaseval.label_bias.rounds import in_rounds
from biaseval.spec import N_DEMONSTRATIONS

MOST_OF_A_LABEL = 32
"""The most rows of a label, because every setting scores them.

The total is at most half of the number of test rows, or `ENOUGH` of each label.
"""
ENOUGH = 5
"""The fewest rows of each label for a test of BiasScore (``preference_p``)."""
_ONE_IN = 3
"""One in so many rows of a label may be a BiasScore row; the others remain for demonstrations and measurement."""


def bias_score_rows(
    order: Sequence[int],
    label: Callable[[int], str],
    labels: Sequence[str],
    n_fewest: int,
    n_test: int,
    n_drawn_for_test: int,
    generator: np.random.Generator,
) -> list[int]:
    """Return the BiasScore rows; they depend on neither demonstrations nor methods, so a run can be extended.

    Args:
        order: all candidate rows. The first ``n_fewest`` come first, then rows without another use. A measured row or
            demonstration is taken only for a label that has too few other rows.
        label: returns the label of a row.
        labels: the labels of the task.
        n_fewest: the number of rows that are always taken.
        n_test: the largest number of measured rows.
        n_drawn_for_test: the number of measured rows in ``order``; 0 if they have their own file.
        generator: draws the order of the labels.
    """
    begin, end = n_fewest + n_drawn_for_test, len(order) - N_DEMONSTRATIONS
    left_over = order[begin:end] if end > begin else []
    others = [*order[n_fewest:begin][::-1], *order[max(begin, end) :]]
    candidates = [*order[:n_fewest], *left_over, *others]
    wanted = min(MOST_OF_A_LABEL * len(labels), max(n_test // 2, ENOUGH * len(labels)))
    n_rows = n_fewest + min(len(left_over), max(0, wanted - n_fewest))
    by_label: dict[str, list[int]] = {}
    for index in candidates:
        by_label.setdefault(label(index), []).append(index)
    allowed = {index for own in by_label.values() for index in own[: min(MOST_OF_A_LABEL, max(1, len(own) // _ONE_IN))]}
    chosen = in_rounds([index for index in candidates if index in allowed], label, generator)[:n_rows]
    return [*chosen, *(index for index in candidates if index not in allowed)][: max(n_fewest, len(chosen))]
