"""Specs: what a run measures, from a YAML file. Unknown keys are refused; all mistakes come in one message."""

from __future__ import annotations

import difflib
import fnmatch
import math
import string
import typing
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from biaseval.errors import InputError
from biaseval.prompting.calibration import CALIBRATIONS
from biaseval.qa_bias.heuristics import HEURISTICS

POOL_SIZE = 96
N_DEMONSTRATIONS = 64
"""Of the pool of 96, the first 64 may be demonstrations and the last 32 are the BiasScore rows (P1 section 3.1)."""

MIN_INSTANCES = 396
"""The smallest task of the published suite: the pool of 96 and 300 evaluation rows (P1 section 3.1)."""

if TYPE_CHECKING:
    Method = str
else:
    Method = Literal[tuple(CALIBRATIONS)]

Prediction = Literal["likelihood", "generate", "constrained"]

N_NEW_TOKENS = 2
"""Of free generation (P2 section 4)."""

LABEL = "label"
"""The field of an item template where the answer stands."""


_PATHS_OR_NAMES = ("model.path", "model.adapter", "models.*.path", "models.*.adapter", "text.spacy")
"""Keys of paths that may be names instead, of the Hugging Face hub or of an installed pipeline."""

_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
_Seed = Annotated[int, Field(ge=0, lt=2**32)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ModelSpec(_Section):
    """The causal LM that is measured."""

    path: str
    """A local directory, or a Hugging Face name where there is a network."""
    revision: str | None = None
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    quantization: Literal["8bit", "4bit"] | None = None
    adapter: str | None = None
    trust_remote_code: bool = False


class TasksSpec(_Section):
    """Which tasks, and how their instances are drawn."""

    path: str
    """A folder of Super-NaturalInstructions task files (``*.json``), or one such file."""
    table: str | None = None
    """The CSV of task names, categories and languages that ``suite: selection`` needs."""
    suite: Literal["reif2024", "semantically_equivalent", "selection"] | None = None
    include: Annotated[list[str], Field(min_length=1)] | None = None
    """Globs over task names (``task109_*``); a name without wildcard must exist."""
    min_instances: Annotated[int, Field(gt=POOL_SIZE)] = MIN_INSTANCES
    """A lower number admits only small tasks that ``include`` names in full."""
    max_eval: Annotated[int, Field(gt=0)] = 1000
    sampling: Literal["per_task", "reif2024"] = "per_task"
    templates: str | None = None
    """A CSV ``task,template`` for domain-context calibration; tasks that it lacks get an inferred template."""
    splits: str | None = None
    """The ``splits`` folder of another run (or a Parquet file) whose instances are used exactly."""
    on_bad_task: Literal["error", "skip"] = "error"

    @field_validator("include", mode="before")
    @classmethod
    def _one_glob_is_a_list(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value


class PromptSpec(_Section):
    """How prompts are built (P1 section 3)."""

    n_demos: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] = [0, 2, 4, 8, 16]
    demo_sets: Annotated[int, Field(gt=0)] = 3
    max_tokens: Annotated[int, Field(gt=0)] = 2000

    @model_validator(mode="after")
    def _pool_is_large_enough(self) -> PromptSpec:
        for n_demos in self.n_demos:
            if n_demos * self.demo_sets > N_DEMONSTRATIONS:
                raise ValueError(
                    f"{self.demo_sets} demonstration sets of {n_demos} need {n_demos * self.demo_sets} demonstrations "
                    f"and the pool has {N_DEMONSTRATIONS}; lower n_demos or demo_sets"
                )
        if len(set(self.n_demos)) < len(self.n_demos):
            raise ValueError(f"n_demos {self.n_demos} names a number twice; name each once")
        return self


class ScoringSpec(_Section):
    """How token log-probabilities become a likelihood. Other choices are SQL over the same scores."""

    normalization: Literal["mean", "sum"] = "mean"
    eos: bool = True


class ExecutionSpec(_Section):
    """Resources; changing them does not change what is measured."""

    actors: Literal["auto"] | Annotated[int, Field(gt=0)] = "auto"
    gpus_per_actor: Literal["auto"] | Annotated[int, Field(ge=0)] = "auto"
    part_rows: Literal["auto"] | Annotated[int, Field(gt=0)] = "auto"


class AdapterSpec(_Section):
    """A LoRA adapter; the defaults are those of P1's code (section 8), which are QLoRA's."""

    r: Annotated[int, Field(gt=0)] = 64
    alpha: Annotated[float, Field(gt=0)] = 16
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Above 0, what is dropped depends on the number of workers, and so does the adapter."""
    targets: Literal["all_linear"] | Annotated[list[str], Field(min_length=1)] = "all_linear"
    """Every linear layer, the output layer included, or the last parts of their names, such as ``q_proj``."""

    @field_validator("alpha", "dropout", mode="before")
    @classmethod
    def _numbers_without_a_point(cls, value: object) -> object:
        return _number_of(value)

    @field_validator("targets")
    @classmethod
    def _targets_are_named_once(cls, value: Literal["all_linear"] | list[str]) -> Literal["all_linear"] | list[str]:
        if isinstance(value, list) and len(set(value)) < len(value):
            raise ValueError(f"targets {value} names a layer twice; name each once")
        return value


class TrainingSpec(_Section):
    """How optimizer steps are made, and by whom."""

    SECTION: ClassVar[str]
    """The key of the section in a spec."""

    learning_rate: Annotated[float, Field(gt=0)]
    epochs: Annotated[int, Field(gt=0)]
    batch_size: Annotated[int, Field(gt=0)] = 1
    """Rows in one forward pass of one worker."""
    accumulation: Annotated[int, Field(gt=0)] = 8
    """Forward passes in one optimizer step, over all workers together."""
    weight_decay: Annotated[float, Field(ge=0)]
    max_grad_norm: Annotated[float, Field(gt=0)]
    beta2: Annotated[float, Field(gt=0, lt=1)] = 0.999
    """Of Adam; beta1 is 0.9 and epsilon 1e-8."""
    warmup: Annotated[float, Field(ge=0, lt=1)]
    """Share of the steps over which the learning rate rises."""
    precision: Literal["float32", "bfloat16"] = "bfloat16"
    gradient_checkpointing: bool = True
    workers: Annotated[int, Field(gt=0)] = 1
    """Processes that train one model together, each on a GPU where there are any."""
    zero: Annotated[int, Field(ge=0, le=3)] | None = None
    """DeepSpeed's ZeRO stage; null trains without DeepSpeed.

    From stage 1 on it updates float32 copies of what is trained. Without them an adapter in bfloat16 is updated as it
    is, as in P1's code, and becomes another.
    """
    deepspeed_config: str | None = None
    """A DeepSpeed JSON file with what else DeepSpeed should do, such as offloading."""

    @field_validator("learning_rate", "weight_decay", "max_grad_norm", "beta2", "warmup", mode="before")
    @classmethod
    def _rates_without_a_point(cls, value: object) -> object:
        return _number_of(value)

    @model_validator(mode="after")
    def _workers_share_a_step(self) -> Self:
        problems = []
        if self.accumulation % self.workers:
            problems.append(
                f"{self.workers} workers cannot share accumulation {self.accumulation} evenly; choose a number of "
                "workers that divides it"
            )
        if self.deepspeed_config is not None and self.zero is None:
            problems.append("deepspeed_config is set and zero is null, which trains without DeepSpeed; name a stage")
        if problems:
            raise ValueError("; ".join(problems))
        return self


class LoraSpec(AdapterSpec, TrainingSpec):
    """How one LoRA adapter for each context is trained; defaults are those of P1's code (protocol section 8)."""

    SECTION: ClassVar[str] = "lora"

    RESOURCES: ClassVar[tuple[str, ...]] = (
        "lora.workers",
        "lora.zero",
        "lora.deepspeed_config",
        "lora.gradient_checkpointing",
    )
    """The keys that change what training costs, not what it computes: a resumed run may change them.

    But for ``zero`` in bfloat16, from a stage that keeps float32 copies to none or back, and ``workers`` with dropout.
    """

    preset: Literal["reif2024"] = "reif2024"
    """Where the defaults of all other keys come from."""
    learning_rate: Annotated[float, Field(gt=0)] = 2e-4
    """P1's code; P1's text has 0.002."""
    epochs: Annotated[int, Field(gt=0)] = 5
    weight_decay: Annotated[float, Field(ge=0)] = 0.03
    max_grad_norm: Annotated[float, Field(gt=0)] = 0.3
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the steps over which the learning rate rises; behind it falls linearly, to 0 after the last step."""
    max_tokens: Annotated[int, Field(gt=0)] = 2048
    """Longer training rows (prompt, label and EOS) are refused."""
    seed: _Seed = 42
    """Set anew for each adapter."""
    precision: Literal["float32", "bfloat16"] = "bfloat16"
    """``bfloat16``: linear layers, embeddings and adapter in bfloat16, norms in float32, bfloat16 autocast."""
    n_examples: Annotated[int, Field(gt=0, le=N_DEMONSTRATIONS)] = 16


def _untrainable(model: ModelSpec) -> list[str]:
    """Return what keeps adapters from being trained on a model."""
    problems = []
    if model.quantization is not None:
        problems.append("adapters are not trained on a quantized model; set model.quantization to null")
    if model.adapter is not None:
        problems.append("adapters are not trained on top of model.adapter; set one of the two to null")
    return problems


class LabelBiasSpec(_Section):
    """A label-bias run (P1)."""

    PATHS: ClassVar[tuple[str, ...]] = (
        "model.path",
        "model.adapter",
        "tasks.path",
        "tasks.table",
        "tasks.templates",
        "tasks.splits",
        "lora.deepspeed_config",
    )
    """The keys that name files: relative ones are relative to the spec file."""

    kind: Literal["label_bias"]
    name: _Name
    seed: _Seed = 42
    model: ModelSpec
    tasks: TasksSpec
    prompt: PromptSpec = PromptSpec()
    calibration: list[Method] = []
    scoring: ScoringSpec = ScoringSpec()
    lora: LoraSpec | None = None
    execution: ExecutionSpec = ExecutionSpec()

    @model_validator(mode="after")
    def _adapters_can_be_trained(self) -> LabelBiasSpec:
        if self.lora is None:
            return self
        problems = _untrainable(self.model)
        for n_demos in self.prompt.n_demos:
            for demo_set in range(self.prompt.demo_sets if n_demos else 1):
                shown = set(range(n_demos * demo_set, n_demos * (demo_set + 1)))
                if shown.intersection(training_positions(n_demos, demo_set, self.lora.n_examples)):
                    problems.append(
                        f"{self.lora.n_examples} training examples beside demonstration set {demo_set} of {n_demos} "
                        f"would be among its own demonstrations: the pool has {N_DEMONSTRATIONS}; lower "
                        "lora.n_examples, n_demos or demo_sets"
                    )
        if problems:
            raise ValueError("; ".join(f"lora: {problem}" for problem in problems))
        return self

    @model_validator(mode="after")
    def _suite_has_its_table(self) -> LabelBiasSpec:
        if self.tasks.suite == "selection" and self.tasks.table is None:
            raise ValueError("tasks.table: suite: selection needs the CSV of task names, categories and languages")
        if len(set(self.calibration)) < len(self.calibration):
            raise ValueError(f"calibration {self.calibration} names a method twice; name each once")
        return self


class DataSpec(_Section):
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
        if problems:
            raise ValueError("; ".join(problems))
        return {label_key(key): text for key, text in value.items()}


class MajorityPromptSpec(_Section):
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
        if len(set(self.instruction)) < len(self.instruction):
            problems.append(f"instruction {self.instruction} names a choice twice; name each once")
        if not self.separator or self.separator.strip():
            problems.append(f"separator {self.separator!r} is not white space; use line breaks")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @field_validator("item")
    @classmethod
    def _item_is_a_template(cls, value: str | None) -> str | None:
        if value is not None:
            item_pieces(value)
        return value


class SimplexSpec(_Section):
    """All settings whose shares are multiples of a step."""

    simplex: float


class MajorityBiasSpec(_Section):
    """A majority-bias run (P2)."""

    PATHS: ClassVar[tuple[str, ...]] = (
        "model.path",
        "model.adapter",
        "data.train",
        "data.test",
        "lora.deepspeed_config",
    )
    """The keys that name files: relative ones are relative to the spec file."""

    kind: Literal["majority_bias"]
    name: _Name
    seed: _Seed = 42
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
        problems = [
            f"setting {number}: {problem}" for number, row in enumerate(value) for problem in _wrong_shares(row)
        ]
        if problems:
            raise ValueError("; ".join(problems))
        return value

    @model_validator(mode="after")
    def _names_each_once(self) -> MajorityBiasSpec:
        problems = [
            f"{key} {names} names one twice; name each once"
            for key, names in (("seeds", self.seeds), ("predict", self.predict), ("calibration", self.calibration))
            if len(set(names)) < len(names)
        ]
        if self.calibration and "likelihood" not in self.predict:
            problems.append("calibration changes likelihoods and predict has none; add likelihood to predict")
        if self.lora is not None:
            problems += [f"lora: {problem}" for problem in _untrainable(self.model)]
        if problems:
            raise ValueError("; ".join(problems))
        return self


_SMALLEST_STEP = 0.001
"""Of a simplex grid: 1,001 settings of two labels, half a million of three."""


class QaModelSpec(_Section):
    """A QA model that is measured: one that reads contexts, one that writes answers, or predictions from elsewhere."""

    name: _Name
    path: str | None = None
    """A local directory, or a Hugging Face name where there is a network."""
    revision: str | None = None
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    adapter: str | None = None
    trust_remote_code: bool = False
    answers: Literal["extractive", "generative"] = "extractive"
    """``generative``: a sequence-to-sequence or causal LM that is given ``prompt``."""
    prompt: str = "{context} {question} Answer:"
    """What a generative model is given; ``{context}`` and ``{question}`` stand there once each (P3's code)."""
    allow_untrained_head: bool = False
    """Run an encoder without a QA head, whose head is then random."""
    predictions: Annotated[dict[str, str], Field(min_length=1)] | None = None
    """Data set to a file of predictions, SQuAD's ``{id: text}``; then nothing is loaded."""
    on_missing: Literal["error", "drop"] = "error"
    """Questions without a prediction: refuse the file, or leave them out for this model, recorded."""

    @field_validator("prompt")
    @classmethod
    def _prompt_has_its_fields(cls, value: str) -> str:
        if value.count("{context}") != 1 or value.count("{question}") != 1:
            raise ValueError(f"{value!r} must hold {{context}} and {{question}} once each")
        return value

    @model_validator(mode="after")
    def _is_a_model_or_predictions(self) -> QaModelSpec:
        if (self.path is None) == (self.predictions is None):
            raise ValueError("has both path and predictions or neither; keep one")
        if self.path is not None and self.on_missing != "error":
            raise ValueError("on_missing: goes with predictions; a model that is run answers every question")
        return self


class QaDatasetsSpec(_Section):
    """The questions of a QA-bias run."""

    train: str | None = None
    """Training questions: ``cos_sim`` takes its document frequencies from their contexts."""
    in_distribution: Annotated[dict[_Name, str], Field(min_length=1)]
    """Name to file: sets like the one that the models were trained on."""
    out_of_distribution: dict[_Name, str] = {}
    max_examples: Annotated[int, Field(gt=0)] | None = None
    """At most so many questions of each set, drawn by the seed."""
    on_bad_example: Literal["error", "drop"] = "error"
    """Questions without an answer in their context, empty contexts, ids twice: refuse the file, or leave them out."""

    @model_validator(mode="after")
    def _names_differ(self) -> QaDatasetsSpec:
        twice = sorted(self.in_distribution.keys() & self.out_of_distribution.keys())
        if twice:
            raise ValueError(f"{', '.join(twice)}: stands under in_distribution and out_of_distribution; keep one")
        return self


class WindowsSpec(_Section):
    """How long contexts are read, and which spans may be answers (P3's code)."""

    max_tokens: Annotated[int, Field(gt=8)] = 384
    stride: Annotated[int, Field(ge=0)] = 128
    """Tokens that neighbouring windows share."""
    n_best: Annotated[int, Field(gt=0)] = 20
    max_answer_tokens: Annotated[int, Field(gt=0)] = 30


class BootstrapSpec(_Section):
    """How segments are sampled (P3)."""

    trials: Annotated[int, Field(gt=1)] = 100
    sample: Annotated[int, Field(gt=1)] = 800
    replacement: bool = False
    """False: subsamples, as published; true: a bootstrap."""


class QaTextSpec(_Section):
    """Where sentences, words, entities and subjects come from; null: an embedded approximation."""

    nltk_data: str | None = None
    spacy: str | None = None
    """A pipeline's name or directory, such as ``en_core_web_sm``."""


class QaBiasSpec(_Section):
    """A QA prediction-bias run (P3)."""

    PATHS: ClassVar[tuple[str, ...]] = (
        "models.*.path",
        "models.*.adapter",
        "models.*.predictions.*",
        "datasets.train",
        "datasets.in_distribution.*",
        "datasets.out_of_distribution.*",
        "text.nltk_data",
        "text.spacy",
    )
    """The keys that name files: relative ones are relative to the spec file."""

    kind: Literal["qa_bias"]
    name: _Name
    seed: _Seed = 42
    models: Annotated[list[QaModelSpec], Field(min_length=1)]
    datasets: QaDatasetsSpec
    heuristics: Annotated[list[str], Field(min_length=1)] = list(HEURISTICS)
    """Ids of P3's heuristics, or ``module:function`` for one of the user's."""
    thresholds: Literal["search", "mikula2024"] | dict[str, Annotated[float, Field(allow_inf_nan=False)]] = "search"
    """Searched, the published ones, or heuristic to threshold (the others are searched).

    ``variant: paper`` keeps those of the first model that has one for all models; ``reference`` searches for each.
    """
    bootstrap: BootstrapSpec = BootstrapSpec()
    variant: Literal["paper", "reference"] = "paper"
    windows: WindowsSpec = WindowsSpec()
    text: QaTextSpec = QaTextSpec()
    execution: ExecutionSpec = ExecutionSpec()

    @model_validator(mode="after")
    def _is_consistent(self) -> QaBiasSpec:
        problems = []
        names = [model.name for model in self.models]
        for key, values in (("models", names), ("heuristics", self.heuristics)):
            if len(set(values)) < len(values):
                problems.append(f"{key} {values} names one twice; name each once")
        problems += [
            f"heuristics: {heuristic!r} is unknown; use {', '.join(HEURISTICS)}, or module:function for one of yours"
            for heuristic in self.heuristics
            if heuristic not in HEURISTICS and not _is_function_name(heuristic)
        ]
        if isinstance(self.thresholds, dict):
            unknown = [name for name in self.thresholds if name not in self.heuristics]
            if unknown:
                problems.append(f"thresholds: {', '.join(unknown)} not among heuristics; add or remove it")
        datasets = {*self.datasets.in_distribution, *self.datasets.out_of_distribution}
        for model in self.models:
            foreign = sorted(set(model.predictions or {}) - datasets)
            if foreign:
                problems.append(f"models: predictions of {model.name} for {', '.join(foreign)}, no set of datasets")
        if self.windows.stride >= self.windows.max_tokens:
            problems.append("windows: stride must be smaller than max_tokens")
        if problems:
            raise ValueError("; ".join(problems))
        return self


class ConversationsSpec(_Section):
    """The conversations of instruction tuning."""

    path: str
    """JSONL or one JSON array, plain or compressed (``.gz``)."""
    format: Literal["auto", "oasst", "alpaca", "dolly", "messages"] = "auto"
    """OASST1 message trees (nested, or a message a line), ``instruction`` and ``output`` (Alpaca) or ``response``
    (Dolly), or chat ``messages``; ``auto`` tells them apart by the keys of the first row."""
    replies: Literal["best", "all"] = "best"
    """Of OASST1: each tree's best-ranked replies, or every path from the prompt to a last reply."""
    languages: Annotated[list[str], Field(min_length=1)] | None = None
    """Of OASST1, such as ``en``: messages in others are left out."""
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the trees (or rows) that is kept from training, for ``eval_loss`` at the end of each epoch."""


class InstructTrainingSpec(TrainingSpec):
    """How a model is tuned on conversations."""

    SECTION: ClassVar[str] = "training"

    schedule: Literal["linear", "cosine"] = "linear"
    """How the learning rate falls behind the warm-up, to 0 after the last step."""
    epochs: Annotated[int, Field(gt=0)] = 3
    max_steps: Annotated[int, Field(gt=0)] | None = None
    """At most so many optimizer steps."""
    batch_size: Annotated[int, Field(gt=0)] = 1
    """Rows in one forward pass of one worker; without packing a row is one conversation."""
    accumulation: Annotated[int, Field(gt=0)] = 32
    """Times ``batch_size``: the conversations of an optimizer step, over all workers together."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.03
    precision: Literal["float32", "bfloat16"] = "bfloat16"
    """``bfloat16``: computed in bfloat16; what is trained has float32 copies, kept by ZeRO from stage 1 on."""
    checkpoint_steps: Annotated[int, Field(gt=0)] = 100
    """Optimizer steps between checkpoints."""


class InstructSpec(_Section):
    """Supervised fine-tuning on conversations (P2 section 4 tunes its models on OASST1 first)."""

    PATHS: ClassVar[tuple[str, ...]] = ("model.path", "model.adapter", "data.path", "training.deepspeed_config")
    """The keys that name files: relative ones are relative to the spec file."""

    RESOURCES: ClassVar[tuple[str, ...]] = (
        "packing",
        "training.workers",
        "training.zero",
        "training.deepspeed_config",
        "training.gradient_checkpointing",
        "training.checkpoint_steps",
    )
    """The keys that change what training costs, not what it computes: a resumed run may change them.

    But for ``packing`` and ``workers`` with dropout.
    """

    kind: Literal["instruct"]
    name: _Name
    seed: _Seed = 42
    model: ModelSpec
    """The base model; ``training.precision`` says in which numbers it is trained."""
    data: ConversationsSpec
    template: Literal["plain", "chat"] = "plain"
    """``plain``: ``User:`` and ``Assistant:`` before the texts, EOS behind each answer; ``chat``: the tokenizer's."""
    max_tokens: Annotated[int, Field(gt=0)] = 2048
    """Longer conversations lose their last turns; those whose first answer does not fit are left out."""
    packing: bool = True
    """Several conversations in a row of ``max_tokens``, none of which sees another; with dropout it changes what is
    dropped."""
    lora: AdapterSpec | None
    """The adapter that is trained; null trains all parameters."""
    training: InstructTrainingSpec
    execution: ExecutionSpec = ExecutionSpec()

    @model_validator(mode="after")
    def _base_is_bare(self) -> InstructSpec:
        problems = []
        if self.model.adapter is not None:
            problems.append("model.adapter: tuning begins with a bare model; set it to null, or merge the adapter")
        if self.model.quantization is not None:
            problems.append("model.quantization: a quantized model is not trained; set it to null")
        if problems:
            raise ValueError("; ".join(problems))
        return self


CausalSpec = LabelBiasSpec | MajorityBiasSpec
"""What scores labels with a causal LM."""

MeasurementSpec = CausalSpec | QaBiasSpec
"""What measures a bias."""

Spec = MeasurementSpec | InstructSpec

_KINDS: dict[str, type[LabelBiasSpec] | type[MajorityBiasSpec] | type[QaBiasSpec] | type[InstructSpec]] = {
    "label_bias": LabelBiasSpec,
    "majority_bias": MajorityBiasSpec,
    "qa_bias": QaBiasSpec,
    "instruct": InstructSpec,
}


def training_positions(n_demos: int, demo_set: int, n_examples: int) -> list[int]:
    """Return the pool positions of an adapter's training examples, in order (P1's code; protocol section 8).

    They follow the demonstrations of the set, ``n_examples`` or more apart from one set to the next, and go on at the
    pool's beginning behind its 64 demonstrations. For 16 examples: from 16i on for no demonstration, from k + 16i for
    fewer than 16, from k(i + 1) for more.
    """
    start = n_demos + max(n_demos, n_examples) * demo_set
    return [(start + number) % N_DEMONSTRATIONS for number in range(n_examples)]


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


def load_spec(path: str | Path, overrides: Sequence[str] = ()) -> Spec:
    """Return the validated spec in the YAML file ``path``, with its relative paths made absolute.

    Args:
        path: the spec file.
        overrides: ``key.subkey=value`` strings; values are YAML.

    Raises:
        InputError: the file cannot be read, or has mistakes; the message lists all of them.
    """
    path = Path(path).expanduser()
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); name a spec file (YAML)") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8") from error
    content = _parse_yaml(text, str(path))
    if not isinstance(content, dict):
        raise InputError(f"{path}: a spec is a mapping of keys such as kind, name and model; this file is not")
    for override in overrides:
        _apply_override(content, override)
    return validate_spec(content, source=str(path), folder=path.resolve().parent)


def validate_spec(content: dict[str, Any], *, source: str, folder: Path) -> Spec:
    """Return the spec with the given content.

    Args:
        content: keys and values as parsed from YAML.
        source: the file's name, for messages.
        folder: what relative paths are relative to.
    """
    kind = content.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        found = "is missing" if kind is None else f"{kind!r} is unknown"
        raise InputError(f"{source}: kind: {found}; use {' or '.join(_KINDS)}")
    model = _KINDS[kind]
    try:
        spec = model.model_validate(content)
    except ValidationError as error:
        raise InputError.of([f"{source}: {problem}" for problem in _problems(error, model)]) from error
    return model.model_validate(_with_absolute_paths(spec.model_dump(), model.PATHS, folder))


def dump_spec(spec: Spec) -> str:
    """Return the resolved spec as YAML."""
    return yaml.safe_dump(spec.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def differences(old: str, new: Spec) -> list[str]:
    """Return a line for each key in which a run directory's ``spec.yaml`` differs from ``new``.

    ``execution`` may differ, and so may the places of files: what they hold is compared by the run's fingerprints.
    """
    before = _flatten(_parse_yaml(old, "spec.yaml"))
    if before.get("kind") != new.kind:
        return [f"kind: the run has {before.get('kind')!r}, the spec {new.kind!r}"]
    after = _flatten(new.model_dump(mode="json"))
    lines = []
    for key in [*before, *(key for key in after if key not in before)]:
        if _is_resource(key) or _is_path(key, new):
            continue
        if before.get(key) != after.get(key):
            lines.append(f"{key}: the run has {before.get(key)!r}, the spec {after.get(key)!r}")
    lines += [
        f"{key}: the run has {before.get(key)!r}, the spec {after.get(key)!r}, which would train another model: {why}"
        for key, why in _costs_that_count(before, after)
    ]
    # Their order is that of the label set.
    orders = [[key for key in flat if key.startswith("data.labels.")] for flat in (before, after)]
    if orders[0] != orders[1] and set(orders[0]) == set(orders[1]):
        lines.append(f"data.labels: the run has the order {', '.join(orders[0])}, the spec {', '.join(orders[1])}")
    for key in dict.fromkeys(key for key in (*before, *after) if _is_path(key, new) and not _is_resource(key)):
        if (before.get(key) is None) != (after.get(key) is None):
            lines.append(f"{key}: the run has {before.get(key)!r}, the spec {after.get(key)!r}")
    return lines


def _is_resource(key: str) -> bool:
    return key.split(".")[0] == "execution" or key in LoraSpec.RESOURCES or key in InstructSpec.RESOURCES


def _costs_that_count(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Yield the keys of resources that here change what is computed, and why."""
    zero = [flat.get("lora.zero") or 0 for flat in (before, after)]
    if before.get("lora.precision") == "bfloat16" and min(zero) == 0 < max(zero):
        yield "lora.zero", "in bfloat16, ZeRO from stage 1 on updates float32 copies"
    if before.get("lora.dropout"):
        for key in ("lora.workers", "training.workers", "packing"):
            if before.get(key) != after.get(key):
                yield key, "with dropout it changes what is dropped"


def _is_path(key: str, spec: Spec) -> bool:
    return any(fnmatch.fnmatchcase(key, pattern) for pattern in spec.PATHS)


def _parse_yaml(text: str, source: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"{source}: is not valid YAML: {' '.join(str(error).split())}; mend the file") from error


def _apply_override(content: dict[str, Any], override: str) -> None:
    key, separator, value = override.partition("=")
    if not separator or not key.strip():
        raise InputError(f"--set {override}: write key=value, for example --set tasks.max_eval=100")
    *parents, last = key.strip().split(".")
    section = content
    for parent in parents:
        child = section.get(parent)
        if child is None:  # also a section that is written as null
            child = section[parent] = {}
        if not isinstance(child, dict):
            raise InputError(f"--set {override}: {parent} is not a section of the spec")
        section = child
    section[last] = _parse_yaml(value, f"--set {override}")


def _problems(error: ValidationError, model: type[BaseModel]) -> Iterable[str]:
    for detail in error.errors():
        location = [part for part in detail["loc"] if part not in ("constrained-int", "int", "literal['auto']")]
        key = ".".join(str(part) for part in location) or "spec"
        if detail["type"] == "extra_forbidden":
            known = _known_keys(model, location[:-1])
            close = difflib.get_close_matches(str(location[-1]), known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known keys here: {', '.join(known)}"
            yield f"{key}: unknown key; {hint}"
        elif detail["type"] == "missing":
            yield f"{key}: is required and missing; add it"
        elif detail["type"] == "value_error":
            yield f"{key}: {detail['ctx']['error']}"
        else:
            yield f"{key}: {detail['msg'][0].lower()}{detail['msg'][1:]}, found {detail['input']!r}; change it"


def _known_keys(model: type[BaseModel], location: Sequence[str | int]) -> list[str]:
    for part in location:
        if isinstance(part, int):  # a place in a list of sections
            continue
        annotation = model.model_fields[part].annotation
        candidates = (annotation, *typing.get_args(annotation))
        section = next((own for own in candidates if isinstance(own, type) and issubclass(own, BaseModel)), None)
        if section is None:
            return []
        model = section
    return list(model.model_fields)


def _with_absolute_paths(content: dict[str, Any], paths: Sequence[str], folder: Path) -> dict[str, Any]:
    for key in paths:
        for section, name in _places(content, key.split(".")):
            value = section[name]
            if value is None or "://" in value:
                continue
            local = (folder / Path(value).expanduser()).resolve()
            # A model, adapter or spaCy pipeline that is no local directory is a name.
            if key not in _PATHS_OR_NAMES or local.exists() or value.startswith((".", "/", "~")):
                section[name] = str(local)
    return content


def _places(content: Any, key: Sequence[str]) -> Iterable[tuple[Any, Any]]:
    """Yield the sections and names that a key stands for; ``*`` is any name or place in a list."""
    name, *rest = key
    if content is None:
        return
    names = [name] if name != "*" else list(content if isinstance(content, dict) else range(len(content)))
    for each in names:
        if rest:
            yield from _places(content[each], rest)
        else:
            yield content, each


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


def _is_function_name(text: str) -> bool:
    module, colon, function = text.partition(":")
    return bool(colon) and all(part.isidentifier() for part in [*module.split("."), function])


def _number_of(value: object) -> object:
    """Return the number that a text spells, anything else as it is: YAML reads 2e-4 as a text, 2.0e-4 as a number."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _flatten(content: Any, prefix: str = "") -> dict[str, Any]:
    if prefix == "models." and isinstance(content, list):
        content = dict(enumerate(content))
    if not isinstance(content, dict):
        return {prefix.rstrip("."): content}
    flat: dict[str, Any] = {}
    for key, value in content.items():
        flat.update(_flatten(value, f"{prefix}{key}."))
    return flat
