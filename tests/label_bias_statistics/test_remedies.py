"""Which methods are said to be remedies, by their words."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from biaseval.analysis.sql_files import connect, create, relations
from tests.label_bias_statistics.answers import METRICS, rows

REMEDIES = "label_bias_remedies"


def graded(**words: Any) -> dict[str, Any]:
    """Return a row of ``label_bias_remedies``, of words for tasks like these and the lower bound of accuracy."""
    given = {
        "rsd": "unclear",
        "bias_score": "unclear",
        "accuracy": "unclear",
        "macro_f1": "unclear",
        "low": -0.02,
    } | words
    place = {"model": "m", "suite": "all", "n_demos": 0}
    tests = [
        {
            **place,
            "method": "cc",
            "against_n_demos": 0,
            "against_method": "none",
            "metric": metric,
            "verdict": given.get(metric),
            "same_tasks_verdict": "unclear",
            "simultaneous_low": given["low"],
            "same_tasks_simultaneous_low": -0.5,
            "least_effect": 0.01,
            "unit": "tasks",
            "n_units": 30,
            "smallest_detectable": 0.1,
        }
        for metric in METRICS
    ]
    means = [
        {
            **place,
            "method": method,
            **dict.fromkeys(METRICS, 0.5),
            "majority_accuracy": given.get("majority", 0.4),
            "majority_macro_f1": 0.3,
            "is_below_majority": given.get("majority", 0.4) > 0.5,
            "is_above_constant": given.get("is_above", True),
            "n_tasks_constant": 0,
            "n_tasks": 30,
        }
        for method in ("none", "cc")
    ]
    made = {
        "label_bias_verdicts": tests,
        "label_bias_by_model": means,
        "prompts": [{"purpose": "cc", "n_demos": 0, "format": "base"}],
        "calibration_variants": [{"purpose": "cc", "method": "cc"}],
        "run_settings": [{"adaptations": ["none"]}],
    }
    connection = connect([])
    for name, table in made.items():
        connection.from_arrow(pa.Table.from_pylist(table)).create(name)
    [remedies] = [relation for relation in relations("marts", tables=made) if relation.name == REMEDIES]
    create("table", REMEDIES, remedies.sql, connection)
    [row] = rows(connection, f"from {REMEDIES}")
    return row


@pytest.mark.parametrize(
    ("words", "evidence", "falls_in", "is_supported"),
    [
        ({"rsd": "lower", "accuracy": "higher"}, "bias falls, accuracy rises", "rsd", True),
        ({"rsd": "lower", "low": -0.009}, "bias falls, no loss", "rsd", True),
        ({"rsd": "lower", "low": 0.0}, "bias falls, loss not ruled out", "rsd", False),
        ({"rsd": "lower", "low": 0.0, "accuracy": "negligible"}, "bias falls, no loss", "rsd", True),
        ({"rsd": "lower", "low": -0.011}, "bias falls, loss not ruled out", "rsd", False),
        ({"rsd": "lower", "low": None}, "bias falls, loss not ruled out", "rsd", False),
        ({"bias_score": "lower", "low": 0.001}, "bias falls, no loss", "bias_score", True),
        ({"bias_score": "lower", "rsd": "lower", "low": 0.001}, "bias falls, no loss", "rsd and bias_score", True),
        ({"rsd": "lower", "accuracy": "lower"}, "bias falls, accuracy falls", "rsd", False),
        ({"rsd": "lower", "macro_f1": "lower", "low": 0.0}, "bias falls, accuracy falls", "rsd", False),
        ({"rsd": "lower", "bias_score": "higher", "accuracy": "higher"}, "mixed", None, False),
        ({"rsd": "higher", "accuracy": "higher"}, "bias rises", None, False),
        ({"accuracy": "higher"}, "not shown", None, False),
        ({"rsd": None, "bias_score": None, "accuracy": None, "macro_f1": None}, "not shown", None, False),
        ({"rsd": "lower", "low": 0.001, "majority": 0.6}, "bias falls, no loss", "rsd", True),
        ({"rsd": "lower", "low": 0.001, "is_above": False}, "bias falls, no loss", "rsd", False),
    ],
)
def test_a_remedy_is_supported_where_bias_falls_and_a_loss_is_ruled_out(
    words: dict[str, Any], evidence: str, falls_in: str | None, is_supported: bool
) -> None:
    row = graded(**words)
    assert (row["evidence"], row["bias_falls_in"], row["is_supported"]) == (evidence, falls_in, is_supported)
    assert row["same_tasks_evidence"] == "not shown"
    assert row["accuracy_same_tasks_evidence"] == "loss not ruled out"
    assert row["is_supported_on_these_tasks"] is False


NO_BETTER = "bias falls, no better than a constant answer"
NOT_SHOWN = "bias falls, not shown to be better than a constant answer"


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ({"is_above": False}, NO_BETTER),
        ({"is_above": None}, NOT_SHOWN),
        ({"is_above": True}, "bias falls, no loss"),
        # Accuracy below the majority class is the price of answers that are not always the same.
        ({"majority": 0.6}, "bias falls, no loss"),
        ({"accuracy": "lower"}, "bias falls, accuracy falls"),
    ],
)
def test_praise_needs_answers_that_are_better_than_one_label(words: dict[str, Any], advice: str) -> None:
    row = graded(rsd="lower", low=0.001, **words)
    assert (row["advice"], row["is_supported"]) == (advice, advice == "bias falls, no loss")


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ({"rsd": "higher"}, "do not use: bias rises or performance falls"),
        ({"accuracy": "lower"}, "do not use: bias rises or performance falls"),
        ({"rsd": "higher", "macro_f1": "higher"}, "bias rises"),
        ({"accuracy": "lower", "macro_f1": "higher"}, "not shown"),
    ],
)
def test_do_not_use_stands_only_where_nothing_is_gained(words: dict[str, Any], advice: str) -> None:
    assert graded(**words)["advice"] == advice
