"""Inputs that carry no answer, from which calibration learns a model's preference (P1 section 3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from biaseval.errors import InputError
from biaseval.label_bias.templates import SLOT, split_by_template

CC_INPUTS = ("N/A", "", "[MASK]")
"""Contextual calibration's content-free inputs (Zhao et al. 2021), in this order."""

N_DC_INPUTS = 20


@dataclass(frozen=True)
class DomainContext:
    """What random in-domain inputs are made of: the literal parts of a template and a bag of words for each slot."""

    prefixes: tuple[str, ...]
    bags: tuple[tuple[str, ...], ...]
    """Lower-cased words of all inputs, one bag per part; the first part comes before the first prefix."""
    lengths: tuple[int, ...]
    """Words that each part gets: the mean word count over the inputs, rounded up."""
    n_unfit: int
    """Inputs that lack a literal part of the template; their words are left out."""

    def draw(self, generator: np.random.Generator, n_inputs: int = N_DC_INPUTS) -> list[str]:
        """Return ``n_inputs`` random inputs; words are drawn without replacement within an input."""
        return [self._draw_one(generator) for _ in range(n_inputs)]

    def _draw_one(self, generator: np.random.Generator) -> str:
        text = ""
        for part, (bag, length) in enumerate(zip(self.bags, self.lengths, strict=True)):
            if part > 0:
                text += self.prefixes[part - 1]
            if length > 0:
                words = generator.choice(len(bag), length, replace=False)
                text += " ".join(bag[index] for index in words)
        return text


def domain_context(task: str, template: str, inputs: Sequence[str]) -> DomainContext:
    """Return the bags and lengths of a task's main inputs (Fei et al. 2023, as P1's code has it).

    Args:
        task: the task's name, for messages.
        template: literal text with ``{INPUT}`` slots.
        inputs: the inputs of the main rows.

    Raises:
        InputError: most inputs lack a literal part of the template. (P1's code fails at the first; here such an input
            is left out of the bags and counted.)
    """
    prefixes = template.split(SLOT)
    split = [split_by_template(prefixes, text) for text in inputs]
    fitting = [parts for parts in split if len(parts) == len(prefixes) + 1]
    n_unfit = len(split) - len(fitting)
    if n_unfit * 2 > len(split):
        raise InputError(
            f"{task}: {n_unfit} of {len(split)} inputs lack a literal part of the template {template!r}; "
            "mend it in tasks.templates, or take its row out so that one is inferred"
        )
    words = [[part.lower().split() for part in parts] for parts in fitting]
    bags = tuple(tuple(word for parts in words for word in parts[index]) for index in range(len(prefixes) + 1))
    return DomainContext(
        prefixes=tuple(prefixes),
        bags=bags,
        lengths=tuple(math.ceil(len(bag) / len(words)) for bag in bags),
        n_unfit=n_unfit,
    )
