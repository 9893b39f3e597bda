"""Order rows so that labels take turns."""

from collections.abc import Callable, Sequence

import numpy as np


def in_rounds(indices: Sequence[int], label: Callable[[int], str], generator: np.random.Generator) -> list[int]:
    """Return indices so that neighbours have each label equally often, or once more, while all labels have rows.

    They come in rounds with one index of each label, all rounds in the same order. With two different orders,
    neighbours across two rounds could lack a label.

    Args:
        indices: the indices to order; those of one label keep this order.
        label: returns the label of an index.
        generator: draws the order of the labels.
    """
    left: dict[str, list[int]] = {}
    for index in indices:
        left.setdefault(label(index), []).append(index)
    by_label = list(left.values())
    labels = [by_label[place] for place in generator.permutation(len(by_label))]
    return [own[number] for number in range(max(map(len, labels), default=0)) for own in labels if number < len(own)]
