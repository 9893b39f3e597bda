"""The schema, grain and key of every table of a run. Columns may be added, never renamed.

What columns mean stands in ``analytics/columns``.
"""

from __future__ import annotations

from collections.abc import Collection

from biaseval.tables.causal import (
    ADAPTED_GENERATIONS,
    ADAPTED_SCORES,
    BOOTSTRAP_DRAWS,
    CONTEXTS,
    GENERATIONS,
    LABEL_SCORES,
    PROMPTS,
    ROW_DRAWS,
    RUN_SETTINGS,
    SETTING_PERMUTATIONS,
    SETTINGS,
    SIGN_FLIPS,
    SPLITS,
    TASKS,
)
from biaseval.tables.qa import (
    QA_ATTRIBUTES,
    QA_BIAS_DRAWS,
    QA_CHANGE_DRAWS,
    QA_DRAWS,
    QA_EXAMPLES,
    QA_FEATURES,
    QA_GUIDE_LOGITS,
    QA_MODELS,
    QA_PREDICTIONS,
    QA_SEARCH_NULLS,
    QA_SEGMENTS,
    QA_SETTINGS,
    QA_TFIDF,
    QA_THRESHOLDS,
    QA_TRAINING_ATTRIBUTES,
    QA_TRAINING_EXAMPLES,
    QA_VALIDATION_PREDICTIONS,
)
from biaseval.tables.schema import TableSchema
from biaseval.tables.search import SEARCH_SETTINGS, TRIAL_EVALUATIONS, TRIAL_VALUES, TRIALS
from biaseval.tables.training import CONVERSATIONS, EVALUATIONS, TRAINED_MODELS, TRAINING, TRAINING_ROWS

__all__ = [
    "ADAPTED",
    "ADAPTED_GENERATIONS",
    "ADAPTED_SCORES",
    "BOOTSTRAP_DRAWS",
    "CONTEXTS",
    "CONVERSATIONS",
    "EVALUATIONS",
    "GENERATIONS",
    "LABEL_SCORES",
    "PLANNED",
    "PROMPTS",
    "QA_ATTRIBUTES",
    "QA_BIAS_DRAWS",
    "QA_CHANGE_DRAWS",
    "QA_DRAWS",
    "QA_EXAMPLES",
    "QA_FEATURES",
    "QA_GUIDE_LOGITS",
    "QA_MODELS",
    "QA_PREDICTIONS",
    "QA_SEARCH_NULLS",
    "QA_SEGMENTS",
    "QA_SETTINGS",
    "QA_TFIDF",
    "QA_THRESHOLDS",
    "QA_TRAINING_ATTRIBUTES",
    "QA_TRAINING_EXAMPLES",
    "QA_VALIDATION_PREDICTIONS",
    "ROW_DRAWS",
    "RUN_SETTINGS",
    "SEARCH_SETTINGS",
    "SETTINGS",
    "SETTING_PERMUTATIONS",
    "SIGN_FLIPS",
    "SPLITS",
    "TABLES",
    "TASKS",
    "TRAINED_MODELS",
    "TRAINING",
    "TRAINING_ROWS",
    "TRIALS",
    "TRIAL_EVALUATIONS",
    "TRIAL_VALUES",
    "TableSchema",
    "output_tables",
    "run_outputs",
    "tables_of",
]

TABLES: dict[str, TableSchema] = {
    table.name: table
    for table in (
        TASKS,
        SPLITS,
        SETTINGS,
        CONTEXTS,
        PROMPTS,
        LABEL_SCORES,
        GENERATIONS,
        ADAPTED_SCORES,
        ADAPTED_GENERATIONS,
        TRAINING_ROWS,
        TRAINING,
        TRAINED_MODELS,
        EVALUATIONS,
        CONVERSATIONS,
        BOOTSTRAP_DRAWS,
        ROW_DRAWS,
        SETTING_PERMUTATIONS,
        SIGN_FLIPS,
        RUN_SETTINGS,
        QA_EXAMPLES,
        QA_TFIDF,
        QA_ATTRIBUTES,
        QA_PREDICTIONS,
        QA_SETTINGS,
        QA_MODELS,
        QA_THRESHOLDS,
        QA_DRAWS,
        QA_SEARCH_NULLS,
        QA_BIAS_DRAWS,
        QA_TRAINING_EXAMPLES,
        QA_TRAINING_ATTRIBUTES,
        QA_VALIDATION_PREDICTIONS,
        QA_SEGMENTS,
        QA_FEATURES,
        QA_GUIDE_LOGITS,
        QA_CHANGE_DRAWS,
        TRIALS,
        TRIAL_VALUES,
        TRIAL_EVALUATIONS,
        SEARCH_SETTINGS,
    )
}
"""Every table that a run may have, by name."""


PLANNED = tuple(
    table.name
    for table in (
        *(TASKS, SPLITS, SETTINGS, CONTEXTS, PROMPTS, TRAINING_ROWS),
        *(CONVERSATIONS, QA_EXAMPLES, QA_TFIDF, QA_TRAINING_EXAMPLES),
    )
)
"""The tables that planning writes."""


ADAPTED = {"label_scores": "adapted_scores", "generations": "adapted_generations"}
"""Tables of a model's outputs to those of the same model with adapters."""


def tables_of(kind: str) -> dict[str, TableSchema]:
    """Return the tables that runs of a kind have; none for a kind that there is not."""
    return {name: table for name, table in TABLES.items() if kind in table.kinds}


def output_tables(predict: Collection[str]) -> tuple[str, ...]:
    """Return the tables that a model's outputs fill, each with a part for each part of ``prompts``.

    Args:
        predict: the ways of predicting: ``likelihood``, ``generate``, ``constrained`` (which is read from scores).
    """
    asked = {
        "label_scores": {"likelihood", "constrained"},
        "generations": {"generate", "constrained"},
    }
    return tuple(table for table, ways in asked.items() if ways.intersection(predict))


def run_outputs(predict: Collection[str], *, has_adapters: bool) -> tuple[str, ...]:
    """Return the tables of `output_tables`, and with adapters those of `ADAPTED` too."""
    tables = output_tables(predict)
    return (*tables, *(ADAPTED[table] for table in tables)) if has_adapters else tables
