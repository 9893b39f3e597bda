"""The sources of a run's tasks: files of Super-NaturalInstructions, or the user's data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from biaseval.errors import InputError, Problems
from biaseval.label_bias.data import DataSet, Drawn, read_datasets
from biaseval.label_bias.prompts import INPUT
from biaseval.label_bias.splits import Sampler, in_rounds, read_splits, reproduce
from biaseval.label_bias.tasks import select_tasks
from biaseval.label_bias.templates import read_templates
from biaseval.prompting.task_files import read_task
from biaseval.spec import MIN_INSTANCES, LabelBiasSpec, TasksSpec, template_fields


class TaskSource(Protocol):
    """One task in any storage form."""

    @property
    def name(self) -> str:
        """The name of the task."""

    @property
    def most_rows(self) -> int:
        """The largest number of its main rows."""

    def draw(self, spec: LabelBiasSpec, sampler: Sampler) -> Drawn:
        """Return the task with its rows; Raises InputError: the task cannot be used."""


@dataclass(frozen=True)
class Sources:
    """The input of a run's plan."""

    tasks: Sequence[TaskSource]
    templates: Mapping[str, str]
    """The templates of the spec's file, by task."""
    left_out: Mapping[str, str]
    """Task name to the reason why the run excludes the task."""

    def keeping(self, splits: pa.Table) -> Sources:
        """Return the sources with the BiasScore rows that a run's ``splits`` table already has for its data sets."""
        rows = splits.filter(pc.equal(splits["role"], "bias_score")).sort_by("position")
        kept: dict[str, list[str]] = {name: [] for name in splits["task"].unique().to_pylist()}
        for task, name in zip(rows["task"].to_pylist(), rows["instance_id"].to_pylist(), strict=True):
            kept[task].append(name)
        tasks = [
            replace(task, kept=tuple(kept[task.name])) if isinstance(task, DataSet) and task.name in kept else task
            for task in self.tasks
        ]
        return replace(self, tasks=tasks)

    @property
    def subject(self) -> str:
        """A short name of the planned items."""
        return f"{len(self.tasks)} task{'s' if len(self.tasks) > 1 else ''}"


def read_sources(spec: LabelBiasSpec) -> Sources:
    """Return the sources that a spec names; Raises InputError: some cannot be used, with the problems of all."""
    if spec.tasks is None:
        return Sources(read_datasets(spec), templates={}, left_out={})
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
    """A task file of Super-NaturalInstructions; a user's data set is a `DataSet`."""

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
            demos, generator = splits.demonstrations, sampler.generator(task.name, "balanced")
            order = in_rounds(range(len(demos)), lambda index: demos[index].label, generator)
            demonstrations = tuple(demos[index] for index in order)
            splits = replace(splits, demonstrations=demonstrations, shuffled_by=sampler.seed)
        notes = []
        if len(task.instances) < MIN_INSTANCES:
            notes.append(
                f"{task.name}: {len(task.instances)} instances, fewer than the {MIN_INSTANCES} of the published suite"
            )
        return Drawn(task, splits, notes, has_fields=False)
