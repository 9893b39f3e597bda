"""What a search came to by SQL: the chosen trial, noise, tests and importance, done by hand; its checks."""

import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from scipy import stats

from biaseval.analysis import query
from biaseval.spec import load_spec
from tests.measuring import measure
from tests.searches import Search

T_OF_TWO = 12.706205
"""The 97.5 % quantile of t with one degree of freedom: of two groups."""


def sets(*values: float, maximize: bool = False) -> Search:
    """Return a search of one objective that came to these values, in the order of its trials, on both halves."""
    search = Search({"rsd": maximize})
    for number, value in enumerate(values, start=1):
        search.trial({"prompt.demo_sets": number}, [value], [value])
    return search


def by_task() -> Search:
    """Return a search that looks for a point for each of two tasks, one of which the last trial does not have."""
    search = Search({"f1": True}, per=["task"], keys=["b"])
    for b, values in (("p", {"one": 0.9, "two": 0.1}), ("q", {"one": 0.2, "two": 0.8}), ("q", {"one": 0.4})):
        search.trial({"b": b}, *({task: [value - less] for task, value in values.items()} for less in (0, 0.1)))
    return search


def best(search: Search, *columns: str) -> Any:
    """Return the row of the chosen trial, or some of it."""
    [row] = search.rows("from search_best")
    return tuple(row[name] for name in columns) if columns else row


def tuples(search: Search, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in search.rows(sql)]


def close(*numbers: float) -> Any:
    return pytest.approx(numbers)


@pytest.mark.parametrize(("maximize", "chosen"), [(True, 1), (False, 2)])
def test_the_best_trial_is_chosen_and_of_equals_the_first(maximize: bool, chosen: int) -> None:
    search = sets(0.5, 0.7, 0.3, 0.7, 0.3, maximize=maximize)
    assert best(search, "trial") == (chosen,)
    assert tuples(search, "select trial from search_trials where is_chosen") == [(chosen,)]


def test_trials_that_did_not_come_to_an_end_are_shown_and_never_chosen() -> None:
    search = sets(0.5, 0.4, maximize=True)
    search.trial({"prompt.demo_sets": 9}, state="stopped", problem="it was slow", steps=7)
    search.trial({"prompt.demo_sets": 8}, state="stopped", problem="it was slow", steps=3)
    search.trial({"prompt.demo_sets": 7})
    nothing = (None, None, None, False)
    shown = "select trial, state, problem, value, difference, is_within_noise, is_chosen from search_trials"
    assert tuples(search, f"{shown} where trial > 1") == [
        (2, "stopped", "it was slow", *nothing),
        (3, "stopped", "it was slow", *nothing),
        (4, "failed", "it broke", *nothing),
    ]
    assert best(search, "trial", "n_done", "n_stopped", "n_failed", "n_trials", "steps") == (0, 2, 2, 1, 5, 10)
    costs = [("done", 2, 0, 0, 0), ("failed", 1, 0, 0, 0), ("stopped", 2, 10, 3, 7)]
    assert tuples(search, "from search_costs") == costs
    assert not search.problems("trials_are_whole")
    # Where none came to an end, there is no best, and no scope that trials could be of.
    search = sets()
    search.trial({"prompt.demo_sets": 1})
    assert not search.rows("from search_best")
    assert not search.rows("from search_trials")
    assert search.rows("select state, n_trials from search_costs") == [{"state": "failed", "n_trials": 1}]


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
    for row, value, error in zip(found, (0.8, 0.7, 0.1), (0.1, 0.08, 0.09), strict=True):
        assert (row["value_low"], row["value_high"]) == close(value - T_OF_TWO * error, value + T_OF_TWO * error)
    unseen = (found[1]["evaluation_low"], found[1]["evaluation_high"])
    assert unseen == close(0.6 - T_OF_TWO * 0.05, 0.6 + T_OF_TWO * 0.05)
    # Group by group the second lies 0.08 and 0.12 below the first: error 0.02; the third 0.69 and 0.71: error 0.01.
    assert [row["difference"] for row in found] == pytest.approx([0, -0.1, -0.7])
    ends = (found[1]["difference_low"], found[1]["difference_high"], found[2]["difference_high"])
    assert ends == close(-0.1 - T_OF_TWO * 0.02, -0.1 + T_OF_TWO * 0.02, -0.7 + T_OF_TWO * 0.01)
    assert [row["is_within_noise"] for row in found] == [True, True, False]
    assert best(search, "n_within_noise", "n_compared", "n_worse") == (1, 2, 1)  # the chosen one is not counted


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
    assert (row["estimate"], row["standard_error"]) == close(0.15, 0.05 * math.sqrt(6 / 5) / math.sqrt(6))
    [row] = scopes([0.1, 0.2, 0.1, 0.2, 0.1, -0.2]).rows("from search_verdicts")
    assert (row["p"] > 0.05, row["verdict"]) == (True, "unclear")
    assert [row["verdict"] for row in scopes([0.1] * 5).rows("from search_verdicts")] == ["too few"]
    assert not scopes([0.1]).rows("from search_verdicts")


def test_differences_on_unseen_data_are_tested_over_all_of_the_search_by_hand() -> None:
    search = Search({"f1": True})
    for number, (own, noise) in enumerate(((0.7, 0.0), (0.5, 0.01), (0.69, 0.01), (0.7, 0.0), (0.4, 0.0))):
        search.trial({"prompt.demo_sets": number}, [own], [own])
        search.value(number, "f1", "evaluation", own, [own + noise * one for one in (-2, -1, 0, 1, 2)])
    rows = search.rows("from search_trials order by trial")
    # Of five groups: sqrt(4/5 * sum of squares) = sqrt(0.8 * 10) * 0.01, with 4 degrees of freedom.
    p = [2 * stats.t.sf(difference / (0.01 * math.sqrt(8)), 4) for difference in (0.2, 0.01)]
    found = [row["evaluation_difference_p"] for row in rows]
    assert found[0] is None  # the chosen one
    assert found[1:3] == pytest.approx(p, rel=0.15)  # student_p is a little large
    assert found[3:] == [1, None]  # the same everywhere; another without any error, which is no test
    adjusted = [row["evaluation_difference_p_adjusted"] for row in rows]
    assert adjusted[1:4] == pytest.approx([3 * found[1], 1, 1], rel=1e-9)
    assert [row["verdict"] for row in rows] == [None, "lower", "unclear", "unclear", None]
    assert best(search, "n_tested", "n_told_worse", "n_told_better") == (3, 1, 0)


@pytest.mark.parametrize(("maximize", "told", "word"), [(True, "worse", "higher"), (False, "better", "lower")])
def test_the_side_of_a_word_goes_by_what_is_better(maximize: bool, told: str, word: str) -> None:
    search = Search({"rsd": maximize})
    for number, (choice, evaluation) in enumerate(((0.9 if maximize else 0.1, 0.9), (0.5, 0.5))):
        search.trial({"prompt.demo_sets": number}, [choice], [evaluation])
        search.value(number, "rsd", "evaluation", evaluation, [evaluation + number * 0.001 * one for one in range(10)])
    assert best(search, f"n_told_{told}", "evaluation_gain_verdict") == (1, word)
    assert best(search)["evaluation_gain_p_adjusted"] == best(search)["evaluation_gain_p"] < 0.05
    assert best(search, "flat_low", "n_within_noise") == (None, 0)


def test_importance_is_epsilon_squared_by_hand() -> None:
    """Total 4 + 1 + 1 + 4 = 10. By a.x: within 0.5 + 0.5 = 1 with 4 - 2 degrees of freedom, so (10 - 1 - 0.5) / 10.

    By b: within 4.5 + 4.5 = 9, so (10 - 9 - 4.5) / 10 < 0.
    """
    search = Search({"f1": True}, keys=["a.x", "b"])
    for (x, b), value in {(0.5, "p"): 1.0, (0.5, "q"): 2.0, (2.0, "p"): 4.0, (2.0, "q"): 5.0}.items():
        search.trial({"a.x": x, "b": b}, [value], [value])
    search.trial({"a.x": 9.0, "b": "p"})  # failed: in no bin
    found = tuples(search, "select key, share, n_bins, n_trials from search_importance")
    assert found == [("a.x", pytest.approx(0.85), 2, 4), ("b", 0.0, 2, 4)]
    # It is not known where each bin has one trial, or nothing differs.
    search = Search({"f1": True})
    for b in "ppq":
        search.trial({"b": b}, [0.5], [0.5])
    for unknown, n_bins in ((sets(0.1, 0.2, 0.3), 3), (search, 2)):
        assert tuples(unknown, "select share, n_bins from search_importance") == [(None, n_bins)]


FAILED = {"trial": 9, "state": "failed", "objectives": None}
BROKEN: dict[str, Any] = {
    'trial 0 is running and has {"rsd": 0.9}': lambda search: search.trials[0].update(state="running"),
    "trial 0 is done and has no objectives": lambda search: search.trials[0].update(objectives=None),
    'trial 0 is done and has {"rsd": 0.9}': lambda search: search.trials[0].update(problem="it broke"),
    "trial 9 is failed and has no objectives": lambda search: search.trials.append({**search.trials[0], **FAILED}),
    "trial 1: rsd on choice: null": lambda search: search.value(1, "rsd", "choice", None, [1.0, 1.0]),
    "trial 1: rsd on choice: nan": lambda search: search.value(1, "rsd", "choice", math.nan, [1.0, 1.0]),
}


@pytest.mark.parametrize("problem", BROKEN)
def test_a_broken_search_is_named_by_its_check(problem: str) -> None:
    search = sets(0.9, 0.8, 0.5)
    BROKEN[problem](search)
    assert search.problems("trials_are_whole") == [problem]


def test_a_search_that_is_measured_has_its_marts_and_the_best_spec(tmp_path: Path) -> None:
    run = sets(0.5, 0.3, 0.4).write(tmp_path / "run")
    measure(run)
    assert query([run], "select trial, value, n_trials from search_best").to_pylist() == [
        {"trial": 1, "value": 0.3, "n_trials": 3}
    ]
    assert load_spec(tmp_path / "run" / "best.yaml").prompt.demo_sets == 2
    content = yaml.safe_load((tmp_path / "run" / "best.yaml").read_text())
    assert (content["kind"], content["name"]) == ("label_bias", "tiny")
