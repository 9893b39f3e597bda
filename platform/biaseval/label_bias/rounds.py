"""Rows in an order in which labels take turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np


def in_rounds(indices: Sequence[int], label: Callable[[int], str], generator: np.random.Generator) -> list[int]:
    """Return indices so that any neighbours have each label as often, or once more, while all labels have rows left.

    They come in rounds of one of each label, all rounds in the same order: of two orders the neighbours across a joint
    would lack some label.

    Args:
        indices: what is ordered; of a label they stay in this order.
        label: of an index.
        generator: of the order of the labels.
    """
    left: dict[str, list[int]] = {}
    for index in indices:
        left.setdefault(label(index), []).append(index)
    by_label = list(left.values())
    labels = [by_label[place] for place in generator.permutation(len(by_label))]
    return [own[number] for number in range(max(map(len, labels), default=0)) for own in labels if number < len(own)]
