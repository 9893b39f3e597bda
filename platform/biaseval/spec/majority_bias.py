"""The spec of a majority-bias run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from biaseval.prompting.calibration import permuting
from biaseval.spec import shared_sections as shared
from biaseval.spec.data import DataSpec, ItemSpec
from biaseval.spec.training import LoraSpec, other_adapters, untrainable
from biaseval.spec.words import is_number

Prediction = Literal["likelihood", "generate", "constrained"]

_SMALLEST_STEP = 0.001
"""The finest step of a simplex grid: 1,001 settings of two labels, half a million of three."""


class MajorityDataSpec(DataSpec):
    """The examples of a majority-bias run; without ``test``, a fifth of ``train`` is drawn (as for BoolQ in P2)."""

    on_shortage: Literal["error", "reduce"] = "error"
    """The treatment of a label with too few examples in ``train`` for a setting: refuse, or shorten that prompt."""
    test_rows: Annotated[int, Field(gt=0)] | None = None
    """The number of rows that the seed draws from ``train`` as test rows; default: a fifth. Not with ``test``."""


class MajorityPromptSpec(ItemSpec):
    """The construction of majority-bias prompts: a preset of P2, or an item template."""

    n_demos: Annotated[int, Field(gt=0, le=10_000)]
    """Demonstrations in each prompt: 50 (BoolQ), 10 (RTE) and 28 (COVID-5G) in P2."""
    instruction: Annotated[list[bool], Field(min_length=1)] = [True, False]
    """Prompts with the instruction, without it, or both kinds."""
    preset: Literal["boolq", "rte", "covid5g"] | None = None

    @model_validator(mode="after")
    def _is_a_preset_or_a_template(self) -> MajorityPromptSpec:
        problems = []
        if (self.preset is None) == (self.item is None):
            problems.append("has both preset and item or neither; keep one (preset: boolq, rte or covid5g)")
        if self.preset is not None and self.instruction_text is not None:
            problems.append("instruction_text does not go with a preset, which has its own; write item instead")
        shared.refuse([*problems, *shared.named_twice("instruction", self.instruction, "a choice")])
        return self


class SimplexSpec(shared.Section):
    """All settings whose shares are multiples of one step."""

    simplex: float


class MajorityBiasSpec(shared.RunSpec):
    """A majority-bias run (P2)."""

    PATHS = ("model.path", "model.adapter", "data.train", "data.test", "lora.deepspeed_config")
    NAMES = ("model.path", "model.adapter")
    RESOURCES = ("execution.*", *LoraSpec.RESOURCES)
    ANALYSIS = ("scoring.*", "analysis.*", *shared.LINEAGE)
    GROWS = ("seeds", "predict", "calibration", "prompt.instruction", "analysis.files", "lora")
    NAMED_BY_MODEL = False  # the name is that of the data
    # Keys of other kinds that a search reads.
    thresholds: ClassVar[Mapping[str, float]] = {}
    train: ClassVar[None] = None
    held_out: ClassVar[bool] = False

    kind: Literal["majority_bias"]
    model: shared.ModelSpec
    data: MajorityDataSpec
    prompt: MajorityPromptSpec
    proportions: Literal["binary_11", "ternary_15"] | SimplexSpec | list[dict[str, float]]
    """The settings: a grid of P2, ``{simplex: step}``, or a list of label to share (0 for a label that is not
    named)."""
    seeds: Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1)] = [0, 1, 2, 3, 4]
    """Seeds; each draws and orders the demonstrations of every setting."""
    predict: Annotated[list[Prediction], Field(min_length=1)] = ["likelihood", "generate"]
    analysis: shared.AnalysisSpec = shared.AnalysisSpec()
    calibration: list[shared.Method] = []
    scoring: shared.ScoringSpec = shared.ScoringSpec()
    lora: LoraSpec | None = None
    """One adapter for each (setting, seed, instruction), trained on examples outside its demonstrations."""
    execution: shared.ExecutionSpec = shared.ExecutionSpec()

    def files(self) -> dict[str, str | None]:
        """Return the files of the examples."""
        return {"data.train": self.data.train, "data.test": self.data.test}

    def further_differences(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
        """Yield resources whose change would make other adapters, and a changed order of ``data.labels``.

        That order matters because it is the order of the label set.
        """
        yield from other_adapters(before, after)
        orders = [[key for key in flat if key.startswith("data.labels.")] for flat in (before, after)]
        if orders[0] != orders[1] and set(orders[0]) == set(orders[1]):
            yield f"data.labels: the run has the order {', '.join(orders[0])}, the spec {', '.join(orders[1])}"

    @field_validator("analysis")
    @classmethod
    def _metrics_are_of_label_bias(cls, analysis: shared.AnalysisSpec) -> shared.AnalysisSpec:
        if named := [*analysis.metrics, *analysis.own_metrics]:
            raise ValueError(f"{', '.join(named)}: metrics are added to runs of label bias alone; take them out")
        return analysis

    @field_validator("proportions", mode="before")
    @classmethod
    def _proportions_are_shares(cls, value: object) -> object:
        if value in ("binary_11", "ternary_15") or isinstance(value, SimplexSpec):
            return value
        if isinstance(value, dict) and set(value) == {"simplex"}:
            step = value["simplex"]
            if not is_number(step) or not 0 < step <= 1 or not math.isclose(1 / step, round(1 / step), rel_tol=1e-9):
                raise ValueError(f"the step {step!r} does not divide 1 evenly; use 0.1, 0.25 or 0.5")
            if step < _SMALLEST_STEP:
                raise ValueError(f"the step {step!r} makes too many settings; use {_SMALLEST_STEP} or more")
            return value
        if not isinstance(value, list) or not value:
            raise ValueError(
                f"{value!r} is no grid; write binary_11, ternary_15, {{simplex: 0.25}}, or a list of label to share"
            )
        shared.refuse(
            [f"setting {number}: {problem}" for number, row in enumerate(value) for problem in _wrong_shares(row)]
        )
        return value

    @field_validator("seeds", "predict", "calibration")
    @classmethod
    def _each_is_named_once(cls, value: list[Any], info: ValidationInfo) -> list[Any]:
        problems = shared.named_twice(str(info.field_name), value)
        if info.field_name == "calibration" and value and "likelihood" not in info.data.get("predict", ["likelihood"]):
            problems.append("calibration changes likelihoods and predict has none; add likelihood to predict")
        analysis = info.data.get("analysis") if info.field_name == "calibration" else None
        if analysis is not None and analysis.is_read and (permuted := permuting(value, analysis.calibrations)):
            problems.append(f"calibration: {permuted[0]} is of label_bias with data.options alone; take it out")
        shared.refuse(problems, shared.SpecError)
        return value

    @field_validator("lora")
    @classmethod
    def _adapters_can_be_trained(cls, lora: LoraSpec | None, info: ValidationInfo) -> LoraSpec | None:
        if lora is not None and "model" in info.data:
            shared.refuse([f"lora: {problem}" for problem in untrainable(info.data["model"])], shared.SpecError)
        return lora


def _wrong_shares(row: object) -> Iterable[str]:
    if not isinstance(row, Mapping) or not row:
        yield f"{row!r} is no mapping of label to share; write {{label: share}}"
        return
    for label, share in row.items():
        if not isinstance(label, str):
            yield f"the label {label!r} is no text; quote it"
        if not is_number(share) or not 0 <= share <= 1:
            yield f"the share {share!r} of {label!r} is not between 0 and 1; mend it"
            return
    if abs(sum(row.values()) - 1) > 1e-6:
        yield f"the shares sum to {sum(row.values()):.6g}; make it 1"
