"""Tables of lines, such as CSV and TSV: how a file is written, which nothing in it says, and its rows.

Each way of writing is tried on the whole file, and the one that fits it best is taken.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import re
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from operator import eq
from typing import IO, TYPE_CHECKING, Literal

from biaseval.errors import InputError

if TYPE_CHECKING:
    from _csv import Reader as _Reader

Opened = Callable[[], AbstractContextManager[IO[bytes]]]
"""Opens a file at its beginning."""

Quotes = Literal["doubled", "spaced", "escaped", "none"]
"""How a quoted cell is written: as CSV has it; with spaces before its quote; with a backslash before the quotes in it;
or not at all, so that quotes are characters like others."""

_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
"""Of delimiters, in messages; the likely ones first."""
_UNQUOTED = "\t|"
"""Delimiters of files that often have no quoted cells: texts hardly hold them."""
_SEPARATOR = re.compile(r'"?sep=(.)"?\s*')
"""Excel's line before the header."""
_STRANGE = re.compile(
    r"[¡-ÿŒœŠšŽžŸƒ‚„†‡ˆ‰‹•˜™›]{4}|[a-z][¡-¦¨-©«-¬®-¯±-³µ-¶¸-¹»-¿×÷ƒ„†‡ˆ‰‹•˜™›][a-z]|[ÂÃ][¡-º¼-¿œŸ„€†‡ˆ‰]|â[€‚„]|ðŸ"
)
"""Of text in Windows-1252, what another encoding's bytes give rather than a language does; the last are of UTF-8."""
_FOREIGN = re.compile(r"\w*[^\x00-\x7f]\w*")
_ROW_NAME = re.compile(r"\d+")
_OF_IDS = re.compile(r"#|.*id|(.*[\W_])?(idx|index|row|no|nr|number)\.?", re.IGNORECASE)
"""The name of a column that numbers rows, which need no row names besides."""
_NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?")
_YEAR = re.compile(r"(19|20)\d\d")
_LOOKED_AT = 1000
"""Rows whose texts a name of a column is compared with in length."""
_MANY_WORDS = 5
"""More than a name of a column mostly has."""
_SHOWN_CHARACTERS = 40


@dataclass(frozen=True)
class Written:
    """How a file is written."""

    delimiter: str
    quotes: Quotes
    encoding: str = "utf-8-sig"
    n_before: int = 0
    """Lines before the header."""
    header: tuple[str, ...] = ()
    n_named: int = 0
    """Columns of each row; columns without a name may follow, which some rows lack."""
    notes: tuple[str, ...] = ()
    """What a reader of the results should know, a sentence each."""

    @property
    def remedy(self) -> str:
        """What to do about a row with another number of cells."""
        quoted = "" if self.quotes == "none" else ", or quote texts that hold one"
        return f"mend the {_NAMES.get(self.delimiter, f'delimiters {self.delimiter!r}')}{quoted}"

    def reader(self, lines: Iterator[str]) -> _Reader:
        """Return the rows of lines, from the header on."""
        for _ in range(self.n_before):
            next(lines)
        if self.quotes == "escaped":
            # A backslash before the quote that ends a cell is the cell's last character.
            escaped = re.compile(rf'\\"(?!{re.escape(self.delimiter)}|[\r\n]|$)')
            lines = (escaped.sub('""', line) for line in lines)
        return csv.reader(
            lines,
            delimiter=self.delimiter,
            quoting=csv.QUOTE_NONE if self.quotes == "none" else csv.QUOTE_MINIMAL,
            skipinitialspace=self.quotes == "spaced",
            strict=True,
        )


def how_written(opened: Opened, *, is_tsv: bool) -> Written:
    """Return how a table of lines is written.

    A header that lacks the name of the first of all rows' cells is one of R's, whose rows have numbers as their names.
    The file is read several times; ``is_tsv``: tabs are the likely delimiter.

    Raises:
        InputError: it is empty or in an unknown encoding, or names of columns are missing or there twice.
    """
    csv.field_size_limit(sys.maxsize)
    encoding, notes = _encoding(opened)
    separator = None
    with opened() as stream, contextlib.closing(_text(stream, encoding)) as lines:
        for n_before, first in enumerate(lines):  # noqa: B007
            if own := _SEPARATOR.fullmatch(first):
                separator = own[1]
            elif first.strip():
                break
        else:
            raise InputError("is empty")
    likely = sorted(_NAMES, key=lambda each: (is_tsv and each == "\t", first.count(each)), reverse=True)
    delimiters = [separator] if separator else [each for each in likely if each in first] or likely[:1]
    found: list[_Trial] = []
    for delimiter in delimiters:
        best = _best(opened, Written(delimiter, "doubled", encoding, n_before))
        found.append(best)
        if best.misfit[:2] == _FITTING[:2]:
            return best.written(notes)
    return next((best for best in found if not best.misfit[0]), found[0]).written(notes)


def _best(opened: Opened, written: Written) -> _Trial:
    """Return the way to quote that fits a file best; of those that fit alike, the first."""
    ways: tuple[Quotes, ...] = ("doubled", "spaced", "escaped")
    trials: list[_Trial] = []
    for quotes in (*ways, "none") if written.delimiter in _UNQUOTED else ways:
        trial = _Trial(replace(written, quotes=quotes))
        with opened() as stream, contextlib.closing(_text(stream, written.encoding)) as lines:
            trial.read(lines)
        trials.append(trial)
        if trial.misfit == _FITTING:
            break
    return min(trials, key=lambda trial: trial.misfit)


def table_rows(stream: IO[bytes], written: Written) -> Iterator[tuple[str, dict[str, str], str | None]]:
    """Yield the rows of a file, each with its place and its mistake, if any.

    Raises:
        InputError: a line is no row of a table; the rows before it have been yielded.
    """
    n_columns = len(written.header)
    with contextlib.closing(_text(stream, written.encoding)) as lines:
        reader, before = written.reader(lines), written.n_before
        try:
            first = next(reader)
            before += reader.line_num
            for cells in reader:
                before = reader.line_num + written.n_before
                place = f"line {before}"
                width = _width(cells)
                if not width or _is_again(first, cells):
                    continue
                problem = None
                if width > n_columns or len(cells) < written.n_named:
                    n_cells = max(width, min(len(cells), n_columns))
                    problem = f"has {n_cells} columns and the header {n_columns}; {written.remedy}"
                padded = [*cells, *[""] * (n_columns - len(cells))]
                yield place, dict(zip(written.header, padded, strict=False)), problem
        except csv.Error as error:
            last = reader.line_num + written.n_before
            place = f"line {last}" if last == before + 1 else f"lines {before + 1} to {last}"
            raise InputError(f"{place}: is no row of a table ({error}); mend its quotes") from error


_FITTING = (0, False, 0, 0)


@dataclass
class _Trial:
    """What a file's rows are, were it written so."""

    written_so: Written
    cells: list[str] = field(default_factory=list)
    """Of the header."""
    is_broken: bool = False
    """Whether a line is no row."""
    n_again: int = 0
    """Rows that are the header once more."""
    named_at: int = 0
    """Line of the first row, where it has a name that labels mostly have and the header does not."""
    n_rows: int = 0
    n_misfits: int = 0
    """Rows of another number of cells than the header."""
    n_spanning: int = 0
    """Rows of several lines."""
    n_quoted: int = 0
    """Cells that keep quotes at both ends."""
    quoted_at: tuple[int, str] = (0, "")
    width: int = 0
    """Cells up to the last that any row that fits has filled."""
    row_names: set[str] = field(default_factory=set)
    """First cells of the rows while all are numbers, each once, that the header has no name for."""
    n_as_named: list[int] = field(default_factory=list)
    """Rows below whose cell is the name of its column, by column."""
    n_characters: list[int] = field(default_factory=list)
    """Of the first rows together, by column."""

    @property
    def misfit(self) -> tuple[float, bool, int, int]:
        """How badly the file fits; `_FITTING` is the least."""
        if self.is_broken:
            return (float("inf"), False, 0, 0)
        # Where texts hardly hold the delimiter and each line is a whole row, a quote that spans two is text.
        n_spanning = self.n_spanning if self.written_so.delimiter in _UNQUOTED else 0
        has_names = self._has_row_names
        return (0 if has_names else self.n_misfits, has_names, n_spanning, self.n_quoted)

    @property
    def _has_row_names(self) -> bool:
        return self.n_misfits > 0 and len(self.row_names) == self.n_rows and not _OF_IDS.fullmatch(self.cells[0])

    def read(self, lines: Iterator[str]) -> None:
        """Take all lines into account."""
        reader = self.written_so.reader(lines)
        try:
            first = next(reader, [])
            self.cells = [cell.strip() for cell in first]
            self.n_as_named, self.n_characters = [0] * len(self.cells), [0] * len(self.cells)
            n_named, before = _width(self.cells), reader.line_num
            for cells in reader:
                n_lines, before = reader.line_num - before, reader.line_num
                if _is_again(first, cells):
                    self.n_again += 1
                elif width := _width(cells):
                    self.n_spanning += n_lines > 1
                    self._add(cells, width, n_named, reader.line_num)
        except csv.Error:
            self.is_broken = True

    def _add(self, cells: list[str], width: int, n_named: int, line: int) -> None:
        if len(self.row_names) == self.n_rows and len(cells) == n_named + 1 and _ROW_NAME.fullmatch(cells[0]):
            self.row_names.add(cells[0])
        self.n_rows += 1
        if self.n_rows == 1 and _has_label(cells) and not _has_label(self.cells):
            self.named_at = line + self.written_so.n_before
        if width > len(self.cells) or len(cells) < n_named:
            self.n_misfits += 1
            return
        self.width = max(self.width, width)
        if any(map(eq, cells, self.cells)):
            same = map(eq, cells, self.cells)
            self.n_as_named = [n + own for n, own in zip(self.n_as_named, chain(same, repeat(False)), strict=False)]
        if self.n_rows <= _LOOKED_AT:
            for place, cell in enumerate(cells[: len(self.cells)]):
                self.n_characters[place] += len(cell)
        for cell in cells:
            if '"' in cell and len(bare := cell.strip()) > 1 and bare[0] == bare[-1] == '"':
                self.n_quoted += 1
                self.quoted_at = self.quoted_at if self.n_quoted > 1 else (line + self.written_so.n_before, bare)

    def written(self, notes: Iterable[str]) -> Written:
        """Return how the file is written, with its header; Raises InputError: names are there twice, or missing."""
        so, names, n_named = self.written_so, self.cells, _width(self.cells)
        line = f"line {so.n_before + 1}"
        if self._has_row_names:
            names, n_named, self.width = ["", *names[:n_named]], n_named + 1, 0
        header = tuple(names[: max(n_named, self.width)])
        if unnamed := [str(place) for place, name in enumerate(header, 1) if not name][1:]:
            some = f"column {unnamed[0]} has" if len(unnamed) == 1 else f"columns {', '.join(unnamed)} have"
            raise InputError(f"{line}: {some} no name and values below; name each, or take them out")
        if twice := sorted({name for name in header if header.count(name) > 1}):
            raise InputError(f"{line}: names the columns {', '.join(map(repr, twice))} twice; name each once")
        found = [*notes, *self._notes(line)]
        return Written(so.delimiter, so.quotes, so.encoding, so.n_before, header, n_named, tuple(found))

    def _notes(self, line: str) -> Iterator[str]:
        if self._has_row_names:
            yield (
                "first cells are read as row names, as each row has one cell more than the header; if they are none, "
                f"{self.written_so.remedy}"
            )
        if self.n_quoted and self.written_so.quotes == "none":
            place, cell = self.quoted_at
            yield (
                f"quotes are read as part of the texts ({_shown(cell)} in line {place}), as not all of them open and "
                "close a cell; mend those that do not, if quotes are no part of the texts"
            )
        if self.n_again:
            times = f"{self.n_again:,} time{'s' if self.n_again > 1 else ''}"
            yield f"{line} stands below once more ({times}), as where files were joined; those rows are left out"
        if self.named_at:
            yield f"line {self.named_at} looks like the names of columns; remove the lines before it"
        elif why := self._why_a_row():
            yield (
                f"{line} looks like a row and not like the names of columns ({why}); where names are missing, write "
                "them into a first line, such as text,label"
            )

    def _why_a_row(self) -> str:
        """Return why the header looks like a row; empty where it does not."""
        named = [name for name in self.cells if name]
        if named == list(map(str, range(len(named)))):  # pandas writes such names
            return ""
        for name, n_times in zip(self.cells, self.n_as_named, strict=True):
            if name and n_times:
                return f"{_shown(name)} stands below in its column, {n_times:,} time{'s' if n_times > 1 else ''}"
        if numbers := [name for name in named if _NUMBER.fullmatch(name) and not _YEAR.fullmatch(name)]:
            return f"{numbers[0]} is a number"
        for name, n_characters in zip(self.cells, self.n_characters, strict=True):
            average = n_characters / max(1, min(self.n_rows, _LOOKED_AT))
            # A question at the head of its answers is longer than they are, and ends as one.
            if len(name.split()) > _MANY_WORDS and not name.endswith("?") and average / 2 < len(name) < 3 * average:
                return f"{_shown(name)} is a text"
        return ""


def _encoding(opened: Opened) -> tuple[str, list[str]]:
    """Return the encoding of a file, and what to say of it.

    Raises:
        InputError: it is neither UTF-8 nor, by what its letters would be, Windows-1252.
    """
    decoder, before, line = codecs.getincrementaldecoder("utf-8")(), 0, 1
    try:
        with opened() as stream:
            while block := stream.read(1 << 20):
                n_pending = len(decoder.getstate()[0])
                decoder.decode(block)
                before, line = before + len(block), line + block.count(b"\n")
            n_pending = len(decoder.getstate()[0])
            decoder.decode(b"", final=True)
        return "utf-8-sig", []
    except UnicodeDecodeError as error:
        line += error.object[: error.start].count(b"\n")
        byte = f"byte {before - n_pending + error.start} in line {line}: {error.reason}"
    shown = ""
    with opened() as stream, contextlib.closing(_text(stream, "cp1252")) as lines:
        try:
            for text in lines:
                if _STRANGE.search(text):
                    raise InputError(f"is not UTF-8 ({byte}); save it as UTF-8")
                shown = shown or (_FOREIGN.search(text) or [""])[0]
        except UnicodeDecodeError as error:
            raise InputError(f"is not UTF-8 ({byte}); save it as UTF-8") from error
    return "cp1252", [
        f"is not UTF-8 ({byte}) and is read as Windows-1252, which Excel writes, as in {_shown(shown)}; where that is "
        "wrong, save it as UTF-8"
    ]


def _text(stream: IO[bytes], encoding: str) -> Generator[str]:
    """Yield lines with their ends, which may be CR, LF or both; the stream stays open."""
    text = io.TextIOWrapper(stream, encoding, newline="")
    try:
        yield from iter(text.readline, "")  # where the wrapper itself would close the stream
    finally:
        text.detach()


def _is_again(first: list[str], cells: list[str]) -> bool:
    """Return whether a row is the header, which may begin with the byte order mark of a file that was joined."""
    return cells[-1:] == first[-1:] and [cells[0].removeprefix("\ufeff"), *cells[1:]] == first


def _has_label(cells: list[str]) -> bool:
    return any(cell.strip().lower() == "label" for cell in cells)


def _width(cells: list[str]) -> int:
    """Return the number of cells up to the last that holds something."""
    width = len(cells)
    while width and not cells[width - 1]:
        width -= 1
    return width


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…")
