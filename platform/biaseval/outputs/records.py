"""Rows of files that somebody else made, each with the place where it stands."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from biaseval.errors import InputError
from biaseval.records import Records, read_file

Record = dict[str, Any]


def records(path: Path) -> Iterator[tuple[str, Record]]:
    """Yield the place and the columns of each row of a file; an empty cell of a table is null.

    Raises:
        InputError: the file cannot be read, holds no row, or has bad ones; that comes behind the good ones.
    """
    found = Records(str(path))
    place = None
    for place, row in found:
        yield f"{path}: {place}", {name: None if cell == "" else cell for name, cell in row.items()}
    if found.problems:
        raise InputError.of([f"{path}: {problem}" for problem in found.problems])
    if place is None:
        raise InputError(f"{path}: holds no row; name a file with scores")


def digest_of(paths: Iterable[Path]) -> str:
    """Return the SHA-256 of files' contents together, in whatever order they are named.

    Raises:
        InputError: a file cannot be read.
    """
    digests = [hashlib.sha256(read_file(str(path))).hexdigest() for path in paths]
    return hashlib.sha256("".join(sorted(digests)).encode()).hexdigest()
