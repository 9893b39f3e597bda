"""The relations of a run in DuckDB: its tables as views over Parquet, and the files of ``analytics``.

Each file there is one relation of the same name. ``intermediate`` and ``marts`` read only relations, and each of
``checks`` must return no row. The tables of a kind of run decide its relations. ``comparisons`` are relations over
several runs, whose rows have a column ``run``. ``macros`` are functions for queries over any run. The table
``calibration_methods`` and the macro ``all_metrics`` come from the heads of ``calibrations`` and ``metrics``.
"""

import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cache
from graphlib import TopologicalSorter
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.fs as pafs

from biaseval.analysis.paths import read_named_files
from biaseval.analytics_files import ANALYTICS
from biaseval.environment import SPEC, raw_spec
from biaseval.errors import BiasevalError, InputError, TransientError
from biaseval.left_out import left_out
from biaseval.metric_files import METRICS, Metric, Sql, metric_files
from biaseval.prompting.calibration import NONE, Own, calibration_queries, calibration_rows, own_of
from biaseval.store import Run, part_name
from biaseval.tables import FAILED_PARTS, PROMPTS, QA_EXAMPLES, TABLES, TableSchema

_STORAGE_VERSION = "v1.0.0"  # the current duckdb shell (1.5) can open it

_LAYERS = ("intermediate", "marts", "checks", "comparisons")

Listed = Sequence[tuple[TableSchema, Collection[int]]]
"""Tables of a run, each with the numbers of its parts."""


class Relation(NamedTuple):
    """A file of ``analytics``."""

    layer: str
    name: str
    sql: str

    @property
    def reads(self) -> set[str]:
        """The names after ``from`` and ``join``, or in a macro's arguments there, without the query's own steps."""
        return set(_reads(self.sql))

    @property
    def unordered(self) -> str:
        """The query without the order of its rows, for which DuckDB would compute columns that no query needs."""
        return self.sql.rstrip().removesuffix("order by all")


class Chosen(NamedTuple):
    """The calibrations and metrics that a run's relations include."""

    own: Own = NONE
    """Calibrations of its spec, in addition to those of `ANALYTICS`."""
    asked: Collection[str] | None = None
    """Calibrations that its spec names, so that views skip rows of others. None: all."""
    metrics: Sql = MappingProxyType(metric_files())
    """All its metrics, as name to the text of the file."""


EVERY = Chosen()


@cache
def _reads(sql: str) -> frozenset[str]:
    sql = re.sub(r"--[^\n]*", "", sql)
    named = [name.lower() for name in re.findall(r"(?i)\b(?:from|join)\s+\"?(\w+)", sql)]
    given = " ".join(re.findall(r"(?:from|join) \w+\(([^)]*)\)", sql))
    steps = re.findall(r"^(\w+) as (?:materialized )?\((?!.*\bfrom \1\b)", sql, re.MULTILINE)
    return frozenset({*named, *re.findall(r"'(\w+)'", given)} - set(steps))


def relations(*layers: str, tables: Iterable[str], chosen: Chosen = EVERY) -> list[Relation]:
    """Return the relations of these layers that these tables allow, each after those that it reads.

    ``layers`` are folders of `ANALYTICS`, and ``tables`` the names of the existing tables.
    """
    every = _files(ANALYTICS) | {made.name: made for made in (*_of_calibrations(chosen), *_of_metrics(chosen.metrics))}
    reads = {name: sorted(relation.reads & {*every, *TABLES}) for name, relation in every.items()}
    names = set(tables)
    allowed: list[Relation] = []
    for name in TopologicalSorter(reads).static_order():
        if name in every and names.issuperset(reads[name]):
            allowed.append(every[name])
            names.add(name)
    return [relation for relation in allowed if relation.layer in layers]


@cache
def _files(folder: Path) -> dict[str, Relation]:
    """Return the relations that the files of a folder hold, by name."""
    return {
        path.stem: Relation(path.parent.name, path.stem, path.read_text(encoding="utf-8"))
        for layer in _LAYERS
        for path in sorted(folder.glob(f"{layer}/*.sql"))
    }


_CALIBRATED = {
    "log_prior": (
        "calibration_priors",
        "task, n_demos, demo_set, format, setting, instruction, adaptation, n_inputs, label, log_prior, n_rows",
        "setting, label): the logarithm of what divides its probability",
    ),
    "log_probability": (
        "calibration_logits",
        "prompt_id, adaptation, label, log_probability",
        "prompt, label): the logarithm of its probability, not normalised",
    ),
}
"""The column that files of ``calibrations`` give, to the relation of all files, its columns, and its description."""


def calibration_columns(gives: str) -> str:
    """Return the columns that the query of a calibration must have."""
    return _CALIBRATED[gives][1]


def _of_calibrations(chosen: Chosen) -> Iterator[Relation]:
    """Yield the relations of all files of ``calibrations`` together: log priors, and probabilities by prompt."""
    for gives, (name, columns, what) in _CALIBRATED.items():
        queries = calibration_queries(gives, chosen.own, chosen.asked).items()
        for one in chosen.own.keys() & dict(queries).keys():
            _refuse_other_statements(f"calibrations/{one}.sql", chosen.own[one])
        parts = [f"select {literal(own)} as name, {columns} from (\n{sql}\n)" for own, sql in queries]
        if not parts:
            empty = [
                f"null::{'double' if one.startswith('log_') else 'varchar'} as {one}" for one in columns.split(", ")
            ]
            parts = [f"select null::varchar as name, {', '.join(empty)} from calibration_scores where false"]
        head = f"-- One row per (file of analytics/calibrations that gives {gives}, {what}.\n"
        yield Relation("intermediate", name, head + "\nunion all\n".join(parts))


def _of_metrics(metrics: Sql) -> Iterator[Relation]:
    """Yield the relations of a run's metrics: their heads as rows, and the influences that all files together give."""
    known = {name: Metric.of(name, sql) for name, sql in metrics.items()}
    for name in known.keys() - METRICS.keys():
        _refuse_other_statements(f"metrics/{name}.sql", metrics[name])
    heads = ", ".join(metric.literal for metric in known.values())
    yield Relation(
        "intermediate",
        "run_metrics",
        "-- One row per metric of the run, with what the head of its file says (analytics/metrics).\n"
        f"select heads.* from (select unnest([{heads}], max_depth := 2)) as heads\n"
        "semi join tasks on true",
    )
    yield Relation(
        "intermediate",
        "metric_influences",
        "-- One row per (metric, task, format, n_demos, demo_set, method, gold, prediction or row), of n_rows rows\n"
        "-- that are alike: the value of the metric in the setting, and how far one such row moves it, times their\n"
        "-- number: influence values of resampled rows (infinitesimal jackknife, Efron 1982), whose mean over rows\n"
        "-- is 0. Gold labels are resampled too, as the rows are a sample: a model that always gives the more\n"
        "-- frequent label is right by the luck of that.\n" + "with answer_cells as materialized (from answer_cells), "
        # Bound once instead of per file: shells bind a view with all its inputs for every query.
        "preference_rows as materialized (from preference_rows)\n"
        + "\nunion all\n".join(metric.influences(metrics[name]) for name, metric in known.items()),
    )


def _refuse_other_statements(file: str, sql: str) -> None:
    """Make sure that a file of the user is a single query, because its text becomes a part of others."""
    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        text = " ".join(str(error).split())
        raise InputError(f"analysis.sql: {file}: {text}; mend the query") from error
    text = re.sub(r"--[^\n]*", "", sql)  # in comments semicolons end nothing
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT or ";" in text:
        raise InputError(f"analysis.sql: {file}: is not one select; write a single one, without a semicolon")


def reached(made: Sequence[Relation], names: Collection[str]) -> set[str]:
    """Return these names and the names of all relations below them; a relation comes after those that it reads."""
    found = set(names)
    for relation in reversed(made):
        if relation.name in found:
            found |= relation.reads
    return found


def needed(made: Sequence[Relation], by: Sequence[Relation]) -> list[Relation]:
    """Return the relations, in their order, that those of ``by`` read directly or indirectly."""
    names = reached(made, set().union(*(relation.reads for relation in by)))
    return [relation for relation in made if relation.name in names]


def connect(
    runs: Sequence[Run], database: str | Path = ":memory:", asked: Iterable[str] | None = None
) -> duckdb.DuckDBPyConnection:
    """Return a connection with the macros and the table ``calibration_methods``.

    The table has a row for each method. The connection never fetches extensions, and reads object stores through the
    runs' file systems. If ``asked`` has all SQL to come, macros that it does not use are not created.
    """
    connection = duckdb.connect(
        str(database),
        config={
            "storage_compatibility_version": _STORAGE_VERSION,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "python_enable_replacements": False,  # a misspelt table must not find a Python variable
            "temp_directory": str(Path(tempfile.gettempdir()) / f"biaseval-duckdb-{os.getpid()}"),
            "memory_limit": "50%",
        },
    )
    for filesystem in {run.fs.type_name: run.fs for run in runs if not run.is_local}.values():
        from fsspec.implementations.arrow import ArrowFSWrapper  # type: ignore[import-untyped]

        store = ArrowFSWrapper(filesystem, skip_instance_cache=True)
        # Views over views list the same folders repeatedly, and the files do not change meanwhile.
        store.glob, store.info = cache(_files_of(store.glob)), cache(store.info)
        connection.register_filesystem(store)
    _begin_queries(connection)
    create_methods(connection)
    create_macros(connection, asked)
    return connection


def _begin_queries(connection: duckdb.DuckDBPyConnection) -> None:
    # Otherwise a query of more than two seconds draws a progress bar on standard output, among its results.
    connection.execute("set enable_progress_bar = false").fetchall()
    # A query over intermediate relations reads the same thousands of parts several times.
    connection.execute("set parquet_metadata_cache = true").fetchall()
    read_named_files(connection)


@contextmanager
def session(runs: Sequence[Run]) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection to an empty database in memory, for queries of ours alone, with all that `connect` gives.

    The databases of a process are in one DuckDB, beside one with the macros: they take 0.25 s to create, a database
    1 ms. Runs in object stores get a DuckDB of their own.
    """
    if not all(run.is_local for run in runs):
        with closing(connect(runs)) as connection:
            yield connection
        return
    with closing(_base(os.getpid()).cursor()) as connection:  # threads of a parent are not in its fork
        name = f"session_{next(_NUMBERS)}"
        connection.execute(f"attach ':memory:' as {name}; set search_path = '{name}.main,memory.main'").fetchall()
        _begin_queries(connection)
        try:
            yield connection
        finally:
            connection.execute(f"use memory; detach {name}").fetchall()


@cache
def _base(process: int) -> duckdb.DuckDBPyConnection:
    """Return the connection of a process to its DuckDB with the macros."""
    return connect([])


_NUMBERS = count()


def create_macros(connection: duckdb.DuckDBPyConnection, asked: Iterable[str] | None = None) -> None:
    """Create the macros, including ``all_metrics`` of the metrics that every run may have.

    ``asked`` is as for `connect`: all macros take 0.1 s, longer than most queries.
    """
    create_metric_heads(connection, EVERY.metrics)
    files, called = _macros()
    wanted = set(files) if asked is None else set().union(*map(_called, asked)) & set(files)
    for name in reversed(files):
        if name in wanted:
            wanted |= called[name]
    for name, statement in files.items():
        if name in wanted:
            connection.execute(statement).fetchall()


@cache
def _macros() -> tuple[dict[str, str], dict[str, set[str]]]:
    """Return the statements that create the macros, by name, each after those that it calls, with the called names."""
    files = {path.stem: path.read_text(encoding="utf-8") for path in ANALYTICS.glob("macros/*.sql")}
    called = {name: _called(sql) & files.keys() - {name} for name, sql in files.items()}
    return {name: files[name] for name in TopologicalSorter(called).static_order()}, called


@cache
def _called(sql: str) -> set[str]:
    """Return the names that a text calls as functions; DuckDB ignores their case."""
    return set(re.findall(r"(\w+)\s*\(", sql.lower()))


def create_methods(connection: duckdb.DuckDBPyConnection, chosen: Chosen = EVERY) -> None:
    """Create the table ``calibration_methods``, of all methods and those of the run, and the macro ``all_metrics``."""
    # Through Arrow, because a table from Python values would import pandas.
    unnested = "create or replace table calibration_methods as select unnest($rows, max_depth := 2)"
    connection.execute(unnested, {"rows": calibration_rows(chosen.own)}).fetchall()
    create_metric_heads(connection, chosen.metrics)


def create_metric_heads(connection: duckdb.DuckDBPyConnection, metrics: Sql) -> None:
    """Create the macro ``all_metrics()``, a list of the SQL facts about all metrics and those of the run."""
    heads = METRICS | {name: Metric.of(name, sql) for name, sql in metrics.items()}
    listed = ", ".join(metric.literal for metric in heads.values())
    connection.execute(f"create or replace macro all_metrics() as [{listed}]").fetchall()


def chosen_by(run: Run) -> Chosen:
    """Return the calibrations and metrics that a run's spec brings or names."""
    spec = raw_spec(run) if run.has(SPEC) else {}
    analysis = spec.get("analysis") or {}
    files = analysis.get("files") or {}
    metrics = metric_files(analysis.get("metrics") or (), own_of(files, "metrics"))
    return Chosen(own_of(files), spec.get("calibration") or (), metrics)


def _files_of(glob: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """Return a function that lists files by a pattern; a name without one is an existing file and costs no request."""
    return lambda pattern: glob(pattern) if re.search(r"[\[*?]", pattern) else [pattern]


def create_tables(run: Run, tables: Iterable[TableSchema], connection: duckdb.DuckDBPyConnection) -> None:
    """Create a view over the Parquet parts of each table; a table without parts becomes an empty table."""
    listed = [(table, run.parts(table.name)) for table in tables]
    begin_tables(run, listed, connection)
    complete_tables(run, listed, connection)


def begin_tables(run: Run, listed: Listed, connection: duckdb.DuckDBPyConnection) -> None:
    """Create a view over the first part of each table; a table without parts becomes an empty table.

    DuckDB binds a view with all its inputs when it creates the view, and looks for a table's files each time. So
    relations over tables of thousands of parts are created between this call and `complete_tables`.
    """
    for table, parts in listed:
        if parts:
            create("view", table.name, _select(run, table, {min(parts)}), connection)
        else:
            connection.from_arrow(table.empty()).create(table.name)


def complete_tables(run: Run, listed: Listed, connection: duckdb.DuckDBPyConnection) -> None:
    """Let the views of `begin_tables` read all parts; the arguments are the same."""
    without = left_out(run)
    for table, parts in listed:
        if parts:
            create("or replace view", table.name, _kept(run, table, parts, without), connection)


def _kept(run: Run, table: TableSchema, parts: Collection[int], without: Mapping[str, set[str]]) -> str:
    """Return the query over a table's files, but for rows of tasks, demonstrations or questions that are left out."""
    if "part" in without and QA_EXAMPLES.name in (table.name, table.part_of):
        n_parts = len(run.parts(QA_EXAMPLES.name))
        parts = [part for part in parts if str(part % n_parts) not in without["part"]]
    select = _select(run, table, parts)
    for column in without.keys() - {"part"}:
        values = ", ".join(map(literal, sorted(without[column])))
        if column in table.schema.names:
            return f"from ({select}) where coalesce({column}::varchar, '') not in ({values})"
        if table.part_of == PROMPTS.name:
            left = f"from ({read_parquet(run, 'prompts/part-*.parquet')}) where {column}::varchar in ({values})"
            return f"from ({select}) where prompt_id not in (select prompt_id {left})"
    return select


def create_views(made: Sequence[Relation], connection: duckdb.DuckDBPyConnection) -> None:
    """Create a view for each relation; each relation comes after those that it reads."""
    begin_views(made, connection)
    complete_views(made, connection)


def begin_views(made: Sequence[Relation], connection: duckdb.DuckDBPyConnection) -> None:
    """Create an empty table for each relation, with its columns.

    DuckDB binds a view with all its inputs, down to the files, when it creates the view, which takes long for views
    over views. Over empty tables each relation is bound alone. So each view is such a table until `complete_views`.
    Each relation comes after those that it reads.
    """
    for relation in made:
        create("table", relation.name, f"from ({relation.sql}\n) limit 0", connection)


def complete_views(made: Sequence[Relation], connection: duckdb.DuckDBPyConnection) -> None:
    """Turn the tables of `begin_views` into views, each before those that it reads; the arguments are the same."""
    for relation in reversed(made):
        connection.execute(f"drop table {relation.name}").fetchall()
        create("view", relation.name, relation.sql, connection)


def create(what: str, name: str, select: str, connection: duckdb.DuckDBPyConnection) -> None:
    """Create a view or table; Raises BiasevalError: a disk or memory is full, a file no Parquet, or the SQL wrong."""
    try:
        connection.execute(f"create {what} {name} as {select}").fetchall()
    except duckdb.Error as error:
        gave_out = isinstance(error, duckdb.OutOfMemoryException | duckdb.IOException)  # memory, a disk, a store
        message = f"{name}: cannot be computed: {error}; mend this and run the same command again"
        raise (TransientError if gave_out else BiasevalError)(message) from error


def rows(select: str, connection: duckdb.DuckDBPyConnection) -> pa.Table:
    """Return the rows of a query over a run's tables; Raises BiasevalError: a file is no Parquet, or memory is full."""
    try:
        return connection.sql(select).to_arrow_table()
    except duckdb.Error as error:
        raise BiasevalError(
            f"the run's tables cannot be read: {error}; mend this and run the same command again"
        ) from error


@contextmanager
def local_copy(run: Run, tables: Collection[str]) -> Iterator[Run]:
    """Yield the run, or a copy of its tables on the local disk, because the metrics read each table several times."""
    if run.is_local:
        yield run
        return
    with tempfile.TemporaryDirectory(prefix="biaseval-") as folder:
        for table in {*tables, FAILED_PARTS.name}:
            if not run.parts(table):
                continue
            copy = Path(folder, table)
            copy.mkdir()
            pafs.copy_files(
                run.path(table), str(copy), source_filesystem=run.fs, destination_filesystem=pafs.LocalFileSystem()
            )
        copied = Run.open(folder)
        yield replace(copied, ledger=run.ledger)


@contextmanager
def opened(
    run: Run, tables: Mapping[str, TableSchema], marts: Collection[str] = ()
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection with tables of a run, and views of intermediate relations and of these marts.

    The connection has the macros that these views need.
    """
    made = [
        relation
        for relation in relations("intermediate", "marts", tables=tables)
        if relation.layer == "intermediate" or relation.name in marts
    ]
    with local_copy(run, tables) as source, session([source]) as connection:
        create_tables(source, tables.values(), connection)
        create_views(made, connection)
        yield connection


def read_parquet(run: Run, *names: str) -> str:
    """Return the query over Parquet files of a run, with their absolute paths in it."""
    place = as_pattern(run.root if run.is_local else f"{run.fs.type_name}://{run.root}")
    files = ", ".join(literal(f"{place}/{name}") for name in names)
    return f"select * from read_parquet([{files}], hive_partitioning = false)"


def as_pattern(path: str) -> str:
    """Return the pattern that matches only this path in DuckDB."""
    return re.sub(r"([\[*?])", r"[\1]", path)


def literal(text: str) -> str:
    """Return a text as a SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def _select(run: Run, table: TableSchema, parts: Collection[int]) -> str:
    """Return the query over a table's files, including columns that an older version did not write.

    Parts that were added to a run may have columns that its first parts lack.
    """
    select = read_parquet(run, *(f"{table.name}/{part_name(part)}" for part in sorted(parts)))
    if not table.later:
        return select
    try:
        first, last = (run.part_columns(table.name, part) for part in (min(parts), max(parts)))
    except (OSError, pa.ArrowException):  # the view that reads the file reports the error
        return select
    lacking = [name for name in table.later if name not in first]
    if not lacking:
        return select
    added = [name for name in lacking if name in last]
    if added:
        select = select.removesuffix(")") + ", union_by_name = true)"
    without = f" exclude ({', '.join(added)})" if added else ""
    columns = [
        f"coalesce({name}, {table.later[name]}) as {name}" if name in added else f"{table.later[name]} as {name}"
        for name in lacking
    ]
    return f"select *{without}, {', '.join(columns)} from ({select})"
