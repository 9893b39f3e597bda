"""BiasScore beside its smooth partner, and a word about it only where a side is above the noise of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from biaseval.analysis.sql_files import connect
from tests.label_bias_statistics.answers import Answers, Array, analysed, right_with, rows, verdicts
from tests.label_bias_statistics.influences import weighted_squared_preference


def of_odds(log_odds: Array, gold: str, method: str = "none", task: str = "t", demo_set: int = 0) -> Answers:
    """Return answers on rows of BiasScore with these log odds of a against b."""
    share = 1 / (1 + np.exp(-log_odds))
    place: dict[str, Any] = {"method": method, "demo_set": demo_set, "purpose": "bias_score"}
    return Answers(task, "ab", list(gold), np.column_stack([share, 1 - share]), **place)


def measured(*bias_score: Answers, n_main: int = 40) -> list[Answers]:
    """Return these answers, and main rows of which half are right in every setting."""
    places = dict.fromkeys((each.task, each.method, each.demo_set) for each in bias_score)
    gold = list("ab" * (n_main // 2))
    right = right_with(list("aabb" * (n_main // 4)), "ab")
    main = [Answers(task, "ab", gold, right, method=method, demo_set=number) for task, method, number in places]
    return [*bias_score, *main]


GOLD = "ab" * 16


def lucky(luck: float, seed: int = 0) -> Array:
    """Return the log odds of 32 rows of a model that knows the labels, and leans to a by so much."""
    drawn = np.random.default_rng(seed).normal(1.5, 1, size=16)
    return luck + np.column_stack([drawn, -drawn]).ravel()


def test_squared_preference_is_the_squared_distance_less_what_rows_add() -> None:
    rng = np.random.default_rng(2)
    three = [
        Answers(
            "three", "abc", list("aaaaabbbbcc"), rng.dirichlet([3, 2, 1], 11), demo_set=number, purpose="bias_score"
        )
        for number in (0, 1)
    ]
    single = Answers("single", "ab", list("ab"), rng.dirichlet([2, 1], 2), purpose="bias_score")
    rare = Answers("rare", "ab", list("aaaab"), rng.dirichlet([2, 1], 5), purpose="bias_score")
    main = [Answers(each.task, each.labels, list("ab"), right_with("ab", each.labels)) for each in (single, rare)]
    main += [Answers("three", "abc", list("abc"), right_with("abc", "abc"), demo_set=number) for number in (0, 1)]
    connection = analysed([*three, single, rare, *main])
    found = rows(connection, "from label_bias_by_task where task = 'three' order by demo_set")
    expected = [weighted_squared_preference(each, np.ones(11)) for each in three]
    assert [row["squared_preference"] for row in found] == pytest.approx(expected, abs=1e-12)
    over_sets = {row["task"]: row for row in rows(connection, "from label_bias_by_task_over_sets")}
    assert over_sets["three"]["squared_preference"] == pytest.approx(np.mean(expected), abs=1e-12)
    assert over_sets["single"]["squared_preference"] is None
    # The row of its own label has the variance of the others.
    share = rare.probabilities[:, 0]
    mean = (share[:4].mean() + share[4]) / 2
    noise = (share[:4].var(ddof=1) / 4 + share[:4].var(ddof=1)) / 4
    assert over_sets["rare"]["squared_preference"] == pytest.approx(2 * ((mean - 0.5) ** 2 - noise), abs=1e-12)


def test_squared_preference_is_0_on_average_without_preference() -> None:
    rng = np.random.default_rng(4)
    odds = rng.normal(size=(400, 32)) + np.array([1.5 if label == "a" else -1.5 for label in GOLD])
    answers = measured(*(of_odds(each, GOLD, task=f"t{number:03d}") for number, each in enumerate(odds)), n_main=4)
    found = rows(analysed(answers), "from label_bias_by_task")
    squared = np.array([row["squared_preference"] for row in found])
    assert abs(squared.mean()) < 3 * squared.std() / 20
    assert np.mean([2 * row["bias_score"] ** 2 for row in found]) > 10 * abs(squared.mean())


# Words


def test_a_calibration_that_undoes_the_luck_of_rows_has_no_word() -> None:
    """All rows move together, so that the difference has hardly an error: sign flips of it alone reach the least p."""
    odds = lucky(0.35)
    found = {}
    for metric in ("bias_score", "squared_preference"):
        connection = analysed(measured(of_odds(odds, GOLD), of_odds(odds - 0.3, GOLD, "cc")))
        found[metric] = verdicts(connection, metric)["cc"]
    assert found["bias_score"]["estimate"] < -0.03
    assert found["bias_score"]["p_adjusted"] < 0.001
    assert found["bias_score"]["noise_p"] > 0.05
    for row in found.values():
        assert row["word_p_adjusted"] >= row["noise_p"]
        assert (row["verdict"], row["same_tasks_verdict"]) == ("unclear", "unclear")


def test_a_preference_that_is_taken_away_is_found_and_one_that_is_brought_too() -> None:
    odds = lucky(1.2)
    connection = analysed(measured(of_odds(odds, GOLD), of_odds(odds - 1.1, GOLD, "cc"), of_odds(odds + 1, GOLD, "dc")))
    found = verdicts(connection, "bias_score")
    assert {method: row["verdict"] for method, row in found.items()} == {"cc": "lower", "dc": "higher"}
    assert found["cc"]["noise_p"] <= 0.05
    partner = verdicts(connection, "squared_preference")["cc"]
    assert partner["verdict"] == "lower"
    assert (found["cc"]["least_effect"], partner["least_effect"]) == (0.01, 0.002)


def test_the_noise_of_a_suite_is_that_of_its_least_p() -> None:
    """Of eight tasks one is above noise: the smaller p of its two sides, times two, times the tasks."""
    luck = [1.2, *np.linspace(-0.2, 0.2, 7)]
    answers = []
    for number, own in enumerate(luck):
        odds = lucky(own, seed=number)
        answers += [of_odds(odds, GOLD, task=f"t{number}"), of_odds(odds - own, GOLD, "cc", task=f"t{number}")]
    connection = analysed(measured(*answers))
    found = verdicts(connection, "bias_score")["cc"]
    least = min(row["bias_score_p"] for row in rows(connection, "from label_bias_by_task_over_sets"))
    assert found["noise_p"] == pytest.approx(min(1, 16 * least))
    assert {row["noise_p"] for row in rows(connection, "from label_bias_verdicts where metric = 'rsd'")} == {None}


@pytest.mark.parametrize(
    ("tests", "noise_p", "p"),
    [
        ([(-1, 0.01), (-0.2, 0.04)], 0.001, 0.02),
        ([(-1, 0.01), (-0.2, 0.04)], 0.3, 0.3),
        ([(-1, 0.01), (0.2, 0.04)], 0.001, 1),
        ([(-1, 0.01), (-0.2, None)], 0.001, None),
        ([(-1, 0.01), (-0.2, 0.04)], None, None),
    ],
)
def test_a_word_about_bias_score_needs_a_side_above_noise(
    tests: list[Any], noise_p: float | None, p: float | None
) -> None:
    told = [
        {"metric": metric, "estimate": estimate, "p": of_one, "noise_p": noise_p}
        for metric, (estimate, of_one) in zip(("bias_score", "squared_preference"), tests, strict=True)
    ]
    typed = "struct(metric varchar, estimate double, p double, noise_p double)[]"
    assert connect([]).execute(f"select word_p($1::{typed})", [told]).fetchall() == [(p,)]


@pytest.mark.parametrize(
    ("metric", "bands", "band"),
    [
        ("bias_score", [(-0.001, 0.002), (-0.001, 0.001)], [-0.005, 0.005]),
        ("bias_score", [(-0.02, 0.002), (-0.001, 0.001)], [-0.02, 0.005]),
        ("squared_preference", [(-0.02, 0.002), (-0.001, 0.001)], [-0.004, 0.001]),
        ("bias_score", [(-0.001, 0.002), (None, None)], None),
        ("rsd", [(-0.001, 0.002), (-0.1, 0.1)], [-0.001, 0.002]),
        ("accuracy", [(-0.001, 0.002)], [-0.001, 0.002]),
    ],
)
def test_bias_score_is_negligible_by_the_wider_band_in_least_effects(
    metric: str, bands: list[Any], band: list[float] | None
) -> None:
    names = {"rsd": ("rsd", "relative_variance"), "accuracy": ("accuracy",)}
    told = [
        {"metric": name, "low": low, "high": high}
        for name, (low, high) in zip(names.get(metric, ("bias_score", "squared_preference")), bands, strict=True)
    ]
    [own] = [test for test in told if test["metric"] == metric]
    typed = "struct(metric varchar, low double, high double)[]"
    asked = f"select word_band($1, $2::double, $3::double, $4::{typed})"
    [(found,)] = connect([]).execute(asked, [metric, own["low"], own["high"], told]).fetchall()
    assert found == (None if band is None else pytest.approx(band))


# Rows that are too few, and models without variance


def test_bias_score_is_tested_where_each_label_has_five_rows() -> None:
    """A strong preference, with 30 rows of one label and two, four or five of the other."""
    answers = []
    for n_rare in (0, 2, 4, 5):
        gold = "a" * 30 + "b" * n_rare
        odds = np.random.default_rng(n_rare).normal(2.5, 0.1, size=len(gold))
        answers += [
            of_odds(odds - part, gold, method, task=f"t{n_rare}") for method, part in (("none", 0), ("cc", 2.4))
        ]
    connection = analysed(measured(*answers))
    found = rows(connection, "from label_bias_by_task_over_sets where method = 'none' order by n_bias_score_rows")
    assert [row["n_fewest_bias_score_rows"] for row in found] == [0, 2, 4, 5]
    assert {row["fewest_bias_score_label"] for row in found} == {"b"}
    assert [row["bias_score_p"] is None for row in found] == [True, True, True, False]
    assert found[3]["bias_score_p"] < 0.001
    # Where it cannot be tested, 0 is inside, and a change has no word.
    assert [row["bias_score_low"] for row in found[:3]] == [None, 0, 0]
    assert found[3]["bias_score_low"] > 0.3
    by_task = rows(connection, "from label_bias_changes_by_task where metric = 'bias_score' order by task")
    assert [row["noise_p"] is None for row in by_task] == [True, True, True, False]
    [model] = rows(connection, "from label_bias_by_model where method = 'none'")
    assert (model["n_tasks_bias_score"], model["n_tasks_bias_score_tested"]) == (1, 1)
    of_label = rows(connection, "from label_bias_by_label where task = 't4' and method = 'none' order by label")
    assert [row["n_bias_score_rows_of_label"] for row in of_label] == [30, 4]


def test_a_model_whose_probabilities_never_change_is_above_noise_for_sure() -> None:
    constant = of_odds(np.full(32, 1.5), GOLD, task="constant")
    equal = of_odds(np.zeros(32), GOLD, task="equal")
    sure = Answers("sure", "ab", list(GOLD), np.eye(2)[[0, 1] * 16], purpose="bias_score")
    found = {row["task"]: row for row in rows(analysed(measured(constant, equal, sure)), "from label_bias_by_task")}
    assert {task: row["bias_score_p"] for task, row in found.items()} == {"constant": 0, "equal": 1, "sure": 1}
    assert found["constant"]["squared_preference"] == pytest.approx(2 * found["constant"]["bias_score"] ** 2)
