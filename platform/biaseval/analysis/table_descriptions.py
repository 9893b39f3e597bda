"""Describe the content of finished runs: names, columns, types and comments of tables and marts."""

from collections.abc import Sequence
from contextlib import closing

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
