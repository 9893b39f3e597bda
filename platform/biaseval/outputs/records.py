"""Rows of imported files, each with its place."""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from biaseval.errors import InputError, refuse
from biaseval.records import Records, read_file

Record = dict[str, Any]


def records(path: Path, notes: list[str]) -> Iterator[tuple[str, Record]]:
    """Yield the place and the columns of each row of a file; empty cells of a table and NaN become null.

    ``notes`` receives notes on the format of the file, for readers of the results.

    Raises:
        InputError: the file cannot be read, has no rows, or has bad rows; the error comes after all good rows.
    """
    found = Records(str(path))
    place = None
    for place, row in found:
        yield f"{path}: {place}", {name: None if cell == "" or cell != cell else cell for name, cell in row.items()}
    refuse(found.problems, f"{path}: ")
    notes += [f"{path}: {note}" for note in found.notes]
    if place is None:
        raise InputError(f"{path}: holds no row; name a file with scores")


def digest_of(paths: Iterable[Path]) -> str:
    """Return the SHA-256 of all files' contents, in any order of paths; Raises InputError: a file cannot be read."""
    digests = [hashlib.sha256(read_file(str(path))).hexdigest() for path in paths]
    return hashlib.sha256("".join(sorted(digests)).encode()).hexdigest()
