"""What a search came to by SQL: the chosen trial, noise and importance, done by hand; its checks."""

from __future__ import annotations

import math
from typing import Any

import pytest
from scipy import stats

from tests.searches import Search

# By hand: two groups, and the 97.5 % quantile of t with one degree of freedom.
T_OF_TWO = 12.706205


def sets(*values: float, maximize: bool = False) -> Search:
    """Return a search of one objective that came to these values, in the order of its trials, on both halves."""
    search = Search({"rsd": maximize})
    for number, value in enumerate(values, start=1):
        search.trial({"prompt.demo_sets": number}, [value], [value])
    return search


def best(search: Search) -> dict[str, Any]:
    [row] = search.rows("from search_best")
    return row


# The chosen trial


@pytest.mark.parametrize(("maximize", "chosen"), [(True, 1), (False, 2)])
def test_the_best_trial_is_chosen_and_of_equals_the_first(maximize: bool, chosen: int) -> None:
    search = sets(0.5, 0.7, 0.3, 0.7, 0.3, maximize=maximize)
    assert best(search)["trial"] == chosen
    assert search.rows("select trial from search_trials where is_chosen") == [{"trial": chosen}]


def test_trials_that_did_not_come_to_an_end_are_shown_and_never_chosen() -> None:
    search = sets(0.5, 0.4, maximize=True)
    search.trial({"prompt.demo_sets": 9}, state="stopped", problem="it was slow", steps=7)
    search.trial({"prompt.demo_sets": 8})
    found = search.rows("select trial, state, value, difference, is_within_noise, is_chosen, problem "
                        "from search_trials where trial > 1")  # fmt: skip
    nothing = {"value": None, "difference": None, "is_within_noise": None, "is_chosen": False}
    assert found == [
        {"trial": 2, "state": "stopped", "problem": "it was slow", **nothing},
        {"trial": 3, "state": "failed", "problem": "it broke", **nothing},
    ]
    row = best(search)
    names = ("trial", "n_done", "n_stopped", "n_failed", "n_trials", "steps")
    assert {name: row[name] for name in names} == {
        "trial": 0, "n_done": 2, "n_stopped": 1, "n_failed": 1, "n_trials": 4, "steps": 7
    }  # fmt: skip


def test_there_is_no_best_where_no_trial_came_to_an_end() -> None:
    search = sets()
    search.trial({"prompt.demo_sets": 1})
    assert not search.rows("from search_best")
    assert not search.rows("from search_trials")  # there is no scope that they could be of
    assert search.rows("select state, n_trials from search_costs") == [{"state": "failed", "n_trials": 1}]


# Noise, and what choosing costs


def test_intervals_and_differences_from_the_chosen_trial_by_hand() -> None:
    search = Search({"f1": True})
    for value in (0.8, 0.7, 0.1):
        search.trial({"seed": len(search.trials)}, [value], [value])
    search.value(0, "f1", "choice", 0.8, [0.7, 0.9])
    search.value(1, "f1", "choice", 0.7, [0.62, 0.78])
    search.value(2, "f1", "choice", 0.1, [0.01, 0.19])
    search.value(1, "f1", "evaluation", 0.6, [0.55, 0.65])
    found = search.rows("from search_trials order by trial")
    # Of the first the groups lie 0.1 around their mean, so the error is 0.1; of the second 0.08; of the third 0.09.
    reaches = [T_OF_TWO * error for error in (0.1, 0.08, 0.09)]
    for row, value, reach in zip(found, (0.8, 0.7, 0.1), reaches, strict=True):
        assert (row["value_low"], row["value_high"]) == pytest.approx((value - reach, value + reach))
    assert found[1]["evaluation_low"] == pytest.approx(0.6 - T_OF_TWO * 0.05)
    assert found[1]["evaluation_high"] == pytest.approx(0.6 + T_OF_TWO * 0.05)
    # Group by group the second lies 0.08 and 0.12 below the first: error 0.02; the third 0.69 and 0.71: error 0.01.
    assert [row["difference"] for row in found] == pytest.approx([0, -0.1, -0.7])
    assert found[1]["difference_low"] == pytest.approx(-0.1 - T_OF_TWO * 0.02)
    assert found[1]["difference_high"] == pytest.approx(-0.1 + T_OF_TWO * 0.02)
    assert found[2]["difference_high"] == pytest.approx(-0.7 + T_OF_TWO * 0.01)
    assert [row["is_within_noise"] for row in found] == [True, True, False]
    row = best(search)
    assert (row["n_within_noise"], row["n_compared"], row["n_worse"]) == (1, 2, 1)  # the chosen one is not counted


def test_nothing_is_said_of_noise_where_a_group_is_all_there_is() -> None:
    search = sets(0.5, 0.6)
    for trial, value in enumerate((0.5, 0.6)):
        search.value(trial, "rsd", "choice", value, [None])
    found = search.rows("select value, value_low, is_within_noise from search_trials order by trial")
    assert found == [{"value": value, "value_low": None, "is_within_noise": None} for value in (0.5, 0.6)]
    assert (best(search)["trial"], best(search)["n_within_noise"]) == (0, 0)


@pytest.mark.parametrize(("maximize", "sign"), [(True, 1), (False, -1)])
def test_optimism_and_gains_are_positive_where_choosing_looks_too_good_or_helps(maximize: bool, sign: int) -> None:
    search = Search({"f1": maximize})
    # Chosen on 0.9 (or -0.9), where all come to 0.6 on average; on the other half it has 0.7, and all 0.55.
    for choice, evaluation in ((0.3, 0.4), (0.9, 0.7)):
        search.trial({"seed": len(search.trials)}, [sign * choice], [sign * evaluation])
    row = best(search)
    assert row["trial"] == 1
    assert row["value"] == pytest.approx(sign * 0.9)
    assert row["optimism"] == pytest.approx(0.2)
    assert row["gain"] == pytest.approx(0.3)
    assert row["evaluation_gain"] == pytest.approx(0.15)


def test_a_choice_on_all_of_it_is_shown_on_nothing_else() -> None:
    search = Search({"f1": True}, choose_on="published", shared_steps=6)
    for value in (0.3, 0.9):
        search.trial({"seed": len(search.trials)}, [value], steps=5)
    row = best(search)
    unknown = ("evaluation", "evaluation_low", "evaluation_high", "optimism", "evaluation_gain")
    assert [row[name] for name in unknown] == [None] * 5
    assert (row["value"], row["choose_on"]) == (0.9, "published")
    assert row["gain"] == pytest.approx(0.3)
    assert (row["steps"], row["shared_steps"]) == (10, 6)
    assert not search.problems("trials_are_whole")


def test_the_interval_of_a_gain_is_of_the_data_that_the_choice_did_not_see_by_hand() -> None:
    search = Search({"f1": True})
    for choice, evaluation in ((0.9, 0.8), (0.6, 0.5)):
        search.trial({"seed": len(search.trials)}, [choice], [evaluation])
    search.value(0, "f1", "evaluation", 0.8, [0.7, 0.9])
    # The chosen one is better than the mean of both by 0.7 - 0.6 without one group and by 0.9 - 0.7 without the other:
    # they lie 0.05 around their mean.
    row = best(search)
    assert row["evaluation_gain"] == pytest.approx(0.8 - 0.65)
    assert row["evaluation_gain_low"] == pytest.approx(0.15 - T_OF_TWO * 0.05)
    assert row["evaluation_gain_high"] == pytest.approx(0.15 + T_OF_TWO * 0.05)
    # Where one trial has no value without a group, there is no interval.
    search.value(1, "f1", "evaluation", 0.5, [0.5, None])
    row = best(search)
    assert row["evaluation_gain"] == pytest.approx(0.15)
    assert (row["evaluation_gain_low"], row["evaluation_gain_high"]) == (None, None)


def test_what_states_cost_by_hand() -> None:
    search = Search()
    for steps in (12, 12):
        search.trial({"seed": steps}, [0.5], [0.5], steps=steps)
    for steps in (3, 6):
        search.trial({"seed": steps}, state="stopped", problem="it was slow", steps=steps)
    assert [tuple(row.values()) for row in search.rows("from search_costs")] == [
        ("done", 2, 24, 12, 12), ("stopped", 2, 9, 3, 6)
    ]  # fmt: skip


# A choice for each of several


def by_task() -> Search:
    """Return a search that looks for a point for each of two tasks, one of which the last trial does not have."""
    search = Search({"f1": True}, per=["task"], keys=["b"])
    for b, values in (("p", {"one": 0.9, "two": 0.1}), ("q", {"one": 0.2, "two": 0.8}), ("q", {"one": 0.4})):
        own = {task: [value] for task, value in values.items()}
        search.trial({"b": b}, own, {task: [value - 0.1] for [task, [value]] in own.items()})
    return search


def test_each_scope_has_a_choice_of_its_own() -> None:
    found = by_task().rows("select scope, trial, parameters, value, evaluation, n_compared, n_done from search_best")
    assert found == [
        {"scope": "one", "trial": 0, "parameters": '{"b": "p"}', "value": 0.9, "evaluation": 0.8, "n_compared": 2,
         "n_done": 3},
        {"scope": "two", "trial": 1, "parameters": '{"b": "q"}', "value": 0.8, "evaluation": pytest.approx(0.7),
         "n_compared": 1, "n_done": 3},
    ]  # fmt: skip
    rows = by_task().rows("select trial, scope, value, difference, is_chosen from search_trials")
    assert [tuple(row.values()) for row in rows] == [
        (0, "one", 0.9, 0.0, True),
        (1, "one", 0.2, pytest.approx(-0.7), False),
        (2, "one", 0.4, pytest.approx(-0.5), False),
        (0, "two", 0.1, pytest.approx(-0.7), False),
        (1, "two", 0.8, 0.0, True),
        (2, "two", None, None, False),
    ]
    assert not by_task().problems("trials_are_whole")


def test_the_gain_of_a_scope_is_over_the_mean_of_the_trials_that_have_it() -> None:
    found = by_task().rows("select scope, gain, optimism from search_best")
    # The mean of one is 0.5, and of two 0.45.
    assert found == [
        {"scope": "one", "gain": pytest.approx(0.4), "optimism": pytest.approx(0.1)},
        {"scope": "two", "gain": pytest.approx(0.35), "optimism": pytest.approx(0.1)},
    ]


def scopes(gains: list[float]) -> Search:
    """Return a search that chooses the first of two trials in each scope, by this gain on data that it did not see."""
    search = Search({"f1": True}, per=["task"])
    for sign in (1, -1):
        values = {f"t{task}": [0.5 + sign * gain] for task, gain in enumerate(gains)}
        search.trial({"prompt.demo_sets": sign}, {task: [0.5 + sign] for task in values}, values)
    return search


def test_whether_choosing_helps_is_tested_over_all_scopes_by_hand() -> None:
    [row] = scopes([0.1, 0.2, 0.1, 0.2, 0.1, 0.2]).rows("from search_verdicts")
    # Of 64 patterns of signs, two are as far from 0 as all gains above it.
    assert (row["n_units"], row["p"], row["verdict"]) == (6, 2 / 64, "higher")
    assert row["estimate"] == pytest.approx(0.15)
    assert row["standard_error"] == pytest.approx(0.05 * math.sqrt(6 / 5) / math.sqrt(6))
    [row] = scopes([0.1, 0.2, 0.1, 0.2, 0.1, -0.2]).rows("from search_verdicts")
    assert row["p"] > 0.05
    assert row["verdict"] == "unclear"
    assert [row["verdict"] for row in scopes([0.1] * 5).rows("from search_verdicts")] == ["too few"]
    assert not scopes([0.1]).rows("from search_verdicts")


def test_differences_on_unseen_data_are_tested_over_all_of_the_search_by_hand() -> None:
    search = Search({"f1": True})
    for number, (own, noise) in enumerate(((0.7, 0.0), (0.5, 0.01), (0.69, 0.01), (0.7, 0.0), (0.4, 0.0))):
        search.trial({"prompt.demo_sets": number}, [own], [own])
        left_out = [own + noise * one for one in (-2, -1, 0, 1, 2)]
        search.value(number, "f1", "evaluation", own, left_out)
    rows = search.rows("from search_trials order by trial")
    # Of five groups: sqrt(4/5 * sum of squares) = sqrt(0.8 * 10) * 0.01, with 4 degrees of freedom.
    error = 0.01 * math.sqrt(8)
    p = [2 * stats.t.sf(difference / error, 4) for difference in (0.2, 0.01)]
    found = [row["evaluation_difference_p"] for row in rows]
    assert found[0] is None  # the chosen one
    assert found[1:3] == pytest.approx(p, rel=0.15)  # student_p is a little large
    assert found[3:] == [1, None]  # the same everywhere; another without any error, which is no test
    adjusted = [row["evaluation_difference_p_adjusted"] for row in rows]
    assert adjusted[1:4] == pytest.approx([3 * found[1], 1, 1], rel=1e-9)
    assert [row["verdict"] for row in rows] == [None, "lower", "unclear", "unclear", None]
    [row] = search.rows("from search_best")
    assert [row[name] for name in ("n_tested", "n_told_worse", "n_told_better")] == [3, 1, 0]


@pytest.mark.parametrize(
    ("maximize", "words"), [(True, ("n_told_worse", "higher")), (False, ("n_told_better", "lower"))]
)
def test_the_side_of_a_word_goes_by_what_is_better(maximize: bool, words: tuple[str, str]) -> None:
    search = Search({"rsd": maximize})
    for number, (choice, evaluation) in enumerate(((0.9 if maximize else 0.1, 0.9), (0.5, 0.5))):
        search.trial({"prompt.demo_sets": number}, [choice], [evaluation])
        search.value(number, "rsd", "evaluation", evaluation, [evaluation + number * 0.001 * one for one in range(10)])
    [row] = search.rows("from search_best")
    assert (row[words[0]], row["evaluation_gain_verdict"]) == (1, words[1])
    assert row["evaluation_gain_p_adjusted"] == row["evaluation_gain_p"] < 0.05
    assert (row["flat_low"], row["n_within_noise"]) == (None, 0)


def flat(point: str, values: list[Any]) -> Search:
    """Return a search whose last trial is far behind the others, which noise does not tell apart."""
    search = Search({"f1": True}, keys=[point])
    for trial, (value, own) in enumerate(zip(values, (0.70, 0.69, 0.71, 0.2), strict=True)):
        search.trial({point: value}, [own], [own])
        search.value(trial, "f1", "choice", own, [own + (-1) ** trial * one for one in NOISE])
    return search


NOISE = (-0.03, 0.0, 0.03)


def test_where_an_optimum_is_flat_is_a_column_by_hand() -> None:
    row = best(flat("seed", [3, 5, 8, 13]))
    # The trial at 8 is chosen. That at 5 errs the other way: sqrt(2/3 * 2) * 0.06 * 4.3 is more than 0.02. That at 3
    # errs the same way, so that its difference of 0.01 has no error.
    assert (row["n_within_noise"], row["flat_low"], row["flat_high"]) == (1, 5, 5)
    row = best(flat("scoring.normalization", ["sum", "mean", "none", "other"]))
    assert (row["n_within_noise"], row["flat_low"], row["flat_high"]) == (1, None, None)


def test_a_number_beside_the_objective_is_kept_and_decides_nothing() -> None:
    search = by_task()
    expected = search.rows("from search_best")
    for trial in range(3):
        search.value(trial, "n_rows", "choice", 100.0 - trial, [100.0, 100.0], "one")
    assert search.rows("from search_best") == expected
    assert {row["objective"] for row in search.rows("from search_trials")} == {"f1"}
    assert not search.problems("trials_are_whole")
    # It is no objective that is there.
    search.values = [row for row in search.values if (row["trial"], row["objective"]) != (2, "f1")]
    assert search.problems("trials_are_whole") == ["trial 2 has 0 objectives"]


def test_the_sample_of_all_questions_decides_nothing() -> None:
    search = sets(0.5, 0.3)
    expected = search.rows("from search_best")
    for trial in range(2):
        search.value(trial, "rsd", "all", 0.1 * trial, [])
    assert search.rows("from search_best") == expected
    assert not search.problems("trials_are_whole")


def test_importance_is_that_of_a_scope() -> None:
    # Of one: the mean is 0.5, total 0.16 + 0.09 + 0.01 = 0.26, within 0.01 + 0.01 = 0.02 with 3 - 2 degrees of
    # freedom, so (0.26 - 0.02 - 0.02) / 0.26. Of two each bin has one trial.
    found = by_task().rows("select scope, share from search_importance")
    assert found == [{"scope": "one", "share": pytest.approx(0.22 / 0.26)}, {"scope": "two", "share": None}]
