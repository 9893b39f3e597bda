"""Survey a data file: find the label column and the text columns, and list content that would spoil a measurement."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from biaseval.errors import InputError, first_of, refuse
from biaseval.prompting.labels import same_number
from biaseval.records import Records, is_missing
from biaseval.spec import is_label, label_key

MOST_ROWS = 100_000
"""The most rows that a survey reads, from the start of the file."""

_LABELS = ("label", "labels", "answer", "target", "class", "category", "gold", "output", "verdict", "sentiment", "y")
"""Common names of label columns, the most likely ones first."""
_IDS = ("id", "idx", "index", "uid", "guid", "qid", "")
_MOST_LABELS = 45
"""The largest number of labels by P1's rule (section 3.1)."""


@dataclass(frozen=True)
class Survey:
    """The findings about a file."""

    uri: str
    n_rows: int
    is_whole: bool
    """Whether the survey read all rows of the file."""
    columns: tuple[str, ...]
    label: str
    """The most likely label column."""
    counts: Mapping[str, int]
    """Rows of each label, as a spec's ``data.labels`` names it, the most frequent first."""
    has_text_labels: bool
    """Whether labels are words rather than numbers, true or false."""
    lengths: Mapping[str, tuple[float, int]]
    """For each text column, in the order of the file: median and largest number of characters."""
    n_repeated: int
    """Rows whose texts occur in an earlier row."""
    n_contradicting: int
    """Repeated rows with another label than the earlier row."""
    n_empty: int
    """Rows without a text."""
    n_unlabelled: int
    """Rows with a text and no label."""
    notes: tuple[str, ...]
    """Notes on the format of the file, one sentence each."""


def survey(uri: str) -> Survey:
    """Return the findings about a file; Raises InputError: it cannot be read, or no column can be a label or a text."""
    records = Records(uri)
    rows = [row for _, row in itertools.islice(records, MOST_ROWS + 1)]
    refuse(first_of(records.problems, f"{uri}: "))
    if not rows:
        raise InputError(f"{uri}: holds no row; check the path")
    is_whole, rows = len(rows) <= MOST_ROWS, rows[:MOST_ROWS]
    columns = tuple(dict.fromkeys(key for row in rows for key in row))
    label = _label_column(rows, columns)
    fields = _text_columns(rows, columns, label)
    counts: Counter[str] = Counter()
    first: dict[tuple[str, ...], Any] = {}
    n_repeated = n_contradicting = n_empty = n_unlabelled = 0
    for row in rows:
        value = None if label is None else row.get(label)
        texts = tuple(str(row.get(field) or "").strip() for field in fields)
        if is_missing(value) or not all(texts):
            n_empty += not all(texts)
            n_unlabelled += all(texts)
            continue
        counts[label_key(value).strip()] += 1
        n_repeated += texts in first
        n_contradicting += first.setdefault(texts, value) != value
    if label is None or not fields or not counts:
        what = f"a label: none has 2 to {_most_labels(len(rows))} values" if label is None else "a text"
        problem = (
            f"{uri}: no column can be {what} (its columns: {', '.join(columns)}); write the spec by hand "
            "(docs/label-bias.md has its keys, docs/qa-bias.md those for questions with contexts)"
        )
        raise InputError.of([problem, *(f"{uri}: {note}" for note in records.notes)])
    labels = [row[label] for row in rows if not is_missing(row.get(label))]
    sizes = {field: [len(str(row.get(field) or "")) for row in rows] for field in fields}
    return Survey(
        uri=uri,
        n_rows=len(rows),
        is_whole=is_whole,
        columns=columns,
        label=label,
        counts=dict(counts.most_common()),
        has_text_labels=all(isinstance(own, str) and same_number(own) in (None, "true", "false") for own in labels),
        lengths={field: (median(own), max(own)) for field, own in sizes.items()},
        n_repeated=n_repeated,
        n_contradicting=n_contradicting,
        n_empty=n_empty,
        n_unlabelled=n_unlabelled,
        notes=tuple(records.notes),
    )


def _most_labels(n_rows: int) -> int:
    return min(_MOST_LABELS, max(2, n_rows // 2))


def _label_column(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str | None:
    """Return the most likely label column: by its name, else the last column among those with the fewest values."""
    n_values = {}
    for column in columns:
        given = [row[column] for row in rows if not is_missing(row.get(column))]
        if all(map(is_label, given)) and column.lower() not in _IDS:
            n_distinct = len({label_key(value).strip() for value in given})
            if 2 <= n_distinct <= _most_labels(len(rows)):
                n_values[column] = n_distinct
    named = sorted((_LABELS.index(name.lower()), name) for name in n_values if name.lower() in _LABELS)
    return named[0][1] if named else min(reversed(n_values), key=n_values.__getitem__, default=None)


def _text_columns(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], label: str | None) -> tuple[str, ...]:
    """Return the text columns without attributes such as tags; the longest text column if no column qualifies."""
    found = {}
    for column in columns:
        texts = [row[column] for row in rows if row.get(column)]
        if column == label or column.lower() in _IDS or not all(isinstance(text, str) for text in texts):
            continue
        if any(any(map(str.isalpha, text)) for text in texts):
            found[column] = (len(set(texts)), sum(map(len, texts)) / len(texts))
    longest = max((length for _, length in found.values()), default=0)
    # A column of names or tags next to a text is an attribute; two texts of similar length are a pair.
    return tuple(
        column
        for column, (n_distinct, length) in found.items()
        if length * 4 >= longest and n_distinct * 10 >= len(rows)
    ) or tuple(sorted(found, key=lambda column: found[column][1])[-1:])
