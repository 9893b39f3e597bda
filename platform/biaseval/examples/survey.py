"""What a data file holds: which column is the label, which the texts, and what of it would spoil a measurement."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from biaseval.errors import InputError
from biaseval.examples.question_columns import are_predictions, question_columns
from biaseval.prompting.labels import same_number
from biaseval.records import Records, is_missing
from biaseval.spec import is_label, label_key

MOST_ROWS = 100_000
"""Looked at; of a longer file the first."""

_LABELS = ("label", "labels", "answer", "target", "class", "category", "gold", "output", "verdict", "sentiment", "y")
"""What label columns are often called, likely ones first."""
_IDS = ("id", "idx", "index", "uid", "guid", "qid", "")
_MOST_LABELS = 45
"""As P1's rule has it (section 3.1)."""
_ARTICLES = {"paragraphs", "qas"}
"""Rows that hold several questions: SQuAD's articles, MRQA's contexts."""
_SHOWN_PROBLEMS = 5
_LOOKED_AT = 1000
"""Rows that tell whether a table is one of questions."""

_OPTION = re.compile(r"(?P<stem>|(?:option|choice|answer|opt|endings?|ending)[ _-]?)(?P<mark>[A-Ha-h]|\d)")


@dataclass(frozen=True)
class Survey:
    """What a file holds."""

    uri: str
    n_rows: int
    """Of questions of extractive QA: how many there are."""
    is_whole: bool
    """Whether there are no more rows than were looked at."""
    columns: tuple[str, ...]
    is_questions: bool
    """Whether it holds questions of extractive QA."""
    question_columns: Mapping[str, str]
    """Of a table of them: ``question``, ``context`` and ``answers`` to their columns; else empty."""
    label: str | None
    """The column that looks most like the label; None: no column has few enough values."""
    counts: Mapping[str, int]
    """Rows of each label, as a spec's ``data.labels`` names it, the most frequent first."""
    has_text_labels: bool
    """Whether labels are words, and not numbers, true or false."""
    fields: tuple[str, ...]
    """The columns with texts, in the order of the file."""
    options: Mapping[str, str]
    """Of multiple choice: letter to the column of its option; empty where no columns look like options."""
    lengths: Mapping[str, tuple[float, int]]
    """Of each of these, median and greatest number of characters."""
    n_repeated: int
    """Rows whose texts an earlier row has."""
    n_contradicting: int
    """Those of them with another label."""
    n_empty: int
    """Rows without a text."""
    n_unlabelled: int
    """Rows with a text and no label."""
    notes: tuple[str, ...]
    """On how the file is written, a sentence each."""


def survey(uri: str) -> Survey:
    """Return what a data file holds.

    Raises:
        InputError: it cannot be read, or has no row.
    """
    records = Records(uri)
    rows: list[dict[str, Any]] = []
    is_whole = True
    for _, row in records:
        if len(rows) == MOST_ROWS:
            is_whole = False
            break
        rows.append(row)
    if records.problems:
        more = len(records.problems) - _SHOWN_PROBLEMS
        shown = [f"{uri}: {problem}" for problem in records.problems[:_SHOWN_PROBLEMS]]
        raise InputError.of([*shown, *([f"{uri}: {more} more problems like these"] if more > 0 else [])])
    if not rows:
        raise InputError(f"{uri}: holds no row; check the path")
    columns = tuple(dict.fromkeys(key for row in rows for key in row))
    if are_predictions(rows):
        raise InputError(
            f"{uri}: looks like predictions; name the file of their questions, and this one in the spec's models: "
            "{name: system, predictions: {SET: FILE}}"
        )
    options = _option_columns(columns)
    asked = (
        None if options else question_columns(rows[:_LOOKED_AT], [name for name in columns if name.lower() in _LABELS])
    )
    is_questions = asked is not None or bool(set(columns) & _ARTICLES)
    others = [column for column in columns if column not in options.values()]
    label = None if is_questions else _label_column(rows, others)
    fields = () if is_questions else _text_columns(rows, others, label)
    found = _described(uri, rows, columns, fields, options, label, tuple(records.notes), is_whole=is_whole)
    if not is_questions:
        return found
    return replace(found, is_questions=True, question_columns=asked or {}, n_rows=sum(map(_n_questions, rows)))


def _described(
    uri: str,
    rows: Sequence[Mapping[str, Any]],
    columns: tuple[str, ...],
    fields: tuple[str, ...],
    options: Mapping[str, str],
    label: str | None,
    notes: tuple[str, ...],
    *,
    is_whole: bool,
) -> Survey:
    counts: Counter[str] = Counter()
    first: dict[tuple[str, ...], Any] = {}
    n_repeated = n_contradicting = n_empty = n_unlabelled = 0
    for row in rows:
        value = row.get(label) if label is not None else None
        texts = tuple(str(row.get(field) or "").strip() for field in (*fields, *options.values()))
        if label is not None and (is_missing(value) or not all(texts)):
            n_empty += not all(texts)
            n_unlabelled += all(texts)
            continue
        if label is not None:
            counts[label_key(value).strip()] += 1
        if fields and texts in first:
            n_repeated += 1
            n_contradicting += first[texts] != value
        first.setdefault(texts, value)
    lengths = {
        field: (median(sizes := [len(str(row.get(field) or "")) for row in rows]), max(sizes)) for field in fields
    }
    labels = [row[label] for row in rows if not is_missing(row.get(label))] if label is not None else []
    return Survey(
        uri=uri,
        n_rows=len(rows),
        is_whole=is_whole,
        columns=columns,
        is_questions=False,
        question_columns={},
        label=label,
        counts=dict(counts.most_common()),
        has_text_labels=all(
            isinstance(value, str) and same_number(value) in (None, "true", "false") for value in labels
        ),
        fields=fields,
        options=options,
        lengths=lengths,
        n_repeated=n_repeated,
        n_contradicting=n_contradicting,
        n_empty=n_empty,
        n_unlabelled=n_unlabelled,
        notes=notes,
    )


def _label_column(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str | None:
    """Return the column that looks most like a label: by its name, else the one of fewest values, the last of such."""
    n_values = {}
    for column in columns:
        values = [row.get(column) for row in rows]
        given = [value for value in values if not is_missing(value)]
        if not all(map(is_label, given)):
            continue
        distinct = {label_key(value).strip() for value in given}
        if 2 <= len(distinct) <= min(_MOST_LABELS, max(2, len(rows) // 2)) and column.lower() not in _IDS:
            n_values[column] = len(distinct)
    named = sorted((_LABELS.index(name.lower()), name) for name in n_values if name.lower() in _LABELS)
    if named:
        return named[0][1]
    return min(reversed(list(n_values)), key=lambda column: n_values[column], default=None)


def _n_questions(row: Mapping[str, Any]) -> int:
    """Return how many questions a row, an article or a context with several is."""
    if isinstance(paragraphs := row.get("paragraphs"), list):
        return sum(_n_questions(each) for each in paragraphs if isinstance(each, dict))
    return len(qas) if isinstance(qas := row.get("qas"), list) else "header" not in row


def _option_columns(columns: Sequence[str]) -> dict[str, str]:
    """Return the columns that are named alike but for a letter or number at their end, which goes up, by letters."""
    found: dict[str, dict[str, str]] = {}
    for column in columns:
        if match := _OPTION.fullmatch(column):
            found.setdefault(match["stem"].lower(), {})[match["mark"].upper()] = column
    for stem, marks in found.items():
        least = 1 if stem else 2  # two columns called a and b are mostly a pair of texts
        for begun in ("A", "1", "0"):
            if len(marks) > least and sorted(marks) == [chr(ord(begun) + place) for place in range(len(marks))]:
                return dict(zip(string.ascii_uppercase, (marks[mark] for mark in sorted(marks)), strict=False))
    return {}


def _text_columns(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], label: str | None) -> tuple[str, ...]:
    """Return the columns of texts that differ from row to row; the longest alone where others are mere attributes."""
    found = {}
    for column in columns:
        values = [row.get(column) for row in rows]
        if column == label or column.lower() in _IDS or not all(isinstance(value, str) for value in values if value):
            continue
        texts = [str(value) for value in values if value]
        if texts and any(any(map(str.isalpha, text)) for text in texts):
            found[column] = (len(set(texts)), sum(map(len, texts)) / len(texts))
    if not found:
        return ()
    longest = max(length for _, length in found.values())
    # A column of names or tags beside a text is an attribute; two texts of like length are a pair.
    return tuple(
        column
        for column, (n_distinct, length) in found.items()
        if length * 4 >= longest and n_distinct * 10 >= len(rows)
    ) or (max(found, key=lambda column: found[column][1]),)
