"""Checks of searches, each broken by hand, and what a run directory holds behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from biaseval.analysis import query
from biaseval.errors import BiasevalError
from biaseval.runs import analyse_run
from biaseval.spec import load_spec
from biaseval.store import Run
from tests.test_search_sql import by_task, sets


def test_a_whole_search_has_no_problem() -> None:
    search = sets(0.9, 0.8, 0.5)
    search.trial({"seed": 7})
    search.trial({"seed": 8}, state="stopped", problem="it was slow")
    assert not search.problems("trials_are_whole")


def test_a_value_may_be_missing_of_what_the_choice_does_not_see() -> None:
    search = sets(0.4, 0.5)
    search.value(0, "rsd", "evaluation", None, [None, None])
    assert not search.problems("trials_are_whole")
    rows = search.rows("select value, evaluation, evaluation_difference from search_trials order by trial")
    # The chosen trial has none, so there is no difference; the other one's value stays.
    assert [tuple(row.values()) for row in rows] == [(0.4, None, None), (0.5, 0.5, None)]


def test_a_value_may_be_missing_of_one_scope_of_several() -> None:
    search = by_task()
    search.value(1, "f1", "choice", None, [None, None], "two")
    assert not search.problems("trials_are_whole")
    assert {row["scope"]: row["trial"] for row in search.rows("from search_best")} == {"one": 0, "two": 0}


BROKEN: dict[str, tuple[Any, list[str]]] = {
    "a state that there is not": (
        lambda search: search.trials[0].update(state="running"),
        ['trial 0 is running and has {"rsd": 0.9}'],
    ),
    "done without objectives": (
        lambda search: search.trials[0].update(objectives=None),
        ["trial 0 is done and has no objectives"],
    ),
    "done with a problem": (
        lambda search: search.trials[0].update(problem="it broke"),
        ['trial 0 is done and has {"rsd": 0.9}'],
    ),
    "failed without a problem": (
        lambda search: search.trials.append({**search.trials[0], "trial": 9, "state": "failed", "objectives": None}),
        ["trial 9 is failed and has no objectives"],
    ),
    "an objective without a value": (
        lambda search: search.value(1, "rsd", "choice", None, [1.0, 1.0]),
        ["trial 1: rsd on choice: null"],
    ),
    "an objective that is no number": (
        lambda search: search.value(1, "rsd", "choice", float("nan"), [1.0, 1.0]),
        ["trial 1: rsd on choice: nan"],
    ),
    "no objective at all": (
        lambda search: search.values.__setitem__(slice(None), [row for row in search.values if row["trial"] != 1]),
        ["trial 1 has 0 objectives"],
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_search_is_named_by_its_check(what: str) -> None:
    search = sets(0.9, 0.8, 0.5)
    breaks, expected = BROKEN[what]
    breaks(search)
    assert search.problems("trials_are_whole") == expected


# Run directories


def test_a_search_that_is_measured_has_its_marts_and_the_best_spec(tmp_path: Path) -> None:
    search = sets(0.5, 0.3, 0.4)
    run = Run.open(search.write(tmp_path / "run"))
    analyse_run(run.uri)
    [row] = query([run.uri], "select trial, value, n_trials from search_best").to_pylist()
    assert row == {"trial": 1, "value": 0.3, "n_trials": 3}
    best_spec = load_spec(tmp_path / "run" / "best.yaml")
    assert best_spec.kind == "label_bias"
    assert best_spec.prompt.demo_sets == 2
    content = yaml.safe_load((tmp_path / "run" / "best.yaml").read_text())
    assert (content["kind"], content["name"]) == ("label_bias", "tiny")


def test_there_is_no_best_spec_where_a_point_is_chosen_for_each_scope(tmp_path: Path) -> None:
    objective = {"sql": "select task, accuracy as f1 from label_bias_by_task", "maximize": True}
    run = Run.open(by_task().write(tmp_path / "run", algorithm="random", per=["task"], objective=objective))
    analyse_run(run.uri)
    assert [row["trial"] for row in query([run.uri], "select trial from search_best").to_pylist()] == [0, 1]
    assert not run.has("best.yaml")


def test_a_broken_search_gives_no_metrics(tmp_path: Path) -> None:
    search = sets(0.5, 0.3)
    search.trials[1]["problem"] = "it broke"
    with pytest.raises(BiasevalError, match=r"trials_are_whole(.|\n)*trial 1 is done and has"):
        analyse_run(search.write(tmp_path / "run"))
    assert not (tmp_path / "run" / "best.yaml").exists()


def test_a_search_none_of_whose_trials_ended_well_has_no_best_spec(tmp_path: Path) -> None:
    search = sets()
    search.trial({"prompt.demo_sets": 1})
    analyse_run(search.write(tmp_path / "run"))
    assert not query([str(tmp_path / "run")], "from search_best").num_rows
    assert not (tmp_path / "run" / "best.yaml").exists()
