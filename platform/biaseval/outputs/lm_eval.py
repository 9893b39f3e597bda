"""Reads what lm-evaluation-harness logs with ``--log_samples`` of multiple-choice tasks.

A task whose docs all have the same choices is a classification, and the choices are its labels. Where docs have
choices of their own, labels are the positions A, B, C …: what is preferred is then a position. Such a task needs as
many choices in each doc; the few docs that have another number are left out and counted in a note. The score of a
label is the harness's: the sum over its tokens, without EOS, by which it computes ``acc``.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from biaseval.errors import InputError
from biaseval.outputs.harness_docs import Doc, DocError, read_doc
from biaseval.outputs.harness_files import TaskFile, settings_of, task_files
from biaseval.outputs.problems import refuse
from biaseval.outputs.records import digest_of, json_lines
from biaseval.outputs.scored import Outputs, ScoredPrompt, Setting

_NO_BIAS_SCORE = (
    "BiasScore is not measured: it needs rows apart from the test rows, and every doc is a test row here, so that "
    "accuracy is the harness's own."
)

Docs = Mapping[Setting, Sequence[Doc]]
"""Of a task."""


def read_samples(paths: Sequence[Path]) -> Outputs:
    """Return the scores of all files together.

    Args:
        paths: ``samples_TASK_DATE.jsonl``, each beside its ``results_DATE.json``; of one model.

    Raises:
        InputError: a file cannot be read, is of another model or of a task without labels, or docs cannot be imported;
            the message lists what is wrong.
    """
    files = task_files(paths)
    by_task: dict[str, dict[Setting, list[Doc]]] = {}
    first: dict[str, TaskFile] = {}
    problems: list[str] = []
    notes: list[str] = [_NO_BIAS_SCORE]
    for file, setting in zip(files, settings_of(files), strict=True):
        docs = _Docs(file)
        problems += docs.problems
        notes += docs.notes
        by_task.setdefault(file.task, {})[setting] = docs.docs
        first.setdefault(file.task, file)
    refuse(problems)
    prompts: list[ScoredPrompt] = []
    for task, of_task in by_task.items():
        labelled = _Labels(first[task], of_task)
        notes += labelled.notes
        prompts += labelled.prompts()
    descriptions = {task: str(file.config.get("description") or "").strip() for task, file in first.items()}
    return Outputs(
        model=str(files[0].results["model_name"]),
        prompts=prompts,
        sha256=digest_of([*paths, *dict.fromkeys(file.results_path for file in files)]),
        definitions={task: text for task, text in descriptions.items() if text},
        notes=notes,
        facts=_facts(files),
    )


def _facts(files: Sequence[TaskFile]) -> dict[str, Any]:
    """Return what the results say of how the samples were made."""
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


class _Docs:
    """The docs of a file: those of its first filter, which others may repeat."""

    def __init__(self, file: TaskFile) -> None:
        self.problems: list[str] = []
        self.notes: list[str] = []
        self.docs: list[Doc] = []
        by_id: dict[str, Doc] = {}
        unlike: Counter[str] = Counter()
        for place, record in json_lines(file.path):
            try:
                doc = read_doc(place, record, file.config)
            except DocError as error:
                self.problems.append(f"{place}: {error}")
                continue
            first = by_id.setdefault(doc.doc_id, doc)
            if first is doc:
                self.docs.append(doc)
            elif doc.filter == first.filter:
                self.problems.append(
                    f"{place}: doc {doc.doc_id} stands there twice, first at {first.place}; log it once"
                )
            elif doc.logprobs != first.logprobs:
                unlike[doc.filter] += 1
        for name, n_docs in unlike.items():
            self.notes.append(
                f"{file.task}: the filter {name} gives {n_docs:,} docs other scores than {self.docs[0].filter}, which "
                "is the one that is measured."
            )


class _Labels:
    """What the labels of a task are."""

    def __init__(self, file: TaskFile, docs: Docs) -> None:
        self._file = file
        every = [doc for own in docs.values() for doc in own]
        distinct = {frozenset(doc.choices) for doc in every}
        self._is_classification = len(distinct) == 1 and all(len(set(doc.choices)) == len(doc.choices) for doc in every)
        self.notes: list[str] = []
        self._docs = docs
        if not self._is_classification:
            self._docs = self._of_one_length(every)
        if n_tied := sum(doc.is_tied for own in self._docs.values() for doc in own):
            self.notes.append(
                f"{file.task}: in {n_tied:,} docs several choices are equally likely; the harness takes the first in "
                "the order of the task, a run the first in the order of labels."
            )

    def prompts(self) -> Iterator[ScoredPrompt]:
        """Yield every doc in every setting."""
        for setting, docs in self._docs.items():
            for doc in docs:
                labels = doc.choices if self._is_classification else string.ascii_uppercase[: len(doc.choices)]
                yield ScoredPrompt(
                    task=self._file.task,
                    setting=setting,
                    purpose="main",
                    instance=doc.doc_id,
                    gold=labels[doc.gold],
                    logprobs=dict(zip(labels, doc.logprobs, strict=True)),
                    input=doc.doc,
                    text=doc.prompt,
                    place=doc.place,
                )

    def _of_one_length(self, every: Sequence[Doc]) -> Docs:
        """Return the docs that have as many choices as most have.

        Raises:
            InputError: half of them or more have another number, or they have more than there are letters.
        """
        [(n_choices, n_docs)] = Counter(len(doc.choices) for doc in every).most_common(1)
        if 2 * n_docs <= len(every) or n_choices > len(string.ascii_uppercase):
            raise InputError(
                f"{self._file.path}: {self._file.task}: docs have choices of their own, and "
                f"{n_docs:,} of {len(every):,} have {n_choices}: positions are labels only where more than half "
                f"of the docs have as many, at most {len(string.ascii_uppercase)}; leave the file out"
            )
        self.notes.append(
            f"{self._file.task}: docs have choices of their own; labels are their positions, A the first, so that a "
            "preferred label is a preferred position."
        )
        if n_docs < len(every):
            self.notes.append(
                f"{self._file.task}: {len(every) - n_docs:,} of {len(every):,} docs have another number of choices "
                f"than {n_choices} and are left out."
            )
        return {setting: [doc for doc in own if len(doc.choices) == n_choices] for setting, own in self._docs.items()}
