"""Derive the SQL's further inputs for QA-bias runs: thresholds to try, samples, and facts of the spec."""

from collections.abc import Mapping, Sequence

import duckdb
import pyarrow as pa

from biaseval.analysis.sql_files import literal, opened, rows
from biaseval.qa_bias.heuristics.built_in import Variant
from biaseval.qa_bias.splits.significance import given_thresholds, segment_draws, threshold_grid
from biaseval.spec import QaBiasSpec, QaModelSpec
from biaseval.store import Run
from biaseval.tables import QA_ATTRIBUTES, QA_DRAWS, QA_EXAMPLES, QA_MODELS, QA_PREDICTIONS, QA_SETTINGS, QA_THRESHOLDS

_MEASUREMENTS = {table.name: table for table in (QA_EXAMPLES, QA_ATTRIBUTES, QA_PREDICTIONS)}


def derive_qa_bias(run: Run, spec: QaBiasSpec, trained: Sequence[str] = ()) -> None:
    """Write ``qa_settings``, ``qa_models``, ``qa_thresholds`` and, by model, ``qa_draws`` of an answered QA-bias run.

    ``trained`` has the names of the readers that it trained and measured, in order.

    Raises:
        InputError: a heuristic of the user has too many thresholds to try.
        BiasevalError: a file cannot be read.
    """
    run.write_part(QA_SETTINGS.name, 0, settings_rows(spec, spec.heuristics))
    run.write_part(QA_MODELS.name, 0, models_rows(spec.models, trained))
    with opened(run, _MEASUREMENTS) as connection:
        thresholds = thresholds_to_try(spec.variant, given_thresholds(spec.thresholds), connection)
        run.write_part(QA_THRESHOLDS.name, 0, thresholds)
        for number, model in enumerate([*(model.name for model in spec.models), *trained]):
            measured = rows(
                "select dataset, heuristic, value, exact_match, f1 from qa_measured "
                f"where model = {literal(model)} order by dataset, heuristic, row, example_id",
                connection,
            )
            draws = segment_draws(model, measured, thresholds, seed=spec.seed, **spec.bootstrap.model_dump())
            run.write_part(QA_DRAWS.name, number, draws)


def settings_rows(spec: QaBiasSpec, heuristics: Sequence[str]) -> pa.Table:
    """Return the facts of a spec that the metrics of these heuristics need, in the form of ``qa_settings``."""
    settings = {"seed": spec.seed, "variant": spec.variant, "heuristics": list(heuristics)}
    return QA_SETTINGS.rows([{**settings, **spec.bootstrap.model_dump()}])


def models_rows(models: Sequence[QaModelSpec], trained: Sequence[str]) -> pa.Table:
    """Return the models of a spec and the readers that the run trained, in the form of ``qa_models``."""
    rows: list[dict[str, object]] = [
        {
            "model": model.name,
            "on_missing": "drop" if model.drops_questions else "error",
            "datasets": None if model.predictions is None else sorted(model.predictions),
            "is_trained": False,
            "is_people": model.annotators,
        }
        for model in models
    ]
    reader = {"on_missing": "error", "datasets": None, "is_trained": True, "is_people": False}
    rows += [{"model": name, **reader} for name in trained]
    return QA_MODELS.rows([{"number": number, **row} for number, row in enumerate(rows)])


def thresholds_to_try(
    variant: Variant, given: Mapping[str, float | Sequence[float]], connection: duckdb.DuckDBPyConnection
) -> pa.Table:
    """Return the thresholds to try for each data set and heuristic of ``qa_attributes``, as ``qa_thresholds``.

    ``given`` has a heuristic's only threshold or its candidates; other heuristics get all candidates of the variant's
    rule.

    Raises:
        InputError: a heuristic of the user has too many thresholds.
    """
    # P3's code uses the range of all values, with -1 for undefined ones.
    taken = "isfinite(value)" if variant == "reference" else "is_measured and isfinite(value)"
    ranges = rows(
        f"select dataset, heuristic, min(value) filter ({taken}) as lowest, max(value) filter ({taken}) as highest "
        "from qa_attributes group by all order by all",
        connection,
    )
    found: list[dict[str, object]] = []
    for span in ranges.to_pylist():
        dataset, heuristic, lowest, highest = span.values()
        grid: Sequence[float] = []
        own = given.get(heuristic)
        if isinstance(own, float | int):
            grid = [own]
        elif own is not None:
            grid = sorted(set(own))
        elif lowest is not None:
            grid = threshold_grid(heuristic, lowest, highest, variant=variant)
        place = {"dataset": dataset, "heuristic": heuristic, "is_fixed": isinstance(own, float | int)}
        found += [{**place, "threshold": threshold} for threshold in grid]
    return QA_THRESHOLDS.rows(found)
