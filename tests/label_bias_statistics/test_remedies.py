"""Which methods are said to be remedies, by their words."""

from typing import Any

import pyarrow as pa
import pytest

from biaseval.analysis.sql_files import connect, create, relations
from tests.label_bias_statistics.answers import METRICS, rows

REMEDIES = "label_bias_remedies"


def graded(**words: Any) -> dict[str, Any]:
    """Return a row of ``label_bias_remedies``, of words for tasks like these and the lower bound of accuracy."""
    given = {**dict.fromkeys(METRICS[:4], "unclear"), "low": -0.02, "majority": 0.4, "detectable": 0.1} | words
    place = {"model": "m", "suite": "all", "n_demos": 0}
    pair = {**place, "method": "cc", "against_n_demos": 0, "against_method": "none", "unit": "tasks", "n_units": 30}
    same_tasks = {"same_tasks_verdict": "unclear", "same_tasks_simultaneous_low": -0.5}
    bounds = {"simultaneous_low": given["low"], "smallest_detectable": given["detectable"], "least_effect": 0.01}
    tests = [{**pair, **same_tasks, **bounds, "metric": name, "verdict": given.get(name)} for name in METRICS]
    majority = {"majority_accuracy": given["majority"], "majority_macro_f1": 0.3, "n_tasks_constant": 0, "n_tasks": 30}
    above = {"is_below_majority": given["majority"] > 0.5, "is_above_constant": given.get("is_above", True)}
    means = [
        {**place, "method": method, **dict.fromkeys(METRICS, 0.5), **majority, **above} for method in ("none", "cc")
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


RISES, NO_LOSS, FALLS = "bias falls, accuracy rises", "bias falls, no loss", "bias falls, accuracy falls"
OPEN = "bias falls, loss not ruled out"
BOTH = "rsd and bias_score"


@pytest.mark.parametrize(
    ("words", "evidence", "falls_in", "is_supported"),
    [
        ({"rsd": "lower", "accuracy": "higher"}, RISES, "rsd", True),
        ({"rsd": "lower", "low": -0.009}, NO_LOSS, "rsd", True),
        ({"rsd": "lower", "low": 0.0}, OPEN, "rsd", False),
        ({"rsd": "lower", "low": 0.0, "accuracy": "negligible"}, NO_LOSS, "rsd", True),
        ({"rsd": "lower", "low": -0.011}, OPEN, "rsd", False),
        ({"rsd": "lower", "low": None}, OPEN, "rsd", False),
        ({"bias_score": "lower", "low": 0.001}, NO_LOSS, "bias_score", True),
        ({"bias_score": "lower", "rsd": "lower", "low": 0.001}, NO_LOSS, BOTH, True),
        ({"rsd": "lower", "accuracy": "lower"}, FALLS, "rsd", False),
        ({"rsd": "lower", "macro_f1": "lower", "low": 0.0}, FALLS, "rsd", False),
        ({"rsd": "lower", "bias_score": "higher", "accuracy": "higher"}, "mixed", None, False),
        ({"rsd": "higher", "accuracy": "higher"}, "bias rises", None, False),
        ({"accuracy": "higher"}, "not shown", None, False),
        (dict.fromkeys(METRICS[:4]), "not shown", None, False),
        ({"rsd": "lower", "low": 0.001, "majority": 0.6}, NO_LOSS, "rsd", True),
        ({"rsd": "lower", "low": 0.001, "is_above": False}, NO_LOSS, "rsd", False),
    ],
)
def test_a_remedy_is_supported_where_bias_falls_and_a_loss_is_ruled_out(
    words: dict[str, Any], evidence: str, falls_in: str | None, is_supported: bool
) -> None:
    row = graded(**words)
    assert (row["evidence"], row["bias_falls_in"], row["is_supported"]) == (evidence, falls_in, is_supported)
    same_tasks = ("same_tasks_evidence", "accuracy_same_tasks_evidence", "is_supported_on_these_tasks")
    assert [row[name] for name in same_tasks] == ["not shown", "loss not ruled out", False]


LOWER = {"rsd": "lower", "low": 0.001}
NO_USE = "do not use: bias rises or performance falls"


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        # Praise needs answers that are better than one label.
        ({**LOWER, "is_above": False}, "bias falls, no better than a constant answer"),
        ({**LOWER, "is_above": None}, "bias falls, not shown to be better than a constant answer"),
        ({**LOWER, "is_above": True}, NO_LOSS),
        # Accuracy below the majority class is the price of answers that are not always the same.
        ({**LOWER, "majority": 0.6}, NO_LOSS),
        ({**LOWER, "accuracy": "lower"}, FALLS),
        # "Do not use" stands only where nothing is gained.
        ({"rsd": "higher"}, NO_USE),
        ({"accuracy": "lower"}, NO_USE),
        ({"rsd": "higher", "macro_f1": "higher"}, "bias rises"),
        ({"accuracy": "lower", "macro_f1": "higher"}, "not shown"),
    ],
)
def test_advice_goes_by_what_is_gained_and_lost(words: dict[str, Any], advice: str) -> None:
    row = graded(**words)
    assert (row["advice"], row["is_supported"]) == (advice, advice == NO_LOSS)


@pytest.mark.parametrize(("detectable", "needed"), [(0.1, 120), (0.051, 32), (0.005, 6), (0.0, None)])
def test_the_units_that_a_test_needs_grow_with_the_square_and_are_at_least_six(
    detectable: float, needed: int | None
) -> None:
    """Of 30 tasks: 30 (smallest_detectable / 0.05)^2, rounded up."""
    assert graded(detectable=detectable)["rsd_n_needed"] == needed
