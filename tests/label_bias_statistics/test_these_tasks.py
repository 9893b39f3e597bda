"""Words on these tasks, beside those on tasks like these."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from biaseval.analysis.sql_files import connect
from tests.label_bias_statistics.answers import (
    FAMILIES,
    Answers,
    Array,
    analysed,
    answers_of,
    preferring,
    right_with,
    rows,
    tasks_that_change,
    verdicts,
)
from tests.statistics_macros.patterns import values


def test_the_quantile_of_student_gives_back_its_p() -> None:
    p, df = np.meshgrid([0.9, 0.5, 0.05, 0.01, 1e-3, 1e-5], [6.0, 7.5, 12.0, 40.3, 200.0, 5000.0])
    connection = connect([])
    found = values(connection, "student_quantile(p, df)", p=p.ravel(), df=df.ravel())
    assert found == pytest.approx(stats.t.isf(p.ravel() / 2, df.ravel()), rel=0.04)
    back = values(connection, "student_p(t, df)", t=found, df=df.ravel())
    assert back == pytest.approx(p.ravel(), rel=1e-5)
    assert np.isnan(values(connection, "student_quantile(p, df)", p=[0.05, None, 0.05], df=[0.5, 9.0, None])).all()


def holm_adjusted(p: Array) -> Array:
    """Return p-values adjusted by Holm's procedure."""
    order = np.argsort(p)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return adjusted


def test_words_on_these_tasks_are_of_the_tasks_own_errors() -> None:
    rng = np.random.default_rng(8)
    answers = []
    for number, n_rows in enumerate((12, 15, 24, 90)):
        gold = list("abc" * (n_rows // 3))
        for method, recall in (("none", 0.4), ("cc", 0.75), ("dc", 0.45)):
            for demo_set in (0, 1):
                place: dict[str, Any] = {"method": method, "demo_set": demo_set}
                answers.append(answers_of(rng, f"t{number}", "abc", gold, recall, **place))
                answers.append(
                    preferring(rng, f"t{number}", "abc", list("abc" * 5), rng.normal(size=3).tolist(), **place)
                )
    connection = analysed(answers)
    by_task = rows(connection, "from label_bias_changes_by_task order by task")
    assert {row["n_units"] for row in by_task if row["metric"] == "accuracy"} == {12, 15, 24, 90}
    assert {row["n_rows"] for row in by_task if row["metric"] == "accuracy"} == {24, 30, 48, 180}
    found = {(row["method"], row["metric"]): row for row in rows(connection, "from label_bias_verdicts")}
    names = [
        (method, metric)
        for method in ("cc", "dc")
        for metric in FAMILIES[0]
        if found[method, metric]["same_tasks_error"] is not None  # labels of four rows have none in RSD
    ]
    assert {metric for _, metric in names} == {"accuracy", "bias_score"}
    p = {}
    for name in names:
        own = [row for row in by_task if (row["method"], row["metric"]) == name]
        squares = np.array([row["standard_error"] ** 2 for row in own])
        estimate, error = np.mean([row["estimate"] for row in own]), np.sqrt(squares.sum()) / 4
        n_free = squares.sum() ** 2 / np.sum(squares**2 / np.array([row["n_free"] for row in own]))
        p[name] = 2 * stats.t.sf(abs(estimate) / error, n_free)
        row = found[name]
        assert row["same_tasks_n_free"] == pytest.approx(n_free)
        assert 9 < n_free < 140
        interval = stats.t.interval(0.95, n_free, loc=estimate, scale=error)
        assert [row["same_tasks_low"], row["same_tasks_high"]] == pytest.approx(interval, abs=1e-5)
        assert row["same_tasks_p"] == pytest.approx(p[name], rel=0.05)
        reach = stats.t.isf(0.025 / len(names), n_free) * error
        band = [row["same_tasks_simultaneous_low"], row["same_tasks_simultaneous_high"]]
        assert band == pytest.approx([estimate - reach, estimate + reach], rel=0.01)
    adjusted = holm_adjusted(np.array([found[name]["same_tasks_p"] for name in names]))
    assert [found[name]["same_tasks_p_adjusted"] for name in names] == pytest.approx(adjusted, abs=1e-12)
    assert found["cc", "accuracy"]["same_tasks_verdict"] == "higher"
    assert found["cc", "rsd"]["same_tasks_verdict"] == "unclear"


def test_rows_are_counted_once_where_sets_are_several() -> None:
    """Two tasks of two rows each, behind two sets: four rows, which are too few."""
    answers = [
        Answers(f"t{number}", "ab", list("ab"), right_with(predicted, "ab"), method, 4, demo_set)
        for number in range(2)
        for method, predicted in (("none", "aa"), ("cc", "ab"))
        for demo_set in range(2)
    ]
    found = verdicts(analysed(answers), "accuracy")["cc"]
    assert (found["n_rows"], found["same_tasks_verdict"]) == (8, "too few")


def test_what_no_row_changes_is_negligible_on_these_tasks_where_rows_are_many() -> None:
    answers = tasks_that_change([0] * 6)
    found = verdicts(analysed(answers), "accuracy")["cc"]
    assert (found["same_tasks_low"], found["same_tasks_high"], found["same_tasks_p"]) == (0, 0, None)
    n_rows = sum(len(own.gold) for own in answers if own.method == "none")
    assert found["same_tasks_verdict"] == ("negligible" if 3 / n_rows < 0.01 else "unclear")


def test_of_one_task_with_few_rows_a_label_both_words_are_unclear() -> None:
    answers = [
        Answers("t", "abc", list("aaaaabbbbbcc"), right_with(predicted, "abc"), method)
        for method, predicted in (("none", "aaaaabbbbbbb"), ("cc", "aaaaabbbbbcc"))
    ]
    found = verdicts(analysed(answers), "rsd")["cc"]
    assert found["estimate"] < -0.4
    assert (found["p"], found["verdict"], found["same_tasks_verdict"]) == (None, "unclear", "unclear")
