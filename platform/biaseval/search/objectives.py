"""Numbers that a query over a run returns, on all that it measured or on samples of it."""

import math
import re
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

import duckdb

from biaseval.analysis import sql_files
from biaseval.analysis.paths import without_partitions
from biaseval.errors import BiasevalError, InputError
from biaseval.search import samples as drawing
from biaseval.store import Run
from biaseval.tables import TABLES, tables_of

EVERYTHING = "all"
"""The scope of an objective that is one number of a run."""

_SETTINGS = {"bootstrap_draws", "qa_models", "qa_settings", "run_settings", "setting_permutations", "sign_flips"}
"""Tables that are derived of a spec, whatever was measured."""

_DRAWS = {"qa_bias_draws", "qa_change_draws", "qa_draws", "qa_search_nulls", "qa_thresholds", "row_draws"}
"""Tables that are derived from the measurements; a sample has its own."""

_HEAVY = {"qa_features", "qa_guide_logits", "qa_training_examples", "qa_training_attributes", "qa_tfidf"}
"""Tables that nothing is derived of."""

_DERIVED_OF: dict[str, Collection[str]] = {
    "label_bias": ("tasks",),
    "majority_bias": ("prompts", "settings"),
    "qa_bias": tables_of("qa_bias").keys() - _SETTINGS - _DRAWS - _HEAVY,
}

_JUDGES = "is_above_constant"
"""The column that says whether a setting is better than the best answer that is always the same."""

_NUMBER = re.compile(r"(U?(TINY|SMALL|BIG|HUGE)?INT|FLOAT|DOUBLE|DEC)")

_ALL_COLUMNS = re.compile(r"\*|\bcolumns\b|^(?!.*\bselect\b)", re.IGNORECASE | re.DOTALL)
"""Found in queries that may read columns that they do not name."""


class Value(NamedTuple):
    """What an objective is on a sample."""

    objective: str
    """Or what its query returns beside it."""
    scope: str
    """The part of the run, if an objective has several numbers per run; else `EVERYTHING`."""
    sample: str
    """``choice``, ``evaluation`` or ``all``."""
    left_out: int | None
    """The group of the sample that is left out."""
    value: float | None
    """None: it is not to be had of these rows."""
    is_above_constant: bool | None = None
    """Whether the settings that it is computed of are better than the best answer that is always the same: True where
    all of them are shown to be, False where none is better, None where neither is known or a group is left out."""


_IS_SEEN = {
    "method": "list_contains(getvariable('own'), method)",
    "threshold": "coalesce(threshold = getvariable('own')[heuristic], true)",
}
"""Column by which specs that are computed as one differ, to which rows of it are one's own."""


@dataclass(frozen=True)
class Computing:
    """Specs over what a run has stored, that differ at most in methods, or thresholds, and are computed as one."""

    derive: Callable[[Run], None]
    """Writes what SQL reads beside the outputs, for all of them."""
    own: Sequence[Collection[str] | Mapping[str, float]]
    """Of each spec, its methods, or its thresholds by heuristic; nothing where it is alone."""

    @property
    def by(self) -> str | None:
        """The column by which they differ."""
        if not any(self.own):
            return None
        return "threshold" if isinstance(self.own[0], Mapping) else "method"


def is_by_threshold(kind: str, sql: str) -> bool:
    """Return whether a query asks of single thresholds, so that those of several specs may be tried as one."""
    views = sql_files.relations("intermediate", "marts", tables=tables_of(kind))
    for name in sql_files.Relation("objective", "", sql).reads:
        own = [view for view in views if view.name == name]
        under = {name}.union(*(view.reads for view in (*sql_files.needed(views, own), *own)))
        if under & _DRAWS and name != "qa_bias_candidates":
            return False
    return any(view.name == "qa_bias_candidates" for view in views)


def objective_columns(
    kind: str, sql: str, per: Sequence[str] = (), choose_on: drawing.ChooseOn = "published"
) -> list[str]:
    """Return the names of a query's number and of its other columns, after testing the query on an empty run.

    The columns ``per`` identify a row, and ``choose_on`` says which rows are for the choice.

    Raises:
        InputError: the query fails, has other columns, has no number, or ignores the data.
    """
    tables = tables_of(kind)
    with sql_files.session([]) as connection:
        for table in tables.values():
            connection.from_arrow(table.empty()).create(table.name)
        # Tables without rows, not views: each reader would bind a view again, with all below it.
        for view in sql_files.relations("intermediate", "marts", tables=tables):
            sql_files.create("table", view.name, f"from ({view.sql}\n) limit 0", connection)
        try:
            relation = connection.sql(f"from ({without_partitions(sql)}\n)")
            columns = dict(zip(relation.columns, map(str, relation.types), strict=True))
        except duckdb.Error as error:
            raise InputError(f"objective.sql: {' '.join(str(error).split())}; mend the query: {sql}") from error
    own = {name: sort for name, sort in columns.items() if name not in per}
    if not own or not all(map(_NUMBER.match, own.values())) or (len(own) > 1 and not per):
        found = ", ".join(f"{name} ({sort})" for name, sort in own.items()) or "nothing"
        beside = f" beside {', '.join(per)}" if per else ""
        raise InputError(f"objective.sql: returns {found}{beside}; it must return one number: {sql}")
    if lacking := [name for name in per if name not in columns]:
        raise InputError(f"objective.sql: lacks the column {', '.join(lacking)} that per names; select it: {sql}")
    if choose_on != "published" and not _has_parts(kind, sql):
        raise InputError(
            "objective.sql: is the same on every half of the data; ask for a value that is computed from rows or "
            f"answers, or choose on all (choose_on: published): {sql}"
        )
    return list(own)


def _has_parts(kind: str, sql: str) -> bool:
    """Return whether a query asks of rows of which a sample has a part."""
    reading = _Reading(kind, sql)
    return bool(reading.parts) and not {"evaluations", "training"} & reading.asked


@dataclass(frozen=True)
class Objective:
    """The objective of a search, over runs of a kind."""

    kind: str
    name: str
    """What the query calls its number; beside it are those that it returns, too."""
    sql: str
    per: Sequence[str]
    """Columns that say of what each row of the query is; none: it returns one row."""
    choose_on: drawing.ChooseOn
    """The rows for the choice."""
    seed: int
    """Of the halves."""
    chosen: sql_files.Chosen = sql_files.EVERY
    """Calibrations and metrics of the specs."""

    def values(
        self, run: Run, computings: Sequence[Computing], threads: int | None = None
    ) -> Iterator[tuple[int, Value | BiasevalError]]:
        """Yield the objective of each spec on each sample, and on the sample without each of its groups.

        The run has all outputs of the specs, which are numbered over all computings. ``threads`` are DuckDB's; None: as
        many as there are cores.

        Returns:
            The number of a spec, and its value or an error: the query fails, or returns no number on the rows for the
            choice.

        Raises:
            BiasevalError: the measurements cannot be halved.
        """
        members = drawing.assigned(run, self.kind, self.choose_on, self.seed)
        samples = [
            (sample, left_out)
            for sample in drawing.samples_of(members)
            for left_out in (None, *drawing.groups(members, sample))
        ]
        reading = _Reading(self.kind, self.sql, self.chosen)
        with sql_files.local_copy(run, reading.tables) as source, closing(sql_files.connect([source])) as connection:
            if threads is not None:
                connection.execute(f"set threads = {threads}").fetchall()
            sql_files.create_methods(connection, self.chosen)
            sql_files.create_tables(source, [TABLES[name] for name in reading.tables], connection)
            connection.from_arrow(members).create("members")
            first = 0
            for computing in computings:
                reading.derive(run, computing, connection)
                for sample, left_out in samples:
                    connection.execute("drop table if exists main.kept").fetchall()
                    connection.from_arrow(drawing.kept(members, sample, left_out)).create("main.kept")
                    reading.draw(run, computing, sample, left_out, connection)
                    for place, own in enumerate(computing.own, first):
                        connection.execute(f"set variable own = {_variable(own)}").fetchall()
                        for found in self._asked(sample, left_out, connection, reading.judged):
                            yield place, found
                first += len(computing.own)

    def _asked(
        self, sample: str, left_out: int | None, connection: duckdb.DuckDBPyConnection, judged: Mapping[bool, str]
    ) -> Iterator[Value | BiasevalError]:
        try:
            must_be = sample == "choice" and left_out is None  # what the choice does not see decides nothing
            answers = list(self._answers(connection, must_be=must_be))
            same = {is_above: self._same(path, connection) for is_above, path in judged.items()}
            for own in answers:
                above = [is_above for is_above, asked in same.items() if _is_in(own, asked)]
                yield Value(own[0], own[1], sample, left_out, own[2], above[0] if len(above) == 1 else None)
        except BiasevalError as error:
            yield error

    def _same(self, path: str, connection: duckdb.DuckDBPyConnection) -> Mapping[tuple[str, str], float | None]:
        """Return what the query comes to where it finds relations along another search path."""
        [[before]] = connection.execute("select current_setting('search_path')").fetchall()
        connection.execute(f"set search_path = '{path}'").fetchall()
        try:
            return {own[:2]: own[2] for own in self._answers(connection, must_be=False)}
        except BiasevalError:  # it cannot do without the rows that are not there
            return {}
        finally:
            connection.execute(f"set search_path = '{before}'").fetchall()

    def _answers(
        self, connection: duckdb.DuckDBPyConnection, *, must_be: bool
    ) -> Iterator[tuple[str, str, float | None]]:
        try:
            answer = connection.execute(without_partitions(self.sql))
            columns, found = [column[0] for column in answer.description or ()], answer.fetchall()
        except duckdb.Error as error:
            raise BiasevalError(f"objective.sql: {' '.join(str(error).split())}; mend the query: {self.sql}") from error
        if must_be and not found:
            raise BiasevalError(f"objective {self.name}: the query returns no row; it must return one of every trial")
        if not self.per:
            values = [_finite(own) for [own] in found]
            if must_be and (len(values) > 1 or values[0] is None):
                what = f"{len(values)} rows" if len(values) > 1 else "null or no finite number"
                raise BiasevalError(
                    f"objective {self.name}: the query returns {what}; it must return one number of every trial"
                )
            yield self.name, EVERYTHING, values[0] if len(values) == 1 else None
            return
        places = [columns.index(column) for column in self.per]
        scopes = [", ".join(str(row[place]) for place in places) for row in found]
        if len(set(scopes)) < len(scopes):
            twice = next(scope for scope in scopes if scopes.count(scope) > 1)
            raise BiasevalError(
                f"objective {self.name}: the query returns several rows of {twice}; let per name what tells them apart"
            )
        numbers = [(place, name) for place, name in enumerate(columns) if name not in self.per]
        for scope, row in zip(scopes, found, strict=True):
            yield from ((name, scope, _finite(row[place])) for place, name in numbers)


class _Reading:
    """The inputs of a query: tables of a run, and the relations over them.

    Schemas: ``main`` has the run's tables, ``whole`` relations of all rows, made once, ``drawn`` relations of a sample,
    and ``seen`` the part of one of several specs.
    """

    def __init__(self, kind: str, sql: str, chosen: sql_files.Chosen = sql_files.EVERY) -> None:
        known = tables_of(kind)
        query = sql_files.Relation("objective", "", sql)
        made = sql_files.needed(sql_files.relations("intermediate", "marts", tables=known, chosen=chosen), [query])
        row_by_row = [view for view in made if view.name in drawing.ROW_BY_ROW]
        self._whole = [view for view in made if view in row_by_row or view in sql_files.needed(made, row_by_row)]
        self._sampled = sql_files.needed([view for view in made if view not in row_by_row], [query])
        self._seen = sorted(query.reads & {view.name for view in made})
        readers = [*self._sampled, query]
        self._once = {view.name for view in self._sampled if sum(map(_uses(view.name), readers)) == 1} - {*self._seen}
        """Relations of samples with a single reader: columns that it does not read need not be computed."""
        of_views = set().union(*(view.reads for view in self._sampled))
        self._columns = None if _ALL_COLUMNS.search(sql) else {*re.findall(r"\w+", sql.lower())}
        """Among them are all columns that the query reads; None: it may read any."""
        self._narrow = {*self._seen} - of_views
        read = set().union(*(view.reads for view in (*made, query))) & known.keys()
        self.asked = read
        """Tables that the query comes down to."""
        self._settings, self._draws = sorted(read & _SETTINGS), sorted(read & _DRAWS)
        self._derived_of = sorted(known.keys() & set(_DERIVED_OF[kind]))
        of_samples = set().union(*(view.reads for view in (*self._sampled, query)))
        of_samples |= set(self._derived_of) if self._draws else set()
        self.parts = drawing.parts_of(of_samples)
        """Tables and views of which a sample has a part."""
        tables = read | set(self._derived_of) | {*self.parts} & known.keys()
        self.tables = sorted(tables - _DRAWS - _SETTINGS)
        """Of the run."""
        self.judged: Mapping[bool, str] = {}
        """Whether settings are better than a constant answer, to the search path along which relations have no others;
        of a whole sample, if the query reads a relation that says it."""

    def derive(self, run: Run, computing: Computing, connection: duckdb.DuckDBPyConnection) -> None:
        """Make the relations that do not depend on the sample."""
        connection.execute("set search_path = 'main'").fetchall()
        connection.execute("drop schema if exists whole cascade; create schema whole").fetchall()
        if self._settings:
            with tempfile.TemporaryDirectory(prefix="biaseval-") as folder:
                self._derived(run, Run.open(folder), "main", computing.derive, connection)
                self._take(Run.open(folder), self._settings, "whole", connection)
        if "prompts" in self.parts:  # read once, as each sample has a part of it
            sql_files.create("table", "whole.prompts", "from main.prompts", connection)
        connection.execute("set search_path = 'whole,main'").fetchall()
        for view in self._whole:
            if view.name in drawing.ROW_BY_ROW:
                sql_files.create("table", f"whole.{view.name}", drawing.made_once(view.name, view.sql), connection)
            else:
                sql_files.create("view", f"whole.{view.name}", view.sql, connection)

    def draw(
        self, run: Run, computing: Computing, sample: str, left_out: int | None, connection: duckdb.DuckDBPyConnection
    ) -> None:
        """Make what the query reads of a sample without a group; ``main.kept`` has the keys of its rows."""
        connection.execute("set search_path = 'whole,main'").fetchall()
        for schema in ("drawn", "seen"):
            connection.execute(f"drop schema if exists {schema} cascade; create schema {schema}").fetchall()
        for name in self.parts:
            part = drawing.part_of(name, self._place(name), sample, left_out)
            is_read_often = name in ("prompts", "prediction_counts")
            sql_files.create("table" if is_read_often else "view", f"drawn.{name}", part, connection)
        connection.execute("set search_path = 'drawn,whole,main'").fetchall()
        if self._draws:
            with tempfile.TemporaryDirectory(prefix="biaseval-") as folder:
                self._derived(run, Run.open(folder), "drawn", computing.derive, connection)
                self._take(Run.open(folder), self._draws, "drawn", connection)
        for view in self._sampled:
            if view.name in self._once:
                sql_files.create("view", f"drawn.{view.name}", view.unordered, connection)
            else:
                select = view.sql
                if view.name in self._narrow:
                    select = self._narrowed(view, computing, connection, judges=left_out is None)
                sql_files.create("table", f"drawn.{view.name}", select, connection)
        if computing.by is not None:
            drawn = {view.name for view in self._sampled}
            for name in self._seen:
                if computing.by in connection.table(name).columns:
                    place = "drawn" if name in self.parts or name in drawn else "whole"
                    chosen = f"select * from {place}.{name} where {_IS_SEEN[computing.by]}"
                    sql_files.create("view", f"seen.{name}", chosen, connection)
            connection.execute("set search_path = 'seen,drawn,whole,main'").fetchall()
        self.judged = self._judged(computing, connection) if left_out is None else {}

    def _judged(self, computing: Computing, connection: duckdb.DuckDBPyConnection) -> dict[bool, str]:
        """Make of what the query reads the part above a constant answer, and the part that is no better."""
        columns = {name: connection.table(name).columns for name in self._seen}
        judging = {name: own for name, own in columns.items() if _JUDGES in own}
        for schema, condition in (("above", _JUDGES), ("beside", f"not {_JUDGES}")):
            connection.execute(f"drop schema if exists {schema} cascade; create schema {schema}").fetchall()
            for name, own in judging.items():
                place = "seen" if computing.by in own else "drawn"
                sql_files.create(
                    "view", f"{schema}.{name}", f"select * from {place}.{name} where {condition}", connection
                )
        [[path]] = connection.execute("select current_setting('search_path')").fetchall()
        return {True: f"above,{path}", False: f"beside,{path}"} if judging else {}

    def _narrowed(
        self, view: sql_files.Relation, computing: Computing, connection: duckdb.DuckDBPyConnection, *, judges: bool
    ) -> str:
        """Return the query over the columns of a relation that are asked for."""
        if self._columns is None:
            return view.sql
        columns = connection.sql(f"from ({view.unordered}\n)").columns
        also = {computing.by, _JUDGES if judges else None}
        asked = [name for name in columns if name in self._columns or name in also]
        return f"select {', '.join(asked or columns)} from ({view.unordered}\n) order by all"

    def _place(self, name: str) -> str:
        """Return the schema that has all rows of a table or view."""
        return "whole" if name == "prompts" or any(view.name == name for view in self._whole) else "main"

    def _derived(
        self, run: Run, sample: Run, schema: str, derive: Callable[[Run], None], connection: duckdb.DuckDBPyConnection
    ) -> None:
        """Write a sample as a run, as far as something is derived of it, and derive that."""
        for name in ("plan.json", "environment.json"):
            if run.has(name):
                sample.write_bytes(name, run.read_bytes(name))
        for table in self._derived_of:
            if run.parts(table):
                own = schema if table in self.parts else "main"
                sample.write_part(
                    table, 0, sql_files.rows(f"from {own}.{table}", connection).cast(TABLES[table].schema)
                )
        derive(sample)

    def _take(self, sample: Run, tables: Sequence[str], schema: str, connection: duckdb.DuckDBPyConnection) -> None:
        for table in tables:
            if sample.parts(table):
                sql_files.create(
                    "table", f"{schema}.{table}", sql_files.read_parquet(sample, f"{table}/part-*.parquet"), connection
                )


def _is_in(own: tuple[str, str, float | None], asked: Mapping[tuple[str, str], float | None]) -> bool:
    """Return whether a number came out the same there."""
    value, other = own[2], asked.get(own[:2])
    return value is not None and other is not None and math.isclose(value, other, rel_tol=1e-9, abs_tol=1e-12)


def _uses(name: str) -> Callable[[sql_files.Relation], int]:
    """Return what counts how often a relation reads the one of this name."""
    pattern = re.compile(rf"(?:from|join) {name}\b|'{name}'")
    return lambda relation: len(pattern.findall(relation.sql))


def _variable(own: Collection[str] | Mapping[str, float]) -> str:
    """Return as SQL what tells one of several specs from the others."""
    if isinstance(own, Mapping):
        return f"map {{{', '.join(f'{sql_files.literal(name)}: {value!r}::double' for name, value in own.items())}}}"
    return f"[{', '.join(map(sql_files.literal, sorted(own)))}]::varchar[]"


def _finite(value: object) -> float | None:
    return float(value) if isinstance(value, int | float | Decimal) and math.isfinite(value) else None
