"""What QA-bias runs derive for SQL beside their measurements: thresholds to try, samples, and facts of the spec."""

from __future__ import annotations

from contextlib import closing

import duckdb
import pyarrow as pa

from biaseval.analysis.relations import connect, create_tables, create_views, literal, local_copy, relations, rows
from biaseval.qa_bias.significance import fixed_thresholds, segment_draws, threshold_grid
from biaseval.spec import QaBiasSpec
from biaseval.store import Run
from biaseval.tables import (
    QA_ATTRIBUTES,
    QA_DRAWS,
    QA_EXAMPLES,
    QA_MODELS,
    QA_PREDICTIONS,
    QA_SETTINGS,
    QA_THRESHOLDS,
)

_MEASUREMENTS = {table.name: table for table in (QA_EXAMPLES, QA_ATTRIBUTES, QA_PREDICTIONS)}


def derive_qa_bias(run: Run, spec: QaBiasSpec) -> None:
    """Write ``qa_settings``, ``qa_models``, ``qa_thresholds`` and, by model, ``qa_draws`` of an answered QA-bias run.

    Raises:
        InputError: a heuristic of the user's has too many thresholds to try.
        BiasevalError: a file cannot be read.
    """
    run.write_part(QA_SETTINGS.name, 0, _settings(spec))
    run.write_part(QA_MODELS.name, 0, _models(spec))
    with local_copy(run, _MEASUREMENTS) as source, closing(connect([source])) as connection:
        create_tables(source, _MEASUREMENTS.values(), connection)
        create_views(relations("intermediate", tables=_MEASUREMENTS), connection)
        thresholds = _thresholds(spec, connection)
        run.write_part(QA_THRESHOLDS.name, 0, thresholds)
        for number, model in enumerate(spec.models):
            measured = rows(
                "select dataset, heuristic, value, exact_match, f1 from qa_measured "
                f"where model = {literal(model.name)} order by dataset, heuristic, row, example_id",
                connection,
            )
            draws = segment_draws(
                model.name,
                measured,
                thresholds,
                seed=spec.seed,
                trials=spec.bootstrap.trials,
                sample=spec.bootstrap.sample,
                replacement=spec.bootstrap.replacement,
            )
            run.write_part(QA_DRAWS.name, number, draws)


def _settings(spec: QaBiasSpec) -> pa.Table:
    bootstrap = spec.bootstrap
    settings: dict[str, object] = {
        "seed": spec.seed,
        "variant": spec.variant,
        "heuristics": list(spec.heuristics),
        "trials": bootstrap.trials,
        "sample": bootstrap.sample,
        "replacement": bootstrap.replacement,
    }
    return QA_SETTINGS.rows([settings])


def _models(spec: QaBiasSpec) -> pa.Table:
    return QA_MODELS.rows(
        [
            {
                "number": number,
                "model": model.name,
                "on_missing": model.on_missing,
                "datasets": None if model.predictions is None else sorted(model.predictions),
            }
            for number, model in enumerate(spec.models)
        ]
    )


def _thresholds(spec: QaBiasSpec, connection: duckdb.DuckDBPyConnection) -> pa.Table:
    """Return the thresholds to try of each data set and heuristic; one that the spec fixes is the only one."""
    # P3's code takes the range of all values, with -1 for undefined ones.
    taken = "isfinite(value)" if spec.variant == "reference" else "is_measured and isfinite(value)"
    ranges = rows(
        f"select dataset, heuristic, min(value) filter ({taken}) as lowest, max(value) filter ({taken}) as highest "
        "from qa_attributes group by all order by all",
        connection,
    )
    fixed = fixed_thresholds(spec.thresholds)
    found: list[dict[str, object]] = []
    for span in ranges.to_pylist():
        dataset, heuristic, lowest, highest = span.values()
        grid: list[float] = []
        if heuristic in fixed:
            grid = [fixed[heuristic]]
        elif lowest is not None:
            grid = threshold_grid(heuristic, lowest, highest, variant=spec.variant)
        place = {"dataset": dataset, "heuristic": heuristic, "is_fixed": heuristic in fixed}
        found += [{**place, "threshold": threshold} for threshold in grid]
    return QA_THRESHOLDS.rows(found)
