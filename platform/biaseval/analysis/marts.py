"""Compute the marts of a run after all checks pass, and write ``results.duckdb``."""

import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa

from biaseval.analysis import sql_files
from biaseval.analysis.checks import key_check, range_check
from biaseval.analysis.dictionary import Dictionary, write_comments
from biaseval.errors import BiasevalError
from biaseval.store import Run
from biaseval.tables import tables_of

LARGE = (
    *("label_logprobs", "calibration_scores", "label_probabilities", "calibrated_predictions", "row_influences"),
    *("wrong_answers", "majority_changed_rows", "qa_bias_disagreements"),
)
"""Relations that stay views, because they have a row per score, or per prompt and method, or texts."""

ADDED_LAST = {
    table: column
    for column, tables in {
        "is_above_constant": "label_bias_remedies majority_over_seeds majority_calibration_gain majority_remedies "
                             "majority_by_setting search_best search_trials",
        "bias_score_smallest_detectable": "label_bias_by_task label_bias_by_task_over_sets label_bias_by_model",
        "sd_f1_smallest_detectable": "majority_by_model majority_components",
        "n_articles": "qa_bias_by_heuristic qa_by_dataset qa_curves",
        "noise_p": "label_bias_changes_by_task label_bias_format_changes",
        "n_bias_score_rows_of_label": "label_bias_by_label", "squared_preference": "label_bias_by_format",
        "unit": "label_bias_changes", "is_primary": "label_bias_verdicts", "is_above_null": "qa_by_model",
        "smallest_detectable": "qa_bias_tests",
    }.items()
    for table in tables.split()
}  # fmt: skip
"""Marts that older versions wrote with fewer columns, each with one of the newest columns."""

_N_SHOWN = 3
"""The most problems per failed check in a message."""


def write_marts(run: Run, kind: str, *, database: bool = True) -> None:
    """Write ``marts/*.parquet`` of a run with all its tables, and finally ``results.duckdb``.

    Each file appears in one step, and the marts only after every check passes. The same tables give the same Parquet
    bytes for any number of threads. The kind decides the tables and so the marts. ``results.duckdb`` takes half of the
    time of a small run; without ``database`` it is not written.

    Raises:
        BiasevalError: a file cannot be read, the disk or memory is full, or a check returned rows. The message names
            the check, or the table or mart with its column, and the first rows.
    """
    for name, rows in _computed_marts(run, kind).items():
        run.write_table(mart_file(name), rows)
    if database:
        run.write_bytes("results.duckdb", results_database(run, kind))


def mart_file(name: str) -> str:
    """Return the name of a mart's file in a run directory."""
    return f"marts/{name}.parquet"


def _computed_marts(run: Run, kind: str) -> dict[str, pa.Table]:
    """Return the marts by name after every check passes."""
    tables, chosen = tables_of(kind), sql_files.chosen_by(run)
    checks = sql_files.relations("checks", tables=tables)
    every = sql_files.relations("intermediate", "marts", tables=tables, chosen=chosen)
    marts = [relation for relation in every if relation.layer == "marts"]
    below = sql_files.needed(every, [*checks, *marts])
    made = [relation for relation in every if relation in below or relation in marts]
    # Metrics need correct tables, so the checks that read only the run's tables come first.
    mart_checks = [check for check in checks if check.reads & {mart.name for mart in marts}]
    first_checks = [check for check in checks if check not in mart_checks]
    first = sql_files.needed(made, first_checks)
    read = {name for relation in (*made, *checks) for name in relation.reads & tables.keys()}
    with sql_files.local_copy(run, read) as source, sql_files.session([source]) as connection:
        stored = [table for name, table in tables.items() if name in read]
        sql_files.create_methods(connection, chosen)
        sql_files.create_tables(source, stored, connection)
        store(first, connection)
        dictionary = Dictionary(kind)
        ranges = [range_check(table.name, dictionary, connection, table.key) for table in stored]
        _check(run, [*map(key_check, stored), *filter(None, ranges), *first_checks], connection)
        store([relation for relation in made if relation not in first], connection)
        ranges = [range_check(mart.name, dictionary, connection) for mart in marts]
        _check(run, [*filter(None, ranges), *mart_checks], connection)
        return {mart.name: connection.sql(f"from {mart.name}").to_arrow_table() for mart in marts}


def store(made: Sequence[sql_files.Relation], connection: duckdb.DuckDBPyConnection) -> None:
    """Create relations, each after those that it reads, as tables where DuckDB can hold them: it computes them once."""
    for relation in made:
        sql_files.create("view" if relation.name in LARGE else "table", relation.name, relation.sql, connection)


def results_database(run: Run, kind: str) -> bytes:
    """Return a DuckDB file with the macros, the marts as tables, and all else as views over the run's Parquet."""
    tables, chosen = tables_of(kind), sql_files.chosen_by(run)
    with tempfile.TemporaryDirectory(prefix="biaseval-") as folder:
        database = Path(folder) / "results.duckdb"
        with closing(sql_files.connect([run], database)) as connection:
            sql_files.create_methods(connection, chosen)
            listed = [(table, run.parts(table.name)) for table in tables.values()]
            sql_files.begin_tables(run, listed, connection)
            for mart in sql_files.relations("marts", tables=tables):
                sql_files.create("table", mart.name, sql_files.read_parquet(run, mart_file(mart.name)), connection)
            sql_files.create_views(sql_files.relations("intermediate", tables=tables, chosen=chosen), connection)
            sql_files.complete_tables(run, listed, connection)
            write_comments(kind, connection)
        return database.read_bytes()


def _check(run: Run, checks: Sequence[sql_files.Relation], connection: duckdb.DuckDBPyConnection) -> None:
    """Raise BiasevalError with the first problems of each check that returns a row."""
    lines = []
    for check in checks:
        if problems := connection.execute(f"select problem from ({check.sql}\n) limit {_N_SHOWN}").fetchall():
            [(n_problems,)] = connection.execute(f"select count(*) from ({check.sql}\n)").fetchall()
            shown = "; ".join(str(problem) for (problem,) in problems)
            lines.append(f"{check.name}: {n_problems} problems, first: {shown}")
    if lines:
        raise BiasevalError(
            "\n  - ".join([f"{run.uri}: {len(lines)} checks failed, so no metrics are written", *lines])
        )
