"""Relations over tables written by hand, and macros, in one DuckDB that undoes what a test created."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa

from biaseval.analysis import sql_files
from biaseval.tables import TABLES

Rows = list[dict[str, Any]]


@cache
def shared_connection() -> duckdb.DuckDBPyConnection:
    """Return a connection with the macros: to make one takes longer than a test."""
    return sql_files.connect([])


@contextmanager
def within_transaction(connection: duckdb.DuckDBPyConnection | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection, the shared one unless another is given, and undo what is done until the block ends."""
    connection = connection or shared_connection()
    connection.execute("begin").fetchall()
    try:
        yield connection
    finally:
        connection.execute("rollback").fetchall()


def ask(sql: str, *parameters: Any) -> Any:
    """Return what DuckDB answers with nothing but the macros: a value, or a row of several."""
    [answer] = shared_connection().execute(f"select {sql}", parameters).fetchall()
    return answer[0] if len(answer) == 1 else answer


@cache
def sql_of(relation: str) -> str:
    """Return the query of a relation of ``analytics``."""
    every = sql_files.relations("intermediate", "marts", "comparisons", "checks", tables=TABLES)
    [sql] = [one.sql for one in every if one.name == relation]
    return sql


def found_by(sql: str, **tables: pa.Table | Rows) -> Rows:
    """Return what a query finds in tables that have these rows and no other columns; None alone is a number."""
    with within_transaction() as connection:
        for name, given in tables.items():
            connection.from_arrow(given if isinstance(given, pa.Table) else _table(given)).create(name)
        return connection.sql(sql).to_arrow_table().to_pylist()


def made(relation: str, **tables: pa.Table | Rows) -> Rows:
    """Return a relation of ``analytics`` over such tables."""
    return found_by(sql_of(relation), **tables)


def _table(given: Rows) -> pa.Table:
    columns = {name: pa.array([row[name] for row in given]) for name in given[0]}
    return pa.table({name: own.cast(pa.float64()) if own.type == pa.null() else own for name, own in columns.items()})
