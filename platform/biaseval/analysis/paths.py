"""Paths are places of files and no data: DuckDB makes a column of each folder that is called ``key=value``.

It has no setting against that but the argument ``hive_partitioning`` of each function that reads files.
"""

from __future__ import annotations

import re

import duckdb

_READERS = {"parquet_scan": "read_parquet", "read_csv_auto": "read_csv", "read_json_auto": "read_json"}
"""What DuckDB calls for a file that stands behind ``from`` as a text, and the same function by its usual name."""

_NAMES = (
    "read_parquet|read_csv|read_json|read_ndjson|read_ndjson_auto|read_json_objects|read_json_objects_auto|"
    "read_ndjson_objects"
)
_TOKEN = re.compile(
    rf"(?P<quote>\b|\")(?P<reader>{'|'.join(_READERS)}|{_NAMES})(?P=quote)\s*\(|"
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$|--[^\n]*|/\*.*?\*/|[()]",
    re.DOTALL | re.IGNORECASE,
)
_SAYS_IT = re.compile(r"\bhive_\w+\s*(?:=|:=|=>)", re.IGNORECASE)


def read_named_files(connection: duckdb.DuckDBPyConnection) -> None:
    """Have files that queries name as texts (``from 'label=x/part.parquet'``) read without columns of their paths."""
    for called, name in _READERS.items():
        connection.execute(
            f"create temp macro {called}(path) as table from system.main.{name}(path, hive_partitioning := false)"
        ).fetchall()


def without_partitions(sql: str) -> str:
    """Return a query in which functions that read files make no columns of paths, but where it asks for them.

    Args:
        sql: of a user.
    """
    pieces: list[str] = []
    begun: list[int | None] = []
    """Of each bracket that is open, where the arguments of a reader begin, or None."""
    end = 0
    for found in _TOKEN.finditer(sql):
        reader, token = found["reader"], found.group()
        if reader:
            pieces.append(sql[end : found.start()])
            pieces.append(token.replace(reader, _READERS.get(reader.lower(), reader)))
            end = found.end()
            begun.append(end)
        elif token == "(":
            begun.append(None)
        elif token == ")" and begun and (start := begun.pop()) is not None:
            given = sql[start : found.start()]
            pieces.append(sql[end : found.start()])
            end = found.start()
            if given.strip() and not _SAYS_IT.search(given):
                pieces.append("\n, hive_partitioning = false")
    return "".join([*pieces, sql[end:]])
