"""Sections that several kinds of specs have, and what each kind says of its keys."""

from __future__ import annotations

import fnmatch
from abc import abstractmethod
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
    analysis: AnalysisSpec | None = info.data.get("analysis")  # None: there is none, or it has mistakes of its own
    if analysis is None:
        return str(Variant.of(name))
    return str(Variant.of(name, analysis.calibrations if analysis.is_read else None))


Method = Annotated[str, AfterValidator(_as_named)]
"""A calibration, or a variant of it, such as ``cc@0.7``."""

_TAKEN = ("none", "lora", *ROWS)
"""Names of methods and of purposes that no calibration may have."""

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
MOST_CHARACTERS = 100
Name = Annotated[str, Field(pattern=NAME, max_length=MOST_CHARACTERS)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]


class SpecError(ValueError):
    """A mistake of several keys or sections, which the message names."""


class Section(BaseModel):
    """A section of a spec. Unknown keys are refused, and nothing is converted but words (`biaseval.spec.words`).

    All mistakes of all sections come together, and those between sections too (validators of a field that see the
    fields before it). What a section's keys say together (``model_validator``) is checked once each of them is right.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _words_stand_for_values(cls, content: object) -> object:
        if not isinstance(content, dict):
            return content
        fields = cls.model_fields
        return {key: as_meant(each, fields[key].annotation) if key in fields else each for key, each in content.items()}


class RunSpec(Section):
    """What the spec of every kind of run has, and what others need to know of its keys.

    A key of the class variables is dotted; ``*`` is any name, or any place in a list. A key that is no resource and not
    of the analysis says what is measured.
    """

    PATHS: ClassVar[tuple[str, ...]]
    """Name files: relative ones are relative to the spec file. Places may change, what the files hold may not."""
    NAMES: ClassVar[tuple[str, ...]] = ()
    """Those of ``PATHS`` that may be names instead, of the Hugging Face hub or of an installed pipeline."""
    RESOURCES: ClassVar[tuple[str, ...]]
    """Change what a run costs, not what it computes: a resumed run may change them, but for `further_differences`."""
    ANALYSIS: ClassVar[tuple[str, ...]] = ()
    """Change only what is computed from outputs that a run has stored already: a finished run may change them."""
    GROWS: ClassVar[tuple[str, ...]] = ()
    """Where more is asked for (a longer list, a larger number), a finished run makes what is new and keeps the rest."""

    kind: str
    name: Name
    seed: Seed = 42

    @property
    def is_fixed(self) -> bool:
        """Whether nothing can be added to a run: it trains models, for which the plan is one."""
        return any(getattr(self, section, None) is not None for section in ("lora", "train"))

    @property
    def own_calibrations(self) -> Own:
        """The calibrations that the spec brings, name to SQL."""
        analysis: AnalysisSpec | None = getattr(self, "analysis", None)
        return NONE if analysis is None else analysis.calibrations

    @property
    def metric_files(self) -> dict[str, str]:
        """The metrics of the run, name to the text of the file."""
        analysis: AnalysisSpec | None = getattr(self, "analysis", None)
        return metric_files() if analysis is None else metric_files(analysis.metrics, analysis.own_metrics)

    @abstractmethod
    def files(self) -> dict[str, str | None]:
        """Return the place of each input file whose SHA-256 a run records, by the name that it records it under."""

    @abstractmethod
    def models_used(self) -> Mapping[tuple[str, ...], Section]:
        """Return the section of each model that is loaded, by the keys to its fingerprint in ``environment.json``."""

    def unused(self) -> Sequence[str]:
        """Return the keys that nothing measured so far goes by, which one that adds to this may have otherwise."""
        return ()

    def further_differences(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterable[str]:
        """Yield the differences that count where no single key tells: a resource that matters here, an order.

        Args:
            before: a run's spec, dotted keys to values.
            after: this spec likewise.
        """
        return ()


class ModelSpec(Section):
    """The causal LM that is measured."""

    path: str
    """A directory, local or ``s3://``, or a Hugging Face name where there is a network."""
    revision: str | None = None
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    quantization: Literal["8bit", "4bit"] | None = None
    adapter: str | None = None
    trust_remote_code: bool = False
    chat: Literal["auto", "off"] = "off"
    """``auto``: prompts are the turns of a chat where the model has a chat template."""
    system: Annotated[str, Field(min_length=1)] | None = None
    """What the system says before a chat."""

    @field_validator("system")
    @classmethod
    def _system_is_of_a_chat(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("chat") == "off":
            raise ValueError("is part of a chat, and there is none; set model.chat: auto")
        return value


class ScoringSpec(Section):
    """How token log-probabilities become a likelihood. Other choices are SQL over the same scores."""

    normalization: Literal["mean", "sum"] = "mean"
    eos: bool = True


class AnalysisSpec(Section):
    """SQL of the user's own."""

    sql: str | None = None
    """A folder with files such as ``calibrations/NAME.sql``. A run keeps their text (``files``)."""
    files: dict[str, str] = {}
    """Path below ``sql`` to text: read with the spec, so that a run needs the folder no more."""

    @property
    def is_read(self) -> bool:
        """Whether the folder's files are here."""
        return self.sql is None or bool(self.files)

    metrics: list[str] = []
    """Metrics beside those of every run: ``brier``, ``ckld``, ``ece``. A run has those of its own files, too."""

    @property
    def calibrations(self) -> dict[str, str]:
        """Name to SQL of the calibrations among the files."""
        return own_of(self.files)

    @property
    def own_metrics(self) -> dict[str, str]:
        """Name to SQL of the metrics among the files."""
        return own_of(self.files, "metrics")

    @field_validator("files")
    @classmethod
    def _files_are_known(cls, files: dict[str, str]) -> dict[str, str]:
        problems = []
        for path, text in files.items():
            named = named_by(path)
            if named is None:
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
        refuse(
            [
                f"{name!r} is no metric that a spec may name; use {', '.join(MORE)}, or a file metrics/NAME.sql"
                for name in metrics
                if name not in MORE
            ]
        )
        return metrics


class ExecutionSpec(Section):
    """Resources; changing them does not change what is measured."""

    actors: Literal["auto"] | Annotated[int, Field(gt=0)] = "auto"
    gpus_per_actor: Literal["auto"] | Annotated[int, Field(ge=0)] = "auto"
    part_rows: Literal["auto"] | Annotated[int, Field(gt=0)] = "auto"
    max_gpu_hours: Annotated[float, Field(gt=0)] | None = None
    """When they are used up no other part, and no other training, begins; None: any number."""
    prices: dict[str, Annotated[float, Field(ge=0)]] = {}
    """Of an hour of a GPU, by its name, in any unit, which is that of the costs that a plan says."""

    @model_validator(mode="after")
    def _known_accelerators(self) -> Self:
        unknown = [name for name in self.prices if name not in PEAK_TFLOPS]
        refuse([f"prices: {name} is no known accelerator; name {', '.join(PEAK_TFLOPS)}" for name in unknown])
        return self

    @property
    def n_gpus(self) -> int | None:
        """GPUs of all actors together, where the spec says how many there are."""
        if self.actors == "auto":
            return None
        return self.actors * (1 if self.gpus_per_actor == "auto" else max(1, self.gpus_per_actor))

    @property
    def n_at_once(self) -> int:
        """Runs that a Ray of this run's own has room for at a time."""
        return 1


def refuse(problems: Sequence[str], error: type[ValueError] = ValueError) -> None:
    """Raise ``error`` with all problems, if there are any."""
    if problems:
        raise error("; ".join(problems))


def is_among(key: str, patterns: Sequence[str]) -> bool:
    """Return whether a dotted key is one of these, in which ``*`` stands for any name or place."""
    return any(fnmatch.fnmatchcase(key, pattern) for pattern in patterns)


def named_twice(key: str, values: Sequence[object], noun: str = "one") -> list[str]:
    """Return the problem that a list names something twice, if it does."""
    return [f"{key} {values} names {noun} twice; name each once"] if len(set(values)) < len(values) else []
