"""Rows of files that somebody else made, each with the place where it stands: JSON lines, CSV, Parquet."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from biaseval.errors import InputError

Record = dict[str, Any]


def json_lines(path: Path) -> Iterator[tuple[str, Record]]:
    """Yield the place and the object of each line that is not empty.

    Raises:
        InputError: the file cannot be read, is empty, or has a line that is no JSON object, as one that was cut.
    """
    is_empty = True
    with _readable(path, "UTF-8 JSON lines"), path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            place = f"{path}: line {number}"
            if not line.strip():
                continue
            is_empty = False
            try:
                record = json.loads(line)
            except ValueError as error:
                reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
                raise InputError(f"{place}: is not JSON ({reason}); the file may be cut, copy it anew") from error
            if not isinstance(record, dict):
                raise InputError(f"{place}: is not a JSON object; write one a line")
            yield place, record
    if is_empty:
        raise InputError(f"{path}: holds no row; name a file with scores")


def records(path: Path) -> Iterator[tuple[str, Record]]:
    """Yield the place and the columns of each row of a table; an empty cell of a CSV file is null.

    Raises:
        InputError: the file cannot be read, is none of CSV, JSONL and Parquet by its name, or holds no row.
    """
    readers = {".csv": _csv_rows, ".jsonl": json_lines, ".parquet": _parquet_rows}
    if path.suffix not in readers:
        raise InputError(f"{path}: is no .csv, .jsonl or .parquet file; write the table as one of these")
    yield from readers[path.suffix](path)


def digest_of(paths: Iterable[Path]) -> str:
    """Return the SHA-256 of files' contents together, in whatever order they are named.

    Raises:
        InputError: a file cannot be read.
    """
    digests = []
    for path in paths:
        with _readable(path, "a file"):
            digests.append(hashlib.sha256(path.read_bytes()).hexdigest())
    return hashlib.sha256("".join(sorted(digests)).encode()).hexdigest()


@contextmanager
def _readable(path: Path, what: str) -> Iterator[None]:
    """Turn what keeps a file from being read into one message."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not {what} ({error.reason}); save it as that") from error


def _csv_rows(path: Path) -> Iterator[tuple[str, Record]]:
    is_empty = True
    with _readable(path, "UTF-8 CSV"), path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        try:
            for row in reader:
                place = f"{path}: line {reader.line_num}"
                if None in row or None in row.values():
                    raise InputError(f"{place}: has not as many cells as the first line has names; mend it")
                is_empty = False
                yield place, {name: cell or None for name, cell in row.items()}
        except csv.Error as error:
            raise InputError(f"{path}: line {reader.reader.line_num}: is not CSV ({error}); mend it") from error
    if is_empty:
        raise InputError(f"{path}: holds no row; name a file with scores")


def _parquet_rows(path: Path) -> Iterator[tuple[str, Record]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with _readable(path, "Parquet"):
        try:
            rows = pq.read_table(path).to_pylist()
        except pa.ArrowInvalid as error:
            raise InputError(f"{path}: is not Parquet ({error}); write it anew") from error
    if not rows:
        raise InputError(f"{path}: holds no row; name a file with scores")
    for number, row in enumerate(rows, start=1):
        yield f"{path}: row {number}", row
