"""Checks of every run, in addition to the relations between columns in ``analytics/checks``.

``tables`` has the keys, and ``analytics/columns`` has the ranges next to the meanings of columns.
"""

from collections.abc import Sequence
from itertools import takewhile
from math import inf
from sys import float_info

import duckdb

from biaseval.analysis.dictionary import Dictionary
from biaseval.analysis.sql_files import Relation
from biaseval.tables import TableSchema

_SLACK = 1e-6
"""The allowed excess over a range, because sums in another order differ slightly."""

_FRACTIONS = ("DOUBLE", "FLOAT")


def key_check(table: TableSchema) -> Relation:
    """Return the check that the rows of a table have distinct keys without missing values."""
    selects = []
    for key in (table.key, *table.also_unique):
        lacks = " or ".join([f"{column} is null" for column in key if column not in table.null_keys] or ["false"])
        selects.append(
            f"select format(if({lacks}, '{{}}: lacks a value', '{{}}: {{}} rows'), {_named(key)}, n_rows_of_key) "
            f"as problem from (select {', '.join(key)}, count(*) as n_rows_of_key from {table.name} group by all) "
            f"where n_rows_of_key > 1 or {lacks}"
        )
    return Relation("checks", table.name, " union all ".join(selects))


def range_check(
    name: str, dictionary: Dictionary, connection: duckdb.DuckDBPyConnection, key: Sequence[str] = ()
) -> Relation | None:
    """Return the check that the columns of a table or mart are within their ranges; None if none has a range.

    A problem names its row by ``key``; a mart's key is the columns before its numbers.
    """
    relation = connection.table(name)
    types = {column: str(kind) for column, kind in zip(relation.columns, relation.types, strict=True)}
    ranges = dictionary.ranges(name, list(types))
    if not ranges:
        return None
    of_row = _named(key or list(takewhile(lambda column: types[column] not in _FRACTIONS, types)))
    problems = ", ".join(_beyond(column, limits, of_row) for column, limits in ranges.items())
    return Relation(
        "checks",
        name,
        f"select problem from (select unnest([{problems}]) as problem from {name}) where problem is not null",
    )


def _beyond(column: str, limits: Sequence[float], of_row: str) -> str:
    """Return the expression of a value's problem; null if there is none."""
    low, high = limits
    inside = f'"{column}" between {low - _SLACK} and {min(high + _SLACK, float_info.max)}'  # excludes infinite values
    shown = f"from {low:g} to {high:g}" if high < inf else f"{low:g} or more"
    return f"""case when not ({inside}) then format('{column} is {{}}, not {shown}: {{}}', "{column}", {of_row}) end"""


def _named(columns: Sequence[str]) -> str:
    return "{" + ", ".join(f"'{column}': {column}" for column in columns) + "}"
