"""Which columns of a table are questions of extractive QA, their contexts and their answers."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from statistics import median
from typing import Any

from biaseval.qa_bias.files import answer_texts

_ANSWERS = ("answers", "answer", "answer_text")
"""What columns of answers to questions are called; as a spec needs not say it, the first."""

_QUESTIONS = ("question", "query", "q")
"""What columns of questions are called."""

_SHARE = 0.95
"""Of the answers, that stand in their contexts: few labels, such as yes and no, do."""

_LEAST_RATIO = 3
"""Of a context's length to an answer's, in the middle: of two texts of like length one may just repeat the other."""

_PREDICTIONS = ("prediction_text", "prediction")


def question_columns(rows: Sequence[Mapping[str, Any]], labels: Collection[str]) -> dict[str, str] | None:
    """Return the columns of ``question``, ``context`` and ``answers``, or None where rows are no such questions.

    Columns of other names are known by what they hold: answers stand in their contexts and not in their questions,
    which are called so or end with a question mark.

    Args:
        rows: of a file.
        labels: the columns that are called as labels are; one beside the answers is what the rows are about.
    """
    columns = list(dict.fromkeys(key for row in rows for key in row))
    if {"question", "context"} <= set(columns):
        answers = _named_answers(rows)
        return None if answers is None else {"question": "question", "context": "context", "answers": answers}
    texts = [column for column in columns if _is_text(rows, column)]
    # The context is the longest text in which answers stand.
    for context in sorted(texts, key=lambda column: _length(rows, column), reverse=True):
        asked = [column for column in _by_name(texts, _QUESTIONS) if column != context and _asks(rows, column)]
        for question, answers in itertools.product(asked, _by_name(columns, ("gold", *_ANSWERS))):
            is_free = answers not in (question, context) and set(labels) <= {question, context, answers}
            if is_free and _are_answers(rows, answers, context, question):
                return {"question": question, "context": context, "answers": answers}
    return None


def are_predictions(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether rows are answers of a model alone: one object of ids and texts, or ids with predictions."""
    if len(rows) == 1 and len(rows[0]) > 1 and all(isinstance(value, str) for value in rows[0].values()):
        return not any(re.fullmatch("[a-z]+(_[a-z]+)*", name) for name in rows[0])
    texts = {name for row in rows for name, value in row.items() if not isinstance(value, int | float | None)}
    return all("id" in row for row in rows) and bool(texts & {*_PREDICTIONS}) and texts <= {"id", *_PREDICTIONS}


def _named_answers(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the column of answers beside ``question`` and ``context``, checked where its name is not the usual one."""
    if any(_ANSWERS[0] in row for row in rows):
        return _ANSWERS[0]
    return next((column for column in _ANSWERS[1:] if _share_inside(rows, column, "context") >= _SHARE), None)


def _are_answers(rows: Sequence[Mapping[str, Any]], answers: str, context: str, question: str) -> bool:
    """Return whether a column's texts stand in a longer one as words, and mostly not in the questions."""
    lengths = [len(text) for row in rows for text in answer_texts(row.get(answers))]
    return (
        bool(lengths)
        and median(lengths) > 1  # letters stand everywhere
        and median(lengths) * _LEAST_RATIO <= _length(rows, context)
        and _share_inside(rows, answers, context) >= _SHARE
        and _share_inside(rows, answers, question) < 0.5
    )


def _share_inside(rows: Sequence[Mapping[str, Any]], column: str, other: str) -> float:
    """Return the share of the rows with a text in ``column`` in which one stands in ``other``; 0 without any."""
    given = [(texts, str(row.get(other) or "")) for row in rows if (texts := answer_texts(row.get(column)))]
    inside = sum(
        any(re.search(rf"(?<!\w){re.escape(text)}(?!\w)", whole) is not None for text in texts)
        for texts, whole in given
    )
    return inside / len(given) if given else 0.0


def _asks(rows: Sequence[Mapping[str, Any]], column: str) -> bool:
    """Return whether a column holds questions: by its name, or by question marks."""
    if column.lower() in _QUESTIONS:
        return True
    texts = [str(row[column]) for row in rows if row.get(column)]
    return 2 * sum(text.rstrip().endswith("?") for text in texts) > len(texts)


def _is_text(rows: Sequence[Mapping[str, Any]], column: str) -> bool:
    values = [value for row in rows if (value := row.get(column)) is not None]
    return bool(values) and all(isinstance(value, str) for value in values)


def _length(rows: Sequence[Mapping[str, Any]], column: str) -> float:
    return median(len(str(row.get(column) or "")) for row in rows)


def _by_name(columns: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return columns, those of a likely name first."""
    return sorted(columns, key=lambda column: column.lower() not in names)
