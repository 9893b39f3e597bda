"""Formats of a prompt: its wordings, and the orders of its demonstrations."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from biaseval.inputs.template import PromptTemplate, TextFormat, item_template
from biaseval.label_bias.data import Drawn
from biaseval.label_bias.prompts import PublishedFormat
from biaseval.prompting.task_files import Instance
from biaseval.spec import BASE, FormatSpec


def worded(form: FormatSpec, drawn: Drawn) -> TextFormat:
    """Return a format of a task's prompts, as plain text.

    ``form`` has all its keys (``PromptSpec.all_formats``). If the task brings a format, only the instruction and the
    text between items change.
    """
    definition = form.instruction_text or drawn.task.definition
    instruction, separator = definition.strip() or None, form.separator or ""
    if form.item is not None:
        return item_template(form.item, separator, instruction)
    if isinstance(drawn.form, PromptTemplate):
        return replace(drawn.form, instruction=instruction, separator=separator)
    return drawn.form or PublishedFormat(definition)


def measured(formats: Mapping[str, FormatSpec], n_demos: int) -> list[str]:
    """Return the formats with prompts of this number of demonstrations; fewer than two have only one order."""
    names: list[str] = []
    seen: list[FormatSpec] = []
    for name, form in formats.items():
        wording = form if n_demos > 1 else form.model_copy(update={"order": "drawn"})
        if wording not in seen:
            seen.append(wording)
            names.append(name)
    return names


def ordered(demos: Sequence[Instance], form: FormatSpec, generator: np.random.Generator) -> tuple[Instance, ...]:
    """Return a set's demonstrations in the order of a format; a shuffled order always differs from the drawn one."""
    if form.order == "drawn" or len(demos) < 2:
        return tuple(demos)
    if form.order == "reversed":
        return tuple(demos[::-1])
    order = places = list(range(len(demos)))
    while order == places:
        order = generator.permutation(len(demos)).tolist()
    return tuple(demos[place] for place in order)


def same_prompts(
    task: str, prompts: Iterable[Mapping[str, Any]], contexts: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """Yield the formats whose prompts, which come format by format, equal those of an earlier one, each with advice."""
    texts: dict[str, dict[tuple[int, int], str]] = {}
    for row in prompts:
        if row["purpose"] == "main" and row["row"] == 0:
            text = contexts[row["context_id"]]["text"] + row["input_text"]
            texts.setdefault(row.get("format", BASE), {})[row["n_demos"], row["demo_set"]] = text
    before: dict[str, dict[tuple[int, int], str]] = {}
    for name, own in texts.items():
        if same := [other for other, known in before.items() if own.items() <= known.items()]:
            yield (
                f"prompt.formats.{name}: gives {task} the same prompts as {same[0]}; change something else of it, or "
                "take it out"
            )
        before[name] = own
