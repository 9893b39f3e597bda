"""The spec of a label-bias run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, ValidationInfo, field_validator, model_validator

from biaseval.errors import InputError, did_you_mean
from biaseval.metric_files import Metric, metric_files
from biaseval.prompting.calibration import Variant, leaves_one_out, permuting, purposes_of
from biaseval.spec import shared_sections as parts
from biaseval.spec.data import BASE, DataSpec, FormatSpec, ItemSpec, layout_texts, template_fields
from biaseval.spec.data_pool import MIN_INSTANCES, N_DEMONSTRATIONS, POOL_SIZE, training_positions
from biaseval.spec.training import LabelLoraSpec, LoraSpec, other_adapters, untrainable

KNOWN_SUITES = ("all", "semantically_equivalent")
"""Suites that every run has."""


class TasksSpec(parts.Section):
    """The tasks, and the sampling of their instances."""

    path: str
    """A folder of Super-NaturalInstructions task files (``*.json``), or one such file."""
    table: str | None = None
    """The CSV of task names, categories and languages that ``suite: selection`` needs."""
    suite: Literal["reif2024", "semantically_equivalent", "selection"] | None = None
    include: Annotated[list[str], Field(min_length=1)] | None = None
    """Globs over task names (``task109_*``); a name without a wildcard must exist."""
    min_instances: Annotated[int, Field(gt=POOL_SIZE)] = MIN_INSTANCES
    """The fewest instances of a task; below the default it admits only those small tasks that ``include`` names in
    full."""
    max_eval: Annotated[int, Field(gt=0)] = 1000
    sampling: Literal["per_task", "reif2024"] = "per_task"
    templates: str | None = None
    """A CSV ``task,template`` for domain-context calibration; other tasks get an inferred template."""
    splits: str | None = None
    """The ``splits`` folder of another run (or a Parquet file); the run uses exactly its instances."""
    on_bad_task: Literal["error", "skip"] = "error"

    @field_validator("include", mode="before")
    @classmethod
    def _one_glob_is_a_list(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value


class LabelDataSpec(DataSpec):
    """A user's data set, which is one task: demonstrations and BiasScore rows come from ``train``."""

    options: dict[str, str] | str | None = None
    """Multiple choice: label to the column of its option, as in ``{A: option_a, B: option_b}``, or one column with all
    options.

    The one column holds a list, or the lists ``text`` and ``label``. Its labels are ``A``, ``B``, … by position.
    """
    name: parts.Name
    """The task's name; a single data set without a list takes the name of its file (`own_name`)."""
    max_test: Annotated[int, Field(gt=0)] = 1000

    @field_validator("options")
    @classmethod
    def _options_are_labels_of_columns(
        cls, options: dict[str, str] | str | None, info: ValidationInfo
    ) -> dict[str, str] | str | None:
        if options is not None and info.data.get("labels") is not None:
            raise ValueError("data.labels does not go with it: labels are those of the options; take data.labels out")
        if isinstance(options, dict):
            if len(options) < 2:
                raise ValueError("names fewer than two options; name the column of each")
            bad = [label for label in options if not label or label != label.strip()]
            parts.refuse([f"the label {label!r} is empty or has spaces around it; write a bare word" for label in bad])
            parts.refuse(parts.named_twice("its columns", list(options.values()), "a column"))
        return options


def own_name(train: str) -> str:
    """Return the name of a data set in every spec: its file name without endings.

    Runs over the same data share its tasks by name, whatever the names of their specs.
    """
    file = re.split(r"[/\\]", train.rstrip("/"))[-1]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", file.split(".")[0])[: parts.MOST_CHARACTERS].strip("._-")


class LmEvalDataSpec(parts.Section):
    """A task of lm-evaluation-harness over local files, which has its own prompts."""

    lm_eval: str
    """The task's YAML file."""
    name: parts.Name
    """The task's name; default: the name of the file without ``.yaml``."""
    max_test: Annotated[int, Field(gt=0)] = 1000

    @model_validator(mode="before")
    @classmethod
    def _the_file_says_the_rest(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        other = [key for key in LabelDataSpec.model_fields if key in value and key not in cls.model_fields]
        parts.refuse([f"{key} does not go with lm_eval, whose file says it; take one of the two out" for key in other])
        stem = Path(str(value.get("lm_eval"))).stem
        if value.get("name") is None and not re.fullmatch(parts.NAME, stem):
            raise ValueError(f"name: is missing, and {stem!r} of the file is none; add a name of letters and digits")
        return {**value, "name": value.get("name") or stem}


def _which_data(value: object) -> str:
    """Return the tag of an entry of ``data``; no key has this name."""
    is_task = "lm_eval" in value if isinstance(value, dict) else isinstance(value, LmEvalDataSpec)
    return "task-of-lm-eval" if is_task else "rows"


DataEntry = Annotated[
    Annotated[LabelDataSpec, Tag("rows")] | Annotated[LmEvalDataSpec, Tag("task-of-lm-eval")],
    Discriminator(_which_data),
]


class PromptSpec(ItemSpec):
    """The construction of prompts: as published (P1 section 3), or from an item template."""

    demos: Literal["random", "balanced"] = "random"
    """``balanced``: in each demonstration set the counts of two labels differ by at most one."""
    n_demos: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] = [0, 2, 4, 8, 16]
    demo_sets: Annotated[int, Field(gt=0)] = 3
    max_tokens: Annotated[int, Field(gt=0)] = 2000
    prefix_mode: Literal["exact", "reference"] = "exact"
    """``reference`` scores the tokens of P1's code, which cuts a shared prefix by characters. They may not be those of
    the text."""
    formats: dict[parts.Name, FormatSpec] = {}
    """Other wordings and orders of the same prompt, by name; biaseval measures each in addition to the default
    wording."""

    @property
    def all_formats(self) -> dict[str, FormatSpec]:
        """Return the default wording and the formats, by name, each with all its keys."""
        base = FormatSpec(item=self.item, instruction_text=self.instruction_text, separator=self.separator)
        own = {name: base.model_copy(update=form.model_dump(exclude_none=True)) for name, form in self.formats.items()}
        return {BASE: base, **own}

    @model_validator(mode="after")
    def _formats_are_others(self) -> PromptSpec:
        if BASE in self.formats:
            raise ValueError(f"formats.{BASE}: is the name of what the section itself says; choose another")
        parts.refuse(list(self._format_problems()))
        return self

    def _format_problems(self) -> Iterator[str]:
        fields = ("input",) if self.item is None else template_fields(self.item)
        seen: dict[str, FormatSpec] = {}
        for name, form in self.all_formats.items():
            key = f"formats.{name}"
            if same := [other for other, known in seen.items() if known == form]:
                yield f"{key}: is the same as {same[0]}; change something of it, or take it out"
            if form.order != "drawn" and max(self.n_demos) < 2:
                yield f"{key}.order: there are never two demonstrations to order; raise n_demos, or take it out"
            if form.item is not None and set(own := template_fields(form.item)) != set(fields):
                shown, known = ", ".join(own), ", ".join(fields)
                yield f"{key}.item: shows {shown}, and prompt.item {known}; formats word the same fields in other ways"
            seen[name] = form

    @model_validator(mode="after")
    def _pool_is_large_enough(self) -> PromptSpec:
        problems = [
            f"{self.demo_sets} demonstration sets of {n_demos} need {n_demos * self.demo_sets} demonstrations "
            f"and the pool has {N_DEMONSTRATIONS}; lower n_demos or demo_sets"
            for n_demos in dict.fromkeys(self.n_demos)
            if n_demos * self.demo_sets > N_DEMONSTRATIONS
        ]
        parts.refuse([*problems, *parts.named_twice("n_demos", self.n_demos, "a number")])
        return self


def _as_in_marts(method: str) -> str:
    """Return a method's name in the marts: ``dc`` for ``dc@1``; any other name unchanged."""
    adaptation, plus, calibration = method.rpartition("+")
    try:
        return f"{adaptation}{plus}{Variant.of(calibration)}"
    except ValueError:
        return method


class PrimarySpec(parts.Section):
    """The primary hypothesis, which biaseval tests apart from all others: does this method change this metric?"""

    metric: str
    """A metric of the run whose changes biaseval judges: ``rsd``, ``bias_score``, ``accuracy``, ``macro_f1``, or one of
    ``analysis`` that rows alone do not push away from 0."""
    method: Annotated[str, AfterValidator(_as_in_marts)]
    """The name in the marts: a calibration of the run, ``lora``, or ``lora+`` a calibration.

    The test compares it with no calibration, at every number of demonstrations.
    """


class LabelBiasSpec(parts.RunSpec):
    """A label-bias run (P1)."""

    PATHS = (
        *parts.below("model", "path", "adapter"),
        *parts.below("tasks", "path", "table", "templates", "splits"),
        *parts.below("data.*", "train", "test", "lm_eval"),
        "lora.deepspeed_config",
    )
    NAMES = ("model.path", "model.adapter")
    RESOURCES = ("execution.*", *LoraSpec.RESOURCES)
    ANALYSIS = ("scoring.*", "suites.*", "primary.*", "analysis.*", *parts.LINEAGE)
    GROWS = (
        *("prompt.n_demos", "prompt.demo_sets", "prompt.formats", "calibration", "data", "analysis.files"),
        *("lora", "lora.n_demos", "lora.demo_sets"),
    )
    # Keys of other kinds that a search reads.
    thresholds: ClassVar[Mapping[str, float]] = {}
    train: ClassVar[None] = None

    kind: Literal["label_bias"]
    model: parts.ModelSpec
    tasks: TasksSpec | None = None
    data: Annotated[list[DataEntry], Field(min_length=1)] | None = None
    """The user's data sets, instead of ``tasks``; a single one needs no list."""
    prompt: PromptSpec = PromptSpec()
    held_out: bool = False
    """Whether each setting also scores the demonstrations of other settings, with the purpose ``held_out``.

    Metrics do not count these rows, and a search may choose on them (``choose_on: held_out``).
    """
    analysis: parts.AnalysisSpec = parts.AnalysisSpec()
    calibration: list[parts.Method] = []
    scoring: parts.ScoringSpec = parts.ScoringSpec()
    suites: dict[parts.Name, Annotated[list[str], Field(min_length=1)]] = {}
    """More groups of tasks to average over: name to task names, or globs over them."""
    lora: LabelLoraSpec | None = None
    primary: PrimarySpec | None = None
    execution: parts.ExecutionSpec = parts.ExecutionSpec()

    def files(self) -> dict[str, str | None]:
        """Return the files except the tasks; a run records the files of the tasks' folder by name."""
        if self.tasks is not None:
            return {f"tasks.{key}": getattr(self.tasks, key) for key in ("table", "templates", "splits")}
        return {
            f"data of {data.name}, {role}": getattr(data, role)
            for data in self.data or []
            for role in (("lm_eval",) if isinstance(data, LmEvalDataSpec) else ("train", "test"))
        }

    def datasets(self) -> dict[str, LabelDataSpec | LmEvalDataSpec]:
        """Return the user's data sets, by their keys in messages."""
        own = self.data or []
        return {"data" if len(own) == 1 else f"data.{number}": data for number, data in enumerate(own)}

    @property
    def sampling(self) -> Literal["per_task", "reif2024"]:
        """Return the sampling of instances."""
        return "per_task" if self.tasks is None else self.tasks.sampling

    def members(self, tasks: Sequence[str]) -> dict[str, list[str]]:
        """Return those of a run's tasks that are in each of ``suites``, in their order.

        Raises:
            InputError: a name or glob matches no task, or a suite has only one task, which needs no mean.
        """
        found = {
            suite: [task for task in tasks if any(fnmatchcase(task, glob) for glob in globs)]
            for suite, globs in self.suites.items()
        }
        problems = [
            f"suites.{suite}: no task is called {glob}{did_you_mean(glob, tasks)}"
            for suite, globs in self.suites.items()
            for glob in globs
            if not any(fnmatchcase(task, glob) for task in tasks)
        ]
        problems += [
            f"suites.{suite}: has {own[0]} alone; name two or more (label_bias_by_task has the values of one)"
            for suite, own in found.items()
            if len(own) == 1
        ]
        if problems:
            raise InputError.of(problems)
        return found

    def further_differences(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterable[str]:
        """Yield resources whose change would make other adapters."""
        return other_adapters(before, after)

    @field_validator("tasks")
    @classmethod
    def _suite_has_its_table(cls, tasks: TasksSpec | None) -> TasksSpec | None:
        if tasks is not None and tasks.suite == "selection" and tasks.table is None:
            raise parts.SpecError("tasks.table: suite: selection needs the CSV of task names, categories and languages")
        return tasks

    @field_validator("suites")
    @classmethod
    def _suites_are_others(cls, suites: dict[str, list[str]]) -> dict[str, list[str]]:
        taken = "is the name of a suite that every run has; choose another"
        parts.refuse([f"suites.{suite}: {taken}" for suite in suites if suite in KNOWN_SUITES], parts.SpecError)
        return suites

    @field_validator("data", mode="before")
    @classmethod
    def _one_data_set_is_a_list(cls, data: object, info: ValidationInfo) -> object:
        if not isinstance(data, dict):
            return data
        if "lm_eval" in data:
            return [data]
        return [{"name": own_name(str(data.get("train", ""))) or info.data.get("name"), **data}]

    @model_validator(mode="after")
    def _has_tasks_or_data(self) -> LabelBiasSpec:
        if (self.tasks is None) == (self.data is None):
            found = "are missing" if self.tasks is None else "stand there both"
            raise parts.SpecError(
                f"tasks and data: {found}; name a folder of Super-NaturalInstructions in tasks.path, or files of your "
                "own in data.train"
            )
        names = [data.name for data in self.data or []]
        parts.refuse(parts.named_twice("data: name", names, "a data set"), parts.SpecError)
        if any(isinstance(data, LmEvalDataSpec) for data in self.data or []):
            texts = [*layout_texts(self.prompt, self.prompt.formats), *["prompt.flip"] * (self.prompt.flip > 0)]
            why = "does not go with data.lm_eval, whose file says what prompts are; take it out"
            parts.refuse([f"{key} {why}" for key in texts], parts.SpecError)
        if self.prompt.demos == "balanced" and self.tasks is not None:
            fixed = ["sampling: reif2024"] if self.tasks.sampling == "reif2024" else []
            fixed += [f"splits: {self.tasks.splits}"] if self.tasks.splits else []
            parts.refuse(
                [f"prompt.demos: balanced does not go with tasks.{one}, which fixes the draw" for one in fixed]
            )
        return self

    @field_validator("calibration")
    @classmethod
    def _methods_fit_the_data(cls, calibration: list[parts.Method], info: ValidationInfo) -> list[parts.Method]:
        analysis = info.data.get("analysis")
        own = {} if analysis is None else analysis.calibrations
        problems = parts.named_twice("calibration", calibration, "a method")
        without = [
            f"data set {own.name} has" for own in info.data.get("data") or [] if getattr(own, "options", None) is None
        ]
        if info.data.get("tasks") is not None:
            without = ["task files have"]
        if without and (analysis is None or analysis.is_read) and (permuted := permuting(calibration, own)):
            problems.append(
                f"calibration: {permuted[0]} permutes the options of questions, and {without[0]} none; name them in "
                f"data.options, or take {permuted[0]} out"
            )
        parts.refuse(problems, parts.SpecError)
        return calibration

    @field_validator("lora")
    @classmethod
    def _adapters_can_be_trained(cls, lora: LabelLoraSpec | None, info: ValidationInfo) -> LabelLoraSpec | None:
        if lora is None:
            return lora
        problems = untrainable(info.data["model"]) if "model" in info.data else []
        if "prompt" in info.data:
            prompt: PromptSpec = info.data["prompt"]
            other = [str(n_demos) for n_demos in lora.n_demos or () if n_demos not in prompt.n_demos]
            problems += [
                f"n_demos {n_demos} is not in prompt.n_demos; take it out, or add it there" for n_demos in other
            ]
            if (lora.demo_sets or 0) > prompt.demo_sets:
                problems.append(
                    f"demo_sets {lora.demo_sets} is more than prompt.demo_sets {prompt.demo_sets}; lower it"
                )
            problems += _shown_examples(prompt, lora)
            if info.data["prompt"].formats:
                problems.append("adapters are trained on one format of the prompt; take prompt.formats out, or lora")
        parts.refuse([f"lora: {problem}" for problem in problems], parts.SpecError)
        return lora

    @field_validator("primary")
    @classmethod
    def _primary_is_measured(cls, primary: PrimarySpec | None, info: ValidationInfo) -> PrimarySpec | None:
        if primary is None or "calibration" not in info.data or "lora" not in info.data:
            return primary
        analysis = info.data.get("analysis")
        if analysis is not None and analysis.is_read:
            files = metric_files(analysis.metrics, analysis.own_metrics)
            known = [Metric.of(name, sql) for name, sql in files.items()]
            judged = [one.name for one in known if one.noise != "none"]
            judged = [name for name in judged if name not in {one.requires for one in known}]
            if primary.metric not in judged:
                hint = did_you_mean(primary.metric, judged)
                why = "is given no verdict" if primary.metric in files else "is no metric of this run"
                raise parts.SpecError(f"primary.metric: {primary.metric!r} {why}{hint}")
        methods: list[str] = info.data["calibration"]
        if info.data["lora"] is not None:
            methods = [*methods, "lora", *(f"lora+{method}" for method in methods)]
        if not methods:
            raise parts.SpecError(
                "primary.method: the run has no method that could change anything; add it to calibration"
            )
        if primary.method not in methods:
            hint = did_you_mean(primary.method, methods)
            raise parts.SpecError(f"primary.method: {primary.method!r} is no method of this run{hint}")
        own = primary.method.rpartition("+")[2]
        n_demos = info.data["prompt"].n_demos if "prompt" in info.data else [1]
        if own == "lora" or analysis is None or not analysis.is_read or any(n_demos):
            return primary
        if any(leaves_one_out(one.name) for one in purposes_of([own], analysis.calibrations)):
            raise parts.SpecError(
                f"primary.method: {primary.method!r} needs demonstrations, and prompt.n_demos has 0 alone; "
                "name another method, or add a number"
            )
        return primary


def _shown_examples(prompt: PromptSpec, lora: LabelLoraSpec) -> Iterator[str]:
    """Yield the demonstration sets whose adapter would train on their own demonstrations."""
    for n_demos in prompt.n_demos:
        for demo_set in range(prompt.demo_sets if n_demos else 1):
            shown = range(n_demos * demo_set, n_demos * (demo_set + 1))
            own = training_positions(n_demos, demo_set, lora.n_examples)
            if lora.is_trained(n_demos, demo_set) and not set(shown).isdisjoint(own):
                yield (
                    f"{lora.n_examples} training examples beside demonstration set {demo_set} of {n_demos} "
                    f"would be among its own demonstrations: the pool has {N_DEMONSTRATIONS}; lower "
                    "lora.n_examples, n_demos or demo_sets"
                )
