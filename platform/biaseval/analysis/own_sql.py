"""Check that DuckDB can bind the SQL files of a spec, before any computation."""

from collections.abc import Iterator
from graphlib import CycleError

import duckdb

from biaseval.analysis import sql_files
from biaseval.errors import InputError, refuse
from biaseval.metric_files import METRICS, Metric, Sql
from biaseval.prompting.calibration import known_calibrations
from biaseval.spec.shared_sections import RunSpec
from biaseval.tables import tables_of

_MADE = {"calibrations": ("calibration_priors", "calibration_logits"), "metrics": ("metric_influences",)}
"""Folder of ``analysis.sql`` to the relations that include its files."""

_READ = {
    "calibrations": "calibration_scores or label_probabilities",
    "metrics": "answer_cells or calibrated_predictions",
}


def own_sql_problems(spec: RunSpec) -> list[str]:
    """Return a line for each file of a spec whose query does not fit the tables of a run, with DuckDB's message."""
    chosen = sql_files.Chosen(spec.own_calibrations, spec.own_calibrations.keys(), spec.metric_files)
    metrics = {name: sql for name, sql in chosen.metrics.items() if name not in METRICS}
    own: dict[str, Sql] = {"calibrations": chosen.own, "metrics": metrics}
    return [line for folder, files in own.items() if files for line in _problems(spec.kind, folder, files, chosen)]


def _problems(kind: str, folder: str, files: Sql, chosen: sql_files.Chosen) -> Iterator[str]:
    tables = tables_of(kind)
    try:
        between = sql_files.relations("intermediate", tables=tables, chosen=chosen)
    except CycleError:
        names = ", ".join(f"{name}.sql" for name in files)
        yield f"analysis.sql: {folder}/{names}: a query depends on its own result in {folder}; read {_READ[folder]}"
        return
    except InputError as error:
        yield from error.problems
        return
    given = [made for made in between if made.name in _MADE[folder]]
    with sql_files.session([]) as connection:
        sql_files.create_methods(connection, chosen)
        for table in tables.values():
            connection.from_arrow(table.empty()).create(table.name)
        sql_files.begin_views([made for made in sql_files.needed(between, given) if made not in given], connection)
        for name, sql in files.items():
            if folder == "metrics":
                columns = Metric.of(name, sql).columns
            else:
                columns = sql_files.calibration_columns(known_calibrations(chosen.own)[name].gives)
            try:
                connection.sql(f"select {columns} from (\n{sql}\n)")
            except duckdb.Error as error:
                text = " ".join(str(error).split())
                yield f"analysis.sql: {folder}/{name}.sql: {text}; mend the query"


def refuse_own_sql(spec: RunSpec) -> None:
    """Make sure that DuckDB can run the spec's SQL; Raises InputError: the message lists all mistakes."""
    refuse(own_sql_problems(spec))
