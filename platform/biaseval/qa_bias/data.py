"""Questions of a QA data set, each of which can be measured, and what of a file cannot be used."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

import numpy as np
import pyarrow as pa

from biaseval.errors import InputError
from biaseval.qa_bias.files import FileQuestion, file_questions, is_whole
from biaseval.qa_bias.squad_metric import normalize_answer
from biaseval.records import Records
from biaseval.tables import QA_EXAMPLES

_SHOWN_IDS = 5

_NO_JSON = {
    "[": 'with answers in brackets that are no JSON list, as ["one", "two"] is',
    "{": 'with answers in braces that are no JSON object, as {"text": ["one"], "answer_start": [0]} is',
}

_NOTES = {
    "impossible": "left out {impossible} marked is_impossible: the metric has no null answer",
    "moved": "moved the start of {moved} ({moved_questions}) to the nearest place in the context that has the text",
    "respelled": "wrote {respelled} as the context has it at its span, in other case, punctuation or articles",
    "ambiguous": "took the first place in the context of {ambiguous} that stand there more than once without "
    "answer_start",
    "repeated": "kept {repeated} whose context and text an earlier one has under another id",
}
"""The notes on a file, by the names in `_Found.counts`; a note with the count 0 is left out."""

_OF_ANSWERS = ("moved", "respelled", "ambiguous")


@dataclass(frozen=True, slots=True)
class Question:
    """One question and what answers it."""

    example_id: str
    title: str
    """Of the article; empty where the file has none."""
    question: str
    context: str
    answers: tuple[str, ...]
    """At least one, as the context has them."""
    answer_starts: tuple[int, ...]
    """Characters of the context, one per answer: ``context[start : start + len(answer)] == answer``."""


@dataclass(frozen=True)
class QuestionSet:
    """The questions of one file, in its order."""

    name: str
    questions: list[Question]
    notes: list[str]
    """What a reader of the results should know, in words, with counts."""
    sha256: str
    """Of the file's bytes, as they lie there."""


def read_questions(
    uri: str,
    *,
    name: str,
    fields: Mapping[str, str] = MappingProxyType({}),
    on_bad_example: Literal["error", "drop"] = "error",
    max_examples: int | None = None,
    seed: int = 42,
) -> QuestionSet:
    """Return the questions of a file, each of which can be measured.

    The content determines the format: SQuAD's articles (``data[].paragraphs[].qas[]``), MRQA's lines, or rows of a
    table (CSV, TSV, a JSON list, ``{"data": [...]}``, JSON lines, Parquet, as :class:`~biaseval.records.Records`
    reads them). A table has the columns ``question``, ``context`` and ``answers``, and may have ``id`` (else the
    number of the row, from 0), ``title`` and ``answer_start``. Answers are a text, a list of texts, or Hugging
    Face's two lists ``text`` and ``answer_start`` (in CSV as JSON); where the file says no start it is the first
    place that has the text. Other fields are ignored.

    Where the context does not have an answer's text at its start, the start is moved to the nearest place that has it
    (the first of two equally near). Of an MRQA answer's spans the first counts; where that has the answer in other
    case, punctuation or articles, which is the same to the metric, the answer is written as the span has it. Questions
    that SQuAD v2 marks ``is_impossible`` (``true``, ``True`` or 1) are left out: P3's metric has no null answer. All of
    this is counted in the notes, and so are questions that stand there again under another id, which are kept.

    Bad are questions without id, text, context or answer, with an answer that the context does not have, with an
    ``is_impossible`` that is neither true nor false, or with the id of an earlier question, good or bad.

    Args:
        uri: a local path, or one on an object store.
        name: of the set; notes begin with it.
        fields: the names of columns of a table that have other names: ``{"answers": "gold"}``.
        on_bad_example: ``drop`` leaves bad questions out, counted in the notes.
        max_examples: at most so many good questions, drawn without replacement, in the file's order. The draw is that
            of the seed, the name and the number of good questions; fewer are a part of more.
        seed: of the draw.

    Raises:
        InputError: the file cannot be read, has none of the formats, has JSON mistakes, has bad questions and
            ``on_bad_example`` is ``error``, or no question is left. One message, with places or ids and the correction.
    """
    records = Records(uri)
    found = _Found()
    for row in file_questions(records, fields):
        found.add(row)
    bad = "; ".join(f"{len(ids):,} {reason} ({first_ids(ids)})" for reason, ids in found.bad.items())
    n_bad = sum(map(len, found.bad.values()))
    if bad and on_bad_example == "error":
        raise InputError(
            f"{uri}: {n_bad:,} of {found.n_rows:,} questions cannot be used: {bad}; mend them, or leave them out with "
            "datasets.on_bad_example: drop"
        )
    if not found.questions:
        why = bad or ("all are marked is_impossible" if found.counts["impossible"] else "it has none at all")
        raise InputError(f"{uri}: has no question that can be used ({why}); check the path")
    notes = [f"{name}: {note}" for note in (*records.notes, *found.notes())]
    if bad:
        notes.append(f"{name}: left out {n_bad:,} of {found.n_rows:,} questions that cannot be used: {bad}")
    questions = found.questions
    if max_examples is not None and max_examples < len(questions):
        order = _stream(seed, name).permutation(len(questions))
        questions = [questions[index] for index in sorted(order[:max_examples].tolist())]
        notes.append(f"{name}: drew {len(questions):,} of {len(found.questions):,} questions (max_examples)")
    return QuestionSet(name=name, questions=questions, notes=notes, sha256=records.sha256)


Role = Literal["in_distribution", "out_of_distribution", "train", "validation"]
"""What a run does with questions: measures them, trains on them, or validates with them."""


def question_rows(questions: QuestionSet, role: Role) -> pa.Table:
    """Return the set as rows of :data:`~biaseval.tables.QA_EXAMPLES`."""
    rows = questions.questions
    return pa.Table.from_pydict(
        {
            "dataset": [questions.name] * len(rows), "example_id": [row.example_id for row in rows],
            "row": range(len(rows)), "role": [role] * len(rows), "title": [row.title for row in rows],
            "question": [row.question for row in rows], "context": [row.context for row in rows],
            "answers": [row.answers for row in rows], "answer_starts": [row.answer_starts for row in rows],
        },
        schema=QA_EXAMPLES.schema,
    )  # fmt: skip


def is_id(value: object) -> bool:
    """Return whether a value can be a question's id: text, or a whole number, which becomes text."""
    return is_whole(value) or _is_filled(value)


def is_text(value: object) -> bool:
    """Return whether a value is text that can be stored: no half of a surrogate pair is in it."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def first_ids(ids: Sequence[str]) -> str:
    """Return the first of many ids, for a message."""
    return ", ".join(ids[:_SHOWN_IDS]) + (", …" if len(ids) > _SHOWN_IDS else "")


@dataclass
class _Found:
    """The good and the bad questions of a file, in their order."""

    contexts: dict[str, str] = field(default_factory=dict)
    """Each distinct context once: files repeat them for every question."""
    ids: set[str] = field(default_factory=set)
    texts: set[tuple[str, str]] = field(default_factory=set)
    questions: list[Question] = field(default_factory=list)
    bad: dict[str, list[str]] = field(default_factory=dict)
    """Reason to ids, or places where there is no id."""
    n_rows: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    """The number of questions or answers for each of `_NOTES`."""

    def add(self, row: FileQuestion) -> None:
        """Take a question in, or say why not."""
        if row.is_impossible:
            self.counts["impossible"] += 1
            return
        self.n_rows += 1
        made = self._question(row)
        if isinstance(made, str):
            shown = row.example_id if is_id(row.example_id) else row.place
            self.bad.setdefault(made, []).append(str(shown).encode("utf-8", "backslashreplace").decode())
            return
        self.questions.append(made)
        text = (made.context, made.question)
        self.counts["repeated"] += text in self.texts
        self.texts.add(text)

    def notes(self) -> Iterator[str]:
        """Yield notes on changes to the good questions."""
        n = {name: _counted(n, "answer" if name in _OF_ANSWERS else "question") for name, n in self.counts.items()}
        yield from (note.format(**n) for name, note in _NOTES.items() if self.counts[name])

    def _question(self, row: FileQuestion) -> Question | str:
        """Return the question, or why it is bad."""
        if not is_id(row.example_id):
            return "without an id"
        example_id = str(row.example_id)
        is_same = example_id in self.ids
        self.ids.add(example_id)
        if is_same:
            return "with the id of an earlier question"
        if row.is_impossible is None:
            return "with an is_impossible that is neither true nor false"
        if not _is_filled(row.question):
            return "without the question's text"
        if not _is_filled(row.context):
            return "without a context"
        title = row.title if isinstance(row.title, str) else ""
        if not all(map(is_text, (example_id, title, row.question, row.context))):
            return "with half a surrogate pair (\\ud800 to \\udfff), which is no character"
        if row.answers is None:
            return "with answers that are not texts and starts, as many of each"
        if not row.answers:
            return "without an answer"
        context = self.contexts.setdefault(row.context, row.context)
        texts, starts = [], []
        counts: Counter[str] = Counter()
        for answer in row.answers:
            if not answer.text.strip():
                return "with an empty answer"
            named = answer.start or 0
            start, text = _nearest(context, answer.text, named), answer.text
            span = answer.span_of(context)
            # Another place that has the text may be another thing: "us" is found in "industry".
            is_elsewhere = start is None or start >= answer.end or start + len(text) <= named
            if span and is_elsewhere and normalize_answer(span) == normalize_answer(text):
                start, text = named, span
                counts["respelled"] += 1
            if start is None:
                return _NO_JSON.get(text[:1], "with an answer that is nowhere in the context")
            if answer.start is None:
                counts["ambiguous"] += context.find(text, start + 1) >= 0
            else:
                counts["moved"] += start != named
            starts.append(start)
            texts.append(text)
        counts["moved_questions"] = int(counts["moved"] > 0)
        self.counts += counts
        return Question(example_id, title, row.question, context, tuple(texts), tuple(starts))


def _nearest(context: str, text: str, start: int) -> int | None:
    """Return where the context has ``text``, as near to ``start`` as possible (the first of two); None: nowhere."""
    if start >= 0 and context.startswith(text, start):
        return start
    start = min(max(start, 0), len(context))
    before = context.rfind(text, 0, max(start - 1 + len(text), 0))
    after = context.find(text, start)
    if before < 0 or after < 0:
        return max(before, after) if max(before, after) >= 0 else None
    return before if start - before <= after - start else after


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' if number > 1 else ''}"


def _is_filled(value: object) -> bool:
    return isinstance(value, str) and bool(value) and not value.isspace()


def _stream(seed: int, name: str) -> np.random.Generator:
    """Return the generator of a set's draw, apart from every other use of the seed."""
    digest = hashlib.sha256(f"qa_bias/{name}/max_examples".encode()).digest()
    return np.random.default_rng([seed, *np.frombuffer(digest, dtype=np.uint32).tolist()])
