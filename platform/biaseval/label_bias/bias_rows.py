"""Which rows of a data set BiasScore is of: each label as often, and more of them where rows are left over."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from biaseval.label_bias.rounds import in_rounds
from biaseval.spec import N_DEMONSTRATIONS

MOST_OF_A_LABEL = 32
"""Rows of a label. Every setting scores them: in all at most half as many as test rows, or `ENOUGH` of each label."""
ENOUGH = 5
"""Rows of each label from which on BiasScore is tested (``preference_p``)."""
_ONE_IN = 3
"""Of the rows of a label, so that others are left to be shown and measured."""


def bias_score_rows(
    order: Sequence[int],
    label: Callable[[int], str],
    labels: Sequence[str],
    n_fewest: int,
    n_test: int,
    n_drawn_for_test: int,
    generator: np.random.Generator,
) -> list[int]:
    """Return the rows of BiasScore. They depend on neither demonstrations nor methods, so that a run may get more.

    Args:
        order: all rows that may be drawn. The first ``n_fewest`` come first, then those that nothing else takes; rows
            that would be measured or shown are taken only of labels that those lack.
        label: of a row.
        labels: of the task.
        n_fewest: rows that are taken in any case.
        n_test: rows that are measured at most.
        n_drawn_for_test: of ``order``, how many are measured; 0 where they have a file of their own.
        generator: of the order of the labels.
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
