"""A question with its options in every cyclic order, from which biaseval estimates the prior of the options' labels."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from biaseval.prompting.task_files import Instance

OptionFields = Mapping[str, Sequence[str]]
"""Label of each option, in the order of the options, to the prompt fields that show its text."""


def cyclic_orders(question: Instance, options: OptionFields) -> Iterator[Instance]:
    """Yield the question with its options in every cyclic order, the original order first.

    Labels stay in place, so that every option appears once after each label (Zheng et al. 2024). The label of a
    question is that of its right option, which moves with its text.
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
