"""The spec of a search: the searched keys of another spec, the objective, and the algorithm."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from biaseval.prompting.calibration import Variant
from biaseval.spec.label_bias import LabelBiasSpec
from biaseval.spec.majority_bias import MajorityBiasSpec
from biaseval.spec.presets import EVERY_THRESHOLD, PRESETS
from biaseval.spec.qa_bias import QaBiasSpec, QaModelSpec
from biaseval.spec.qa_training import QaBaseSpec
from biaseval.spec.shared_sections import (
    ExecutionSpec,
    ModelSpec,
    RunSpec,
    Section,
    SpecError,
    is_among,
    named_twice,
    refuse,
)
from biaseval.spec.spec_errors import problems_of
from biaseval.spec.words import is_number, number_of

SearchedSpec = LabelBiasSpec | MajorityBiasSpec | QaBiasSpec
"""Kinds that can be searched, because they have metrics."""

_KINDS: tuple[type[SearchedSpec], ...] = (LabelBiasSpec, MajorityBiasSpec, QaBiasSpec)

Domain = Mapping[str, Sequence[Any]]
"""The source of a key's values: one of `DOMAINS`, with its list."""

DOMAINS: dict[str, str] = {
    "grid": "numbers of which one is taken, in their order",
    "choice": "values of any sort without an order",
    "uniform": "[lowest, highest], any number between them",
    "loguniform": "[lowest, highest] above 0, any number between them by its logarithm",
    "int": "[lowest, highest], any whole number between them",
}
"""The domains of searched keys, with the content of their lists."""

_OF_VARIANTS = ("calibration.*.strength", "calibration.*.inputs")
"""Searched keys outside the spec: they vary a method that the spec's ``calibration`` names."""

_PLANTED = ".planted."
"""A part of the keys of generated questions, which a spec has in the place of a file."""

_IS_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ObjectiveSpec(Section):
    """The objective: a number that a query over a trial's run returns, in one row and one column."""

    sql: str
    """The query, over the tables and marts of the searched kind; its column gives the objective's name."""
    maximize: bool
    """Whether larger values are better."""


class StopEarlySpec(Section):
    """Successive halving of trainings (Li et al. 2020, ASHA), by the readers' F1 on their validation sets.

    A reader is compared after ``grace_steps``, ``grace_steps * reduction``, ``grace_steps * reduction^2`` … steps. It
    continues if it is among the best ``1 / reduction`` of the same readers at that step, in trials of earlier batches.
    """

    grace_steps: Annotated[int, Field(gt=0)]
    reduction: Annotated[float, Field(gt=1)] = 3


class SearchExecutionSpec(ExecutionSpec):
    """Resources of a search: those of each trial, as in other specs, and the number of trials that share them."""

    at_once: Literal["auto"] | Annotated[int, Field(gt=0)] = "auto"
    """Trials that run at the same time, each with its share of the resources.

    ``auto`` means one on CPUs, else as many as the GPUs allow. The choice does not depend on this key.
    """

    @property
    def n_at_once(self) -> int:
        """The number of trials that the search's Ray has room for at a time."""
        return 1 if self.at_once == "auto" else self.at_once

    @property
    def of_a_trial(self) -> ExecutionSpec:
        """The resources of one trial."""
        return ExecutionSpec.model_validate(self.model_dump(exclude={"at_once"}))


class SearchSpec(RunSpec):
    """A search over keys of another spec."""

    PATHS = tuple(dict.fromkeys(f"spec.{key}" for kind in _KINDS for key in kind.PATHS))
    NAMES = tuple(dict.fromkeys(f"spec.{key}" for kind in _KINDS for key in kind.NAMES))
    RESOURCES = ("execution.*", *dict.fromkeys(f"spec.{key}" for kind in _KINDS for key in kind.RESOURCES))

    kind: Literal["search"]
    spec: Annotated[SearchedSpec, Field(discriminator="kind")]
    """The searched spec, as a mapping; a file may name the searched spec's file instead."""
    preset: str | None = None
    """One of `PRESETS`, the search of a paper, instead of ``search``, ``objective``, ``per`` and ``algorithm``."""
    search: Annotated[dict[str, Domain], Field(min_length=1)]
    """Dotted key of the searched spec to its domain; a plain list is a ``grid`` if all its values are numbers, else a
    ``choice``."""
    objective: ObjectiveSpec
    per: list[str] = []
    """Columns that identify the rows of the objective's query, such as ``task``: the search chooses a point for each
    row.

    Empty: the query returns one row, and the search chooses one point.
    """
    algorithm: Literal["grid", "random", "optuna"] = Field(default="optuna", validate_default=True)
    """Try all combinations, draw points, or use Optuna's TPE (Bergstra et al. 2011)."""
    trials: Annotated[int, Field(gt=0)] | None = Field(default=None, validate_default=True)
    """The number of trials; a grid has as many trials as combinations."""
    batch: Annotated[int, Field(gt=0)] = 4
    """Trials whose points are chosen together, from the results of all earlier batches.

    The choice depends on this key, but not on the number of trials that run at the same time.
    """
    stop_early: StopEarlySpec | None = None
    """Null: no trial stops early."""
    choose_on: Literal["half", "held_out", "published"] = "half"
    """The rows that the objective is computed on.

    ``half``: one half of the rows, split by article (QA) or row; the report also shows the other half. ``held_out``
    (label bias): BiasScore rows and the demonstrations of other settings. The report also shows the main rows, and
    BiasScore itself uses one half of its rows. ``published``: all rows, because the papers chose on their test sets.
    """
    execution: SearchExecutionSpec = Field(default=SearchExecutionSpec(), validate_default=True)
    """The resources; missing keys come from the searched spec."""

    def files(self) -> dict[str, str | None]:
        """Return the files of the searched spec."""
        return {f"spec.{key}": uri for key, uri in self.spec.files().items()}

    def models_used(self) -> Mapping[tuple[str, ...], ModelSpec | QaModelSpec | QaBaseSpec]:
        """Return the models of the searched spec."""
        return self.spec.models_used()

    @property
    def is_arithmetic(self) -> bool:
        """Whether trials share all model outputs and differ only in computations on them."""
        return all(is_among(key, (*self.spec.ANALYSIS, *_OF_VARIANTS)) for key in self.search)

    @property
    def n_trials(self) -> int:
        """The number of trials."""
        if self.trials is not None:
            return self.trials
        return math.prod(len(domain["grid" if "grid" in domain else "choice"]) for domain in self.search.values())

    def at(self, parameters: Mapping[str, Any]) -> SearchedSpec:
        """Return the spec of a trial with these values; Raises ValidationError: a key cannot have its value."""
        return _changed(self.spec, parameters).model_copy(update={"execution": self.execution.of_a_trial})

    @field_validator("spec")
    @classmethod
    def _trials_are_over_the_same_rows(cls, spec: SearchedSpec) -> SearchedSpec:
        if spec.analysis.missing_parts == "leave_out":
            raise SpecError("spec.analysis.missing_parts: trials are compared over the same rows; take leave_out out")
        return spec

    @field_validator("preset")
    @classmethod
    def _a_preset_fits_the_spec(cls, preset: str | None, info: ValidationInfo) -> str | None:
        if preset is not None and "spec" in info.data:
            problems = PRESETS[preset].problems(info.data["spec"])
            refuse([f"preset: {preset} {problem}" for problem in problems], SpecError)
        return preset

    @field_validator("search", mode="before")
    @classmethod
    def _a_list_is_a_domain(cls, search: Any) -> Any:
        return {key: _domain(given) for key, given in search.items()} if isinstance(search, dict) else search

    @field_validator("search")
    @classmethod
    def _keys_can_be_searched(cls, search: dict[str, Domain], info: ValidationInfo) -> dict[str, Domain]:
        refuse([f"search.{key}: {why}" for key, domain in search.items() for why in _wrong(domain)], SpecError)
        both = "is searched, too; leave one out"
        refuse([f"search.{key}: {other} {both}" for key in search for other in _within(key, search)], SpecError)
        if {"spec", "preset"} <= info.data.keys():
            spec = info.data["spec"]
            refuse([problem for key, own in search.items() for problem in _unsearchable(spec, key, own)], SpecError)
        return search

    @field_validator("objective", mode="before")
    @classmethod
    def _one_number_is_looked_for(cls, objective: Any) -> Any:
        if not isinstance(objective, list):
            return objective
        if len(objective) != 1:
            raise SpecError(
                f"objective: lists {len(objective)}, and a search looks for one number; name one, and read others from "
                "the tables of each trial, or make a search for each"
            )
        return objective[0]

    @field_validator("per")
    @classmethod
    def _columns_are_named_once(cls, per: list[str]) -> list[str]:
        refuse(named_twice("per", per, "a column"), SpecError)
        return per

    @field_validator("algorithm")
    @classmethod
    def _a_sampler_looks_for_one_point(cls, algorithm: str, info: ValidationInfo) -> str:
        if algorithm == "optuna" and info.data.get("per"):
            raise SpecError(
                f"per: optuna looks for one point, not for one for each {' and '.join(info.data['per'])}; take the "
                "algorithm grid or random, or leave per out"
            )
        return algorithm

    @field_validator("trials")
    @classmethod
    def _trials_can_be_counted(cls, trials: int | None, info: ValidationInfo) -> int | None:
        algorithm, search = info.data.get("algorithm"), info.data.get("search")
        if algorithm is None or search is None:
            return trials
        if algorithm != "grid" and trials is None:
            raise SpecError(f"trials: is missing; say how many the algorithm {algorithm} makes")
        if algorithm == "grid":
            endless = [key for key, domain in search.items() if not {"grid", "choice"} & domain.keys()]
            problems = [f"search.{key}: {_kind(search[key])} has no end; algorithm grid takes lists" for key in endless]
            if trials is not None:
                problems.append("trials: a grid has as many as it has combinations; leave it out, or take random")
            refuse(problems, SpecError)
        return trials

    @field_validator("choose_on")
    @classmethod
    def _held_out_rows_are_scored(cls, choose_on: str, info: ValidationInfo) -> str:
        spec = info.data.get("spec")
        if choose_on == "held_out" and spec is not None and not spec.held_out:
            what = "set held_out: true in its spec" if "held_out" in type(spec).model_fields else "choose on half"
            raise SpecError(f"choose_on: the {spec.kind} run scores no held-out rows; {what}")
        return choose_on

    @field_validator("stop_early")
    @classmethod
    def _trials_report_on_the_way(cls, stop_early: StopEarlySpec | None, info: ValidationInfo) -> StopEarlySpec | None:
        spec = info.data.get("spec")
        if stop_early is None:
            return None
        if spec is not None and spec.train is None:
            raise SpecError(
                "stop_early: only readers that are trained (train) say on the way how they do; leave it out"
            )
        if info.data.get("per"):
            raise SpecError("stop_early: a trial that is stopped for one reader is lost to all of per; leave one out")
        return stop_early

    @model_validator(mode="before")
    @classmethod
    def _a_preset_says_what_is_searched(cls, content: Any) -> Any:
        if not isinstance(content, dict) or content.get("preset") is None:
            return content
        name = content["preset"]
        if not isinstance(name, str) or name not in PRESETS:
            raise SpecError(f"preset: {name!r} is unknown; use {' or '.join(PRESETS)}")
        own = PRESETS[name].content
        if other := [key for key in (*own, "trials") if content.get(key, own.get(key)) != own.get(key)]:
            raise SpecError(f"preset: {name} says what {', '.join(own)} are; leave out {', '.join(other)}")
        return {**content, **own}

    @model_validator(mode="before")
    @classmethod
    def _resources_are_those_of_the_spec(cls, content: Any) -> Any:
        """Use the searched spec's resources where the search names no others."""
        if isinstance(content, dict) and isinstance(content.get("spec"), dict):
            own, given = content["spec"].get("execution"), content.get("execution", {})
            if isinstance(own, dict) and isinstance(given, dict):
                return {**content, "execution": {**own, **given}}
        return content


def _within(key: str, search: Mapping[str, Domain]) -> list[str]:
    """Return the other searched keys that contain this key."""
    parts = [other for other in search if other != key and (key.startswith(f"{other}."))]
    return parts + [other for other in search if other == EVERY_THRESHOLD != key and key.startswith("thresholds.")]


def _domain(given: Any) -> Any:
    """Return a domain with its kind; texts that spell numbers in YAML 1.1 (``2e-4``) become numbers."""
    if isinstance(given, list):
        numbers = [number_of(value) if _is_rate(value) else value for value in given]
        return {"grid": numbers} if all(map(is_number, numbers)) else {"choice": given}
    if isinstance(given, dict):
        return {
            kind: [number_of(value) for value in values] if kind != "choice" and isinstance(values, list) else values
            for kind, values in given.items()
        }
    return given


def _is_rate(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[-+]?\d+[eE][-+]?\d+", value) is not None


def _kind(domain: Domain) -> str:
    return next(iter(domain), "nothing")


def _wrong(domain: Domain) -> list[str]:
    """Return the mistakes of a domain, whatever its key."""
    known = ", ".join(DOMAINS)
    if len(domain) != 1 or _kind(domain) not in DOMAINS:
        return [f"{dict(domain)!r} is no domain; write a list, or one of {known} with its list"]
    [(kind, values)] = domain.items()
    if not values:
        return [f"{kind} is empty; give it values, or leave the key out"]
    # 1 and 1.0 are the same value.
    shown = [repr(float(value)).removesuffix(".0") if is_number(value) else repr(value) for value in values]
    twice = sorted({value for value in shown if shown.count(value) > 1})
    if kind in ("grid", "choice"):
        numbers = [] if kind == "choice" or all(map(is_number, values)) else ["grid takes numbers; choice takes all"]
        return [*numbers, *([f"{', '.join(twice)} stands there twice; name each once"] if twice else [])]
    if len(values) != 2 or not all(map(is_number, values)) or not values[0] < values[1]:
        return [f"{kind} takes [lowest, highest] with lowest < highest, found {list(values)!r}; change it"]
    if kind == "loguniform" and values[0] <= 0:
        return [f"loguniform begins above 0, found {values[0]!r}; change it, or take uniform"]
    if kind == "int" and any(value != int(value) for value in values):
        return [f"int takes whole numbers, found {list(values)!r}; change it, or take uniform"]
    return []


def _unsearchable(spec: SearchedSpec, key: str, domain: Domain) -> list[str]:
    """Return the reasons why a key of a spec cannot take the values of a domain."""
    place = f"search.{key}"
    if key != EVERY_THRESHOLD and not all(_IS_WORD.fullmatch(part) for part in key.split(".")):
        return [f"{place}: is no key; write the names from the top of the spec on, with dots between them"]
    if key in ("kind", "name", "analysis.missing_parts"):
        return [f"{place}: says which run it is, not how it is made; search another key"]
    if is_among(key, spec.RESOURCES):
        return [f"{place}: changes the cost of a run, not its results; search another key"]
    if is_among(key, spec.PATHS) and _PLANTED not in key:
        return [f"{place}: names a file or a model; make a search for each"]
    if any(pattern.startswith(f"{key}.") for pattern in (*spec.PATHS, *spec.RESOURCES)) or _is_section(spec, key):
        return [f"{place}: is a section; name one of its keys"]
    if key.rpartition(".")[0] in _thresholds_by_name(spec):
        return [f"{place}: the spec has mikula2024 there; write its numbers out, to search one of them"]
    if key.startswith("calibration.") and (problems := _unsearchable_calibration(spec, key)):
        return problems
    for value in domain[_kind(domain)]:
        number = float(value) if _kind(domain) in ("uniform", "loguniform") else value
        try:
            _changed(spec, {key: number})
        except ValidationError as error:
            content = _content(spec, {key: number})
            return [f"{place}: {problem}" for problem in problems_of(error, type(spec), content)]
    return []


def _thresholds_by_name(spec: SearchedSpec) -> list[str]:
    """Return the keys with published thresholds; a search of one number there would drop the others."""
    named = {"thresholds": spec.thresholds, "train.thresholds": spec.train and spec.train.thresholds}
    return [key for key, value in named.items() if value == "mikula2024"]


def _is_section(spec: SearchedSpec, key: str) -> bool:
    found: Any = spec
    for part in key.split("."):
        found = getattr(found, part, None)
    return isinstance(found, Section)


def _content(spec: SearchedSpec, parameters: Mapping[str, Any]) -> dict[str, Any]:
    content = spec.model_dump()
    for key, value in parameters.items():
        section, names = content, key.split(".")
        if is_among(key, _OF_VARIANTS) and "calibration" in content:
            content["calibration"] = _varied(content["calibration"], names[1], names[2], value)
            continue
        if key == EVERY_THRESHOLD and "heuristics" in content:
            content["thresholds"] = dict.fromkeys(content["heuristics"], value)
            continue
        for name in names[:-1]:
            if not isinstance(section.get(name), dict):
                section[name] = {}
            section = section[name]
        section[names[-1]] = value
    return content


def _varied(calibration: Sequence[str], method: str, what: str, value: Any) -> list[str]:
    """Return the calibrations of a spec, with another strength or number of inputs for one method."""
    return [
        str(replace(variant, **{what: value})) if variant.method == method else str(variant)
        for variant in map(Variant.of, calibration)
    ]


def _unsearchable_calibration(spec: SearchedSpec, key: str) -> list[str]:
    """Return the reasons why a key below ``calibration`` cannot be searched."""
    if not is_among(key, _OF_VARIANTS):
        return [f"search.{key}: is no key; search calibration.METHOD.strength or calibration.METHOD.inputs"]
    method, known = key.split(".")[1], [Variant.of(name).method for name in getattr(spec, "calibration", [])]
    if known.count(method) != 1:
        how = "has several variants of" if method in known else "does not name"
        return [f"search.{key}: the spec's calibration {how} {method}; name it there once"]
    return []


def _changed(spec: SearchedSpec, parameters: Mapping[str, Any]) -> SearchedSpec:
    return type(spec).model_validate(_content(spec, parameters))
