"""The spec of a QA prediction-bias run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from biaseval.qa_bias.heuristics import HEURISTICS, annotated
from biaseval.qa_bias.significance import PUBLISHED_SEGMENTS
from biaseval.spec.qa_training import DataSource, GeneratedSpec, QaBaseSpec, QaTrainSpec, QuestionFile, file_of
from biaseval.spec.shared_sections import ExecutionSpec, Name, RunSpec, Section, SpecError, named_twice, refuse


class QaModelSpec(Section):
    """A QA model that is measured: one that reads contexts, one that writes answers, or predictions from elsewhere."""

    name: Name
    path: str | None = None
    """A directory, local or ``s3://``, or a Hugging Face name where there is a network."""
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
    annotators: bool = False
    """People instead of a model: of questions with several answers the second, scored against the others, as SQuAD's
    authors measure people (Rajpurkar et al. 2016, section 6); the other questions are left out."""
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
        if (self.path is not None) + (self.predictions is not None) + self.annotators != 1:
            raise ValueError("has several of path, predictions and annotators or none; keep one")
        if self.predictions is None and self.on_missing != "error":
            raise ValueError("on_missing: goes with predictions; a model that is run answers every question")
        return self

    @property
    def drops_questions(self) -> bool:
        """Whether questions may have no answer of it."""
        return self.on_missing == "drop" or self.annotators


class QaDatasetsSpec(Section):
    """The questions of a QA-bias run."""

    train: QuestionFile | None = None
    """Training questions: ``cos_sim`` takes its document frequencies from their contexts."""
    in_distribution: Annotated[dict[Name, DataSource], Field(min_length=1)]
    """Name to file: sets like the one that the models were trained on."""
    out_of_distribution: dict[Name, DataSource] = {}
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


class WindowsSpec(Section):
    """How long contexts are read, and which spans may be answers (P3's code)."""

    max_tokens: Annotated[int, Field(gt=8)] = 384
    stride: Annotated[int, Field(ge=0)] = 128
    """Tokens that neighbouring windows share."""
    n_best: Annotated[int, Field(gt=0)] = 20
    max_answer_tokens: Annotated[int, Field(gt=0)] = 30


class BootstrapSpec(Section):
    """How segments are sampled (P3)."""

    trials: Annotated[int, Field(gt=1)] = 100
    sample: Annotated[int, Field(gt=1)] = 800
    replacement: bool = False
    """False: subsamples, as published; true: a bootstrap."""


class QaTextSpec(Section):
    """Where sentences, words, entities and subjects come from."""

    nltk_data: str | None = None
    """A folder of NLTK's data; None: an embedded approximation of sentences."""
    spacy: str | None = None
    """A pipeline's name or directory, such as ``en_core_web_sm``; None: no entities and no subjects."""
    modules: str = "."
    """The folder in which modules of heuristics are looked for behind PYTHONPATH: the spec file's, if left out."""


Threshold = Annotated[float, Field(allow_inf_nan=False)]


class QaBiasSpec(RunSpec):
    """A QA prediction-bias run (P3)."""

    PATHS = (
        "models.*.path",
        "models.*.adapter",
        "models.*.predictions.*",
        "datasets.train",
        "datasets.train.file",
        "datasets.in_distribution.*",
        "datasets.in_distribution.*.file",
        "datasets.out_of_distribution.*",
        "datasets.out_of_distribution.*.file",
        "text.nltk_data",
        "text.spacy",
        "text.modules",
        *QaTrainSpec.PATHS,
    )
    NAMES = ("models.*.path", "models.*.adapter", "text.spacy", "train.bases.*.path")
    RESOURCES = ("execution.*", *QaTrainSpec.RESOURCES)
    ANALYSIS = ("thresholds", "thresholds.*", "bootstrap.*")
    GROWS = ("models", "heuristics")
    # Keys of other kinds that a search asks for.
    calibration: ClassVar[Sequence[str]] = ()
    held_out: ClassVar[bool] = False

    kind: Literal["qa_bias"]
    models: list[QaModelSpec] = []
    """May be left out where the run trains some."""
    datasets: QaDatasetsSpec
    heuristics: Annotated[list[str], Field(min_length=1)] = list(HEURISTICS)
    """Ids of P3's heuristics, or ``module:function`` for one of the user's.

    Left out: all of P3's, but without ``text.spacy`` only those that need no pipeline or are named elsewhere.
    """
    thresholds: (
        Literal["search", "mikula2024"] | dict[str, Threshold | Annotated[list[Threshold], Field(min_length=1)]]
    ) = "search"
    """Searched, the published ones, or heuristic to threshold or to those among which it is searched (those of other
    heuristics are searched among all).

    ``variant: paper`` keeps those of the first model that has one for all models; ``reference`` searches for each.
    """
    bootstrap: BootstrapSpec = BootstrapSpec()
    variant: Literal["paper", "reference"] = "paper"
    windows: WindowsSpec = WindowsSpec()
    text: QaTextSpec = QaTextSpec()
    train: QaTrainSpec | None = Field(default=None, validate_default=True)
    """Readers are trained first, and measured with the rest."""
    execution: ExecutionSpec = ExecutionSpec()

    def files(self) -> dict[str, str | None]:
        """Return the files of questions, and those of predictions from elsewhere."""
        sets = {**self.datasets.in_distribution, **self.datasets.out_of_distribution}
        return {
            "datasets.train": file_of(self.datasets.train),
            **{f"datasets.{name}": uri for name, own in sets.items() if (uri := file_of(own)) is not None},
            **{
                f"predictions of {model.name} for {name}": uri
                for model in self.models
                for name, uri in (model.predictions or {}).items()
            },
            **({} if self.train is None else _training_files(self.train)),
        }

    def models_used(self) -> dict[tuple[str, ...], QaModelSpec | QaBaseSpec]:
        """Return the models that answer, for predictions from elsewhere none is loaded, and those that are trained."""
        bases = [] if self.train is None else self.train.bases
        return {
            **{("models", model.name): model for model in self.models if model.path is not None},
            **{("bases", base.name): base for base in bases},
        }

    def unused(self) -> Sequence[str]:
        """Return the keys of windows where no model reads, as predictions from elsewhere know none, and of spaCy."""
        windows = () if self.models_used() else ("windows.*",)
        return windows if annotated(self.heuristics) else (*windows, "text.spacy")

    def further_differences(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
        """Yield what is generated, or read of columns, otherwise: these keys stand where files have their places."""
        for key in sorted(before.keys() & after.keys()):
            if (".planted." in key or ".fields." in key) and before[key] != after[key]:
                yield f"{key}: the run has {before[key]!r}, the spec {after[key]!r}"

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
        if isinstance(thresholds, dict) and "heuristics" in info.data:
            unknown = [name for name in thresholds if name not in info.data["heuristics"]]
            if unknown:
                raise SpecError(f"thresholds: {', '.join(unknown)} not among heuristics; add or remove it")
        return thresholds

    @field_validator("train")
    @classmethod
    def _training_fits_the_rest(cls, train: QaTrainSpec | None, info: ValidationInfo) -> QaTrainSpec | None:
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
                if name in measured and (measured[name] != source or isinstance(source, GeneratedSpec))
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


def _training_files(train: QaTrainSpec) -> dict[str, str | None]:
    """Return the files of training, by their keys."""
    sets = {f"train.{key}.{name}": own for key in ("data", "validation") for name, own in getattr(train, key).items()}
    return {
        **{key: uri for key, own in sets.items() if (uri := file_of(own)) is not None},
        "train.bias_model.predictions": train.bias_model.predictions,
    }


def _is_function_name(text: str) -> bool:
    module, colon, function = text.partition(":")
    return bool(colon) and all(part.isidentifier() for part in [*module.split("."), function])
