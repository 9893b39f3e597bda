"""Read the log of lm-evaluation-harness with ``--log_samples`` for multiple-choice tasks.

A task whose docs all have the same choices is a classification, and the choices are its labels. If docs have different
choices, labels are the positions A, B, C …, and the bias is a preference for a position. Such a task needs the same
number of choices in each doc; the few docs with another number are dropped and counted in a note. The score of a label
is the harness's: the sum over its tokens, without EOS, which also gives ``acc``.
"""

import string
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from biaseval.errors import InputError, first_of, refuse
from biaseval.outputs.harness_docs import Doc, DocError, read_doc
from biaseval.outputs.harness_files import TaskFile, settings_of, task_files
from biaseval.outputs.records import digest_of, records
from biaseval.outputs.scored import Outputs, ScoredPrompt, Setting

_N_NAMED = 5
"""The most tasks that a note names; more are only counted."""

Docs = Mapping[Setting, Sequence[Doc]]
"""The docs of a task by setting."""


def read_samples(paths: Sequence[Path]) -> Outputs:
    """Return the scores of all files together.

    Files are ``samples_TASK_DATE.jsonl`` of one model, each in the folder of its ``results_DATE.json``.

    Raises:
        InputError: a file cannot be read, has another model or a task without labels, or docs cannot be imported; the
            message lists the mistakes.
    """
    files = task_files(paths)
    by_task: dict[str, dict[Setting, list[Doc]]] = {}
    first: dict[str, TaskFile] = {}
    problems: list[str] = []
    notes: list[str] = []
    for file, setting in zip(files, settings_of(files), strict=True):
        by_task.setdefault(file.task, {})[setting] = _docs(file, problems, notes)
        first.setdefault(file.task, file)
    refuse(first_of(problems))
    tasks = [LabelledTask.of(first[task], of_task) for task, of_task in by_task.items()]
    descriptions = {task: str(file.config.get("description") or "").strip() for task, file in first.items()}
    return Outputs(
        model=str(files[0].results["model_name"]),
        prompts=[prompt for task in tasks for prompt in task.prompts()],
        sha256=digest_of([*paths, *dict.fromkeys(file.results_path for file in files)]),
        definitions={task: text for task, text in descriptions.items() if text},
        notes=[*_notes(tasks), *notes],
        facts=_facts(files),
    )


def _facts(files: Sequence[TaskFile]) -> dict[str, Any]:
    results = files[0].results
    return {
        "model_facts": {"n_parameters": results["config"].get("model_num_parameters")},
        "lm_eval": {
            "version": results.get("lm_eval_version"),
            **files[0].alike(),
            "model_args": results["config"].get("model_args"),
            "files": [file.path.name for file in files],
        },
    }


def _docs(file: TaskFile, problems: list[str], notes: list[str]) -> list[Doc]:
    """Return the docs of a file's first filter, and add its problems and notes; other filters may repeat docs."""
    by_id: dict[str, Doc] = {}
    unlike: Counter[str] = Counter()
    for place, record in records(file.path, notes):
        try:
            doc = read_doc(place, record, file.config)
        except DocError as error:
            problems.append(f"{place}: {error}")
            continue
        first = by_id.setdefault(doc.doc_id, doc)
        if first is not doc and doc.filter == first.filter:
            problems.append(f"{place}: doc {doc.doc_id} stands there twice, first at {first.place}; log it once")
        elif doc.logprobs != first.logprobs:
            unlike[doc.filter] += 1
    # Several processes take turns in logging their docs.
    docs = sorted(by_id.values(), key=lambda doc: (len(doc.doc_id), doc.doc_id))
    for name, n_docs in unlike.items():
        notes.append(
            f"{file.task}: the filter {name} gives {n_docs:,} docs other scores than {docs[0].filter}, which is the "
            "one that is measured."
        )
    return docs


@dataclass(frozen=True)
class LabelledTask:
    """The docs of a task, and its labels."""

    task: str
    docs: Docs
    is_classification: bool
    """Whether all docs have the same choices, which are then the labels; else labels are positions."""
    n_left_out: int = 0
    """Docs dropped because their number of choices is not the most frequent one."""

    @classmethod
    def of(cls, file: TaskFile, docs: Docs) -> Self:
        """Return a task of these docs.

        ``file`` is one of the task's files, and ``docs`` are those of all its files.

        Raises:
            InputError: docs have different choices, and at least half of them have another number than the most
                frequent one, or the number exceeds that of letters.
        """
        every = [doc for own in docs.values() for doc in own]
        if len({frozenset(doc.choices) for doc in every}) == 1 and all(doc.is_distinct for doc in every):
            return cls(file.task, docs, is_classification=True)
        [(n_choices, n_docs)] = Counter(len(doc.choices) for doc in every).most_common(1)
        if 2 * n_docs <= len(every) or n_choices > len(string.ascii_uppercase):
            raise InputError(
                f"{file.path}: {file.task}: docs have choices of their own, and {n_docs:,} of {len(every):,} have "
                f"{n_choices}: positions are labels only where more than half of the docs have as many, at most "
                f"{len(string.ascii_uppercase)}; leave the file out"
            )
        kept = {setting: [doc for doc in own if len(doc.choices) == n_choices] for setting, own in docs.items()}
        return cls(file.task, kept, is_classification=False, n_left_out=len(every) - n_docs)

    @property
    def n_tied(self) -> int:
        """The number of docs in which several choices are equally likely."""
        return sum(doc.is_tied for own in self.docs.values() for doc in own)

    def prompts(self) -> Iterator[ScoredPrompt]:
        """Yield every doc in every setting."""
        for setting, docs in self.docs.items():
            for doc in docs:
                labels = doc.choices if self.is_classification else string.ascii_uppercase[: len(doc.choices)]
                yield ScoredPrompt(
                    task=self.task, setting=setting, purpose="main", instance=doc.instance, gold=labels[doc.gold],
                    logprobs=dict(zip(labels, doc.logprobs, strict=True)), input=doc.doc, text=doc.prompt,
                    place=doc.place,
                )  # fmt: skip


def _notes(tasks: Sequence[LabelledTask]) -> Iterator[str]:
    """Yield notes on labels for readers, each with its tasks."""
    if of_options := [task.task for task in tasks if not task.is_classification]:
        yield (
            "Docs have choices of their own, whose labels are their positions, A the first, so that a preferred label "
            f"is a preferred position: {_named(of_options)}."
        )
    if left_out := [f"{own.n_left_out:,} of {own.task}" for own in tasks if own.n_left_out]:
        yield f"Docs with another number of choices than most are left out: {_named(left_out)}."
    if tied := [f"{own.n_tied:,} of {own.task}" for own in tasks if own.n_tied]:
        yield (
            "Docs in which several choices are equally likely, of which the harness takes the first in the order of "
            f"the task, and a run the first in the order of labels: {_named(tied)}."
        )


def _named(names: Sequence[str]) -> str:
    more = len(names) - _N_NAMED
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_N_NAMED])} and {more:,} more"
