"""Whether the SQL files that a spec brings can be bound, before anything is computed of them."""

from __future__ import annotations

from contextlib import closing
from graphlib import CycleError

import duckdb

from biaseval.analysis.sql_files import (
    Calibrated,
    begin_views,
    calibration_columns,
    connect,
    create_methods,
    needed,
    relations,
)
from biaseval.errors import InputError
from biaseval.prompting.calibration import Own, known_calibrations
from biaseval.spec.shared_sections import RunSpec
from biaseval.tables import tables_of


def own_sql_problems(kind: str, own: Own) -> list[str]:
    """Return a line for each calibration whose query does not fit the tables of a run, with DuckDB's message.

    Args:
        kind: of the run.
        own: calibrations of its spec, name to SQL.
    """
    problems: list[str] = []
    if not own:
        return problems
    tables = tables_of(kind)
    try:
        between = relations("intermediate", tables=tables, calibrations=Calibrated(own, own.keys()))
    except CycleError:
        reads = "reads what is made of calibrations; read calibration_scores or label_probabilities"
        return [f"analysis.sql: calibrations/{', '.join(f'{name}.sql' for name in own)}: a query {reads}"]
    except InputError as error:
        return error.problems
    given = [made for made in between if made.name in ("calibration_priors", "calibration_logits")]
    with closing(connect([])) as connection:
        create_methods(connection, own)
        for table in tables.values():
            connection.from_arrow(table.empty()).create(table.name)
        begin_views([made for made in needed(between, given) if made not in given], connection)
        methods = known_calibrations(own)
        for name, sql in own.items():
            try:
                connection.sql(f"select {calibration_columns(methods[name].gives)} from (\n{sql}\n)")
            except duckdb.Error as error:
                text = " ".join(str(error).split())
                problems.append(f"analysis.sql: calibrations/{name}.sql: {text}; mend the query")
    return problems


def refuse_own_sql(spec: RunSpec) -> None:
    """Make sure that the SQL that a spec brings can be run; Raises InputError: the message lists what is wrong."""
    if problems := own_sql_problems(spec.kind, spec.own_calibrations):
        raise InputError.of(problems)
