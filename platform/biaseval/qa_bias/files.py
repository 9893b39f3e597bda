"""Questions as files have them, unchecked: SQuAD's JSON, MRQA's JSON lines, rows of tables and of Hugging Face."""

import difflib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from biaseval.errors import InputError, first_of, refuse
from biaseval.parsing import json_value
from biaseval.records import Records, is_missing

_KNOWN_FORMATS = (
    "SQuAD JSON (v1.1 or v2), MRQA JSON lines, and rows of question, context and answers as CSV, TSV, JSON list, JSON "
    "lines or Parquet are read, each plain or gzipped"
)
_COLUMNS = ("question", "context", "answers")
_LOOKED_AT = 1000
"""Rows whose columns are those of the file."""
_SHOWN_KEYS = 5


class FileAnswer(NamedTuple):
    """An answer as a file has it."""

    text: str
    start: int | None
    """None where the file does not say it."""
    end: int
    """Behind the span that the file names; 0 where it names none."""

    def span_of(self, context: str) -> str:
        """Return what the context has at the span; empty where the file names none or a wrong one."""
        return context[self.start : self.end] if 0 <= (self.start or 0) < self.end <= len(context) else ""


class FileQuestion(NamedTuple):
    """A question as a file has it, unchecked."""

    place: str
    example_id: Any
    title: Any
    question: Any
    context: Any
    answers: list[FileAnswer] | None
    """None where they have no known form."""
    is_impossible: bool | None
    """None where the file has neither true nor false there."""


def file_questions(records: Records, fields: Mapping[str, str]) -> Iterator[FileQuestion]:
    """Yield the questions of a file.

    Args:
        records: its rows: questions, or articles or contexts with several.
        fields: the names of columns of a table that have other names.

    Raises:
        InputError: it cannot be read, or its content has none of the known formats.
    """
    entries = iter(records)
    first = list(itertools.islice(entries, _LOOKED_AT))
    problems: list[str] = []
    rows = [entry for _, entry in first if fields or _is_flat(entry)]  # articles have no column to name
    columns = list(dict.fromkeys(key for entry in rows for key in entry))
    if rows:
        _refuse_missing(records.uri, columns, fields)
    has_ids = bool({fields.get("id", "id"), "qid"} & set(columns))
    for number, (place, entry) in enumerate(itertools.chain(first, entries)):
        if _is_flat(entry):
            renamed = {field: entry.get(column) for field, column in fields.items()}
            entry = {**({} if has_ids else {"id": str(number)}), **entry, **renamed}
        # MRQA's files begin with a header line.
        if place != "line 1" or entry.keys() != {"header"}:
            yield from _entry_rows(place, entry, "", problems)
    refuse(first_of(records.problems, f"{records.uri}: ", "lines", most=11))
    if problems:
        raise InputError(f"{InputError.of(first_of(problems, f'{records.uri}: ', 'places'))}; {_KNOWN_FORMATS}")


def _is_flat(entry: Mapping[str, Any]) -> bool:
    """Return whether a row of a file is a question, and no article, paragraph or header."""
    return not entry.keys() & {"paragraphs", "qas", "header"} or "question" in entry


def _refuse_missing(uri: str, columns: Sequence[str], fields: Mapping[str, str]) -> None:
    """Raise InputError where a table lacks a column of questions, or one that ``fields`` names."""
    wanted = {**{field: field for field in _COLUMNS}, **fields}
    missing = {
        field: column
        for field, column in wanted.items()
        if column not in columns and (field != "answers" or field in fields or "detected_answers" not in columns)
    }
    if not missing:
        return
    close = [difflib.get_close_matches(column, columns, n=1) for column in missing.values()]
    meant = ", ".join(name for names in close for name in names)
    example = ", ".join(f"{field}: ..." for field in missing)
    raise InputError(
        f"{uri}: no row has {', '.join(missing.values())} (its columns: {', '.join(columns) or 'none'}); name the "
        f"file's own in the set's fields, as in {{file: FILE, fields: {{{example}}}}}; {_KNOWN_FORMATS}"
        + (f"; did you mean {meant}?" if meant else "")
    )


def _entry_rows(place: str, entry: object, title: object, problems: list[str]) -> Iterator[FileQuestion]:
    """Yield the questions of an article, of a paragraph, or the one of a flat row."""
    if not isinstance(entry, dict):
        problems.append(f"{place}: is {_kind(entry)}, not an object with a question")
    elif "paragraphs" in entry:
        for inner_place, paragraph in _numbered(f"{place}.paragraphs", entry["paragraphs"], problems):
            yield from _entry_rows(inner_place, paragraph, entry.get("title"), problems)
    elif "qas" in entry:
        for inner_place, qa in _numbered(f"{place}.qas", entry["qas"], problems):
            if isinstance(qa, dict):
                yield _flat_row(inner_place, {"title": title, **qa, "context": entry.get("context")})
            else:
                problems.append(f"{inner_place}: is {_kind(qa)}, not an object with a question")
    elif not entry.keys() & {"question", "context"}:
        keys = ", ".join(list(entry)[:_SHOWN_KEYS]) or "none"
        problems.append(f"{place}: has neither question nor context (its keys: {keys})")
    else:
        yield _flat_row(place, entry)


def _flat_row(place: str, row: Mapping[str, Any]) -> FileQuestion:
    # MRQA's questions have the id of their source besides; predictions go by qid.
    return FileQuestion(
        place=place,
        example_id=whole(row["qid"] if "qid" in row else row.get("id")),
        title=row.get("title"),
        question=row.get("question"),
        context=row.get("context"),
        answers=_answers(row.get("detected_answers", row.get("answers")), row.get("answer_start")),
        is_impossible=_truth(row.get("is_impossible")),
    )


def _numbered(place: str, values: object, problems: list[str]) -> list[tuple[str, object]]:
    if not isinstance(values, list):
        problems.append(f"{place}: is {_kind(values)}, not a list")
        return []
    return [(f"{place}[{index}]", value) for index, value in enumerate(values)]


def _kind(value: object) -> str:
    if isinstance(value, dict):
        return f"an object with the keys {', '.join(list(value)[:_SHOWN_KEYS]) or 'none'}"
    names = {list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _answers(value: object, starts: object) -> list[FileAnswer] | None:
    """Return the answers of one question; None where they have no known form."""
    found: list[tuple[Any, ...]]
    if is_missing(value):
        return []
    if isinstance(value, str) and _are_objects(parsed := _from_json(value)):
        value = parsed
    if isinstance(value, str) or (isinstance(value, list) and value and isinstance(value[0], str)):
        return _plain_answers(value, starts)
    if isinstance(value, dict):
        texts, starts = (
            own if isinstance(own, list) else [own] for own in (value.get("text"), value.get("answer_start"))
        )
        if len(texts) != len(starts):
            return None
        found = [(text, _start(start), 0) for text, start in zip(texts, starts, strict=True)]
    elif isinstance(value, list) and all(isinstance(answer, dict) for answer in value):
        found = [(answer.get("text"), *_span(answer)) for answer in value]
    else:
        return None
    if not all(isinstance(text, str) and is_whole(start) and is_whole(end) for text, start, end in found):
        return None
    return [FileAnswer(*answer) for answer in found]


def _plain_answers(value: str | list[Any], starts: object) -> list[FileAnswer] | None:
    """Return the answers of a table: a text or a list of them, and where they start, if it says so; in CSV as JSON."""
    texts = _from_json(value)
    if not _are_texts(texts):
        texts = [value] if isinstance(value, str) else value
    starts = _from_json(starts)
    places = starts if isinstance(starts, list) else [starts] * (1 if starts is not None else len(texts))
    places = list(map(_start, places))
    is_known = len(places) == len(texts) and all(place is None or is_whole(place) for place in places)
    if not is_known or not _are_texts(texts):
        return None
    return [FileAnswer(text, place, 0) for text, place in zip(texts, places, strict=True)]


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _are_objects(value: object) -> bool:
    """Return whether a cell's JSON is answers as other formats have them: an object with texts, or a list of such."""
    several = value if isinstance(value, list) else [value]
    return bool(several) and all(isinstance(each, dict) and "text" in each for each in several)


def _from_json(value: object) -> Any:
    """Return what a cell of a CSV says: None where it is empty, itself where it is no JSON."""
    if is_missing(value):
        return None
    if not isinstance(value, str):
        return value
    try:
        return json_value(value)
    except ValueError:
        return value


def _span(answer: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the first character of an answer and the one after it, or 0 for the latter if the file has none."""
    match answer.get("char_spans"):
        case None:
            return _start(answer.get("answer_start")), 0
        # MRQA's ends are inclusive.
        case [[start, end], *_] if is_whole(end):
            return start, end + 1
    return None, None


def _truth(value: object) -> bool | None:
    """Return whether a value is true (``true``, ``True``, 1 or 1.0); a missing one is not. None: neither."""
    if is_missing(value):
        return False
    word = str(value).strip().casefold()
    return True if word in ("true", "1", "1.0") else False if word in ("false", "0", "0.0") else None


def _start(value: object) -> object:
    """Return a place in a context, which a text may say, as a whole number."""
    return whole(_from_json(value))


def whole(value: object) -> object:
    """Return a number without decimals as a whole one, as pandas makes decimal numbers of a column with gaps."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def is_whole(value: object) -> bool:
    """Return whether a value is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)
