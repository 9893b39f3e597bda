"""The data dictionary: the meaning of every table, mart and column of a run.

The head of each file in ``analytics`` describes its relation. ``tables`` describes tables (by their grain), and
``analytics/columns`` describes columns: ``shared.toml`` for all kinds and a file for each kind of run. A key there is a
column of all relations that have it; a section has the columns of one relation. ``ends`` in ``shared.toml`` describes
columns whose names extend another column's name at its start or end. A column's entry is its meaning, or has the
meaning as ``text`` and the ``range`` of its values, which `checks` tests in tables and marts. The heads of
``analytics/metrics`` describe the columns of metrics.
"""

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

import duckdb

from biaseval.analysis.sql_files import literal, relations
from biaseval.analytics_files import ANALYTICS, comment
from biaseval.metric_files import METRICS
from biaseval.tables import tables_of


class Dictionary:
    """The descriptions for a kind of run."""

    def __init__(self, kind: str) -> None:
        self._own, self._shared = _columns(kind), _columns("shared")
        tables = tables_of(kind)
        made = relations("intermediate", "marts", "comparisons", tables=tables)
        self.relations = {name: f"One row per {table.grain}." for name, table in tables.items()}
        """Each table, intermediate relation, mart and comparison with its description."""
        self.relations |= {relation.name: comment(relation.sql) for relation in made}
        self.relations["calibration_methods"] = "One row per calibration method that planning knows."
        self.sorts = {relation.name: relation.layer for relation in made}
        """Each relation with its folder in `ANALYTICS`; tables have none."""

    def column(self, relation: str, name: str, beside: Sequence[str]) -> str | None:
        """Return the meaning of a column; None if it has no description.

        ``beside`` has the names of all columns of the relation.
        """
        found = self._found(relation, name, beside)
        return None if found is None else found[0]

    def ranges(self, relation: str, columns: Sequence[str]) -> dict[str, Sequence[float]]:
        """Return the smallest and the largest value of each of a relation's columns with a range."""
        found = {name: self._found(relation, name, columns) for name in columns}
        return {name: entry[1] for name, entry in found.items() if entry is not None and entry[1] is not None}

    def _found(self, relation: str, name: str, beside: Sequence[str]) -> tuple[str, Sequence[float] | None] | None:
        for place in (self._own.get(relation), self._shared.get(relation), self._own, self._shared):
            if place and (entry := _entry(place.get(name))):
                return entry
        for end, said in self._shared["ends"].items():
            stem = name.removesuffix(end) if end.startswith("_") else name.removeprefix(end)
            if stem != name and stem in beside and (entry := _entry(said)):
                return entry[0].format(stem), entry[1]
        metric = METRICS.get(name)
        return None if metric is None else (metric.meaning, None if metric.low == -inf else (metric.low, metric.high))


def _entry(said: object) -> tuple[str, Sequence[float] | None] | None:
    """Return the meaning of a column and its range; None for a relation's section or a missing entry."""
    if isinstance(said, dict) and isinstance(said.get("range"), list):
        return str(said["text"]), said["range"]
    return (said, None) if isinstance(said, str) else None


def write_comments(kind: str, connection: duckdb.DuckDBPyConnection) -> None:
    """Write the dictionary's comments on all tables and views of a run of a kind, and on their columns."""
    dictionary, statements = Dictionary(kind), []
    for (name, what), columns in listed(connection).items():
        statements.append(f"comment on {what} {name} is {literal(dictionary.relations[name])}")
        statements += [
            f'comment on column {name}."{column}" is {literal(text)}'
            for column in columns
            if (text := dictionary.column(name, column, list(columns)))
        ]
    connection.execute("; ".join(["begin", *statements, "commit"])).fetchall()


def listed(connection: duckdb.DuckDBPyConnection) -> dict[tuple[str, str], dict[str, str]]:
    """Return the tables and views of a run as (name, 'table' or 'view') to the type of each column by name."""
    asked = """
        select columns.table_name, if(views.view_name is null, 'table', 'view'), column_name, data_type
        from duckdb_columns() as columns
        left join duckdb_views() as views
            on columns.table_name = views.view_name
            and columns.schema_name = views.schema_name
            and columns.database_name = views.database_name
        where columns.schema_name = 'main' and columns.database_name = current_database() and not columns.internal
        order by columns.table_name, column_index
    """
    found: dict[tuple[str, str], dict[str, str]] = {}
    for name, what, column, kind in connection.execute(asked).fetchall():
        found.setdefault((name, what), {})[column] = kind
    return found


@cache
def _columns(name: str) -> Mapping[str, Any]:
    path = Path(ANALYTICS, "columns", f"{name}.toml")
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
