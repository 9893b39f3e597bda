"""Everything that a label-bias run scores, as tables: splits, contexts and prompts, one task at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

from biaseval.errors import InputError
from biaseval.label_bias import suites
from biaseval.label_bias.calibration import CC_INPUTS, domain_context
from biaseval.label_bias.prompts import (
    PromptFitter,
    TokenCounter,
    definition_text,
    demonstration_text,
    merge_margin,
    test_text,
)
from biaseval.label_bias.splits import Sampler, Splits, read_splits, reproduce
from biaseval.label_bias.tasks import Instance, Task, read_task
from biaseval.label_bias.templates import read_templates, template_of
from biaseval.label_bias.training_rows import adapter_name, training_rows
from biaseval.spec import MIN_INSTANCES, LabelBiasSpec
from biaseval.tables import CONTEXTS, PROMPTS, TASKS, TRAINING_ROWS

_ROWS_PER_PART = 512
_SCORES_PER_PART = 2048


@dataclass(frozen=True)
class PlannedPart:
    """Prompts that are scored together; the composition is fixed here, so that a resumed run packs identically."""

    prompts: pa.Table
    tokens: int
    """Tokens to compute with shared prefixes: each context once, then inputs and labels (approximate)."""
    tokens_unshared: int
    """Tokens of one full text per (prompt, label) (approximate)."""
    adapter: str | None = None
    """The adapter of all its prompts, by its folder; None in a run without adapters."""


@dataclass(frozen=True)
class TaskPlan:
    """What one task adds to the run."""

    task: str
    sha256: str
    tasks: pa.Table
    splits: pa.Table
    contexts: pa.Table
    training_rows: pa.Table
    """Of all its adapters, in their order, without ``n_tokens``; none in a run without adapters."""
    parts: list[PlannedPart]
    notes: list[str]
    """What a reader of the results should know, in words."""

    @property
    def n_scores(self) -> int:
        """(prompt, label) pairs."""
        return sum(int(pa.compute.list_value_length(part.prompts["labels"]).to_numpy().sum()) for part in self.parts)

    @property
    def n_shortened(self) -> int:
        """Prompts that hold fewer demonstrations than asked for: the length limit was reached."""
        return sum(_n_shortened(part.prompts) for part in self.parts)

    @property
    def n_cut(self) -> int:
        """Prompts that are too long without any demonstration and lose their end."""
        return sum(sum(part.prompts["is_truncated"].to_pylist()) for part in self.parts)

    @property
    def n_prompts(self) -> int:
        """Scored inputs."""
        return sum(part.prompts.num_rows for part in self.parts)


@dataclass
class _Rows:
    """Rows of the prompts under construction, with the token counts that planning needs."""

    prompts: list[dict[str, object]] = field(default_factory=list)
    contexts: dict[str, dict[str, object]] = field(default_factory=dict)
    context_tokens: dict[str, int] = field(default_factory=dict)
    tokens: list[int] = field(default_factory=list)
    training: list[dict[str, object]] = field(default_factory=list)


def plan_tasks(spec: LabelBiasSpec, files: Sequence[Path], tokenizer: Any, window: int | None) -> Iterator[TaskPlan]:
    """Yield the plan of each task file, in suite order; one task is in memory at a time.

    Args:
        spec: the run's spec.
        files: the task files of the run, in suite order.
        tokenizer: the model's Hugging Face tokenizer.
        window: tokens that the model can take; None if unknown.

    Raises:
        InputError: templates or splits cannot be used, a task's remaining instances have one label; after the last
            task and with all of them, labels that the tokenizer does not tell apart, and prompts that do not fit the
            model's window.
    """
    templates = read_templates(Path(spec.tasks.templates)) if spec.tasks.templates else {}
    recorded = read_splits(spec.tasks.splits) if spec.tasks.splits else None
    sampler = Sampler(spec.tasks.sampling, spec.seed)
    planner = _TaskPlanner(spec, tokenizer, window)
    problems: list[str] = []
    for path in files:
        task = read_task(path)
        splits = _splits(task, spec, sampler, recorded)
        plan, found = planner.plan(task, splits, sampler, templates)
        problems += found
        yield plan
    if problems:
        raise InputError.of(problems)


def part_bounds(n_rows: int, part_rows: int, blocks: Sequence[int] | None = None) -> Iterator[tuple[int, int]]:
    """Cut rows into parts of at most ``part_rows``, keeping a block of rows together where it fits.

    Rows of a block share their context: an actor that gets its parts in a row computes the context once.

    Args:
        n_rows: how many there are.
        part_rows: at least 1.
        blocks: sizes of blocks of rows in order, that add up to ``n_rows``; None for one block.
    """
    start = end = 0
    for size in blocks if blocks is not None else [n_rows]:
        if end > start and end - start + size > part_rows:
            yield start, end
            start = end
        end += size
        while end - start > part_rows:
            yield start, start + part_rows
            start += part_rows
    if end > start:
        yield start, end


def _blocks(prompts: Sequence[Mapping[str, object]]) -> list[int]:
    """Return how many prompts in a row share a context (but for their length); leave-one-out rows stand together."""
    settings = [(row["n_demos"], row["demo_set"], row["purpose"] == "looc") for row in prompts]
    return [len(list(rows)) for _, rows in groupby(settings)]


def label_problem(tokenizer: Any, prompt: str, labels: Sequence[str]) -> str | None:
    """Return why these labels cannot be told apart behind ``prompt``, or None.

    Prompt, separator, label and EOS are tokenised together, as for scoring (P1's code): a label must add a token to the
    prompt, and no two texts may have the same tokens, as they do where a tokenizer drops characters, maps them to its
    unknown token or lower-cases.

    Args:
        tokenizer: the model's Hugging Face tokenizer.
        prompt: a prompt, or as much of its end as tokens may depend on.
        labels: at least one.
    """
    from biaseval.scoring.encoding import separator

    texts = [f"{prompt}{separator(prompt, label)}{label}{tokenizer.eos_token}" for label in labels]
    before, *endings = map(tuple, tokenizer([prompt, *texts], verbose=False)["input_ids"])
    by_tokens: dict[tuple[int, ...], list[str]] = {}
    for label, (*ids, _) in zip(labels, endings, strict=True):
        if tuple(ids) == before[: len(ids)]:
            return f"the model's tokenizer gives the label {label!r} no token"
        by_tokens.setdefault(tuple(ids), []).append(label)
    for same in by_tokens.values():
        if len(same) > 1:
            return f"the model's tokenizer gives the labels {' and '.join(map(repr, same))} the same tokens"
    return None


def _splits(task: Task, spec: LabelBiasSpec, sampler: Sampler, recorded: Mapping[str, pa.Table] | None) -> Splits:
    splits = sampler.draw(task, spec.tasks.max_eval) if recorded is None else reproduce(task, recorded)
    if len(splits.labels) < 2:
        raise InputError(
            f"{task.name}: outside the pool of 96 every instance has the label {splits.labels[0]!r}; "
            "leave the task out with tasks.include"
        )
    return splits


class _TaskPlanner:
    def __init__(self, spec: LabelBiasSpec, tokenizer: Any, window: int | None) -> None:
        self._spec = spec
        self._tokenizer = tokenizer
        self._counter = TokenCounter(tokenizer)
        self._window = window

    def plan(
        self, task: Task, splits: Splits, sampler: Sampler, templates: Mapping[str, str]
    ) -> tuple[TaskPlan, list[str]]:
        """Return the task's plan, and what keeps its prompts from being scored."""
        notes: list[str] = []
        template = source = None
        dc_inputs: list[str] = []
        if "dc" in self._spec.calibration:
            template, source = template_of(task, dict(templates))
            words = domain_context(task.name, template, [instance.input for instance in splits.main])
            dc_inputs = words.draw(sampler.words_generator(task.name))
            if words.n_unfit:
                notes.append(f"{task.name}: {words.n_unfit} inputs do not fit the template and give no words to dc")
        if len(task.instances) < MIN_INSTANCES:
            notes.append(
                f"{task.name}: {len(task.instances)} instances, fewer than the {MIN_INSTANCES} of the published suite"
            )
        rows = self._rows(task, splits, dc_inputs)
        problems = [self._label_problem(task, splits, rows), self._window_problem(task, splits, rows)]
        plan = TaskPlan(
            task=task.name,
            sha256=task.sha256,
            tasks=TASKS.rows([_task_row(task, splits, template, source)]),
            splits=splits.table(task.name),
            contexts=CONTEXTS.rows(list(rows.contexts.values())),
            training_rows=TRAINING_ROWS.rows(rows.training),
            parts=self._parts(splits, rows),
            notes=notes,
        )
        return plan, [problem for problem in problems if problem]

    def _rows(self, task: Task, splits: Splits, dc_inputs: Sequence[str]) -> _Rows:
        rows = _Rows()
        fitter = PromptFitter(self._counter, self._spec.prompt.max_tokens)
        fitter.measure(test_text(instance.input) for instance in (*splits.main, *splits.bias_score))
        methods = self._spec.calibration
        for n_demos in self._spec.prompt.n_demos:
            for demo_set in range(self._spec.prompt.demo_sets if n_demos else 1):
                demos = splits.demonstration_set(n_demos, demo_set)
                shown = [demonstration_text(demo.input, demo.label) for demo in demos]
                setting = _Setting(task, splits.labels, n_demos, demo_set, demos, shown, fitter, rows)
                for row, instance in enumerate(splits.main):
                    setting.add("main", row, instance.input, instance)
                for row, instance in enumerate(splits.bias_score):
                    setting.add("bias_score", row, instance.input, instance)
                for row, text in enumerate(CC_INPUTS if "cc" in methods else ()):
                    setting.add("cc", row, text)
                for row, text in enumerate(dc_inputs):
                    setting.add("dc", row, text)
                for row, instance in enumerate(demos if "looc" in methods else ()):
                    setting.add("looc", row, instance.input, instance, left_out=row)
                if self._spec.lora is not None:
                    rows.training += training_rows(task, splits, n_demos, demo_set, self._spec.lora.n_examples, fitter)
        return rows

    def _parts(self, splits: Splits, rows: _Rows) -> list[PlannedPart]:
        n_labels = len(splits.labels)
        asked = self._spec.execution.part_rows
        chosen = max(32, min(_ROWS_PER_PART, _SCORES_PER_PART // n_labels)) if asked == "auto" else asked
        label_tokens = [count + 1 for count in self._counter.count_bare([f" {label}" for label in splits.labels])]
        parts = []
        for adapter, start, stop in self._bounds(rows, chosen):
            prompts, tokens = rows.prompts[start:stop], rows.tokens[start:stop]
            contexts = {str(row["context_id"]) for row in prompts}
            context_tokens = [rows.context_tokens[str(row["context_id"])] for row in prompts]
            parts.append(
                PlannedPart(
                    prompts=PROMPTS.rows(prompts),
                    tokens=sum(rows.context_tokens[context] for context in contexts)
                    + sum(tokens)
                    - sum(context_tokens)
                    + len(prompts) * sum(label_tokens),
                    tokens_unshared=n_labels * sum(tokens) + len(prompts) * sum(label_tokens),
                    adapter=adapter,
                )
            )
        return parts

    def _bounds(self, rows: _Rows, part_rows: int) -> Iterator[tuple[str | None, int, int]]:
        """Yield adapter, first row and end of each part; with adapters, none has prompts of two settings."""
        keeps_blocks = self._spec.execution.part_rows == "auto"
        if self._spec.lora is None:
            blocks = _blocks(rows.prompts) if keeps_blocks else None
            for start, stop in part_bounds(len(rows.prompts), part_rows, blocks):
                yield None, start, stop
            return
        first = 0
        for key, own in groupby(rows.prompts, key=lambda row: (str(row["task"]), row["n_demos"], row["demo_set"])):
            prompts = list(own)
            for start, stop in part_bounds(len(prompts), part_rows, _blocks(prompts) if keeps_blocks else None):
                yield adapter_name(*key), first + start, first + stop
            first += len(prompts)

    def _label_problem(self, task: Task, splits: Splits, rows: _Rows) -> str | None:
        """Return what to do if the labels cannot be told apart behind a whole and a cut prompt of the task, or None."""
        ends = {row["is_truncated"]: str(row["input_text"]) for row in reversed(rows.prompts)}
        for end in ends.values():
            if problem := label_problem(self._tokenizer, end, splits.labels):
                return (
                    f"{task.name}: {problem}, so its scores would say nothing; leave the task out with tasks.include, "
                    "or choose a model whose tokenizer tells its labels apart"
                )
        return None

    def _window_problem(self, task: Task, splits: Splits, rows: _Rows) -> str | None:
        """Return what to do if a prompt with its longest label does not fit the model's window, or None."""
        if self._window is None:
            return None
        counts = self._counter.count_bare([f" {label}" for label in splits.labels])
        longest_tokens, longest = max(zip(counts, splits.labels, strict=True))
        n_over, worst, first = 0, 0, ""
        for prompt, estimate in zip(rows.prompts, rows.tokens, strict=True):
            needed = estimate + longest_tokens + 1
            if needed + merge_margin(int(str(prompt["n_demos"]))) <= self._window:
                continue
            text = str(rows.contexts[str(prompt["context_id"])]["text"]) + str(prompt["input_text"])
            needed = self._counter.count(f"{text} {longest}") + 1
            if needed > self._window:
                n_over += 1
                first = first or str(prompt["prompt_id"])
                worst = max(worst, needed)
        if not n_over:
            return None
        return (
            f"{task.name}: {n_over} prompts with label and EOS need up to {worst} tokens (first: {first}) and the "
            f"model's window has {self._window}; choose a model with a longer window, or set prompt.max_tokens to at "
            f"most {max(self._window - longest_tokens - 1, 1)}: longer prompts then lose demonstrations, or their end"
        )


@dataclass(frozen=True)
class _Setting:
    """One (task, n_demos, demo_set), to which prompts are added."""

    task: Task
    labels: tuple[str, ...]
    n_demos: int
    demo_set: int
    demos: tuple[Instance, ...]
    shown: list[str]
    """The demonstrations as they stand in a prompt."""
    fitter: PromptFitter
    rows: _Rows

    def add(
        self, purpose: str, row: int, text: str, instance: Instance | None = None, *, left_out: int | None = None
    ) -> None:
        """Add the prompt of one input; ``left_out`` is the demonstration that its context goes without (LOOC)."""
        definition = definition_text(self.task.definition)
        demos, shown = list(self.demos), self.shown
        if left_out is not None:
            demos, shown = demos[:left_out] + demos[left_out + 1 :], shown[:left_out] + shown[left_out + 1 :]
        test = test_text(text)
        fitted = self.fitter.fit(definition, shown, test)
        n_used = fitted.n_demos_used
        name = "all" if left_out is None else f"without{left_out}"
        if n_used < len(demos):
            name += f".first{n_used}"
        context, input_text = definition + "".join(shown[:n_used]), test
        if fitted.text is not None:
            name, context, input_text, demos = "cut", "", fitted.text, []
        place = adapter_name(self.task.name, self.n_demos, self.demo_set)
        context_id = f"{place}/{name}"
        if context_id not in self.rows.contexts:
            context_tokens = 0 if fitted.text is not None else fitted.n_tokens - self.fitter.length(test)
            self.rows.contexts[context_id] = {
                "context_id": context_id,
                "task": self.task.name,
                "n_demos": self.n_demos,
                "demo_set": self.demo_set,
                "setting": None,
                "instruction": True,
                "text": context,
                "demo_ids": [demo.id for demo in demos[:n_used]],
                "demo_labels": [demo.label for demo in demos[:n_used]],
                "n_tokens": context_tokens,
            }
            self.rows.context_tokens[context_id] = context_tokens
        self.rows.prompts.append(
            {
                "prompt_id": f"{place}/{purpose}/{row}",
                "context_id": context_id,
                "task": self.task.name,
                "purpose": purpose,
                "n_demos": self.n_demos,
                "demo_set": self.demo_set,
                "row": row,
                "instance_id": instance.id if instance else None,
                "gold": instance.label if instance else None,
                "labels": list(self.labels),
                "input_text": input_text,
                "n_demos_used": n_used,
                "is_truncated": fitted.text is not None,
                "n_tokens": fitted.n_tokens,
            }
        )
        self.rows.tokens.append(fitted.n_tokens)


def _n_shortened(prompts: pa.Table) -> int:
    rows = prompts.select(["purpose", "n_demos", "n_demos_used"]).to_pylist()
    return sum(row["n_demos_used"] < row["n_demos"] - (row["purpose"] == "looc") for row in rows)


def _task_row(task: Task, splits: Splits, template: str | None, source: str | None) -> dict[str, object]:
    return {
        "task": task.name,
        "number": task.number,
        "run_key": task.run_key,
        "category": task.categories[0] if task.categories else None,
        "definition": task.definition,
        "labels": list(splits.labels),
        "n_instances": len(task.instances),
        "n_main": len(splits.main),
        "template": template,
        "template_source": source,
        "is_semantically_equivalent": task.number in suites.SEMANTICALLY_EQUIVALENT,
    }
