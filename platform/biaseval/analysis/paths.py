"""Treat paths as places of files only: DuckDB otherwise makes a column of each folder named ``key=value``.

DuckDB's only setting against it is the argument ``hive_partitioning`` of each function that reads files.
"""

import re

import duckdb

_READERS = {"parquet_scan": "read_parquet", "read_csv_auto": "read_csv", "read_json_auto": "read_json"}
"""Functions that DuckDB calls for a file named as a text after ``from``, each with its usual name."""

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
    """Read files that queries name as texts (``from 'label=x/part.parquet'``) without columns from their paths."""
    for called, name in _READERS.items():
        connection.execute(
            f"create temp macro {called}(path) as table from system.main.{name}(path, hive_partitioning := false)"
        ).fetchall()


def without_partitions(sql: str) -> str:
    """Return a query whose file readers make no columns from paths, unless the query asks for them."""
    pieces: list[str] = []
    begun: list[int | None] = []
    """For each open bracket the start of a reader's arguments, or None."""
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
