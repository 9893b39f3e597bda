"""Compute `qa_bias_by_heuristic` of one model: the threshold that splits questions, and the better answered segment.

This query runs before a run's metrics exist, because the training depends on its result (P3 sections 4 and 5).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from biaseval.analysis.qa_draws import models_rows, settings_rows, thresholds_to_try
from biaseval.analysis.sql_files import create_views, relations, rows, session
from biaseval.qa_bias.splits.significance import segment_draws
from biaseval.spec import QaBiasSpec
from biaseval.tables import QA_ATTRIBUTES, QA_DRAWS, QA_EXAMPLES, QA_MODELS, QA_PREDICTIONS, QA_SETTINGS, QA_THRESHOLDS


def judged(
    spec: QaBiasSpec,
    fixed: Mapping[str, float],
    *,
    heuristics: Sequence[str],
    examples: pa.Table,
    attributes: pa.Table,
    predictions: pa.Table,
) -> list[dict[str, Any]]:
    """Return the rows of ``qa_bias_by_heuristic`` for the predictions of one model.

    Args:
        spec: the spec; the query uses its seed, bootstrap and variant.
        fixed: thresholds by heuristic; other heuristics' thresholds are searched.
        heuristics: the heuristics to judge.
        examples: rows of ``qa_examples``, of one data set.
        attributes: attributes of these questions, as in ``qa_attributes``.
        predictions: the model's predictions, as in ``qa_predictions``.

    Raises:
        InputError: a heuristic of the user has too many thresholds to try.
    """
    [model] = predictions["model"].unique().to_pylist()
    tables = {
        QA_EXAMPLES.name: examples,
        QA_ATTRIBUTES.name: attributes.select(QA_ATTRIBUTES.schema.names),
        QA_PREDICTIONS.name: predictions,
        QA_SETTINGS.name: settings_rows(spec, heuristics),
        QA_MODELS.name: models_rows((), [model]),
    }
    with session([]) as connection:
        for name, content in tables.items():
            connection.from_arrow(content).create(name)
        create_views(relations("intermediate", tables=tables), connection)
        thresholds = thresholds_to_try(spec.variant, fixed, connection)
        measured = rows("from qa_measured order by dataset, heuristic, row, example_id", connection)
        draws = segment_draws(model, measured, thresholds, seed=spec.seed, **spec.bootstrap.model_dump())
        derived = {QA_THRESHOLDS.name: thresholds, QA_DRAWS.name: draws}
        for name, content in derived.items():
            connection.from_arrow(content).create(name)
        there = [*tables, *derived]
        needed = ("qa_bias_candidates", "qa_bias_by_heuristic")
        create_views([mart for mart in relations("marts", tables=there) if mart.name in needed], connection)
        found: list[dict[str, Any]] = rows("from qa_bias_by_heuristic", connection).to_pylist()
        return found
