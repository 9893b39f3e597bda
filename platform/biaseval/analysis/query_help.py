"""Help with queries: what tables hold, and the texts in an empty query's conditions that no row has."""

import re
from collections.abc import Sequence
from contextlib import closing

import duckdb
import pyarrow as pa

from biaseval.analysis.dictionary import Dictionary, listed
from biaseval.analysis.queries import open_runs, stored_kind
from biaseval.errors import InputError, did_you_mean
from biaseval.store import Run

_SCHEMA = pa.schema([(name, pa.string()) for name in ("table", "column", "type", "comment")])

_SORTS = {"marts": "mart", "intermediate": "view", "comparisons": "comparison"}


def describe_tables(run_dirs: Sequence[str], name: str | None = None) -> pa.Table:
    """Return the description of finished runs' tables.

    ``name`` is the table or mart to describe; None: all of them.

    Returns:
        ``table``, ``column``, ``type`` and ``comment``, text. The first row of each table describes the table: its
        column is null and its type says whether it is a table, a mart, a view between them or a comparison of runs.

    Raises:
        InputError: there is no such table, or ``run_dirs`` are no runs.
        BiasevalError: a run is not finished.
    """
    dictionaries = [Dictionary(kind) for kind in dict.fromkeys(stored_kind(Run.open(uri)) for uri in run_dirs)]
    with closing(open_runs(run_dirs)) as connection:
        tables = {table: columns for (table, _), columns in listed(connection).items()}
    if name is not None and name not in tables:
        raise InputError(f"--schema {name}: there is no such table or mart{did_you_mean(name, list(tables))}")
    rows: list[dict[str, str | None]] = []
    for table, columns in tables.items():
        if name in (None, table):
            own = next(each for each in dictionaries if table in each.relations)
            sort = _SORTS.get(own.sorts.get(table, ""), "table")
            rows.append({"table": table, "type": sort, "comment": own.relations[table]})
            rows += [
                {"table": table, "column": column, "type": kind, "comment": own.column(table, column, list(columns))}
                for column, kind in columns.items()
            ]
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


_COMPARED = re.compile(r"\b(\w+)\s*(?:==?|\bin\s*\()\s*((?:'(?:[^']|'')*'[\s,]*)+)", re.I)
"""Matches a column with the texts that it must equal; a match is only a hint, so unknown columns are ignored."""

_MOST_VALUES = 20
"""The largest number of a column's values that are worth listing: names, rather than texts or labels."""


def is_vain(found: pa.Table) -> bool:
    """Return whether a query found nothing: no row, or one row of an aggregate over no rows (all null or 0)."""
    return not any(value for row in found.to_pylist() for value in row.values()) and len(found) <= 1


def vain_literals(run_dirs: Sequence[str], sql: str) -> list[str]:
    """Return a sentence for each text in the conditions of an empty query that no row has.

    The query is correct except for its texts.
    """
    words = set(re.findall(r"\w+", sql.lower()))
    with closing(open_runs(run_dirs, sql)) as connection:
        tables = {name: columns for (name, _), columns in listed(connection).items() if name in words}
        sentences = []
        for word, compared in _COMPARED.findall(sql):
            column = word.lower()
            having = [name for name, columns in tables.items() if columns.get(column) == "VARCHAR"]
            values = _values(column, having, connection)
            texts = [text.replace("''", "'") for text in re.findall(r"'((?:[^']|'')*)'", compared)]
            if values and not values.issuperset(texts):
                vain = " or ".join(f"'{text}'" for text in texts if text not in values)
                sentences.append(f"no row has {column} = {vain}; it has {', '.join(sorted(values))}")
    return list(dict.fromkeys(sentences))


def _values(column: str, tables: Sequence[str], connection: duckdb.DuckDBPyConnection) -> set[str]:
    """Return the values of a column in these tables; nothing if there are too many to list."""
    each = " union ".join(f'select "{column}" as value from {table}' for table in tables)
    if not each:
        return set()
    found = connection.execute(f"select value from ({each}) where value is not null limit {_MOST_VALUES + 1}")
    values = {str(value) for (value,) in found.fetchall()}
    return values if len(values) <= _MOST_VALUES else set()
