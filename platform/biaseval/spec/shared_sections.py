"""Sections that several kinds of specs share, and the properties of each kind's keys."""

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from biaseval.metric_files import METRICS, MORE, Metric, metric_files
from biaseval.prompting.calibration import CALIBRATIONS, NONE, ROWS, Calibration, Own, Variant, named_by, own_of
from biaseval.spec.accelerators import PEAK_TFLOPS
from biaseval.spec.words import as_meant


def _as_named(name: str, info: ValidationInfo) -> str:
    if not info.data:  # a key alone
        return str(Variant.of(name, NONE))
    analysis: AnalysisSpec | None = info.data.get("analysis")  # None: the section is missing or has mistakes
    if analysis is None:
        return str(Variant.of(name))
    return str(Variant.of(name, analysis.calibrations if analysis.is_read else None))


Method = Annotated[str, AfterValidator(_as_named)]
"""A calibration, or a variant such as ``cc@0.7``."""

_TAKEN = ("none", "lora", *ROWS)
"""Names of methods and purposes, which a calibration may not have."""

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
MOST_CHARACTERS = 100
Name = Annotated[str, Field(pattern=NAME, max_length=MOST_CHARACTERS)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]


class SpecError(ValueError):
    """A mistake that concerns several keys or sections; the message names them."""


class Section(BaseModel):
    """A section of a spec. It refuses unknown keys and converts no values except words (`biaseval.spec.words`).

    One message lists the mistakes of all sections, including mistakes between sections (validators of a field see the
    fields before it). Checks of several keys together (``model_validator``) run once each key is valid.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _words_stand_for_values(cls, content: object) -> object:
        if not isinstance(content, dict):
            return content
        fields = cls.model_fields
        return {key: as_meant(each, fields[key].annotation) if key in fields else each for key, each in content.items()}


class RunSpec(Section):
    """The base of all specs: shared keys, and the properties of keys that other modules need.

    Keys in class variables are dotted; ``*`` matches any name or any place in a list. A key that is neither a resource
    nor a key of the analysis defines the measurement.
    """

    PATHS: ClassVar[tuple[str, ...]]
    """Keys that name files. Relative paths start from the spec file. Paths may change; the content of files may not."""
    NAMES: ClassVar[tuple[str, ...]] = ()
    """Keys of ``PATHS`` that may instead hold a name on the Hugging Face hub or of an installed pipeline."""
    RESOURCES: ClassVar[tuple[str, ...]]
    """Keys that change the cost of a run, not its results: a resumed run may change them, except for
    `further_differences`."""
    ANALYSIS: ClassVar[tuple[str, ...]] = ()
    """Keys that change only the analysis of stored outputs: a finished run may change them."""
    GROWS: ClassVar[tuple[str, ...]] = ()
    """Keys that may grow (a longer list, a larger number): a finished run computes the additions and keeps the rest."""
    NAMED_BY_MODEL: ClassVar[bool] = True
    """Whether each of several models gives its run its name; if not, the runs share the name of their data."""

    kind: str
    name: Name
    seed: Seed = 42

    @property
    def is_fixed(self) -> bool:
        """Whether a run cannot be extended: it trains readers, so its plan is fixed."""
        return getattr(self, "train", None) is not None

    @property
    def own_calibrations(self) -> Own:
        """The calibrations that the spec brings, as name to SQL."""
        analysis = getattr(self, "analysis", None)
        return analysis.calibrations if isinstance(analysis, AnalysisSpec) else NONE

    @property
    def metric_files(self) -> dict[str, str]:
        """The metrics of the run, as name to the text of the file."""
        analysis = getattr(self, "analysis", None)
        if not isinstance(analysis, AnalysisSpec):
            return metric_files()
        return metric_files(analysis.metrics, analysis.own_metrics)

    def files(self) -> dict[str, str | None]:
        """Return the path of each input file whose SHA-256 a run records, by its name in that record."""
        return {}

    def models_used(self) -> Mapping[tuple[str, ...], Any]:
        """Return the section of each loaded model, by the keys of its fingerprint in ``environment.json``."""
        model = getattr(self, "model", None)
        return {("model",): model} if isinstance(model, ModelSpec) else {}

    def unused(self) -> Sequence[str]:
        """Return the keys that no stored result depends on; an extension of the run may change them."""
        return ()

    def further_differences(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterable[str]:
        """Yield further differences that matter, such as a resource that changes results, or an order.

        ``before`` is the spec of a run and ``after`` this one, both as dotted keys to values.
        """
        return ()


LINEAGE = ("model.family", "model.tuned_from")
"""Keys of a model that its outputs do not depend on."""


class LineageSpec(Section):
    """Where a model belongs among others, for charts and comparisons over several runs."""

    family: Name | None = None
    """The models that differ in size or tuning only: ``llama-2``. They share a colour."""
    tuned_from: Name | None = None
    """The base model of a tuned one; its line is dashed."""


class ModelSpec(LineageSpec):
    """The measured causal LM."""

    path: str
    """A directory, local or ``s3://``, or a Hugging Face name where there is a network."""
    revision: str | None = None
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    quantization: Literal["8bit", "4bit"] | None = None
    adapter: str | None = None
    trust_remote_code: bool = False
    chat: Literal["auto", "off"] = "off"
    """``auto`` writes prompts as turns of a chat if the model has a chat template."""
    system: Annotated[str, Field(min_length=1)] | None = None
    """The system message before a chat."""

    @field_validator("system")
    @classmethod
    def _system_is_of_a_chat(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("chat") == "off":
            raise ValueError("is part of a chat, and there is none; set model.chat: auto")
        return value


class ScoringSpec(Section):
    """The computation of a likelihood from token log-probabilities. SQL over the same scores gives other choices."""

    normalization: Literal["mean", "sum", "where_unequal"] = "mean"
    """``where_unequal`` (P1's text): the mean if the labels of a prompt differ in number of tokens, else the sum."""
    eos: bool = True


class MissingPartsSpec(Section):
    """What the metrics do without parts that failed."""

    missing_parts: Literal["refuse", "leave_out"] = "refuse"
    """``leave_out`` computes them without the tasks, sets of demonstrations or questions of failed parts, and says so;
    ``refuse`` computes none."""


class AnalysisSpec(MissingPartsSpec):
    """The user's SQL."""

    sql: str | None = None
    """A folder with files such as ``calibrations/NAME.sql``. A run keeps their text (``files``)."""
    files: dict[str, str] = {}
    """Path below ``sql`` to text. biaseval reads the files with the spec, so the run no longer needs the folder."""

    @property
    def is_read(self) -> bool:
        """Whether the text of the folder's files is loaded."""
        return self.sql is None or bool(self.files)

    metrics: list[str] = []
    """Metrics in addition to those of every run: ``brier``, ``ckld``, ``ece``. Metrics among ``files`` are always
    added."""

    @property
    def calibrations(self) -> dict[str, str]:
        """The calibrations among the files, as name to SQL."""
        return own_of(self.files)

    @property
    def own_metrics(self) -> dict[str, str]:
        """The metrics among the files, as name to SQL."""
        return own_of(self.files, "metrics")

    @field_validator("files")
    @classmethod
    def _files_are_known(cls, files: dict[str, str]) -> dict[str, str]:
        problems = []
        for path, text in files.items():
            if (named := named_by(path)) is None:
                problems.append(
                    f"{path}: is no calibration and no metric; name files calibrations/NAME.sql or metrics/NAME.sql, "
                    "NAME in a-z, 0-9 and _"
                )
                continue
            folder, name = named
            if name in ((*CALIBRATIONS, *_TAKEN) if folder == "calibrations" else METRICS):
                problems.append(f"{path}: {name} is a name that every run has; choose another one")
                continue
            try:
                own = (Calibration if folder == "calibrations" else Metric).of(name, text)
                partner = own.requires if isinstance(own, Metric) else None
                if partner is not None and partner not in {*METRICS, *own_of(files, "metrics")}:
                    problems.append(f"{path}: requires: {partner!r} is no metric; add metrics/{partner}.sql")
            except ValueError as error:
                problems.append(f"{path}: {error}")
        refuse(problems, SpecError)
        return files

    @field_validator("metrics")
    @classmethod
    def _metrics_are_known(cls, metrics: list[str]) -> list[str]:
        known = f"use {', '.join(MORE)}, or a file metrics/NAME.sql"
        refuse([f"{name!r} is no metric that a spec may name; {known}" for name in metrics if name not in MORE])
        return metrics


class ExecutionSpec(Section):
    """Resources; they do not change the measurement."""

    actors: Literal["auto"] | Annotated[int, Field(gt=0)] = "auto"
    gpus_per_actor: Literal["auto"] | Annotated[int, Field(ge=0)] = "auto"
    part_rows: Literal["auto"] | Annotated[int, Field(gt=0)] = "auto"
    max_gpu_hours: Annotated[float, Field(gt=0)] | None = None
    """The budget of GPU hours. Once it is used up, no further part or training starts. None: no limit."""
    prices: dict[str, Annotated[float, Field(ge=0)]] = {}
    """The price of a GPU hour by GPU name, in any currency; `plan` gives costs in the same one."""

    @model_validator(mode="after")
    def _known_accelerators(self) -> Self:
        unknown = [name for name in self.prices if name not in PEAK_TFLOPS]
        refuse([f"prices: {name} is no known accelerator; name {', '.join(PEAK_TFLOPS)}" for name in unknown])
        return self

    @property
    def n_gpus(self) -> int | None:
        """The number of GPUs of all actors, or None if the spec leaves the number of actors open."""
        if self.actors == "auto":
            return None
        return self.actors * (1 if self.gpus_per_actor == "auto" else max(1, self.gpus_per_actor))

    @property
    def n_at_once(self) -> int:
        """The number of runs that this run's Ray has room for at a time."""
        return 1


def refuse(problems: Sequence[str], error: type[ValueError] = ValueError) -> None:
    """Raise ``error`` with all problems if there are any."""
    if problems:
        raise error("; ".join(problems))


def below(section: str, *keys: str) -> tuple[str, ...]:
    """Return the dotted keys of a section."""
    return tuple(f"{section}.{key}" for key in keys)


def is_among(key: str, patterns: Sequence[str]) -> bool:
    """Return whether a dotted key matches one of these patterns, in which ``*`` matches any name or place."""
    return any(fnmatch.fnmatchcase(key, pattern) for pattern in patterns)


def named_twice(key: str, values: Sequence[object], noun: str = "one") -> list[str]:
    """Return a problem if a list names something twice, else nothing."""
    return [f"{key} {values} names {noun} twice; name each once"] if len(set(values)) < len(values) else []
