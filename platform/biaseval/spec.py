"""Specs: what a run measures, from a YAML file. Unknown keys are refused; all mistakes come in one message."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from biaseval.errors import InputError

POOL_SIZE = 96
N_DEMONSTRATIONS = 64
"""Of the pool of 96, the first 64 may be demonstrations and the last 32 are the BiasScore rows (P1 section 3.1)."""

MIN_INSTANCES = 396
"""The smallest task of the published suite: the pool of 96 and 300 evaluation rows (P1 section 3.1)."""

Method = Literal["cc", "dc", "looc"]


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


class LabelBiasSpec(_Section):
    """A label-bias run (P1)."""

    PATHS: ClassVar[tuple[str, ...]] = (
        "model.path",
        "model.adapter",
        "tasks.path",
        "tasks.table",
        "tasks.templates",
        "tasks.splits",
    )
    """The keys that name files: relative ones are relative to the spec file."""

    kind: Literal["label_bias"]
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 42
    model: ModelSpec
    tasks: TasksSpec
    prompt: PromptSpec = PromptSpec()
    calibration: list[Method] = []
    scoring: ScoringSpec = ScoringSpec()
    lora: None = None
    execution: ExecutionSpec = ExecutionSpec()

    @model_validator(mode="after")
    def _suite_has_its_table(self) -> LabelBiasSpec:
        if self.tasks.suite == "selection" and self.tasks.table is None:
            raise ValueError("tasks.table: suite: selection needs the CSV of task names, categories and languages")
        if len(set(self.calibration)) < len(self.calibration):
            raise ValueError(f"calibration {self.calibration} names a method twice; name each once")
        return self


def load_spec(path: str | Path, overrides: Sequence[str] = ()) -> LabelBiasSpec:
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
        raise InputError(f"{path}: a spec is a mapping of keys such as kind, name, model, tasks; this file is not")
    for override in overrides:
        _apply_override(content, override)
    return validate_spec(content, source=str(path), folder=path.resolve().parent)


def validate_spec(content: dict[str, Any], *, source: str, folder: Path) -> LabelBiasSpec:
    """Return the spec with the given content.

    Args:
        content: keys and values as parsed from YAML.
        source: the file's name, for messages.
        folder: what relative paths are relative to.
    """
    kind = content.get("kind")
    if kind != "label_bias":
        found = "is missing" if kind is None else f"{kind!r} is unknown"
        raise InputError(f"{source}: kind: {found}; use label_bias")
    try:
        spec = LabelBiasSpec.model_validate(content)
    except ValidationError as error:
        raise InputError.of([f"{source}: {problem}" for problem in _problems(error)]) from error
    return LabelBiasSpec.model_validate(_with_absolute_paths(spec.model_dump(), folder))


def dump_spec(spec: LabelBiasSpec) -> str:
    """Return the resolved spec as YAML."""
    return yaml.safe_dump(spec.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def differences(old: str, new: LabelBiasSpec) -> list[str]:
    """Return a line for each key in which a run directory's ``spec.yaml`` differs from ``new``.

    ``execution`` may differ, and so may the places of files: what they hold is compared by the run's fingerprints.
    """
    ignored = {"execution", *LabelBiasSpec.PATHS}
    before = _flatten(_parse_yaml(old, "spec.yaml"))
    after = _flatten(new.model_dump(mode="json"))
    lines = []
    for key in [*before, *(key for key in after if key not in before)]:
        if key in ignored or key.split(".")[0] in ignored:
            continue
        if before.get(key) != after.get(key):
            lines.append(f"{key}: the run has {before.get(key)!r}, the spec {after.get(key)!r}")
    for key in LabelBiasSpec.PATHS:
        if (before.get(key) is None) != (after.get(key) is None):
            lines.append(f"{key}: the run has {before.get(key)!r}, the spec {after.get(key)!r}")
    return lines


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
        child = section.setdefault(parent, {})
        if not isinstance(child, dict):
            raise InputError(f"--set {override}: {parent} is not a section of the spec")
        section = child
    section[last] = _parse_yaml(value, f"--set {override}")


def _problems(error: ValidationError) -> Iterable[str]:
    for detail in error.errors():
        location = [part for part in detail["loc"] if part not in ("constrained-int", "int", "literal['auto']")]
        key = ".".join(str(part) for part in location) or "spec"
        if detail["type"] == "extra_forbidden":
            known = _known_keys(location[:-1])
            close = difflib.get_close_matches(str(location[-1]), known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known keys here: {', '.join(known)}"
            yield f"{key}: unknown key; {hint}"
        elif detail["type"] == "missing":
            yield f"{key}: is required and missing; add it"
        elif detail["type"] == "value_error":
            yield f"{key}: {detail['ctx']['error']}"
        elif key == "lora":
            yield "lora: adapters cannot be trained by this version; remove the section or write null"
        else:
            yield f"{key}: {detail['msg'][0].lower()}{detail['msg'][1:]}, found {detail['input']!r}; change it"


def _known_keys(location: Sequence[str | int]) -> list[str]:
    model: type[BaseModel] = LabelBiasSpec
    for part in location:
        annotation = model.model_fields[str(part)].annotation
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        model = annotation
    return list(model.model_fields)


def _with_absolute_paths(content: dict[str, Any], folder: Path) -> dict[str, Any]:
    for key in LabelBiasSpec.PATHS:
        section, name = key.split(".")
        value = content[section][name]
        if value is None or "://" in value:
            continue
        local = (folder / Path(value).expanduser()).resolve()
        # A model or adapter that is no local directory is a Hugging Face name.
        if section == "tasks" or local.exists() or value.startswith((".", "/", "~")):
            content[section][name] = str(local)
    return content


def _flatten(content: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(content, dict):
        return {prefix.rstrip("."): content}
    flat: dict[str, Any] = {}
    for key, value in content.items():
        flat.update(_flatten(value, f"{prefix}{key}."))
    return flat
