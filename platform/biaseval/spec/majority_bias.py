"""The spec of a majority-bias run, and the forms that its labels and item templates have."""

from __future__ import annotations

import math
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from biaseval.spec.sections import (
    ExecutionSpec,
    Method,
    ModelSpec,
    RunSpec,
    ScoringSpec,
    Section,
    SpecError,
    named_twice,
    refuse,
)
from biaseval.spec.training import LoraSpec, other_adapters, untrainable

Prediction = Literal["likelihood", "generate", "constrained"]

LABEL = "label"
"""The field of an item template where the answer stands."""

_SMALLEST_STEP = 0.001
"""Of a simplex grid: 1,001 settings of two labels, half a million of three."""


class DataSpec(Section):
    """The examples of a majority-bias run: demonstrations come from ``train``, predicted rows from ``test``."""

    train: str
    """JSONL (``.jsonl``), a tab-separated table with a header (``.tsv``), or a Super-NI task file (``.json``)."""
    test: str | None = None
    """A file like ``train``; without one a fifth of ``train`` is drawn (as for BoolQ in P2)."""
    fields: dict[str, str] = {}
    """Field of the prompt to field of the files, where the two have different names."""
    label: str | None = None
    """The files' field with the label; without it ``label``, else ``answer``."""
    labels: dict[str, str] | None = None
    """Label of the files to the text that a prompt shows; the order of the texts is that of the label set.

    JSON's ``true``, ``false`` and numbers are keys as they are written. Without it: the preset's, else the labels of
    the files in code-point order.
    """
    max_test: Annotated[int, Field(gt=0)] | None = None
    """At most so many test rows, drawn by the seed, the same for every setting."""
    on_shortage: Literal["error", "reduce"] = "error"
    """What to do where a label has too few examples in ``train`` for a setting: refuse, or shorten that prompt."""

    @field_validator("labels", mode="before")
    @classmethod
    def _labels_are_texts(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        problems = [
            f"{label_key(key)}: the label {text!r} is no text; quote it"
            if not isinstance(text, str)
            else f"{label_key(key)}: the label {text!r} is empty or has spaces around it; write a bare word"
            for key, text in value.items()
            if not isinstance(text, str) or not text or text != text.strip()
        ]
        twice = [key for key, n_times in Counter(map(label_key, value)).items() if n_times > 1]
        problems += [f"{key}: stands there twice, quoted and not; keep one" for key in twice]
        if not problems and len(set(value.values())) < 2:
            problems.append("holds fewer than two labels; name all that the files have")
        refuse(problems)
        return {label_key(key): text for key, text in value.items()}


class MajorityPromptSpec(Section):
    """How the prompts of a majority-bias run are built: by a preset of P2, or by an item template."""

    n_demos: Annotated[int, Field(gt=0, le=10_000)]
    """Demonstrations in each prompt: 50 (BoolQ), 10 (RTE) and 28 (COVID-5G) in P2."""
    instruction: Annotated[list[bool], Field(min_length=1)] = [True, False]
    """Prompts with the instruction, without it, or both."""
    preset: Literal["boolq", "rte", "covid5g"] | None = None
    item: str | None = None
    """One example, such as ``"Tweet: {tweet}\\nStance: {label}"``; the test item ends where the label would stand."""
    instruction_text: Annotated[str, Field(min_length=1)] | None = None
    """What stands before the items; without it the definition of a Super-NI task file."""
    separator: str = "\n\n"
    """What stands between instruction and items. P2 does not say."""

    @model_validator(mode="after")
    def _is_a_preset_or_a_template(self) -> MajorityPromptSpec:
        problems = []
        if (self.preset is None) == (self.item is None):
            problems.append("has both preset and item or neither; keep one (preset: boolq, rte or covid5g)")
        if self.preset is not None and self.instruction_text is not None:
            problems.append("instruction_text does not go with a preset, which has its own; write item instead")
        problems += named_twice("instruction", self.instruction, "a choice")
        if not self.separator or self.separator.strip():
            problems.append(f"separator {self.separator!r} is not white space; use line breaks")
        refuse(problems)
        return self

    @field_validator("item")
    @classmethod
    def _item_is_a_template(cls, value: str | None) -> str | None:
        if value is not None:
            item_pieces(value)
        return value


class SimplexSpec(Section):
    """All settings whose shares are multiples of a step."""

    simplex: float


class MajorityBiasSpec(RunSpec):
    """A majority-bias run (P2)."""

    PATHS = ("model.path", "model.adapter", "data.train", "data.test", "lora.deepspeed_config")
    NAMES = ("model.path", "model.adapter")
    RESOURCES = ("execution.*", *LoraSpec.RESOURCES)
    ANALYSIS = ("scoring.*",)
    # Keys of other kinds that a search asks for.
    thresholds: ClassVar[Mapping[str, float]] = {}
    train: ClassVar[None] = None
    held_out: ClassVar[bool] = False

    kind: Literal["majority_bias"]
    model: ModelSpec
    data: DataSpec
    prompt: MajorityPromptSpec
    proportions: Literal["binary_11", "ternary_15"] | SimplexSpec | list[dict[str, float]]
    """The settings: a grid of P2, ``{simplex: step}``, or a list of label to share (0 where a label is left out)."""
    seeds: Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1)] = [0, 1, 2, 3, 4]
    """Each draws and orders the demonstrations of every setting."""
    predict: Annotated[list[Prediction], Field(min_length=1)] = ["likelihood", "generate"]
    calibration: list[Method] = []
    scoring: ScoringSpec = ScoringSpec()
    lora: LoraSpec | None = None
    """One adapter for each (setting, seed, instruction), trained on examples that are no demonstrations of it."""
    execution: ExecutionSpec = ExecutionSpec()

    def files(self) -> dict[str, str | None]:
        """Return the files of the examples."""
        return {"data.train": self.data.train, "data.test": self.data.test}

    def models_used(self) -> dict[tuple[str, ...], ModelSpec]:
        """Return the one model."""
        return {("model",): self.model}

    def further_differences(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
        """Yield resources that would make other adapters, and another order of labels: it is that of the label set."""
        yield from other_adapters(before, after)
        orders = [[key for key in flat if key.startswith("data.labels.")] for flat in (before, after)]
        if orders[0] != orders[1] and set(orders[0]) == set(orders[1]):
            yield f"data.labels: the run has the order {', '.join(orders[0])}, the spec {', '.join(orders[1])}"

    @field_validator("proportions", mode="before")
    @classmethod
    def _proportions_are_shares(cls, value: object) -> object:
        if value in ("binary_11", "ternary_15") or isinstance(value, SimplexSpec):
            return value
        if isinstance(value, dict) and set(value) == {"simplex"}:
            step = value["simplex"]
            if not _is_number(step) or not 0 < step <= 1 or not math.isclose(1 / step, round(1 / step), rel_tol=1e-9):
                raise ValueError(f"the step {step!r} does not divide 1 evenly; use 0.1, 0.25 or 0.5")
            if step < _SMALLEST_STEP:
                raise ValueError(f"the step {step!r} makes too many settings; use {_SMALLEST_STEP} or more")
            return value
        if not isinstance(value, list) or not value:
            raise ValueError(
                f"{value!r} is no grid; write binary_11, ternary_15, {{simplex: 0.25}}, or a list of label to share"
            )
        refuse([f"setting {number}: {problem}" for number, row in enumerate(value) for problem in _wrong_shares(row)])
        return value

    @field_validator("seeds", "predict", "calibration")
    @classmethod
    def _each_is_named_once(cls, value: list[Any], info: ValidationInfo) -> list[Any]:
        problems = named_twice(str(info.field_name), value)
        if info.field_name == "calibration" and value and "likelihood" not in info.data.get("predict", ["likelihood"]):
            problems.append("calibration changes likelihoods and predict has none; add likelihood to predict")
        refuse(problems, SpecError)
        return value

    @field_validator("lora")
    @classmethod
    def _adapters_can_be_trained(cls, lora: LoraSpec | None, info: ValidationInfo) -> LoraSpec | None:
        if lora is not None and "model" in info.data:
            refuse([f"lora: {problem}" for problem in untrainable(info.data["model"])], SpecError)
        return lora


def label_key(value: object) -> str:
    """Return a label of a file, or a key of ``data.labels``, as the text that JSON has for it: ``true``, ``0``."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def item_pieces(item: str) -> list[tuple[str, str | None]]:
    """Return the literal texts of an item template, each with the name of the field behind it (None at the end).

    Raises:
        ValueError: braces do not match, a field is not a plain name, ``{label}`` is not there once and last, no field
            stands before it, or no white space does.
    """
    form = 'write fields in braces, {label} last and a space before it, as in "Tweet: {tweet}\\nStance: {label}"'
    try:
        parsed = list(string.Formatter().parse(item))
    except ValueError as error:
        raise ValueError(f"{item!r} is no template ({error}); {form}, and double other braces") from error
    pieces: list[tuple[str, str | None]] = []
    for literal, name, _, _ in parsed:
        # A doubled brace ends a literal without a field.
        if pieces and pieces[-1][1] is None:
            literal = pieces.pop()[0] + literal
        pieces.append((literal, name))
    names = [name for _, name in pieces if name is not None]
    if any(form_ or conversion for _, _, form_, conversion in parsed) or not all(map(str.isidentifier, names)):
        raise ValueError(f"{item!r} has a field that is no plain name; {form}")
    if names.count(LABEL) != 1 or names[-1] != LABEL or len(names) < 2:
        raise ValueError(f"{item!r} has the fields {names}; {form}")
    before = next(literal for literal, name in pieces if name == LABEL)
    # A label is scored behind white space: without it here, demonstrations would show another text.
    if not before.endswith((" ", "\n", "\t")):
        raise ValueError(f"{item!r} has no white space before {{label}}; {form}")
    return pieces


def _wrong_shares(row: object) -> Iterable[str]:
    if not isinstance(row, Mapping) or not row:
        yield f"{row!r} is no mapping of label to share; write {{label: share}}"
        return
    for label, share in row.items():
        if not isinstance(label, str):
            yield f"the label {label!r} is no text; quote it"
        if not _is_number(share) or not 0 <= share <= 1:
            yield f"the share {share!r} of {label!r} is not between 0 and 1; mend it"
            return
    if abs(sum(row.values()) - 1) > 1e-6:
        yield f"the shares sum to {sum(row.values()):.6g}; make it 1"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
