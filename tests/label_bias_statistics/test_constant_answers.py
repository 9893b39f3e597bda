"""Every setting beside the best constant answer, and which methods are remedies."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats  # type: ignore[import-untyped]

from biaseval.analysis.gates import PRESETS
from biaseval.analysis.sql_files import connect, create, relations
from tests.label_bias_statistics.answers import METRICS, Analysed, Answers, right_with, rows

REMEDIES = "label_bias_remedies"
PAIR = ("model", "n_demos", "method", "against_n_demos", "against_method")


def graded(**words: Any) -> dict[str, Any]:
    """Return a row of ``label_bias_remedies``, of words for tasks like these and the lower bound of accuracy."""
    given = {**dict.fromkeys(METRICS[:4], "unclear"), "low": -0.02, "majority": 0.4, "detectable": 0.1} | words
    place = {"model": "m", "suite": "all", "n_demos": 0}
    pair = {**place, "method": "cc", "against_n_demos": 0, "against_method": "none", "unit": "tasks", "n_units": 30}
    same_tasks = {"same_tasks_verdict": "unclear", "same_tasks_simultaneous_low": -0.5, "word_p_adjusted": 0.01}
    same_tasks |= {"same_tasks_word_p_adjusted": given.get("p_of_these")}
    bounds = {"simultaneous_low": given["low"], "smallest_detectable": given["detectable"], "least_effect": 0.01}
    tests = [{**pair, **same_tasks, **bounds, "metric": name, "verdict": given.get(name)} for name in METRICS]
    majority = {"majority_accuracy": given["majority"], "majority_macro_f1": 0.3, "n_tasks_constant": 0, "n_tasks": 30}
    above = {"is_below_majority": given["majority"] > 0.5, "is_above_constant": given.get("is_above", True)}
    means = [
        {**place, "method": method, **dict.fromkeys(METRICS, 0.5), **majority, **above} for method in ("none", "cc")
    ]
    made = {
        "label_bias_verdicts": tests, "label_bias_by_model": means,
        "label_bias_pairs": [{name: pair[name] for name in PAIR} | {"against_format": "base"}],
        "format_draws": [{**row, "format": "base", "draw": 0} for row in means],
        "prompts": [{"purpose": "cc", "n_demos": 0, "format": "base", "context_id": "c"}],
        "adapted_contexts": [{"context_id": "c", "adaptation": "none"}],
        "calibration_variants": [{"purpose": "cc", "method": "cc"}],
    }  # fmt: skip
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


@pytest.mark.parametrize(("p_of_these", "shown"), [(0.5, "not shown"), (math.nan, RISES)])
def test_verdicts_are_those_for_tasks_like_these_where_no_bias_of_these_can_be_tested(
    p_of_these: float, shown: str
) -> None:
    p = None if math.isnan(p_of_these) else p_of_these
    row = graded(rsd="lower", accuracy="higher", p_of_these=p)
    assert (row["same_tasks_advice"], row["advice"], row["shown_advice"]) == ("not shown", RISES, shown)
    assert row["is_of_these_tasks"] == (p is not None)


@pytest.mark.parametrize(("words", "evidence", "falls_in", "is_supported"), [
    ({"rsd": "lower", "accuracy": "higher"}, RISES, "rsd", True),
    ({"rsd": "lower", "low": -0.009}, NO_LOSS, "rsd", True), ({"rsd": "lower", "low": 0.0}, OPEN, "rsd", False),
    ({"rsd": "lower", "low": 0.0, "accuracy": "negligible"}, NO_LOSS, "rsd", True),
    ({"rsd": "lower", "low": -0.011}, OPEN, "rsd", False), ({"rsd": "lower", "low": None}, OPEN, "rsd", False),
    ({"bias_score": "lower", "low": 0.001}, NO_LOSS, "bias_score", True),
    ({"bias_score": "lower", "rsd": "lower", "low": 0.001}, NO_LOSS, BOTH, True),
    ({"rsd": "lower", "accuracy": "lower"}, FALLS, "rsd", False),
    ({"rsd": "lower", "macro_f1": "lower", "low": 0.0}, FALLS, "rsd", False),
    ({"rsd": "lower", "bias_score": "higher", "accuracy": "higher"}, "mixed", None, False),
    ({"rsd": "higher", "accuracy": "higher"}, "bias rises", None, False),
    ({"accuracy": "higher"}, "not shown", None, False), (dict.fromkeys(METRICS[:4]), "not shown", None, False),
    ({"rsd": "lower", "low": 0.001, "majority": 0.6}, NO_LOSS, "rsd", True),
    ({"rsd": "lower", "low": 0.001, "is_above": False}, NO_LOSS, "rsd", False),
])  # fmt: skip
def test_a_remedy_is_supported_where_bias_falls_and_a_loss_is_ruled_out(
    words: dict[str, Any], evidence: str, falls_in: str | None, is_supported: bool
) -> None:
    row = graded(**words)
    assert (row["evidence"], row["bias_falls_in"], row["is_supported"]) == (evidence, falls_in, is_supported)
    same_tasks = ("same_tasks_evidence", "accuracy_same_tasks_evidence", "is_supported_on_these_tasks")
    assert [row[name] for name in same_tasks] == ["not shown", "loss not ruled out", False]


LOWER = {"rsd": "lower", "low": 0.001}
NO_USE = "do not use: bias rises or performance falls"


@pytest.mark.parametrize(("words", "advice"), [
    # Praise needs answers that are better than one label.
    ({**LOWER, "is_above": False}, "bias falls, no better than a constant answer"),
    ({**LOWER, "is_above": None}, "bias falls, not shown to be better than a constant answer"),
    ({**LOWER, "is_above": True}, NO_LOSS),
    # Accuracy below the majority class is the price of answers that are not always the same.
    ({**LOWER, "majority": 0.6}, NO_LOSS), ({**LOWER, "accuracy": "lower"}, FALLS),
    # "Do not use" stands only where nothing is gained.
    ({"rsd": "higher"}, NO_USE), ({"accuracy": "lower"}, NO_USE),
    ({"rsd": "higher", "macro_f1": "higher"}, "bias rises"), ({"accuracy": "lower", "macro_f1": "higher"}, "not shown"),
])  # fmt: skip
def test_advice_goes_by_what_is_gained_and_lost(words: dict[str, Any], advice: str) -> None:
    row = graded(**words)
    assert (row["advice"], row["is_supported"]) == (advice, advice == NO_LOSS)


@pytest.mark.parametrize(("detectable", "needed"), [(0.1, 120), (0.051, 32), (0.005, 6), (0.0, None)])
def test_the_units_that_a_test_needs_grow_with_the_square_and_are_at_least_six(
    detectable: float, needed: int | None
) -> None:
    """Of 30 tasks: 30 (smallest_detectable / 0.05)^2, rounded up."""
    assert graded(detectable=detectable)["rsd_n_needed"] == needed


SKEWED = ["a"] * 68 + ["b"] * 22 + ["c"] * 10
"""Gold labels as support tickets have them."""


def _answers(gold: Sequence[str], predicted: Sequence[str], labels: str = "abc", **setting: Any) -> list[Answers]:
    """Return what a model answers, and rows of BiasScore without a preference."""
    bias_gold = list(labels) * 6
    even = 1 / len(labels) + 0.01 * np.tile(np.eye(len(labels)), (6, 1))
    even /= even.sum(axis=1, keepdims=True)
    return [
        Answers("t", labels, list(gold), right_with(predicted, labels), **setting),
        Answers("t", labels, bias_gold, even, purpose="bias_score", **setting),
    ]


def _by_model(answers: Sequence[Answers]) -> dict[str, Any]:
    [row] = rows(Analysed(answers), "from label_bias_by_model where method = 'none'")
    return row


def test_accuracy_is_tested_as_mcnemar_does_with_edwards_correction() -> None:
    """Of 12 a and 8 b the model is right on 10 a and 7 b: it wins 7 rows against a constant a, and loses 2."""
    gold, predicted = ["a"] * 12 + ["b"] * 8, ["a"] * 10 + ["b"] * 9 + ["a"]
    [row] = rows(
        Analysed(_answers(gold, predicted, "ab")),
        "select difference, square, largest, normal_p((difference - largest) / sqrt(square)) / 2 as p "
        "from label_bias_constant_differences where metric = 'accuracy' and demo_set is null",
    )
    p = stats.norm.sf((7 - 2 - 1) / math.sqrt(7 + 2))
    assert [*row.values()] == pytest.approx([5 / 20, 9 / 400, 1 / 20, p], rel=1e-6)


def test_macro_f1_of_the_constant_answer_and_its_rows_are_those_of_a_jackknife() -> None:
    """The differences of the rows add up to that of the metric, and each is what leaving the row out changes, about."""
    rng = np.random.default_rng(0)
    gold = [str(label) for label in rng.choice(list("abc"), 600, p=[0.6, 0.25, 0.15])]
    predicted = [label if rng.random() < 0.6 else str(rng.choice(list("abc"))) for label in gold]
    connection = Analysed(_answers(gold, predicted))
    [row] = rows(connection, "from label_bias_constant_differences where metric = 'macro_f1' and demo_set is null")
    [task] = rows(connection, "from label_bias_by_task")
    assert row["difference"] == pytest.approx(task["macro_f1"] - task["majority_macro_f1"])

    def difference(kept: Sequence[int]) -> float:
        own, answers = np.array(gold)[kept], np.array(predicted)[kept]
        f1 = [2 * ((own == x) & (answers == x)).sum() / ((own == x).sum() + (answers == x).sum()) for x in "abc"]
        share = (own == "a").mean()
        return float(np.mean(f1) - 2 * share / (1 + share) / 3)

    every = list(range(600))
    left_out = [difference(every[:i] + every[i + 1 :]) for i in every]
    values = 600 * difference(every) - 599 * np.array(left_out)
    assert row["square"] == pytest.approx((values**2).sum() / 600**2, rel=0.02)


@pytest.mark.parametrize("counts", [(131, 49, 20), (100, 61, 39), (57, 30, 13), (3000, 61, 7)])
def test_rounding_is_no_difference_from_a_constant_answer(counts: Sequence[int]) -> None:
    """Sums over rows of what is 0 each leave about 1e-16, far above what each row leaves."""
    gold = [label for label, n in zip("abc", counts, strict=True) for _ in range(n)]
    row = _by_model(_answers(gold, ["a"] * len(gold)))
    assert (row["is_above_constant"], row["constant_p"]) == (False, 1)


@pytest.mark.parametrize(("predicted", "share"), [
    *((label * 100, 1.0) for label in "abc"),
    ("b" + "c" * 69 + "b" * 5 + "c" * 25, 0.94),  # below 95 %, of which few are right: there is no cliff
])  # fmt: skip
def test_a_constant_answer_is_never_better_nor_one_that_is_nearly_constant(predicted: str, share: float) -> None:
    row = _by_model(_answers(SKEWED, list(predicted)))
    assert row["is_above_constant"] is False
    assert (row["n_tasks_not_above"], row["n_demo_sets_not_above"], row["share_most_frequent"]) == (1, 1, share)


def test_sets_that_each_repeat_a_label_of_their_own_are_seen() -> None:
    """Over both sets b and c are half of the answers each; in each set one of them is all."""
    first, second = (_answers(SKEWED, [label] * 100, n_demos=4, demo_set=place) for place, label in enumerate("bc"))
    connection = Analysed([*first, *second])
    [task] = rows(connection, "from label_bias_by_task_over_sets")
    assert (task["share_most_frequent"], task["is_constant"]) == (1.0, True)
    assert (task["n_demo_sets_not_above"], task["is_above_constant"]) == (2, False)
    assert [row["is_above_constant"] for row in rows(connection, "from label_bias_by_task")] == [False, False]


def test_better_in_macro_f1_alone_is_better() -> None:
    """Right on most of each label, and less often than the majority class is: accuracy .6, macro-F1 well above .27."""
    predicted = ["a"] * 36 + ["b"] * 16 + ["c"] * 16 + ["b"] * 16 + ["c"] * 6 + ["c"] * 8 + ["b"] * 2
    row = _by_model(_answers(SKEWED, predicted))
    assert row["accuracy"] < row["majority_accuracy"]
    assert row["macro_f1"] > row["majority_macro_f1"]
    assert row["is_above_constant"] is True


def test_few_rows_and_a_lucky_hit_on_a_rare_label_show_nothing() -> None:
    """One row of a label of one row, right: macro-F1 jumps by a third, and is not tested with so few rows."""
    assert _by_model(_answers(list("aaabbb"), list("aaabba"), "ab"))["is_above_constant"] is None
    row = _by_model(_answers(["a"] * 60 + ["b"] * 39 + ["c"], ["a"] * 99 + ["c"]))
    assert row["macro_f1"] > row["majority_macro_f1"] + 0.3
    assert row["is_above_constant"] is None


def _gate(connection: Any, preset: str) -> bool:
    condition, selection, _ = PRESETS["label_bias"][preset]
    [row] = rows(connection, f"select bool_and({condition}) as holds from label_bias_by_model where {selection}")
    return bool(row["holds"])


def test_constant_answers_fall_through_the_ready_made_gates() -> None:
    for predicted, passes in (*((label * 100, False) for label in "abc"), (SKEWED, True)):
        made = Analysed(_answers(SKEWED, list(predicted)))
        assert [_gate(made, gate) for gate in ("better-than-constant", "unbiased")] == [passes, passes]
