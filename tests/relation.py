"""The relations of a run, each computed once when a test asks for it: no checks, no marts on the disk, no report."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

from biaseval.analysis import ANALYTICS, sql_files
from biaseval.analysis.checks import key_check, range_check
from biaseval.analysis.dictionary import Dictionary
from biaseval.analysis.marts import LARGE
from biaseval.analysis.queries import open_runs, stored_kind
from biaseval.pipelines.directory import read_spec
from biaseval.runs.kinds import kind_of
from biaseval.store import Run
from biaseval.tables import tables_of
from tests.handmade import sql_of
from tests.pages import assert_said


class Relations:
    """Intermediate relations and marts of a run whose tables are there: a third of the time of `measuring.measure`.

    Args:
        run_dir: of a run that `MajorityPlan.write` and its like wrote.
    """

    _can_change = False
    kind: str

    def __init__(self, run_dir: str | Path) -> None:
        run = Run.open(str(run_dir))
        spec = read_spec(run)
        kind, self.kind = kind_of(spec), spec.kind
        if kind.derive is not None:
            kind.derive(run, spec)
        tables, chosen = tables_of(spec.kind), sql_files.chosen_by(run)
        self._left = sql_files.relations("intermediate", "marts", tables=tables, chosen=chosen)
        self.connection = sql_files.connect([run])
        sql_files.create_methods(self.connection, chosen)
        sql_files.create_tables(run, tables.values(), self.connection)

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """Return the rows of a query, having computed what it names."""
        self._compute(sql)
        found: list[dict[str, Any]] = self.connection.sql(sql).to_arrow_table().to_pylist()
        return found

    def _compute(self, sql: str) -> None:
        named = set(re.findall(r"\w+", sql))
        asked = [made for made in self._left if made.name in named]
        below = sql_files.needed(self._left, asked)
        for made in [made for made in self._left if made in asked or made in below]:
            sql_files.create("view" if made.name in LARGE else "table", made.name, made.sql, self.connection)
            self._left.remove(made)

    def changeable(self) -> Relations:
        """Have tables instead of views over files, which statements can change; each check computes what it reads."""
        views = "select view_name from duckdb_views() where not internal and schema_name = 'main'"
        for (name,) in self.connection.execute(views).fetchall():
            stored = self.connection.table(name).to_arrow_table()
            self.connection.execute(f"drop view {name}").fetchall()
            self.connection.from_arrow(stored).create(name)
        self._can_change = True
        return self

    def problems(self, check: str, *changes: str) -> list[str]:
        """Return what a check finds, or what those of a table's or mart's keys and ranges find.

        Args:
            check: its name, or that of a table or mart.
            changes: statements that change tables and marts before, and are undone behind it.
        """
        tables = tables_of(self.kind)
        with self.changed(*changes):
            checks: list[sql_files.Relation | None] = [
                one for one in sql_files.relations("checks", tables=tables) if one.name == check
            ]
            if not checks:
                self._compute(check)
                key = tables[check].key if check in tables else ()
                checks = [range_check(check, Dictionary(self.kind), self.connection, key)]
                checks += [key_check(tables[check])] if check in tables else []
            queries = [f"select problem from ({one.sql}\n)" for one in checks if one is not None]
            return [str(row["problem"]) for sql in queries for row in self.rows(sql)]

    @contextmanager
    def changed(self, *changes: str) -> Iterator[None]:
        """Have statements change tables and marts; what they do and what is computed in the block is undone."""
        left, is_undone = list(self._left), self._can_change or bool(changes)
        if is_undone:
            self.connection.begin()
        try:
            self._compute(" ".join(changes))
            for change in changes:
                self.connection.execute(change).fetchall()
            yield
        finally:
            if is_undone:
                self.connection.rollback()
                self._left = left


class Together(Relations):
    """Comparisons of finished runs: what they read are tables, and each is computed when a test asks for it.

    Args:
        runs: of one kind.
        names: of the comparisons that are asked for.
    """

    def __init__(self, runs: Sequence[str], *names: str) -> None:
        self.kind = stored_kind(Run.open(runs[0]))
        every = sql_files.relations("intermediate", "marts", "comparisons", tables=tables_of(self.kind))
        self._left = [made for made in every if made.layer == "comparisons"]
        below = sql_files.reached(self._left, names) - {made.name for made in self._left}
        macros = [f"{path.stem}()" for path in ANALYTICS.glob("macros/*.sql")]
        self.connection = open_runs(runs, " ".join([*below, *macros]))
        self.changeable()


def changeable(run: Run, *names: str) -> Iterator[Relations]:
    """Yield the relations of a run, for a fixture: as tables, with what these relations read computed."""
    found = Relations(run.root).changeable()
    found.rows(f"from {', '.join(names)} limit 0")
    yield found
    found.connection.close()


def told(relations: Relations, name: str, *changes: str) -> str:
    """Return the sentences of a relation, a line each, where statements changed what it reads; they are undone.

    Args:
        relations: changeable, with what the sentences read computed.
        name: such as ``label_bias_conclusions``.
        *changes: statements.
    """
    with relations.changed(*changes):
        return "\n".join(f"{row['lead']} {row['text']}" for row in relations.rows(f"from ({sql_of(name)})"))


def sentences(name: str, cases: Mapping[str, tuple[Sequence[str], Sequence[str]]]) -> Callable[[str, Relations], None]:
    """Return the test of what a relation's sentences say, by a name of cases.

    Args:
        name: such as ``label_bias_conclusions``.
        cases: statements that change what the sentences read, and what these then say; with !, what they do not say.
    """

    @pytest.mark.parametrize("case", cases)
    def said(case: str, relations: Relations) -> None:
        changes, words = cases[case]
        assert_said(told(relations, name, *changes), words)

    return said


def copied(table: str, changes: str, where: str = "true") -> str:
    """Return the statement that repeats a row with changes."""
    return f"insert into {table} select * replace ({changes}) from {table} where {where} limit 1"


class Within(Relations):
    """Relations over the tables that a connection has, each computed once when a test asks for it."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, kind: str) -> None:
        self.connection, self.kind = connection, kind
        self._left = sql_files.relations("intermediate", "marts", tables=tables_of(kind))
