"""Prompts of P2 (section 11.2 of the protocol): an instruction, demonstrations, and the test item up to its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from biaseval.errors import InputError
from biaseval.spec import LABEL, MajorityPromptSpec, item_pieces


@dataclass(frozen=True)
class Preset:
    """A prompt of P2 and the names under which its data is published."""

    instruction: str
    item: str
    file_fields: Mapping[str, tuple[str, ...]]
    """Fields of the item to the names that published files have for them."""
    labels: Mapping[str, str]
    """Labels of published files to the answers that the prompts show."""


# The words are P2's as printed. It does not say how pieces are joined: here a line break stands between the fields of
# an item and one space behind each tag. Of its two spellings of answers (Yes/No in the text, True/False in Figure 1 and
# the instructions) these are the instructions', and the third set's "counter-misinformation" is their "correct".
PRESETS = {
    "boolq": Preset(
        instruction=("You need to classify the following sentence as True or False. Below, some examples are provided"),
        item="Sentence: {sentence}\noutput: {label}",
        file_fields={"sentence": ("question",)},
        labels={"true": "True", "false": "False"},
    ),
    "rte": Preset(
        instruction=(
            "You need to classify the following premise-hypothesis pair as True or False. "
            "Below, some examples are provided"
        ),
        item="Premise {premise}\nhypothesis {hypothesis}\nentailment {label}",
        file_fields={"premise": ("sentence1",), "hypothesis": ("sentence2",)},
        labels={"entailment": "True", "not_entailment": "False", "0": "True", "1": "False"},
    ),
    "covid5g": Preset(
        instruction=(
            "You need to classify a following tweet into one of the following - misinformation, correct or irrelevant. "
            "Below some examples are provided."
        ),
        item="Tweet : {tweet}\nLabel: {label}",
        file_fields={"tweet": ("text",)},
        labels={
            "misinformation": "misinformation",
            "counter-misinformation": "correct",
            "correct": "correct",
            "irrelevant": "irrelevant",
            "0": "misinformation",
            "1": "correct",
            "2": "irrelevant",
        },
    ),
}


@dataclass(frozen=True)
class PromptTemplate:
    """What the prompts of a run are made of. A prompt is a context text followed by a test item."""

    instruction: str | None
    """What stands before the items; None if the run has only prompts without instruction."""
    pieces: tuple[tuple[str, str], ...]
    """Literal texts, each with the field behind it; the last field is the label."""
    ending: str
    """What a demonstration has behind its label."""
    separator: str
    """Between instruction and items."""

    def demonstration(self, fields: Mapping[str, str], label: str) -> str:
        """Return an example with its answer."""
        return "".join(literal + {**fields, LABEL: label}[name] for literal, name in self.pieces) + self.ending

    def test_item(self, fields: Mapping[str, str]) -> str:
        """Return an example up to its answer.

        The one space behind the answer's tag is left out: the model writes it, and scoring puts it before a label. So
        test item, space and label are the text of a demonstration.
        """
        *before, (tag, _) = self.pieces
        text = "".join(literal + fields[name] for literal, name in before) + tag
        return text[:-1] if text.endswith(" ") and not text[-2:-1].isspace() else text

    def context(self, demonstrations: Sequence[str], *, instruction: bool) -> str:
        """Return what stands before the test item, its last separator included.

        Args:
            demonstrations: items with answers, in order.
            instruction: whether the instruction stands first.
        """
        head = [self.instruction or ""] if instruction else []
        return "".join(item + self.separator for item in (*head, *demonstrations))


def item_fields(spec: MajorityPromptSpec) -> tuple[str, ...]:
    """Return the fields that an example needs, label excluded, each once, in the order of the template."""
    return tuple(dict.fromkeys(name for _, name in item_pieces(_item(spec)) if name is not None and name != LABEL))


def template_of(spec: MajorityPromptSpec, definition: str | None = None) -> PromptTemplate:
    """Return the template of a spec.

    Args:
        spec: its section ``prompt``.
        definition: of the Super-NI task file with the demonstrations, which is the instruction if the spec has none.

    Raises:
        InputError: an instruction is asked for and there is none.
    """
    preset = PRESETS[spec.preset] if spec.preset is not None else None
    instruction = preset.instruction if preset is not None else spec.instruction_text or definition
    if True in spec.instruction and instruction is None:
        raise InputError(
            "prompt.instruction_text: is missing; write the instruction, or ask for prompts without one "
            "(prompt.instruction: [false])"
        )
    pieces = item_pieces(_item(spec))
    named = tuple((literal, name) for literal, name in pieces if name is not None)
    ending = "".join(literal for literal, name in pieces if name is None)
    return PromptTemplate(instruction=instruction, pieces=named, ending=ending, separator=spec.separator)


def _item(spec: MajorityPromptSpec) -> str:
    return PRESETS[spec.preset].item if spec.preset is not None else str(spec.item)
