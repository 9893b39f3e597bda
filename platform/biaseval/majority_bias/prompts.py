"""Prompts of P2 (section 11.2 of the protocol): an instruction, demonstrations, and the test item up to its answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from biaseval.errors import InputError
from biaseval.inputs.template import PromptTemplate, item_template
from biaseval.spec import MajorityPromptSpec, template_fields


@dataclass(frozen=True)
class Preset:
    """A prompt of P2, with the names in its published data, or that of a spec."""

    instruction: str | None
    item: str
    file_fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Fields of the item to their names in published files."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of published files to the answers that the prompts show."""


# The wording is P2's as printed. P2 does not say how pieces are joined: here a line break separates the fields of an
# item, and one space follows each tag. P2 spells answers as Yes/No in the text, and as True/False in Figure 1 and the
# instructions; these are the instructions' spellings. The third set's "counter-misinformation" is their "correct".
PRESETS = {
    "boolq": Preset(
        instruction="You need to classify the following sentence as True or False. Below, some examples are provided",
        item="Sentence: {sentence}\noutput: {label}", file_fields={"sentence": ("question",)},
        labels={"true": "True", "false": "False"},
    ),
    "rte": Preset(
        instruction="You need to classify the following premise-hypothesis pair as True or False. "
        "Below, some examples are provided",
        item="Premise {premise}\nhypothesis {hypothesis}\nentailment {label}",
        file_fields={"premise": ("sentence1",), "hypothesis": ("sentence2",)},
        labels={"entailment": "True", "not_entailment": "False", "0": "True", "1": "False"},
    ),
    "covid5g": Preset(
        instruction="You need to classify a following tweet into one of the following - misinformation, correct or "
        "irrelevant. Below some examples are provided.",
        item="Tweet : {tweet}\nLabel: {label}", file_fields={"tweet": ("text",)},
        labels={
            name: own
            for own, also in {"misinformation": "0", "correct": "counter-misinformation 1", "irrelevant": "2"}.items()
            for name in (own, *also.split())
        },
    ),
}  # fmt: skip


def preset_of(spec: MajorityPromptSpec) -> Preset:
    """Return the prompt that a spec's section ``prompt`` names or writes."""
    return Preset(spec.instruction_text, str(spec.item)) if spec.preset is None else PRESETS[spec.preset]


def item_fields(spec: MajorityPromptSpec) -> tuple[str, ...]:
    """Return each field of an example once, in the order of the template, without the label."""
    return template_fields(preset_of(spec).item)


def template_of(spec: MajorityPromptSpec, definition: str | None = None, *, instruction: bool) -> PromptTemplate:
    """Return the template of a spec; ``instruction``: whether the prompt starts with the instruction.

    The definition in the Super-NI task file of the demonstrations is used if the spec has no instruction.

    Raises:
        InputError: the prompt needs an instruction and there is none.
    """
    preset = preset_of(spec)
    text = preset.instruction or definition
    if instruction and text is None:
        raise InputError(
            "prompt.instruction_text: is missing; write the instruction, or ask for prompts without one "
            "(prompt.instruction: [false])"
        )
    return item_template(preset.item, spec.separator, text if instruction else None)
