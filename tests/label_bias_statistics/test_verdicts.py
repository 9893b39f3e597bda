"""Verdicts over tasks or over rows, by hand and against every pattern of signs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from tests.label_bias_statistics.answers import (
    FAMILIES,
    METRICS,
    Answers,
    analysed,
    answers_of,
    preferring,
    right_with,
    rows,
    tasks_that_change,
    verdicts,
)
from tests.statistics_macros.patterns import every_pattern, expected_tests


def holm(p_values: Sequence[float], level: float = 0.05) -> set[int]:
    """Return which of several hypotheses Holm's procedure rejects."""
    rejected: set[int] = set()
    for place in np.argsort(p_values, kind="stable"):
        if p_values[place] * (len(p_values) - len(rejected)) > level:
            break
        rejected.add(int(place))
    return rejected


def test_tasks_with_bias_are_counted_by_holms_procedure() -> None:
    rng = np.random.default_rng(0)
    answers = []
    for number in range(16):
        gap = max(0, number - 8) * 0.055
        place = {"task": f"t{number:02d}", "labels": "ab"}
        gold = list("ab" * 30) if number else list("a" * 60)  # the first has a single gold label, and no p
        answers.append(answers_of(rng, gold=gold, recalls={"a": 0.5 + gap, "b": 0.5 - gap}, **place))
        answers.append(preferring(rng, gold=list("ab" * 16), leaning=[gap * 4, 0], **place))
    connection = analysed(answers)
    tasks = rows(connection, "from label_bias_by_task_over_sets order by task")
    [model] = rows(connection, "from label_bias_by_model")
    by_rsd = [task["rsd_p"] for task in tasks if task["rsd_p"] is not None]
    by_bias_score = [task["bias_score_p"] for task in tasks]
    assert (len(by_rsd), len(by_bias_score)) == (15, 16)
    assert model["n_tasks_rsd"] == len(holm(by_rsd)) > 0
    assert model["n_tasks_bias_score"] == len(holm(by_bias_score)) > 0
    assert len(holm(by_rsd)) < sum(p <= 0.05 for p in by_rsd)
    for metric in METRICS[:4]:
        values = sorted(task[metric] for task in tasks)
        assert model[f"{metric}_median"] == pytest.approx(np.median(values))
        assert model[f"{metric}_interquartile_mean"] == pytest.approx(stats.trim_mean(values, 0.25))
    floors = [task["rsd_floor"] for task in tasks if task["rsd_floor"] is not None]
    assert model["rsd_floor"] == pytest.approx(np.mean(floors))
    assert model["rsd_normalized"] == pytest.approx(np.mean([task["rsd"] for task in tasks[1:]]))  # two labels each


def test_a_verdict_on_six_tasks_by_hand() -> None:
    """Differences .1, .2, .3, .4, .5 and -.1: their sum is 1.4.

    Of 64 patterns, the one of all positive has a sum of 1.6; those with one of the two .1 negative have 1.4: with their
    opposites 6 are at least as far from 0, and p is 6 / 64.
    """
    connection = analysed(tasks_that_change([2, 4, 6, 8, 10, -2]))
    row = verdicts(connection, "accuracy")["cc"]
    numbers = np.array([0.1, 0.2, 0.3, 0.4, 0.5, -0.1])
    counts = ("unit", "n_units", "n_tasks", "n_rows", "against_n_rows")
    assert [row[name] for name in counts] == ["tasks", 6, 6, 120, 120]
    assert (row["p"], row["verdict"]) == (6 / 64, "unclear")
    assert row["p_adjusted"] >= 6 / 64
    assert row["estimate"] == pytest.approx(1.4 / 6)
    assert row["standard_error"] == pytest.approx(stats.sem(numbers))
    interval = stats.t.interval(0.95, 5, loc=numbers.mean(), scale=stats.sem(numbers))
    assert [row["low"], row["high"]] == pytest.approx(interval, abs=1e-6)
    assert row["median"] == pytest.approx(0.25)
    assert row["interquartile_mean"] == pytest.approx((0.5 * 0.1 + 0.2 + 0.3 + 0.5 * 0.4) / 3)
    assert row["standardized"] == pytest.approx(numbers.mean() / numbers.std(ddof=1))
    assert row["smallest_detectable"] == pytest.approx(2.8 * stats.sem(numbers))
    # Of 20 rows each, 10 more are right in the fifth and 8 in the fourth: what each shows on its own, after Holm.
    by_task = rows(connection, "from label_bias_changes_by_task where metric = 'accuracy' order by task")
    rejected = holm([task["p"] for task in by_task])
    assert (row["n_tasks_higher"], row["n_tasks_lower"]) == (len(rejected), 0)
    assert rejected >= {3, 4}


def test_over_rows_a_test_of_bias_score_has_the_error_of_its_task_with_few_rows_a_label() -> None:
    labels = "abcdefghij"
    rng = np.random.default_rng(4)
    answers = []
    for method in ("none", "cc"):
        place: dict[str, Any] = {"method": method, "n_demos": 4}
        answers.append(answers_of(rng, "t", labels, list(labels * 6), dict.fromkeys(labels, 0.6), **place))
        answers.append(preferring(rng, "t", labels, list(labels * 3), [0.8, *[0.0] * 9], **place))
    connection = analysed(answers)
    [of_task] = rows(connection, "from label_bias_changes_by_task where metric = 'bias_score'")
    found = verdicts(connection, "bias_score")["cc"]
    assert (found["unit"], found["n_units"]) == ("rows", 30)
    assert found["standard_error"] == pytest.approx(of_task["standard_error"] * math.sqrt(30 / 29))


def test_six_tasks_of_one_mind_are_just_enough_and_three_too_few() -> None:
    six = verdicts(analysed(tasks_that_change([2, 4, 6, 8, 10, 3])), "accuracy")["cc"]
    assert (six["p"], six["verdict"]) == (2 / 64, "higher")
    assert six["simultaneous_low"] > 0
    lower = verdicts(analysed(tasks_that_change([-2, -4, -6, -8, -9, -3])), "accuracy")["cc"]
    assert (lower["p"], lower["verdict"]) == (2 / 64, "lower")
    three = verdicts(analysed(tasks_that_change([2, 4, 6])), "accuracy")["cc"]
    assert (three["p"], three["verdict"], three["simultaneous_low"]) == (2 / 8, "too few", None)
    same = verdicts(analysed(tasks_that_change([0] * 6)), "accuracy")["cc"]
    assert (same["estimate"], same["p"], same["verdict"]) == (0, 1, "unclear")


def test_all_differences_of_a_suite_are_one_family_but_those_of_partners() -> None:
    rng = np.random.default_rng(0)
    answers = []
    for number in range(9):
        task = f"t{number}"
        for method, recall in (("none", 0.5), ("cc", 0.55), ("dc", 0.75)):
            place = {"method": method}
            answers.append(answers_of(rng, task, "abc", list("abc" * 10), recall, **place))
            answers.append(preferring(rng, task, "abc", list("abc" * 6), rng.normal(size=3).tolist(), **place))
    connection = analysed(answers)
    by_task = rows(connection, "from label_bias_changes_by_task")
    by_task.sort(key=lambda row: str(row["task"]))
    found = {(row["method"], row["metric"]): row for row in rows(connection, "from label_bias_verdicts")}
    assert found.keys() == {(method, metric) for method in ("cc", "dc") for metric in METRICS}
    for family in FAMILIES:
        names = [(method, metric) for method in ("cc", "dc") for metric in family]
        matrix = np.array(
            [[row["estimate"] for row in by_task if (row["method"], row["metric"]) == name] for name in names]
        )
        assert matrix.shape == (len(names), 9)
        for name, expected in zip(names, expected_tests(matrix, every_pattern(9)), strict=True):
            row = {key: np.nan if found[name][key] is None else found[name][key] for key in expected}
            assert row == pytest.approx(expected, abs=1e-6, nan_ok=True), name
    assert found["dc", "accuracy"]["verdict"] == "higher"


def test_a_run_of_one_task_tests_its_rows_as_mcnemar_does() -> None:
    """Of 12 rows cc gets 6 right that none gets wrong, and one wrong: p is that of 1 of 7 coins, and exact.

    The 7 are not alike in their gold labels: of a, 5 are won; of b, one is won and one is lost.
    """
    gold = "a" * 7 + "b" * 5
    none = Answers("t", "ab", list(gold), right_with("bbbbbba" + "babba", "ab"))
    cc = Answers("t", "ab", list(gold), right_with("aaaaaba" + "abbba", "ab"), "cc")
    gains = np.array([a == g for a, g in zip(cc.predicted, gold, strict=True)]) * 1.0
    gains -= np.array([a == g for a, g in zip(none.predicted, gold, strict=True)])
    assert sorted(gains) == [-1] + [0] * 5 + [1] * 6
    connection = analysed([none, cc])
    row = verdicts(connection, "accuracy")["cc"]
    assert (row["unit"], row["n_units"], row["n_tasks"]) == ("rows", 12, 1)
    assert row["p"] == pytest.approx(stats.binomtest(1, 7).pvalue)
    assert row["standard_error"] == pytest.approx(stats.sem(gains))
    assert row["estimate"] == pytest.approx(5 / 12)
    assert row["median"] is row["interquartile_mean"] is row["standardized"] is None
    [change] = rows(connection, "from label_bias_changes")
    [by_task] = rows(connection, "from label_bias_changes_by_task where metric = 'accuracy'")
    assert [change["accuracy_low"], change["accuracy_high"]] == [by_task["low"], by_task["high"]]


def test_a_planted_gain_is_found_and_its_twin_without_one_is_not() -> None:
    """In 30 tasks cc gets .1 more rows right than none, and dc as many."""
    rng = np.random.default_rng(1)
    answers = []
    for number in range(30):
        base = rng.uniform(0.45, 0.65)
        gold = [str(label) for label in rng.choice(list("abc"), size=100)]
        for method, gain in (("none", 0), ("cc", 0.1), ("dc", 0)):
            answers.append(answers_of(rng, f"t{number:02d}", "abc", gold, base + gain, method=method))
    found = verdicts(analysed(answers), "accuracy")
    assert (found["cc"]["verdict"], found["dc"]["verdict"]) == ("higher", "unclear")
    assert found["cc"]["estimate"] == pytest.approx(0.1, abs=0.03)
    assert found["cc"]["simultaneous_low"] > 0.01
    assert found["cc"]["n_tasks_higher"] <= 10  # few tasks show it on their own
