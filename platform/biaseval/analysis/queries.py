"""Open finished runs as views, and answer queries about one or several of them."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from biaseval.analysis import sql_files
from biaseval.analysis.compared_kinds import Row
from biaseval.analysis.marts import ADDED_LAST, mart_file, store
from biaseval.analysis.paths import without_partitions
from biaseval.digests import inspected
from biaseval.environment import raw_spec
from biaseval.errors import BiasevalError, InputError, refuse_broken
from biaseval.left_out import left_out, left_out_files
from biaseval.progress import say
from biaseval.store import DIGESTS, Run, part_name
from biaseval.tables import ADAPTED, TABLES, TRAINED_MODELS, tables_of
from biaseval.units import lost_files, refuse_missing

_READS = (duckdb.StatementType.SELECT, duckdb.StatementType.MULTI)  # multi: a pivot, which first collects its columns

ALLOWED = "name the file with --with FILE (files=[...] in Python)"
"""What lets a query read a file beside the runs."""

Ask = Callable[[str], list[Row]]
"""Returns the rows of a query over runs."""

_LISTS = re.compile(r"\b(show|pragma\w*|information_schema|duckdb_\w+|sqlite_\w+|pg_\w+)\b", re.I)
"""Matches SQL that lists all names."""


def open_runs(run_dirs: Sequence[str | Path], asked: str | None = None) -> duckdb.DuckDBPyConnection:
    """Return a connection with the tables, intermediate relations and marts of finished runs as views.

    A run of a kind without metrics has no marts, but the views that its tables allow. Columns and marts that an older
    version did not write exist too. With several runs, each view has the rows of the runs that have it, and a first
    column ``run``. That is the directory's name, with as many parents as distinguish the runs. The connection also has
    the comparisons that the tables allow. It keeps no changes, except by statements that name a file.

    Args:
        run_dirs: local paths or ``s3://`` URIs.
        asked: the queries to come. The connection then has only the relations that they name and read. DuckDB binds
            every created view with all its inputs, which takes longer than most queries.

    Raises:
        InputError: there is no run, one is named twice, is no run directory, or has an unknown kind.
        BiasevalError: a run is not finished.
    """
    if not run_dirs:
        raise InputError("RUN: no run directory is named; name at least one")
    runs = [Run.open(str(run_dir)) for run_dir in run_dirs]
    finished = [_finished(run) for run in runs]
    names = _distinct_names(runs)
    every = {name for own in finished for name in own.names}
    comparisons = sql_files.relations("comparisons", tables=every) if len(runs) > 1 else []
    wanted = None if asked is None else _named(asked, every.union(made.name for made in comparisons))
    if wanted is not None:
        wanted = sql_files.reached(comparisons, wanted)
        comparisons = [made for made in comparisons if made.name in wanted]
        finished = [_only(own, wanted) for own in finished]
    texts = [made.sql for made in (*(made for own in finished for made in own.relations), *comparisons)]
    connection = sql_files.connect(runs, asked=None if asked is None or wanted is None else [asked, *texts])
    sql_files.create_metric_heads(
        connection, {name: sql for own in finished for name, sql in own.chosen.metrics.items()}
    )
    # For views over views it takes seconds, longer than it ever saves.
    connection.execute("set disabled_optimizers = 'projection_placement'").fetchall()
    if len(runs) == 1:
        _begin(finished[0], connection, is_asked=wanted is not None)
        if wanted is None:
            _complete(finished[0], connection)
        return connection
    selects: dict[str, list[str]] = {}
    for number, (own, name) in enumerate(zip(finished, names, strict=True)):
        connection.execute(f"create schema run_{number}; use run_{number}")
        _begin(own, connection, is_asked=wanted is not None)
        for view in own.names:
            selects.setdefault(view, []).append(f"select {sql_files.literal(name)} as run, * from run_{number}.{view}")
    connection.execute("use memory.main")
    of_all = [sql_files.Relation("runs", view, " union all by name ".join(parts)) for view, parts in selects.items()]
    if wanted is not None:
        for made in of_all:
            sql_files.create("view", made.name, made.sql, connection)
        store(comparisons, connection)
        return connection
    sql_files.create_views([*of_all, *comparisons], connection)
    for number, own in enumerate(finished):
        connection.execute(f"use run_{number}")
        _complete(own, connection)
    connection.execute("use memory.main")
    return connection


def answers(run: Run) -> Ask:
    """Return a function that answers queries about a finished run; it computes each relation that they read once.

    Raises:
        InputError: it is no run directory, or has an unknown kind.
        BiasevalError: the run is not finished.
    """
    finished = _finished(run)
    connection, made = sql_files.connect([run]), set[str]()
    sql_files.create_metric_heads(connection, finished.chosen.metrics)

    def ask(sql: str) -> list[Row]:
        own = _only(finished, set(re.findall(r"\w+", sql.lower())), without=made)
        _begin(own, connection, is_asked=True)
        made.update(own.names)
        found: list[Row] = sql_files.rows(sql, connection).to_pylist()
        return found

    return ask


def run_names(run_dirs: Sequence[str | Path]) -> list[str]:
    """Return the name of each run in the column ``run`` of `open_runs`; Raises InputError: a run is named twice."""
    return _distinct_names([Run.open(str(run_dir)) for run_dir in run_dirs])


def confine(connection: duckdb.DuckDBPyConnection, runs: Sequence[Run], files: Sequence[str | Path] = ()) -> None:
    """From now on a connection reads these runs and local files or folders; it neither writes nor reads others.

    Raises:
        InputError: there is no such file.
    """
    places = [run.root if run.is_local else f"{run.fs.type_name}://{run.root}" for run in runs]
    for file in map(Path, files):
        if not file.exists():
            raise InputError(f"{file}: no such file; a query can read it only where it exists")
    places += [str(file) for file in map(Path, files) if file.is_dir()]
    folders = [own for place in places for own in (place, sql_files.as_pattern(place))]  # DuckDB compares patterns, too
    for name, own in (("directories", folders), ("paths", [str(file) for file in files])):
        connection.execute(f"set allowed_{name} = [{', '.join(map(sql_files.literal, dict.fromkeys(own)))}]").fetchall()
    lock(connection)


def lock(connection: duckdb.DuckDBPyConnection) -> None:
    """Let a connection open no file beyond those that it was allowed, whatever a query sets."""
    connection.execute("set enable_external_access = false").fetchall()
    connection.execute("set lock_configuration = true").fetchall()


def query(
    run_dirs: Sequence[str | Path], sql: str, files: Sequence[str | Path] = (), *, unsafe: bool = False
) -> pa.Table:
    """Return the rows of one ``select`` over finished runs.

    Args:
        run_dirs: as for `open_runs`.
        sql: one DuckDB statement that only reads: ``select``, ``from``, ``describe``, ``summarize``, ``show`` ...
        files: local files or folders that it may read beside the runs.
        unsafe: whether it may read any file.

    Raises:
        InputError: the statement is wrong, writes, or reads a file that it may not; the message is DuckDB's.
        BiasevalError: a run is not finished, or its files cannot be read.
    """
    try:
        try:
            return _answer(run_dirs, sql, files, unsafe, asked=sql)
        except duckdb.CatalogException:  # so that the message can suggest similar names among all relations
            return _answer(run_dirs, sql, files, unsafe)
    except duckdb.PermissionException as error:
        raise InputError(f"query: {message_of(error)}; {ALLOWED}") from error
    except (duckdb.ProgrammingError, duckdb.DataError, duckdb.NotSupportedError) as error:
        raise InputError(f"query: {message_of(error)}") from error
    except duckdb.Error as error:
        raise BiasevalError(f"query: {message_of(error)}") from error


def message_of(error: duckdb.Error) -> str:
    """Return what DuckDB says of a query, with at most 500 characters of each name or value in it."""
    return re.sub(r"(\S{500})\S+", r"\1…", str(error))


def _answer(
    run_dirs: Sequence[str | Path], sql: str, files: Sequence[str | Path], unsafe: bool, asked: str | None = None
) -> pa.Table:
    with closing(open_runs(run_dirs, asked)) as connection:
        if not unsafe:
            confine(connection, [Run.open(str(run_dir)) for run_dir in run_dirs], files)
        return connection.sql(only_read(connection, without_partitions(sql))).to_arrow_table()


def only_read(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    """Return a statement; Raises InputError: it is not one statement that only reads."""
    refuse_broken("query", sql)
    statements = connection.extract_statements(sql)
    if len(statements) != 1 or statements[0].type not in _READS:
        raise InputError("query: is not one statement that only reads; write a single select")
    select = statements[0].query.strip().removesuffix(";")
    connection.sql(f"from ({select}\n)")  # binds only; a nested select cannot contain copy or insert
    return select


def stored_kind(run: Run) -> str:
    """Return a run's kind from its spec, or an empty text; Raises InputError: ``run`` is no run directory."""
    spec = raw_spec(run)
    return str(spec.get("kind", "")) if isinstance(spec, dict) else ""


class _Finished(NamedTuple):
    """A complete run."""

    run: Run
    listed: sql_files.Listed
    """All tables of its kind, or the requested ones."""
    relations: Sequence[sql_files.Relation]
    """Its relations, or the requested ones; a stored mart reads its file."""
    chosen: sql_files.Chosen
    """Calibrations and metrics of its spec."""

    @property
    def names(self) -> list[str]:
        """The names of its tables and relations."""
        return [*(table.name for table, _ in self.listed), *(made.name for made in self.relations)]


def _finished(run: Run) -> _Finished:
    """Return a run after a check that it has a known kind, and all parts and marts; its tables are listed once."""
    kind = stored_kind(run)
    tables = tables_of(kind)
    if not tables:
        raise InputError(f"{run.uri}: kind {kind!r} in spec.yaml is unknown to this version; use the one that made it")
    run = inspected(run)
    parts = {name: run.parts(name) for name in tables}
    if names := [f"{column} {value}" for column, values in left_out(run).items() for value in sorted(values)]:
        say(f"{run.uri}: parts failed, and every number leaves out: {', '.join(names)}")
    _refuse_missing_parts(run, _rounds(run, kind, parts), parts)
    marts = [mart_file(mart.name) for mart in sql_files.relations("marts", tables=tables)]
    lacking = [file for file in marts if not run.has(file)]
    # The database is written last: with it and other marts in place, a missing mart belongs to a later version.
    if lacking and (len(lacking) == len(marts) or not run.has("results.duckdb")):
        raise BiasevalError(f"{run.uri}: {lacking[0]} is missing; biaseval report {run.uri} writes it")
    chosen = sql_files.chosen_by(run)
    made = [
        made._replace(sql=sql_files.read_parquet(run, mart_file(made.name))) if _is_stored(run, made) else made
        for made in sql_files.relations("intermediate", "marts", tables=tables, chosen=chosen)
    ]
    return _Finished(run, [(table, parts[name]) for name, table in tables.items()], made, chosen)


def _refuse_missing_parts(run: Run, rounds: Mapping[str, int], parts: Mapping[str, Collection[int]]) -> None:
    """Make sure that tables have all parts, judged by file names, because queries may not know kinds and models.

    ``rounds`` has the number of a table's parts per part of the table that it follows.
    """
    if run.ledger.known is not None and not run.ledger.known:
        raise BiasevalError(f"{run.uri}/{DIGESTS}: is missing or damaged; biaseval report {run.uri} writes it again")
    wanted: list[tuple[str, int]] = []
    adapted: dict[str, list[int]] = {}
    if not rounds.keys().isdisjoint(ADAPTED.values()) and run.has("plan.json"):
        plan = run.read_json("plan.json")
        every = (*plan["parts"], *plan.get("adapted_parts", ()))
        adapted = {table: [part["part"] for part in every if "adapter" in part] for table in ADAPTED.values()}
    for table, n_rounds in rounds.items():
        whole = str(TABLES[table].part_of)
        n_parts = len(parts[whole])
        if not n_parts:
            raise BiasevalError(f"{run.uri}: the table {whole} has no part; run the same command again")
        wanted += [(table, part) for part in adapted.get(table, range(n_rounds * n_parts))]
    if not any(parts[table] for table in rounds) and parts.get(TRAINED_MODELS.name):
        raise BiasevalError(f"{run.uri}: is trained, and nothing is measured yet; biaseval run goes on with it")
    lacking = [f"{table}/{part_name(part)}" for table, part in wanted if part not in parts[table]]
    without = left_out_files(run) if lacking else set()
    missing = [name for name in lacking if name not in without]
    bad = {name for name in lost_files(run) if name.partition("/")[0] in parts}.difference(missing)
    refuse_missing(run, [*missing, *sorted(bad)], len(wanted) + len(bad))


def _rounds(run: Run, kind: str, parts: Mapping[str, Collection[int]]) -> dict[str, int]:
    """Return the number of parts that each table of outputs has per planned part.

    A table that only some specs need counts once it has a part, or if no other table has one.
    """
    outputs = [table for table in tables_of(kind).values() if table.part_of is not None]
    counted = [table for table in outputs if kind not in table.if_asked or parts[table.name]] or outputs[:1]
    named = {name for table in counted for name in table.for_each}
    # The plan of a large run is large, too.
    plan = run.read_json("plan.json") if named and run.has("plan.json") else {}
    lists = {**plan, **raw_spec(run)} if named else {}
    return {
        table.name: sum(len(lists.get(name) or ()) for name in table.for_each) if table.for_each else 1
        for table in counted
    }


def _distinct_names(runs: Sequence[Run]) -> list[str]:
    paths = [PurePosixPath(run.root).parts for run in runs]
    if len(set(paths)) < len(paths):
        raise InputError(f"{', '.join(run.uri for run in runs)}: a run is named twice; name each once")
    n_parts = 1
    while len({path[-n_parts:] for path in paths}) < len(paths):
        n_parts += 1
    return ["/".join(path[-n_parts:]) for path in paths]


def _named(asked: str, every: Collection[str]) -> set[str] | None:
    """Return the names that queries use; None if they use none, or list names themselves."""
    if _LISTS.search(asked):
        return None
    return set(re.findall(r"\w+", asked.lower())).intersection(every) or None


def _only(finished: _Finished, names: Collection[str], without: Collection[str] = ()) -> _Finished:
    """Return the tables and relations of a run that these names need, except those of ``without``."""
    needed = sql_files.reached(finished.relations, names).difference(without)
    return finished._replace(
        listed=[(table, parts) for table, parts in finished.listed if table.name in needed],
        relations=[made for made in finished.relations if made.name in needed],
    )


def _begin(finished: _Finished, connection: duckdb.DuckDBPyConnection, *, is_asked: bool) -> None:
    """Create the relations of a run, or placeholders until `_complete`: its tables' first parts, and empty tables.

    If queries ask for all of them (``is_asked``), DuckDB computes each once.
    """
    if finished.chosen.own:
        sql_files.create_methods(connection, finished.chosen)
    sql_files.begin_tables(finished.run, finished.listed, connection)
    if is_asked:
        sql_files.complete_tables(finished.run, finished.listed, connection)
        store(finished.relations, connection)
    else:
        sql_files.begin_views(finished.relations, connection)


def _complete(finished: _Finished, connection: duckdb.DuckDBPyConnection) -> None:
    sql_files.complete_views(finished.relations, connection)
    sql_files.complete_tables(finished.run, finished.listed, connection)


def _is_stored(run: Run, mart: sql_files.Relation) -> bool:
    """Return whether a mart's file has all its columns, some of which an older version did not write."""
    file, column = mart_file(mart.name), ADDED_LAST.get(mart.name)
    if column is None or not run.has(file):
        return run.has(file)
    try:
        with run.fs.open_input_file(run.path(file)) as parquet:
            return column in pq.read_schema(parquet).names
    except (OSError, pa.ArrowException):  # the view that reads the file reports the error
        return True
