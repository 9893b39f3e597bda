"""Metrics: runs ``analytics/*.sql`` over run directories.

Each file there is one relation of the same name. ``staging`` reads a run's Parquet parts, ``intermediate`` and
``marts`` read only relations, and each of ``checks`` must return no row. A kind of run has the relations that its
tables allow. ``comparisons`` are relations over several runs, whose rows have a column ``run``. ``macros`` are
functions that queries over any run may use; so is the table ``calibration_methods``, of which there is no file.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

from biaseval.errors import BiasevalError, InputError
from biaseval.prompting.calibration import calibration_rows
from biaseval.store import Run
from biaseval.tables import ADAPTED, TABLES, run_outputs

N_DRAWS = 1000
"""Bootstrap resamples behind every interval: of tasks (label bias), of test rows (majority bias)."""

_LABEL_BIAS, _MAJORITY_BIAS, _QA_BIAS, _INSTRUCT = "label_bias", "majority_bias", "qa_bias", "instruct"

_QA_MEASUREMENTS = ("qa_examples", "qa_attributes", "qa_predictions")

_SCORED = ("contexts", "prompts", "label_scores", "adapted_scores", "training_rows", "training", "run_settings")

_TABLES: dict[object, frozenset[str]] = {
    _LABEL_BIAS: frozenset({"tasks", "splits", "bootstrap_draws", *_SCORED}),
    _MAJORITY_BIAS: frozenset({"settings", "generations", "adapted_generations", "row_draws", *_SCORED}),
    _QA_BIAS: frozenset({*_QA_MEASUREMENTS, "qa_models", "qa_settings", "qa_thresholds", "qa_draws"}),
}
"""The kinds of run that have metrics, and the tables that these are made of."""

_LATER_COLUMNS = {
    "contexts": {"n_tokens": "null::integer"},
    "prompts": {"n_tokens": "null::integer"},
    "run_settings": {
        "adaptations": "['none']",
        "trained_parameters": "null::bigint",
        "scoring_seconds": "null::double",
    },
}
"""Columns that runs of older versions lack, and what they have in their place."""

_STORAGE_VERSION = "v1.0.0"  # what the duckdb shell of today (1.5) can open

_LAYERS = ("staging", "intermediate", "marts", "checks", "comparisons")

_LARGE = ("label_logprobs", "calibrated_predictions")
"""Intermediate relations that stay views while marts are built: a row per score, or per prompt and method."""

_READS = (duckdb.StatementType.SELECT, duckdb.StatementType.MULTI)  # multi: a pivot, which first collects its columns

_N_SHOWN = 3
"""Problems that a message shows of each failed check."""

_PACKAGED = Path(__file__).parent / "analytics"
ANALYTICS = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[2] / "analytics"


def build_marts(run_dir: str | Path) -> None:
    """Compute the metrics of a scored run: ``marts/*.parquet``, ``results.duckdb``, and the bootstrap's draws.

    Each file appears in one step, the marts only after every check has passed. The same scores give the same bytes
    of Parquet, whatever the number of threads.

    Args:
        run_dir: a local path or ``s3://`` URI whose prompts are all scored, or whose questions are all answered.

    Raises:
        InputError: it holds no run of a kind that has metrics.
        BiasevalError: parts are missing, a file cannot be read, the disk or memory is full, or a check returned rows;
            the message names the check and its first rows.
    """
    run = Run.open(str(run_dir))
    spec = _read_spec(run)
    kind = spec.get("kind")
    if kind not in _TABLES:
        raise InputError(
            f"{run.uri}: holds no label-bias run, no majority-bias run and no QA-bias run; name the directory of one"
        )
    _refuse_unscored(run, spec)
    if kind == _QA_BIAS:
        _write_qa_tables(run, spec)
    else:
        if kind == _LABEL_BIAS:
            run.write_part("bootstrap_draws", 0, _bootstrap_draws(run, spec["seed"]))
        else:
            run.write_part("row_draws", 0, _row_draws(run, spec["seed"]))
        run.write_part("run_settings", 0, _run_settings(run, spec))
    for name, rows in _computed_marts(run, spec).items():
        run.write_table(_mart_file(name), rows)
    run.write_bytes("results.duckdb", _results_database(run, spec))


def read_label_bias_spec(run: Run) -> dict[str, Any]:
    """Return the resolved spec of a label-bias run.

    Raises:
        InputError: ``run`` holds none.
    """
    spec = _read_spec(run)
    if spec.get("kind") != _LABEL_BIAS:
        raise InputError(f"{run.uri}: holds no label-bias run; name the directory of one")
    return spec


def open_runs(run_dirs: Sequence[str | Path]) -> duckdb.DuckDBPyConnection:
    """Return a connection with the tables, intermediate relations and marts of finished runs as views.

    A run of a kind without metrics has no marts, and the views that its tables allow. With several runs each
    view has the rows of those that have it, and a first column ``run``: the directory's name, with as many of its
    parents as tell the runs apart; and there are the comparisons that their tables allow. Nothing that is written
    through the connection outlives it, except by statements that name a file.

    Raises:
        InputError: there is no run, one is named twice, or is no run directory.
        BiasevalError: a run is not finished.
    """
    if not run_dirs:
        raise InputError("RUN: no run directory is named; name at least one")
    runs = [_finished_run(run_dir) for run_dir in run_dirs]
    names = _distinct_names(runs)
    connection = _connect(runs)
    if len(runs) == 1:
        _create_views(runs[0], connection)
        return connection
    selects: dict[str, list[str]] = {}
    for number, (run, name) in enumerate(zip(runs, names, strict=True)):
        connection.execute(f"create schema run_{number}; use run_{number}")
        for view in _create_views(run, connection):
            selects.setdefault(view, []).append(f"select {_literal(name)} as run, * from run_{number}.{view}")
    connection.execute("use memory.main")
    for view, parts in selects.items():
        _create("view", view, " union all by name ".join(parts), connection)
    for comparison in _relations("comparisons", tables=selects):
        _create("view", comparison.name, comparison.sql, connection)
    return connection


def run_names(run_dirs: Sequence[str | Path]) -> list[str]:
    """Return what the column ``run`` of `open_runs` calls each of several runs.

    Raises:
        InputError: a run is named twice.
    """
    return _distinct_names([Run.open(str(run_dir)) for run_dir in run_dirs])


def query(run_dirs: Sequence[str | Path], sql: str) -> pa.Table:
    """Return the rows of one ``select`` over finished runs.

    Args:
        run_dirs: as for `open_runs`.
        sql: one DuckDB statement that only reads: ``select``, ``from``, ``describe``, ``summarize``, ``show`` ...

    Raises:
        InputError: the statement is wrong, or writes; the message is DuckDB's.
        BiasevalError: a run is not finished, or its files cannot be read.
    """
    with closing(open_runs(run_dirs)) as connection:
        try:
            statements = connection.extract_statements(sql)
            if len(statements) != 1 or statements[0].type not in _READS:
                raise InputError("query: is not one statement that only reads; write a single select")
            select = statements[0].query.strip().removesuffix(";")
            connection.sql(f"from ({select}\n)")  # binds only; a nested select cannot hold a copy or insert
            return connection.sql(select).to_arrow_table()
        except (duckdb.ProgrammingError, duckdb.DataError, duckdb.NotSupportedError) as error:
            raise InputError(f"query: {error}") from error
        except duckdb.Error as error:
            raise BiasevalError(f"query: {error}") from error


def _read_spec(run: Run) -> dict[str, Any]:
    if not run.has("spec.yaml"):
        raise InputError(f"{run.uri}: is not a run directory (no spec.yaml in it); name the directory of a run")
    spec = run.read_yaml("spec.yaml")
    return spec if isinstance(spec, dict) else {}


def _refuse_unscored(run: Run, spec: dict[str, Any]) -> None:
    if spec.get("kind") == _QA_BIAS:
        _refuse_unread(run, spec)
        return
    if spec.get("kind") == _INSTRUCT:
        if not run.parts("training"):
            raise BiasevalError(f"{run.uri}: has no step that is kept yet; run the same command again")
        return
    planned = run.parts("prompts")
    if not planned:
        raise BiasevalError(f"{run.uri}: has no planned prompts; run the same command again")
    missing = sorted({part for table in _outputs(spec) for part in planned - run.parts(table)})
    if missing:
        raise BiasevalError(
            f"{run.uri}: {len(missing)} of {len(planned)} parts missing (first: {missing[0]}); "
            "run the same command again"
        )


def _outputs(spec: dict[str, Any]) -> tuple[str, ...]:
    """Return the tables of outputs that a spec asks for."""
    return run_outputs(spec.get("predict", ["likelihood"]), has_adapters=spec.get("lora") is not None)


def _refuse_unread(run: Run, spec: dict[str, Any]) -> None:
    """Raise BiasevalError unless every part of the questions has its attributes, and the predictions of every model.

    Part p of the questions belongs to part m * n_parts + p of the predictions for model m of the spec.
    """
    questions = run.parts("qa_examples")
    if not questions:
        raise BiasevalError(f"{run.uri}: has no questions; run the same command again")
    n_parts, n_models = len(questions), len(spec["models"])
    wanted = {
        "qa_attributes": questions,
        "qa_predictions": {model * n_parts + part for model in range(n_models) for part in questions},
    }
    missing = [(table, part) for table, parts in wanted.items() for part in sorted(parts - run.parts(table))]
    if missing:
        table, part = missing[0]
        raise BiasevalError(
            f"{run.uri}: {len(missing)} of {n_parts * (1 + n_models)} parts missing (first: {part} of {table}); "
            "run the same command again"
        )


def _finished_run(run_dir: str | Path) -> Run:
    run = Run.open(str(run_dir))
    spec = _read_spec(run)
    _refuse_unscored(run, spec)
    for mart in _relations("marts", tables=_TABLES.get(spec.get("kind"), ())):
        if not run.has(_mart_file(mart.name)):
            raise BiasevalError(f"{run.uri}: {_mart_file(mart.name)} is missing; biaseval report {run.uri} writes it")
    return run


def _distinct_names(runs: Sequence[Run]) -> list[str]:
    paths = [PurePosixPath(run.root).parts for run in runs]
    if len(set(paths)) < len(paths):
        raise InputError(f"{', '.join(run.uri for run in runs)}: a run is named twice; name each once")
    n_parts = 1
    while len({path[-n_parts:] for path in paths}) < len(paths):
        n_parts += 1
    return ["/".join(path[-n_parts:]) for path in paths]


def _bootstrap_draws(run: Run, seed: int) -> pa.Table:
    """Return how often each draw of each suite holds each of its tasks: suite, draw, task, n_drawn.

    Draw 0 is the suite itself, each task once. Draws 1 to `N_DRAWS` are as many tasks drawn with replacement; a suite
    of one task has none. Each suite has its own ``default_rng(seed)``, so that no suite changes another's draws.
    """
    tasks = run.read_table("tasks").sort_by("task")
    suites = {"all": tasks, "semantically_equivalent": tasks.filter(pc.field("is_semantically_equivalent"))}
    tables = []
    for suite, members in suites.items():
        n_tasks = members.num_rows
        n_drawn = np.ones((1, n_tasks), dtype=np.int32)
        if n_tasks > 1:
            draws = np.random.default_rng(seed).multinomial(n_tasks, np.full(n_tasks, 1 / n_tasks), size=N_DRAWS)
            n_drawn = np.concatenate([n_drawn, draws.astype(np.int32)])
        draw, position = np.indices(n_drawn.shape, dtype=np.int32).reshape(2, -1)
        tables.append(
            pa.table(
                {
                    "suite": pa.array([suite] * n_drawn.size, pa.string()),
                    "draw": draw,
                    "task": members["task"].take(pa.array(position)),
                    "n_drawn": n_drawn.ravel(),
                }
            )
        )
    return pa.concat_tables(tables)


def _row_draws(run: Run, seed: int) -> pa.Table:
    """Return how often each draw holds each test row of a majority-bias run: draw, n_drawn (by row).

    Draw 0 is the rows themselves, each once. Draws 1 to `N_DRAWS` are as many rows drawn with replacement; a single
    row has none. They are the same for every setting, so that settings, methods and instructions are compared on
    equal rows.
    """
    prompts = _literal(f"{_duckdb_path(run)}/prompts/part-*.parquet")
    count = f"select count(distinct row) as n_rows from read_parquet({prompts}) where purpose = 'majority'"
    with closing(_connect([run])) as connection:
        n_rows = _rows(count, connection)["n_rows"][0].as_py()
    n_drawn = np.ones((1, n_rows), dtype=np.int32)
    if n_rows > 1:
        draws = np.random.default_rng(seed).multinomial(n_rows, np.full(n_rows, 1 / n_rows), size=N_DRAWS)
        n_drawn = np.concatenate([n_drawn, draws.astype(np.int32)])
    ends = np.arange(len(n_drawn) + 1, dtype=np.int32) * n_rows
    return pa.table(
        {
            "draw": pa.array(range(len(n_drawn)), pa.int32()),
            "n_drawn": pa.ListArray.from_arrays(pa.array(ends), pa.array(n_drawn.ravel())),
        }
    )


def _run_settings(run: Run, spec: dict[str, Any]) -> pa.Table:
    """Return one row: the facts of the resolved spec that the metrics need, and the size of the model."""
    strings = pa.list_(pa.string())
    environment = run.read_json("environment.json") if run.has("environment.json") else {}
    return pa.table(
        {
            "model": pa.array([spec["name"]], pa.string()),
            "n_parameters": pa.array([environment.get("model_facts", {}).get("n_parameters")], pa.int64()),
            "trained_parameters": pa.array([environment.get("trained_parameters")], pa.int64()),
            "scoring_seconds": pa.array([environment.get("scorer", {}).get("scoring_s")], pa.float64()),
            "seed": pa.array([spec["seed"]], pa.int64()),
            "normalization": pa.array([spec["scoring"]["normalization"]], pa.string()),
            "eos": pa.array([spec["scoring"]["eos"]], pa.bool_()),
            "predict": pa.array([spec.get("predict", ["likelihood"])], strings),
            "calibration": pa.array([spec.get("calibration", [])], strings),
            "adaptations": pa.array([["none"] if spec.get("lora") is None else ["none", "lora"]], strings),
        }
    )


def _write_qa_tables(run: Run, spec: dict[str, Any]) -> None:
    """Write what a QA-bias run's metrics need beside its measurements: settings, models, thresholds, draws by model."""
    from biaseval.qa_bias.significance import segment_draws

    run.write_part("qa_settings", 0, _qa_settings(spec))
    run.write_part("qa_models", 0, _qa_models(spec))
    bootstrap = spec["bootstrap"]
    with _local_copy(run, _QA_MEASUREMENTS) as source, closing(_connect([source])) as connection:
        _create_staging(source, spec, _QA_MEASUREMENTS, connection)
        for relation in _relations("intermediate", tables=_QA_MEASUREMENTS):
            _create("view", relation.name, relation.sql, connection)
        thresholds = _qa_thresholds(spec, connection)
        run.write_part("qa_thresholds", 0, thresholds)
        for number, model in enumerate(spec["models"]):
            measured = _rows(
                "select dataset, heuristic, value, exact_match, f1 from qa_measured "
                f"where model = {_literal(model['name'])} order by dataset, heuristic, row, example_id",
                connection,
            )
            draws = segment_draws(
                model["name"],
                measured,
                thresholds,
                seed=spec["seed"],
                trials=bootstrap["trials"],
                sample=bootstrap["sample"],
                replacement=bootstrap["replacement"],
            )
            run.write_part("qa_draws", number, draws)


def _qa_settings(spec: dict[str, Any]) -> pa.Table:
    """Return one row: the facts of a resolved QA-bias spec that the metrics need."""
    return pa.table(
        {
            "seed": pa.array([spec["seed"]], pa.int64()),
            "variant": pa.array([spec["variant"]], pa.string()),
            "heuristics": pa.array([spec["heuristics"]], pa.list_(pa.string())),
            "trials": pa.array([spec["bootstrap"]["trials"]], pa.int32()),
            "sample": pa.array([spec["bootstrap"]["sample"]], pa.int32()),
            "replacement": pa.array([spec["bootstrap"]["replacement"]], pa.bool_()),
        }
    )


def _qa_models(spec: dict[str, Any]) -> pa.Table:
    """Return a row per model of a QA-bias run; one with predictions from elsewhere has those of some data sets."""
    models = spec["models"]
    answered = [None if model["predictions"] is None else sorted(model["predictions"]) for model in models]
    return pa.table(
        {
            "number": pa.array(range(len(models)), pa.int32()),
            "model": pa.array([model["name"] for model in models], pa.string()),
            "on_missing": pa.array([model["on_missing"] for model in models], pa.string()),
            "datasets": pa.array(answered, pa.list_(pa.string())),
        }
    )


def _qa_thresholds(spec: dict[str, Any], connection: duckdb.DuckDBPyConnection) -> pa.Table:
    """Return the thresholds to try of each data set and heuristic; one that the spec fixes is the only one."""
    from biaseval.qa_bias.significance import fixed_thresholds, threshold_grid

    # P3's code takes the range of all values, with -1 for undefined ones.
    taken = "isfinite(value)" if spec["variant"] == "reference" else "is_measured and isfinite(value)"
    ranges = _rows(
        f"select dataset, heuristic, min(value) filter ({taken}) as lowest, max(value) filter ({taken}) as highest "
        "from qa_attributes group by all order by all",
        connection,
    )
    fixed = fixed_thresholds(spec["thresholds"])
    rows = []
    for span in ranges.to_pylist():
        dataset, heuristic, lowest, highest = span.values()
        grid: list[float] = []
        if heuristic in fixed:
            grid = [fixed[heuristic]]
        elif lowest is not None:
            grid = threshold_grid(heuristic, lowest, highest, variant=spec["variant"])
        place = {"dataset": dataset, "heuristic": heuristic, "is_fixed": heuristic in fixed}
        rows += [{**place, "threshold": threshold} for threshold in grid]
    columns = {"dataset": pa.string(), "heuristic": pa.string(), "threshold": pa.float64(), "is_fixed": pa.bool_()}
    return pa.Table.from_pylist(rows, schema=pa.schema(columns))


def _rows(select: str, connection: duckdb.DuckDBPyConnection) -> pa.Table:
    try:
        return connection.sql(select).to_arrow_table()
    except duckdb.Error as error:  # a file that is no Parquet, too little memory
        raise BiasevalError(
            f"the run's tables cannot be read: {error}; mend this and run the same command again"
        ) from error


def _computed_marts(run: Run, spec: dict[str, Any]) -> dict[str, pa.Table]:
    """Return the marts by name, once every check has passed."""
    tables = _TABLES[spec["kind"]]
    checks, marts = _relations("checks", tables=tables), _relations("marts", tables=tables)
    mart_checks = [check for check in checks if check.reads & {mart.name for mart in marts}]
    with _local_copy(run, tables) as source, closing(_connect([source])) as connection:
        _create_staging(source, spec, tables, connection)
        for relation in _needed(_relations("intermediate", tables=tables), [*checks, *marts]):
            _create("view" if relation.name in _LARGE else "table", relation.name, relation.sql, connection)
        _check(run, [check for check in checks if check not in mart_checks], connection)
        for mart in marts:
            _create("table", mart.name, mart.sql, connection)
        _check(run, mart_checks, connection)
        return {mart.name: connection.sql(f"from {mart.name}").to_arrow_table() for mart in marts}


def _results_database(run: Run, spec: dict[str, Any]) -> bytes:
    """Return a DuckDB file with the macros, the marts as tables and all else as views over the run's Parquet."""
    tables = _tables(run, spec)
    with tempfile.TemporaryDirectory(prefix="biaseval-") as folder:
        database = Path(folder) / "results.duckdb"
        with closing(_connect([run], database)) as connection:
            _create_staging(run, spec, tables, connection)
            for relation in _relations("intermediate", tables=tables):
                _create("view", relation.name, relation.sql, connection)
            for mart in _relations("marts", tables=tables):
                _create("table", mart.name, _read_mart(mart.name, run), connection)
        return database.read_bytes()


@contextmanager
def _local_copy(run: Run, tables: Collection[str]) -> Iterator[Run]:
    """Yield the run itself, or a copy of its tables on the local disk: the metrics read each of them several times."""
    if run.is_local:
        yield run
        return
    with tempfile.TemporaryDirectory(prefix="biaseval-") as folder:
        for table in tables:
            if not run.parts(table):
                continue
            copy = Path(folder, table)
            copy.mkdir()
            pafs.copy_files(
                run.path(table),
                str(copy),
                source_filesystem=run.fs,
                destination_filesystem=pafs.LocalFileSystem(),
            )
        yield Run.open(folder)


def _connect(runs: Sequence[Run], database: str | Path = ":memory:") -> duckdb.DuckDBPyConnection:
    """Return a connection with the macros, and the table ``calibration_methods`` of the records of planning.

    It never fetches extensions, and reads object stores through the runs' file systems.
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
    # A query of more than two seconds would draw a progress bar on standard output, among its results.
    connection.execute("set enable_progress_bar = false").fetchall()
    for filesystem in {run.fs.type_name: run.fs for run in runs if not run.is_local}.values():
        from fsspec.implementations.arrow import ArrowFSWrapper  # type: ignore[import-untyped]

        store = ArrowFSWrapper(filesystem, skip_instance_cache=True)
        # Views over views list the same folders again and again, and what is read here does not change meanwhile.
        store.glob, store.info = cache(store.glob), cache(store.info)
        connection.register_filesystem(store)
    for macro in sorted(ANALYTICS.glob("macros/*.sql")):
        connection.execute(macro.read_text(encoding="utf-8")).fetchall()
    connection.from_arrow(pa.Table.from_pylist(calibration_rows())).create("calibration_methods")
    return connection


class _Relation(NamedTuple):
    layer: str
    name: str
    sql: str

    @property
    def reads(self) -> set[str]:
        """The names after each ``from`` and ``join`` that are no steps of the query itself."""
        return set(re.findall(r"(?:from|join) (\w+)", self.sql)) - set(re.findall(r"^(\w+) as \($", self.sql, re.M))

    def select(self, run: Run) -> str:
        """Return the file's text with the run's absolute path in it, which a stored view needs."""
        return self.sql.replace("getvariable('run_dir')", _literal(_duckdb_path(run)))


def _relations(*layers: str, tables: Collection[str]) -> list[_Relation]:
    """Return the relations of these layers that these tables allow, each after those that it reads."""
    relations = {
        path.stem: _Relation(path.parent.name, path.stem, path.read_text(encoding="utf-8"))
        for layer in _LAYERS
        for path in sorted(ANALYTICS.glob(f"{layer}/*.sql"))
    }
    reads = {name: sorted(relation.reads & relations.keys()) for name, relation in relations.items()}
    allowed: list[_Relation] = []
    names: set[str] = set()
    for name in TopologicalSorter(reads).static_order():
        if name in tables if relations[name].layer == "staging" else names.issuperset(reads[name]):
            allowed.append(relations[name])
            names.add(name)
    return [relation for relation in allowed if relation.layer in layers]


def _needed(relations: Sequence[_Relation], by: Sequence[_Relation]) -> list[_Relation]:
    """Return the relations, in their order, that those of ``by`` read, or that what they read is made of."""
    reads = set().union(*(relation.reads for relation in by))
    for relation in reversed(relations):
        if relation.name in reads:
            reads |= relation.reads
    return [relation for relation in relations if relation.name in reads]


def _create(kind: str, name: str, select: str, connection: duckdb.DuckDBPyConnection) -> None:
    try:
        connection.execute(f"create {kind} {name} as {select}").fetchall()
    except duckdb.Error as error:  # a full disk, too little memory, a file that is no Parquet, a mistake in the SQL
        raise BiasevalError(f"{name}: cannot be computed: {error}; mend this and run the same command again") from error


def _tables(run: Run, spec: dict[str, Any]) -> set[str]:
    """Return the tables that a run has, or would have if its spec asked for them."""
    every = {path.stem for path in ANALYTICS.glob("staging/*.sql")}
    return {table for table in every if run.parts(table)} | _TABLES.get(spec.get("kind"), frozenset())


def _create_staging(
    run: Run, spec: dict[str, Any], tables: Collection[str], connection: duckdb.DuckDBPyConnection
) -> None:
    """Create the views over the run's Parquet; a table that the spec does not ask for is an empty one."""
    unasked = {*ADAPTED, *ADAPTED.values()} - set(_outputs(spec))
    if spec.get("lora") is None:
        unasked |= {"training_rows", "training"}
    for relation in _relations("staging", tables=tables):
        if relation.name in unasked and not run.parts(relation.name):
            connection.from_arrow(TABLES[relation.name].empty()).create(relation.name)
        else:
            _create("view", relation.name, _with_later_columns(relation, run), connection)


def _with_later_columns(relation: _Relation, run: Run) -> str:
    """Return the relation over the run's parts, with the columns that an older version did not write."""
    select = relation.select(run)
    later = _LATER_COLUMNS.get(relation.name)
    parts = run.parts(relation.name) if later else ()
    if not later or not parts:
        return select
    try:
        found = run.part_columns(relation.name, min(parts))
    except (OSError, pa.ArrowException):  # what reads the view says what is wrong with it
        return select
    added = "".join(f", {value} as {name}" for name, value in later.items() if name not in found)
    return f"select *{added} from ({select}\n)" if added else select


def _create_views(run: Run, connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Create the views that the run's tables allow, and return their names."""
    spec = _read_spec(run)
    tables = _tables(run, spec)
    _create_staging(run, spec, tables, connection)
    for relation in _relations("intermediate", tables=tables):
        _create("view", relation.name, relation.sql, connection)
    for mart in _relations("marts", tables=tables):
        _create("view", mart.name, _read_mart(mart.name, run), connection)
    return [relation.name for relation in _relations("staging", "intermediate", "marts", tables=tables)]


def _mart_file(name: str) -> str:
    return f"marts/{name}.parquet"


def _read_mart(name: str, run: Run) -> str:
    return f"select * from read_parquet({_literal(f'{_duckdb_path(run)}/{_mart_file(name)}')})"


def _check(run: Run, checks: Sequence[_Relation], connection: duckdb.DuckDBPyConnection) -> None:
    """Raise BiasevalError with the first problems of each check that returns a row."""
    lines = []
    for check in checks:
        connection.execute(f"create temp table problems as {check.sql}").fetchall()
        [(n_problems,)] = connection.execute("select count(*) from problems").fetchall()
        problems = connection.execute(f"select problem from problems limit {_N_SHOWN}").fetchall()
        connection.execute("drop table problems").fetchall()
        if n_problems:
            shown = "; ".join(str(problem) for (problem,) in problems)
            lines.append(f"{check.name}: {n_problems} problems, first: {shown}")
    if lines:
        raise BiasevalError(
            "\n  - ".join([f"{run.uri}: {len(lines)} checks failed, so no metrics are written", *lines])
        )


def _duckdb_path(run: Run) -> str:
    """Return what DuckDB calls the run's folder, with the characters escaped that are special in its globs."""
    path = re.sub(r"([\[*?])", r"[\1]", run.root)
    return path if run.is_local else f"{run.fs.type_name}://{path}"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
