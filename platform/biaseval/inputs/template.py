"""How examples become text: an item template, one item behind the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from biaseval.spec import LABEL, item_pieces


class PromptFormat(Protocol):
    """What prompts are made of. A prompt is the head, demonstrations, and the item to be answered."""

    @property
    def head(self) -> str:
        """What stands before the first item."""

    def demonstration(self, fields: Mapping[str, str], label: str) -> str:
        """Return an example with its answer, and what stands between it and the next item."""

    def test(self, fields: Mapping[str, str]) -> str:
        """Return an example up to its answer."""


class TextFormat(PromptFormat, Protocol):
    """A format of plain text, which a chat may have in its turns."""

    @property
    def instruction(self) -> str | None:
        """What stands in the head, bare; None: nothing."""


@dataclass(frozen=True)
class PromptTemplate:
    """Items by a template, with the same text between them."""

    instruction: str | None
    """What stands before the items; None: nothing."""
    pieces: tuple[tuple[str, str], ...]
    """Literal texts, each with the field behind it; the last field is the label."""
    ending: str
    """What a demonstration has behind its label."""
    separator: str
    """Between instruction and items."""

    @property
    def head(self) -> str:
        """The instruction with its separator."""
        return "" if self.instruction is None else self.instruction + self.separator

    def item(self, fields: Mapping[str, str], label: str) -> str:
        """Return an example with its answer."""
        return "".join(literal + {**fields, LABEL: label}[name] for literal, name in self.pieces) + self.ending

    def demonstration(self, fields: Mapping[str, str], label: str) -> str:
        """Return an example with its answer and the separator."""
        return self.item(fields, label) + self.separator

    def test(self, fields: Mapping[str, str]) -> str:
        """Return an example up to its answer.

        The one space behind the answer's tag is left out: the model writes it, and scoring puts it before a label. So
        test item, space and label are the text of a demonstration.
        """
        *before, (tag, _) = self.pieces
        text = "".join(literal + fields[name] for literal, name in before) + tag
        return text[:-1] if text.endswith(" ") and not text[-2:-1].isspace() else text


def item_template(item: str, separator: str, instruction: str | None) -> PromptTemplate:
    """Return the template of an item.

    Args:
        item: with fields in braces, ``{label}`` last.
        separator: between the instruction and items.
        instruction: what stands before the items, if anything.
    """
    pieces = item_pieces(item)
    named = tuple((literal, name) for literal, name in pieces if name is not None)
    ending = "".join(literal for literal, name in pieces if name is None)
    return PromptTemplate(instruction=instruction, pieces=named, ending=ending, separator=separator)


def options_template(text: str, options: Mapping[str, str], separator: str, instruction: str | None) -> PromptTemplate:
    """Return the template of a question with options, a line each, and the line ``Answer:``.

    Args:
        text: the field of the question.
        options: label to the field of its option.
        separator: between the instruction and items.
        instruction: what stands before the items, if anything.
    """
    lines = [(f"\n{label}. ", field) for label, field in options.items()]
    pieces = (("", text), *lines, ("\nAnswer: ", LABEL))
    return PromptTemplate(instruction=instruction, pieces=pieces, ending="", separator=separator)
