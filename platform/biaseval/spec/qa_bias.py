"""The spec of a QA prediction-bias run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from biaseval.qa_bias.heuristics.built_in import HEURISTICS, annotated
from biaseval.qa_bias.splits.significance import PUBLISHED_SEGMENTS
from biaseval.spec import qa_training
from biaseval.spec.shared_sections import (
    ExecutionSpec,
    MissingPartsSpec,
    Name,
    RunSpec,
    Section,
    SpecError,
    below,
    named_twice,
    refuse,
)


class QaModelSpec(Section):
    """A measured QA model: one that reads contexts, one that writes answers, or imported predictions."""

    name: Name
    path: str | None = None
    """A directory, local or ``s3://``, or a Hugging Face name where there is a network."""
    revision: str | None = None
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    adapter: str | None = None
    trust_remote_code: bool = False
    answers: Literal["extractive", "generative"] = "extractive"
    """``generative``: a sequence-to-sequence or causal LM that gets ``prompt``."""
    prompt: str = "{context} {question} Answer:"
    """The prompt of a generative model, with ``{context}`` and ``{question}`` once each (default: P3's code)."""
    allow_untrained_head: bool = False
    """Run an encoder without a QA head; its head is then random."""
    predictions: Annotated[dict[str, str], Field(min_length=1)] | None = None
    """Data set to a file of predictions, in SQuAD's ``{id: text}``; biaseval then loads no model."""
    annotators: bool = False
    """Measure people instead of a model, as SQuAD's authors do (Rajpurkar et al. 2016, section 6).

    The second answer of a question is scored against its other answers. Questions with one answer are dropped.
    """
    on_missing: Literal["error", "drop"] = "error"
    """The treatment of questions without a prediction: refuse the file, or drop and record them for this model."""

    @field_validator("prompt")
    @classmethod
    def _prompt_has_its_fields(cls, value: str) -> str:
        if value.count("{context}") != 1 or value.count("{question}") != 1:
            raise ValueError(f"{value!r} must hold {{context}} and {{question}} once each")
        return value

    @model_validator(mode="after")
    def _is_a_model_or_predictions(self) -> QaModelSpec:
        if (self.path is not None) + (self.predictions is not None) + self.annotators != 1:
            raise ValueError("has several of path, predictions and annotators or none; keep one")
        if self.predictions is None and self.on_missing != "error":
            raise ValueError("on_missing: goes with predictions; a model that is run answers every question")
        return self

    @property
    def drops_questions(self) -> bool:
        """Whether some questions may lack an answer of this model."""
        return self.on_missing == "drop" or self.annotators


class QaDatasetsSpec(Section):
    """The questions of a QA-bias run."""

    train: qa_training.QuestionFile | None = None
    """Training questions: ``cos_sim`` takes its document frequencies from their contexts."""
    in_distribution: Annotated[dict[Name, qa_training.DataSource], Field(min_length=1)]
    """Name to file: sets similar to the models' training set."""
    out_of_distribution: dict[Name, qa_training.DataSource] = {}
    max_examples: Annotated[int, Field(gt=0)] | None = None
    """The largest number of questions of each set; the seed draws them."""
    on_bad_example: Literal["error", "drop"] = "error"
    """The treatment of questions without an answer in the context, empty contexts and repeated ids: refuse or drop."""

    @model_validator(mode="after")
    def _names_differ(self) -> QaDatasetsSpec:
        if twice := sorted(self.in_distribution.keys() & self.out_of_distribution.keys()):
            raise ValueError(f"{', '.join(twice)}: stands under in_distribution and out_of_distribution; keep one")
        return self


class WindowsSpec(Section):
    """The split of long contexts, and the spans that may be answers (P3's code)."""

    max_tokens: Annotated[int, Field(gt=8)] = 384
    stride: Annotated[int, Field(ge=0)] = 128
    """Tokens that neighbouring windows share."""
    n_best: Annotated[int, Field(gt=0)] = 20
    max_answer_tokens: Annotated[int, Field(gt=0)] = 30


class BootstrapSpec(Section):
    """The sampling of segments (P3)."""

    trials: Annotated[int, Field(gt=1)] = 100
    sample: Annotated[int, Field(gt=1)] = 800
    replacement: bool = False
    """False draws subsamples, as published; true draws a bootstrap."""


class QaTextSpec(Section):
    """The sources of sentences, words, entities and subjects."""

    nltk_data: str | None = None
    """A folder of NLTK's data; None: a built-in approximation splits sentences."""
    spacy: str | None = None
    """A pipeline's name or directory, such as ``en_core_web_sm``; None: no entities and no subjects."""
    modules: str = "."
    """The folder of the user's heuristics, searched after PYTHONPATH; default: the folder of the spec file."""


Threshold = Annotated[float, Field(allow_inf_nan=False)]


class QaBiasSpec(RunSpec):
    """A QA prediction-bias run (P3)."""

    PATHS = (
        *below("models.*", "path", "adapter", "predictions.*"),
        *below("datasets", "train", "in_distribution.*", "out_of_distribution.*"),
        *below("datasets", "train.file", "in_distribution.*.file", "out_of_distribution.*.file"),
        *below("text", "nltk_data", "spacy", "modules"),
        *qa_training.QaTrainSpec.PATHS,
    )
    NAMES = ("models.*.path", "models.*.adapter", "text.spacy", "train.bases.*.path")
    RESOURCES = ("execution.*", *qa_training.QaTrainSpec.RESOURCES)
    ANALYSIS = ("thresholds", "thresholds.*", "bootstrap.*", "analysis.*")
    GROWS = ("models", "heuristics")
    # Keys of other kinds that a search reads.
    calibration: ClassVar[Sequence[str]] = ()
    held_out: ClassVar[bool] = False

    kind: Literal["qa_bias"]
    preset: Literal["mikula2024"] | None = None
    """``mikula2024`` is the setting that P3 ran: ``variant: reference``, but with the text's methods.

    These are ``learned_mixin.variant: paper``, ``confidence_regularization.variant: utama`` and ``bias_model.init:
    random``. Keys that the spec gives itself win.
    """
    models: list[QaModelSpec] = []
    """The models to measure; may be empty if the run trains some."""
    datasets: QaDatasetsSpec
    heuristics: Annotated[list[str], Field(min_length=1)] = list(HEURISTICS)
    """Ids of P3's heuristics, or ``module:function`` for a heuristic of the user.

    Default: all of P3's. Without ``text.spacy``, heuristics that need a pipeline are dropped unless another key names
    them.
    """
    thresholds: (
        Literal["search", "mikula2024"] | dict[str, Threshold | Annotated[list[Threshold], Field(min_length=1)]]
    ) = "search"
    """``search``, ``mikula2024`` (the published thresholds), or heuristic to a threshold or a list of candidates.

    Heuristics that the mapping does not name are searched among all thresholds. ``variant: paper`` uses the thresholds
    of the first model that has them for all models; ``reference`` searches for each model.
    """
    bootstrap: BootstrapSpec = BootstrapSpec()
    variant: Literal["paper", "reference"] = "paper"
    windows: WindowsSpec = WindowsSpec()
    text: QaTextSpec = QaTextSpec()
    train: qa_training.QaTrainSpec | None = Field(default=None, validate_default=True)
    """The readers to train first; the run then measures them with the other models."""
    analysis: MissingPartsSpec = MissingPartsSpec()
    execution: ExecutionSpec = ExecutionSpec()

    @field_validator("analysis")
    @classmethod
    def _trainings_need_all_parts(cls, analysis: MissingPartsSpec, info: ValidationInfo) -> MissingPartsSpec:
        if analysis.missing_parts == "leave_out" and info.data.get("train") is not None:
            raise SpecError("analysis.missing_parts: trainings evaluate readers on all questions; take leave_out out")
        return analysis

    def files(self) -> dict[str, str | None]:
        """Return the files of questions and of imported predictions."""
        sets = {**self.datasets.in_distribution, **self.datasets.out_of_distribution}
        return {
            "datasets.train": qa_training.file_of(self.datasets.train),
            **{f"datasets.{name}": uri for name, own in sets.items() if (uri := qa_training.file_of(own)) is not None},
            **{
                f"predictions of {model.name} for {name}": uri
                for model in self.models
                for name, uri in (model.predictions or {}).items()
            },
            **({} if self.train is None else _training_files(self.train)),
        }

    def models_used(self) -> dict[tuple[str, ...], QaModelSpec | qa_training.QaBaseSpec]:
        """Return the models that answer and the bases of training; imported predictions load no model."""
        bases = [] if self.train is None else self.train.bases
        return {
            **{("models", model.name): model for model in self.models if model.path is not None},
            **{("bases", base.name): base for base in bases},
        }

    def unused(self) -> Sequence[str]:
        """Return the unused keys: ``preset``, because the keys that it sets are stored, ``windows`` if no model reads
        contexts, and ``text.spacy`` if no heuristic needs it.
        """
        unused = ("preset",) if self.models_used() else ("preset", "windows.*")
        return unused if annotated(self.heuristics) else (*unused, "text.spacy")

    def further_differences(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
        """Yield differences in generated questions or column names; the comparison skips keys that name files."""
        for key in sorted(before.keys() & after.keys()):
            if (".planted." in key or ".fields." in key) and before[key] != after[key]:
                yield f"{key}: the run has {before[key]!r}, the spec {after[key]!r}"

    @model_validator(mode="before")
    @classmethod
    def _a_preset_sets_keys(cls, content: Any) -> Any:
        if not isinstance(content, dict) or content.get("preset") != "mikula2024":
            return content
        content = {"variant": "reference", **content}
        if isinstance(train := content.get("train"), dict):
            content["train"] = {**train}
            for section, key, paper, _ in qa_training.OF_VARIANT:
                if isinstance(own := train.get(section, {}), dict):
                    content["train"][section] = {**own, key: own.get(key) or paper}
        return content

    @model_validator(mode="after")
    def _default_heuristics_can_be_measured(self) -> Self:
        if "heuristics" not in self.model_fields_set and self.text.spacy is None:
            named = {
                *(self.thresholds if isinstance(self.thresholds, dict) else ()),
                *(self.train.biases if self.train else ()),
            }
            left_out = set(annotated(HEURISTICS)) - named
            object.__setattr__(self, "heuristics", [name for name in self.heuristics if name not in left_out])
        return self

    @field_validator("models")
    @classmethod
    def _models_are_named_once(cls, models: list[QaModelSpec]) -> list[QaModelSpec]:
        refuse(named_twice("models", [model.name for model in models]), SpecError)
        return models

    @field_validator("datasets")
    @classmethod
    def _predictions_have_their_questions(cls, datasets: QaDatasetsSpec, info: ValidationInfo) -> QaDatasetsSpec:
        known = {*datasets.in_distribution, *datasets.out_of_distribution}
        foreign = {model.name: sorted({*(model.predictions or {})} - known) for model in info.data.get("models", ())}
        problems = [
            f"models: predictions of {model} for {', '.join(names)}, no set of datasets"
            for model, names in foreign.items()
            if names
        ]
        refuse(problems, SpecError)
        return datasets

    @field_validator("heuristics")
    @classmethod
    def _heuristics_are_known(cls, heuristics: list[str]) -> list[str]:
        unknown = [
            f"heuristics: {heuristic!r} is unknown; use {', '.join(HEURISTICS)}, or module:function for one of yours"
            for heuristic in heuristics
            if heuristic not in HEURISTICS and not _is_function_name(heuristic)
        ]
        refuse([*named_twice("heuristics", heuristics), *unknown], SpecError)
        return heuristics

    @field_validator("thresholds")
    @classmethod
    def _thresholds_have_their_heuristics(cls, thresholds: Any, info: ValidationInfo) -> Any:
        known = info.data.get("heuristics", thresholds)
        if isinstance(thresholds, dict) and (unknown := [name for name in thresholds if name not in known]):
            raise SpecError(f"thresholds: {', '.join(unknown)} not among heuristics; add or remove it")
        return thresholds

    @field_validator("train")
    @classmethod
    def _training_fits_the_rest(
        cls, train: qa_training.QaTrainSpec | None, info: ValidationInfo
    ) -> qa_training.QaTrainSpec | None:
        known = info.data
        if train is None:
            refuse(
                [] if known.get("models", True) else ["models: is empty; name one, or train some (train)"], SpecError
            )
            return None
        problems = []
        if "heuristics" in known:
            problems += [
                f"train.biases: {bias} is not among heuristics ({', '.join(known['heuristics'])}); mend its name, or "
                "add it there, so that it is measured"
                for bias in train.biases
                if bias not in known["heuristics"]
            ]
        if train.thresholds == "mikula2024":
            problems += [
                f"train.thresholds: none is published for {bias}; give one ({{{bias}: NUMBER}}), or search"
                for bias in train.biases
                if bias not in PUBLISHED_SEGMENTS
            ]
        if "datasets" in known:
            measured = {**known["datasets"].in_distribution, **known["datasets"].out_of_distribution}
            problems += [
                f"train.validation.{name}: is not the file that datasets calls {name}; give one of them another name"
                for name, source in train.validation.items()
                if name in measured and (measured[name] != source or isinstance(source, qa_training.GeneratedSpec))
            ]
        taken = {model.name for model in known.get("models", ())}
        problems += [
            f"train.bases: {base.name} is the name of one of models, too; give one of them another"
            for base in train.bases
            if base.name in taken
        ]
        refuse(problems, SpecError)
        return train.resolved(known.get("variant", "paper"))

    @field_validator("windows")
    @classmethod
    def _windows_go_on(cls, windows: WindowsSpec) -> WindowsSpec:
        if windows.stride >= windows.max_tokens:
            raise SpecError("windows: stride must be smaller than max_tokens")
        return windows


def _training_files(train: qa_training.QaTrainSpec) -> dict[str, str | None]:
    sets = {f"train.{key}.{name}": own for key in ("data", "validation") for name, own in getattr(train, key).items()}
    return {
        **{key: uri for key, own in sets.items() if (uri := qa_training.file_of(own)) is not None},
        "train.bias_model.predictions": train.bias_model.predictions,
    }


def _is_function_name(text: str) -> bool:
    module, colon, function = text.partition(":")
    return bool(colon) and all(part.isidentifier() for part in [*module.split("."), function])
