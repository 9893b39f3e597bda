"""The sources of a run's tasks: files of Super-NaturalInstructions, or the user's data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from biaseval.errors import InputError, Problems
from biaseval.inputs.template import TextFormat
from biaseval.label_bias.data import DataSet, read_datasets, splits_notes
from biaseval.label_bias.orders import OptionFields
from biaseval.label_bias.prompts import INPUT
from biaseval.label_bias.rounds import in_rounds
from biaseval.label_bias.splits import Sampler, Splits, read_splits, reproduce
from biaseval.label_bias.tasks import select_tasks
from biaseval.label_bias.templates import read_templates
from biaseval.prompting.task_files import Task, read_task
from biaseval.spec import MIN_INSTANCES, LabelBiasSpec, TasksSpec, template_fields


@dataclass(frozen=True)
class Drawn:
    """A task and its rows."""

    task: Task
    splits: Splits
    notes: Sequence[str]
    """Notes for readers of the results."""
    has_fields: bool
    """Whether its examples have several fields, so that no template is inferred from its inputs."""
    form: TextFormat | None = None
    """The format of its prompts, if the task brings one."""
    options: OptionFields | None = None
    """Multiple choice: the fields of the options."""


class TaskSource(Protocol):
    """One task in any storage form."""

    @property
    def name(self) -> str:
        """The name of the task."""

    @property
    def most_rows(self) -> int:
        """The largest number of its main rows."""

    def draw(self, spec: LabelBiasSpec, sampler: Sampler) -> Drawn:
        """Return the task with its rows.

        Raises:
            InputError: the task cannot be used.
        """


@dataclass(frozen=True)
class Sources:
    """The input of a run's plan."""

    tasks: Sequence[TaskSource]
    templates: Mapping[str, str]
    """The templates of the spec's file, by task."""
    left_out: Mapping[str, str]
    """Task name to the reason why the run excludes the task."""

    def keeping(self, splits: pa.Table) -> Sources:
        """Return the sources with the BiasScore rows that a run already has for its data sets.

        Args:
            splits: the rows of the run's ``splits`` table.
        """
        rows = splits.filter(pc.equal(splits["role"], "bias_score")).sort_by("position")
        kept: dict[str, list[str]] = {name: [] for name in splits["task"].unique().to_pylist()}
        for task, name in zip(rows["task"].to_pylist(), rows["instance_id"].to_pylist(), strict=True):
            kept[task].append(name)
        tasks = [
            replace(task, data=replace(task.data, kept=tuple(kept[task.name])))
            if isinstance(task, OwnTask) and task.name in kept
            else task
            for task in self.tasks
        ]
        return replace(self, tasks=tasks)

    @property
    def subject(self) -> str:
        """A short name of the planned items."""
        return f"{len(self.tasks)} task{'s' if len(self.tasks) > 1 else ''}"


def read_sources(spec: LabelBiasSpec) -> Sources:
    """Return the sources that a spec names, validated.

    Raises:
        InputError: some source cannot be used; the message lists all problems.
    """
    if spec.tasks is None:
        return Sources([OwnTask(data) for data in read_datasets(spec)], templates={}, left_out={})
    return _published(spec, spec.tasks)


def _published(spec: LabelBiasSpec, tasks: TasksSpec) -> Sources:
    problems = Problems()
    templates: Mapping[str, str] = {}
    splits = None
    with problems.noted():
        selection = select_tasks(tasks)
    with problems.noted():
        templates = read_templates(tasks.templates) if tasks.templates else {}
    with problems.noted():
        splits = read_splits(tasks.splits) if tasks.splits else None
    with problems.noted():
        if spec.prompt.item is not None and (other := set(template_fields(spec.prompt.item)) - {INPUT}):
            raise InputError(f"prompt.item: has the field {min(other)}; task files have {INPUT} alone")
    problems.refuse()
    return Sources([PublishedTask(path, tasks, splits) for path in selection.files], templates, selection.left_out)


@dataclass(frozen=True)
class PublishedTask:
    """A task file of Super-NaturalInstructions."""

    path: Path
    tasks: TasksSpec
    recorded: Mapping[str, pa.Table] | None
    """Splits of another run, by task."""

    @property
    def name(self) -> str:
        """The name of the task."""
        return self.path.stem

    @property
    def most_rows(self) -> int:
        """The largest number of its main rows."""
        return self.tasks.max_eval

    def draw(self, spec: LabelBiasSpec, sampler: Sampler) -> Drawn:
        """Return the task with its rows, drawn as P1 does or taken from another run."""
        task = read_task(self.path)
        splits = sampler.draw(task, self.tasks.max_eval) if self.recorded is None else reproduce(task, self.recorded)
        if len(splits.labels) < 2:
            raise InputError(
                f"{task.name}: outside the pool of 96 every instance has the label {splits.labels[0]!r}; "
                "leave the task out with tasks.include"
            )
        if spec.prompt.demos == "balanced":
            splits = _balanced(splits, sampler, task.name)
        notes = []
        if len(task.instances) < MIN_INSTANCES:
            notes.append(
                f"{task.name}: {len(task.instances)} instances, fewer than the {MIN_INSTANCES} of the published suite"
            )
        return Drawn(task, splits, notes, has_fields=False)


@dataclass(frozen=True)
class OwnTask:
    """A user's data set."""

    data: DataSet

    @property
    def name(self) -> str:
        """The name of the task."""
        return self.data.name

    @property
    def most_rows(self) -> int:
        """The largest number of its main rows."""
        return min(self.data.max_test, len(self.data.task.instances))

    def draw(self, spec: LabelBiasSpec, sampler: Sampler) -> Drawn:
        """Return the data set as a task, with its rows."""
        splits = self.data.splits(spec, sampler.generator(self.name, "splits"))
        notes = [*self.data.notes, *splits_notes(self.name, splits)]
        return Drawn(self.data.task, splits, notes, has_fields=True, form=self.data.form, options=self.data.options)


def _balanced(splits: Splits, sampler: Sampler, task: str) -> Splits:
    demos = splits.demonstrations
    order = in_rounds(range(len(demos)), lambda index: demos[index].label, sampler.generator(task, "balanced"))
    return replace(splits, demonstrations=tuple(demos[index] for index in order), shuffled_by=sampler.seed)
