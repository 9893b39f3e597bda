"""Find the texts in an empty query's conditions that no row has, in columns with few values."""

import re
from collections.abc import Sequence
from contextlib import closing

import duckdb
import pyarrow as pa

from biaseval.analysis.dictionary import listed
from biaseval.analysis.queries import open_runs

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
