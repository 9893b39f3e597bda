"""What rows move, and the errors of tasks and of differences that follow, against resampled rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from tests.label_bias_statistics.answers import (
    METRICS,
    OF_BIAS_SCORE_ROWS,
    Answers,
    analysed,
    one_task,
    right_with,
    rows,
    side,
)
from tests.label_bias_statistics.influences import METRIC, influences, resampled

# What a row moves


def test_influences_are_derivatives_in_the_weight_of_a_row() -> None:
    answers = one_task(60)
    assert all("d" in each.predicted and "d" not in each.gold for each in side(answers, "rsd"))
    connection = analysed(answers)
    for metric in METRICS:
        of_metric = f"select row, {metric} as x from row_influences where {metric} is not null order by row"
        found = rows(connection, of_metric)
        expected = influences(side(answers, metric), metric)
        if metric in OF_BIAS_SCORE_ROWS:  # of means within gold labels, whose error has one row less
            gold = side(answers, metric)[0].gold
            expected = expected * np.sqrt([gold.count(label) / (gold.count(label) - 1) for label in gold])
        assert [row["row"] for row in found] == list(range(len(expected)))
        assert [row["x"] for row in found] == pytest.approx(expected, abs=1e-5), metric
        assert np.abs(expected).max() > 0.1


def test_a_metric_that_rows_cannot_move_has_no_influences() -> None:
    """Nobody is right; and recalls are equal, where a standard deviation has no derivative."""
    wrong = Answers("wrong", "ab", list("ab" * 6), right_with("ba" * 6, "ab"))
    equal = Answers("equal", "ab", list("ab" * 6), right_with("abba" * 3, "ab"))
    single = Answers("single", "ab", list("a" * 12), right_with("aab" * 4, "ab"))
    found = rows(analysed([wrong, equal, single]), "from row_influences")
    assert len(found) == 36
    assert {row["rsd"] for row in found} == {0}
    assert {row["accuracy"] for row in found if row["task"] == "wrong"} == {0}
    assert {row["accuracy"] for row in found if row["task"] == "equal"} == {0.5, -0.5}


def test_pseudo_values_average_to_the_metric() -> None:
    connection = analysed(one_task(60))
    [task] = rows(connection, "from label_bias_by_task_over_sets")
    found = rows(connection, "from label_bias_row_values order by metric, row")
    assert {row["n_rows"] for row in found if row["metric"] in OF_BIAS_SCORE_ROWS} == {40}
    for metric in METRICS:
        values = [row["value"] for row in found if row["metric"] == metric]
        assert len(values) == (40 if metric in OF_BIAS_SCORE_ROWS else 60)
        assert np.mean(values) == pytest.approx(task[metric], abs=1e-12)


# Errors


def test_errors_of_a_task_are_those_of_resampled_rows() -> None:
    answers = one_task()
    [errors] = rows(analysed(answers), "from task_errors")
    assert (errors["n_main_rows"], errors["n_free"], errors["n_free_bias_score"]) == (200, 197, 36)
    for metric in METRICS:
        draws = resampled(side(answers, metric), metric=metric, rng=np.random.default_rng(1))
        assert errors[metric] == pytest.approx(draws.std(), rel=0.1), metric


def test_errors_of_a_difference_are_those_of_rows_resampled_on_both_sides() -> None:
    none = one_task()
    moderate = {"a": 0.7, "b": 0.65, "c": 0.5}
    other = one_task(seed=1, recalls=moderate, method="cc")
    connection = analysed([*none, *other])
    [errors] = rows(connection, "from paired_errors")
    assert (errors["method"], errors["against_method"], errors["n_free"]) == ("cc", "none", 197)
    changes = {row["metric"]: row for row in rows(connection, "from label_bias_changes_by_task")}
    assert changes.keys() == set(METRICS)
    for metric in METRICS:
        draws = resampled(side(other, metric), side(none, metric), metric=metric, rng=np.random.default_rng(1))
        assert errors[metric] == pytest.approx(draws.std(), rel=0.1), metric
        row = changes[metric]
        weights = np.ones(len(side(none, metric)[0].gold))
        difference = [np.mean([METRIC[metric](each, weights) for each in side(both, metric)]) for both in (other, none)]
        assert row["estimate"] == pytest.approx(difference[0] - difference[1])
        n_free = 36 if metric in OF_BIAS_SCORE_ROWS else 197
        t = row["estimate"] / errors[metric]
        assert row["p"] == pytest.approx(2 * stats.t.sf(abs(t), n_free), rel=0.02, abs=1e-6)
        interval = stats.t.interval(0.95, n_free, loc=row["estimate"], scale=errors[metric])
        assert [row["low"], row["high"]] == pytest.approx(interval, abs=1e-5)


def test_what_no_row_changes_has_no_p() -> None:
    none = one_task(60)
    same = [each._replace(method="cc") for each in none]
    for row in rows(analysed([*none, *same]), "from label_bias_changes_by_task"):
        assert [row["estimate"], row["standard_error"], row["low"], row["high"], row["p"]] == [0, 0, 0, 0, None]


def test_the_luck_of_which_gold_labels_were_drawn_is_no_difference_between_constant_answers() -> None:
    """Of 52 rows of 100, always a is right; of the others, always b: 52 against 48 is no finding (McNemar: p = .76)."""
    gold = list("a" * 52 + "b" * 48)
    answers = [
        Answers("t", "ab", gold, right_with("a" * 100, "ab")),
        Answers("t", "ab", gold, right_with("b" * 100, "ab"), "cc"),
    ]
    connection = analysed(answers)
    change = "from label_bias_changes_by_task where metric = 'accuracy'"
    [row] = rows(connection, change)
    assert row["estimate"] == pytest.approx(-0.04)
    assert row["low"] < 0 < row["high"]
    assert row["p"] > 0.5
    [verdict] = rows(connection, "from label_bias_verdicts where metric = 'accuracy'")
    assert verdict["p"] == pytest.approx(stats.binomtest(48, 100).pvalue, abs=0.03)
    assert verdict["verdict"] == "unclear"
