"""A question with its options in every cyclic order, of which the prior of the options' labels is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from biaseval.prompting.task_files import Instance

OptionFields = Mapping[str, Sequence[str]]
"""Label of each option, in the order of the options, to the fields of the prompt that show its text."""


def cyclic_orders(question: Instance, options: OptionFields) -> Iterator[Instance]:
    """Yield the question as it is, and as often as it has further options with these moved by one, cyclically.

    Labels stay where they are, so that every option stands once behind each label (Zheng et al. 2024).

    Args:
        question: its label is that of the right option.
        options: where its options stand.

    Returns:
        The same question with other texts, and the label that its right option has come to.
    """
    labels = list(options)
    texts = [question.texts[fields[0]] for fields in options.values()]
    right = labels.index(question.label)
    for shift in range(len(labels)):
        moved = {
            field: texts[(place + shift) % len(labels)]
            for place, fields in enumerate(options.values())
            for field in fields
        }
        label = labels[(right - shift) % len(labels)]
        yield replace(question, outputs=(label,), fields={**question.texts, **moved})
