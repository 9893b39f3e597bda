"""Turn examples into text with an item template, one item after another."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from biaseval.spec import LABEL, item_pieces


class PromptFormat(Protocol):
    """The parts of a prompt: the head, the demonstrations, and the test item."""

    @property
    def head(self) -> str:
        """The text before the first item."""

    def demonstration(self, fields: Mapping[str, str], label: str) -> str:
        """Return an example with its answer and the text before the next item."""

    def test(self, fields: Mapping[str, str]) -> str:
        """Return an example up to its answer."""


class TextFormat(PromptFormat, Protocol):
    """A format of plain text, which the turns of a chat may use."""

    @property
    def instruction(self) -> str | None:
        """The instruction in the head, without its separator; None: no instruction."""


@dataclass(frozen=True)
class PromptTemplate:
    """Items of one template, with the same text between them."""

    instruction: str | None
    """The text before the items; None: nothing."""
    pieces: tuple[tuple[str, str], ...]
    """Literal texts, each with the field that follows it; the last field is the label."""
    ending: str
    """The text after the label of a demonstration."""
    separator: str
    """The text between instruction and items."""

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

        The one space after the answer's tag is missing, because scoring puts it before a label. So test item, space and
        label together have the text of a demonstration.
        """
        *before, (tag, _) = self.pieces
        text = "".join(literal + fields[name] for literal, name in before) + tag
        return text[:-1] if text.endswith(" ") and not text[-2:-1].isspace() else text


def item_template(item: str, separator: str, instruction: str | None) -> PromptTemplate:
    """Return the template of an item: a text with fields in braces and ``{label}`` last."""
    pieces = item_pieces(item)
    named = tuple((literal, name) for literal, name in pieces if name is not None)
    ending = "".join(literal for literal, name in pieces if name is None)
    return PromptTemplate(instruction=instruction, pieces=named, ending=ending, separator=separator)


def options_template(text: str, options: Mapping[str, str], separator: str, instruction: str | None) -> PromptTemplate:
    """Return the template of a question with its options, one per line, and the line ``Answer:``.

    ``text`` is the field of the question, and ``options`` are label to the field of its option.
    """
    lines = [(f"\n{label}. ", field) for label, field in options.items()]
    pieces = (("", text), *lines, ("\nAnswer: ", LABEL))
    return PromptTemplate(instruction=instruction, pieces=pieces, ending="", separator=separator)
