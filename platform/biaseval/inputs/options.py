"""Questions with options: find the columns of the options, and the right option of each row.

Labels are letters, or the names that the spec gives. A file names the right option by its label, its position (from 0)
or its text, in the same way in all rows. This module finds the way by reading all rows.
"""

import itertools
import string
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from biaseval.errors import InputError, did_you_mean, first_of, refuse
from biaseval.records import Records, Row, is_missing
from biaseval.spec import label_key

_ANSWERS = ("label", "answer", "answerKey")
Asked = Mapping[str, str] | str
"""Label to the column of its option, or the one column with all options: a list, or the lists ``text`` and
``label``."""


@dataclass(frozen=True)
class _Question:
    """The question of a row."""

    texts: tuple[Any, ...]
    names: tuple[str, ...]
    """Possible names of the options in the answer."""
    answer: Any
    says_names: bool = False
    """Whether the row itself names its options and its answer uses these names."""


def _by_name(question: _Question) -> int | None:
    name = label_key(question.answer).strip()
    return question.names.index(name) if name in question.names else None


def _by_place(question: _Question) -> int | None:
    text = label_key(question.answer).strip()  # a number of JSON, or digits
    return int(text) if text.isdecimal() and int(text) < len(question.texts) else None


def _by_text(question: _Question) -> int | None:
    texts = [text.strip() if isinstance(text, str) else text for text in question.texts]
    answer = question.answer.strip() if isinstance(question.answer, str) else None
    return texts.index(answer) if texts.count(answer) == 1 else None


_PLACE = "its place, from 0"
_Way = Callable[[_Question], int | None]
_WAYS: Mapping[str, _Way] = {"its label": _by_name, _PLACE: _by_place, "its text": _by_text}


@dataclass
class _Found:
    """The findings about rows with the same number of options."""

    fitting: Mapping[str, _Way]
    """Ways to read the answer that fit all rows so far."""
    misfit: str = ""
    """The first row that the last way did not fit, with its answer."""
    differing: dict[frozenset[str], str] = field(default_factory=dict)
    """Pairs of ways that mean different options, each with the first such row."""
    places: set[int] = field(default_factory=set)

    def add(self, where: str, question: _Question) -> None:
        """Add a row to the findings."""
        if not self.fitting:
            return
        read = {way: reader(question) for way, reader in self.fitting.items()}
        self.fitting = {way: reader for way, reader in self.fitting.items() if read[way] is not None}
        if not self.fitting:
            self.misfit = f"{where}: {question.answer!r}"
        if (place := read.get(_PLACE)) is not None:
            self.places.add(place)
        for one, two in itertools.combinations(self.fitting, 2):
            if read[one] != read[two]:
                self.differing.setdefault(frozenset((one, two)), f"{where}: {question.answer!r}")

    def way(self, column: str, key: str) -> _Way:
        """Return the way in which all rows name the right option; Raises InputError: none fits, or several differ."""
        if not self.fitting:
            raise InputError(
                f"{key}.label: {self.misfit} in {column} is neither the label nor the place (from 0) nor the text of "
                "an option, or other rows name options in another way; write labels in all, or call the options as the "
                "rows do"
            )
        if doubtful := [where for ways, where in self.differing.items() if ways <= self.fitting.keys()]:
            ways = " or ".join(self.fitting)
            raise InputError(
                f"{key}.label: {doubtful[0]} in {column} may mean an option by {ways}; write labels in all rows"
            )
        name, reader = next(iter(self.fitting.items()))
        if name == _PLACE and 0 not in self.places:
            raise InputError(
                f"{key}.label: places of options count from 0, and no row has 0 in {column}; where yours count from 1, "
                f"call the options 1, 2, … in {key}.options, or write labels in the file"
            )
        return reader


@dataclass(frozen=True)
class Options:
    """The columns and labels of a data set with options."""

    columns: Mapping[str, str]
    """Label of each option to the column of its text in the output of `rows`."""
    answer: str
    """The column with the right label in the output of `rows`."""
    n_left_out: int
    """Rows dropped because their number of options is not the most frequent one."""
    _asked: Asked
    _read: _Way

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels, in the order of the options."""
        return tuple(self.columns)

    def rows(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Yield rows with a column for each option, and the right label."""
        for place, row in rows:
            question = _question(row, self._asked, self.answer)
            if len(question.texts) == len(self.labels):
                right = None if question.answer is None else self._read(question)
                texts = dict(zip(self.columns.values(), question.texts, strict=True))
                yield place, {**row, **texts, self.answer: None if right is None else self.labels[right]}


def read_options(uris: Sequence[str], asked: Asked, answer: str | None, key: str) -> Options:
    """Return the columns and labels of files with options; messages name the section's key.

    ``answer`` is the column with the right option; None: the usual names are tried.

    Raises:
        InputError: a column is missing, a row's options are invalid, or the right option is ambiguous.
    """
    found: dict[int, _Found] = {}
    counts: Counter[int] = Counter()
    problems: list[str] = []
    column = ""
    for uri in uris:
        records = Records(uri)
        for place, row in records:
            if not column:
                column = _answer_column(uri, row, asked, answer, key)
            try:
                own = _question(row, asked, column)
            except ValueError as error:
                problems.append(f"{uri}: {place}: {error}")
                continue
            if own.answer is None:  # reported when the rows are read
                continue
            counts[len(own.texts)] += 1
            ways = {"its label": _by_name} if own.says_names else _WAYS
            found.setdefault(len(own.texts), _Found(ways)).add(f"{uri}: {place}", own)
        problems += [f"{uri}: {problem}" for problem in records.problems]
    if not problems and not counts:
        problems = [f"{key}: no row says which option is right; fill in {key}.label"]
    refuse(first_of(problems))
    n_options = max(counts, key=lambda number: counts[number])
    if not 2 <= n_options <= len(string.ascii_uppercase):
        raise InputError(f"{key}.options: most rows have {n_options} options; 2 to 26 have letters")
    columns = {letter: letter for letter in string.ascii_uppercase[:n_options]} if isinstance(asked, str) else asked
    n_left_out = sum(counts.values()) - counts[n_options]
    return Options(columns, column, n_left_out, asked, found[n_options].way(column, key))


def _answer_column(uri: str, row: Mapping[str, Any], asked: Asked, answer: str | None, key: str) -> str:
    """Return the column with the answers; Raises InputError: this column or an option's column is missing."""
    columns = [asked] if isinstance(asked, str) else list(asked.values())
    if missing := [column for column in columns if column not in row]:
        raise InputError(f"{uri}: {key}.options: no row has {missing[0]}{did_you_mean(missing[0], list(row))}")
    names = _ANSWERS if answer is None else (answer,)
    there = [name for name in names if name in row]
    if not there:
        raise InputError(f"{uri}: {key}.label: no row has {' or '.join(names)}; it has {', '.join(row)}: name one")
    return there[0]


def _question(row: Mapping[str, Any], asked: Asked, answer: str) -> _Question:
    """Return the question of a row; Raises ValueError: its options are invalid."""
    right = None if is_missing(row.get(answer)) else row[answer]
    if not isinstance(asked, str):
        return _Question(tuple(row.get(column) for column in asked.values()), tuple(asked), right)
    value = row.get(asked)
    if isinstance(value, list):
        return _Question(tuple(value), tuple(string.ascii_uppercase[: len(value)]), right)
    texts, names = (value.get(name) if isinstance(value, dict) else None for name in ("text", "label"))
    if not isinstance(texts, list) or not isinstance(names, list) or len(texts) != len(names):
        raise ValueError(
            f"{asked}: {str(value)[:60]!r} holds no options; write a list of texts, or lists text and label"
        )
    return _Question(tuple(texts), tuple(map(label_key, names)), right, says_names=True)
