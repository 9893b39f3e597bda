"""A task's documents as examples, with the format of its prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from biaseval.errors import InputError
from biaseval.examples.files import Example
from biaseval.examples.lm_eval.docs import Doc, digest, read_docs
from biaseval.examples.lm_eval.fields import DocFields
from biaseval.examples.lm_eval.task import LmEvalTask, read_task
from biaseval.examples.lm_eval.templates import DocError, choices_of, fields_of, gold_of, prompt_text, resolved

_WHITE = (" ", "\n", "\t")
_OPTIONS = (
    "doc_to_choice: choices differ between documents, as options do, and label bias is over labels that all share; "
    'write letters in doc_to_choice (["A", "B", "C", "D"]), the options in doc_to_text, and the letter in doc_to_target'
)


@dataclass(frozen=True)
class LmEvalFormat:
    """Prompts as the harness writes them."""

    task: LmEvalTask
    docs: DocFields
    head: str
    """The description."""
    delimiter: str
    """Before a label: a space, or nothing where white space ends the item."""

    @property
    def instruction(self) -> str | None:
        """The description, bare."""
        return self.head.strip() or None

    def demonstration(self, fields: Mapping[str, str], label: str) -> str:
        """Return an example with its answer and the delimiter of examples."""
        return self.test(fields) + self.delimiter + label + self.task.fewshot_delimiter

    def test(self, fields: Mapping[str, str]) -> str:
        """Return an example up to its answer.

        Raises:
            InputError: the template fails on these fields, which are no document's: on inputs of a calibration.
        """
        try:
            return prompt_text(self.task.doc_to_text, self.docs.doc(fields))
        except DocError as error:
            raise InputError(
                f"{self.task.path}: {error} (its fields are those of a content-free input of a calibration; mend the "
                "template, or take the method out of calibration)"
            ) from error


@dataclass(frozen=True)
class LmEvalData:
    """What a task has to measure."""

    train: list[Example]
    """Of the split that demonstrations come from; empty where that is the measured one."""
    test: list[Example]
    choices: tuple[str, ...]
    """The labels, in the order of the task."""
    form: LmEvalFormat
    takes_first: bool
    """Whether the harness shows the first documents of the split, and not drawn ones."""
    fewshot_split: str
    sha256: str
    """Of the task's YAML files and of its documents."""


def read_lm_eval(uri: str) -> LmEvalData:
    """Return what a task's YAML file describes.

    Raises:
        InputError: it cannot be measured as the harness has it; the message says why.
    """
    task = read_task(Path(uri))
    try:
        return _read(task)
    except InputError as error:
        raise InputError.of([each if each.startswith(uri) else f"{uri}: {each}" for each in error.problems]) from error


def lm_eval_digest(uri: str) -> str:
    """Return the SHA-256 of a task's YAML files and documents.

    Raises:
        InputError: one cannot be read.
    """
    return digest(read_task(Path(uri)))


def _read(task: LmEvalTask) -> LmEvalData:
    test = read_docs(task, task.test_split)
    train = read_docs(task, task.fewshot_split) if task.fewshot_split != task.test_split else []
    docs = [*train, *test]
    names = fields_of(task.doc_to_text, test[0])
    if not names:
        raise InputError("doc_to_text: names no field of the documents, so that all prompts would be the same")
    if missing := sorted(name for name in names if train and name not in train[0]):
        raise InputError(f"the split {task.fewshot_split} has no field {missing[0]}, of which prompts are made; add it")
    texts, golds, choices = _rendered(task, [(task.fewshot_split, train), (task.test_split, test)])
    form = LmEvalFormat(
        task=task,
        docs=DocFields.of(docs, names),
        head=_description(task, test),
        delimiter=_delimiter(task, choices, texts),
    )
    labels = tuple(choice.lstrip() for choice in choices)
    shown = dict(zip(choices, labels, strict=True))
    ids = [f"{task.fewshot_split}-{number}" for number in range(len(train))]
    ids += [f"{task.test_split}-{number}" for number in range(len(test))]
    examples = []
    for name, doc, gold, text in zip(ids, docs, golds, texts, strict=True):
        try:
            example = Example(name, form.docs.fields(doc), shown[gold])
        except TypeError as error:
            raise InputError(f"doc_to_text: {error}, so it cannot be a field; write texts or numbers") from error
        if not _is_told(form, example, text):
            raise InputError(
                f"doc_to_text: document {name} shows values that not all documents have, as lists of other lengths; "
                "prompts are made of the same values in all: take those documents out"
            )
        examples.append(example)
    return LmEvalData(
        train=examples[: len(train)],
        test=examples[len(train) :],
        choices=labels,
        form=form,
        takes_first=task.takes_first,
        fewshot_split=task.fewshot_split,
        sha256=digest(task),
    )


def _rendered(
    task: LmEvalTask, splits: Sequence[tuple[str, Sequence[Doc]]]
) -> tuple[list[str], list[str], tuple[str, ...]]:
    """Return the texts and the right choices of all documents, and the choices that they share.

    Raises:
        InputError: a document has none, or other choices; the message has each problem once.
    """
    texts: list[str] = []
    golds: list[str] = []
    shared: tuple[str, ...] | None = None
    problems: dict[str, list[str]] = {}
    for split, docs in splits:
        for number, doc in enumerate(docs):
            try:
                choices = choices_of(task, doc)
                shared = choices if shared is None else shared
                if choices != shared:
                    raise InputError(_OPTIONS)
                golds.append(gold_of(task, doc, choices))
                texts.append(prompt_text(task.doc_to_text, doc))
            except DocError as error:
                problems.setdefault(str(error), []).append(f"{split} {number}")
    if problems:
        raise InputError.of(
            [
                f"document {where[0]}{f' (and {len(where) - 1:,} more)' if len(where) > 1 else ''}: {problem}"
                for problem, where in list(problems.items())[:10]
            ]
        )
    return texts, golds, shared or ()


def _is_told(form: LmEvalFormat, example: Example, text: str) -> bool:
    """Return whether the fields of an example make its text."""
    try:
        return form.test(example.fields) == text
    except InputError:
        return False


def _description(task: LmEvalTask, docs: Sequence[Doc]) -> str:
    """Return what stands before all items."""
    if not task.description:
        return ""
    try:
        found = {str(resolved("description", task.description, doc)) for doc in docs}
    except DocError as error:
        raise InputError(str(error)) from error
    if len(found) > 1:
        raise InputError("description: differs between documents, and prompts share it; write that part in doc_to_text")
    return found.pop()


def _delimiter(task: LmEvalTask, choices: Sequence[str], texts: Sequence[str]) -> str:
    """Return what stands between an item and a choice without its white space.

    Raises:
        InputError: it is neither one space nor nothing behind white space, or the choices are no labels.
    """
    for choice in choices:
        if not choice.strip() or choice != choice.rstrip():
            raise InputError(f"doc_to_choice: {choice!r} is empty or ends in white space; write a word")
    if len(choices) < 2 or len({choice.strip() for choice in choices}) < len(choices):
        raise InputError(f"doc_to_choice: {list(choices)} are no two or more different labels; name each once")
    leading = {task.target_delimiter + choice[: len(choice) - len(choice.lstrip())] for choice in choices}
    delimiter = leading.pop()
    n_white = sum(text.endswith(_WHITE) for text in texts)
    if leading or delimiter not in ("", " ") or n_white != (0 if delimiter else len(texts)):
        raise InputError(
            f"target_delimiter: between text and choice stands {delimiter!r}, and {n_white:,} of {len(texts):,} texts "
            "end in white space; a label is scored behind one space, or behind white space that the text ends in: "
            'leave target_delimiter out and let doc_to_text end in no white space, or write "" and let it end in it'
        )
    return delimiter
