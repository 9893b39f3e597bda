"""Trials that are arithmetic: blocks of them come to what each comes to alone, and to what marts say."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from biaseval.analysis import query
from biaseval.digests import inspected
from biaseval.errors import TransientError
from biaseval.runs.kinds import kind_of
from biaseval.search.computed_trials import make_block, together
from biaseval.search.kind import SEARCH, SearchInputs
from biaseval.search.objectives import Computing, Objective, Value, objective_columns
from biaseval.search.samplers import Point
from biaseval.search.trials import MADE, SHARED, deriving
from biaseval.spec import SearchedSpec, SearchSpec, dump_spec, stored_spec
from biaseval.store import Run
from tests.labelplans import Plan, plan_tasks, two_tasks
from tests.majorityplans import MajorityPlan
from tests.measuring import measure
from tests.relation import Relations
from tests.searches import BASE, searched
from tests.specs import whole_spec
from tests.taskfiles import write_task
from tests.test_indistinct_labels import label_bias_spec
from tests.tinymodels import make_tokenizer

pytestmark = [pytest.mark.usefixtures("few_groups"), pytest.mark.slow]

STRENGTH = "calibration.cc.strength"

QUERIES = {
    "macro_f1": "select avg(macro_f1) as macro_f1 from label_bias_by_task where method like '%cc%'",
    "weight": "select sum(weight) as weight from calibration_parameters",
}


def _search(calibration: Sequence[str] = ("cc",), spec: dict[str, Any] | None = None, **changes: Any) -> Any:
    base = spec or {**BASE, "calibration": list(calibration)}
    given = {"search": {STRENGTH: [0, 0.5, 1, 1.5]}, "algorithm": "grid", "trials": ..., **changes}
    return stored_spec(searched(spec=base, **given), "spec")


def _values(run: Run, specs: Sequence[SearchedSpec], objective: Objective) -> dict[int, list[Value]]:
    """Return the values of specs, computed as those that belong together are."""
    groups = together(dict(enumerate(specs)))
    kind = kind_of(specs[0])
    computings = [Computing(deriving(kind, own.spec), list(own.own.values())) for own in groups]
    places = [place for own in groups for place in own.own]
    found: dict[int, list[Value]] = {place: [] for place in places}
    for place, value in objective.values(run, computings):
        assert isinstance(value, Value)
        found[places[place]].append(value)
    return found


def test_specs_that_are_computed_as_one_come_to_what_each_comes_to_alone(tmp_path: Path) -> None:
    run = Run.open(two_tasks().write(tmp_path / "run"))
    search = _search(["looc", "cc"])
    points: list[Point] = [
        {STRENGTH: 0.3}, {STRENGTH: 1.2, "scoring.normalization": "sum"}, {STRENGTH: 1.2},
        {STRENGTH: 1, "calibration.cc.inputs": 2},
    ]  # fmt: skip
    specs = [search.at(point) for point in points]
    assert [list(own.own) for own in together(dict(enumerate(specs)))] == [[0, 2, 3], [1]]
    for name, sql in QUERIES.items():
        objective = Objective("label_bias", name, sql, [], "published", 42)
        found = _values(run, specs, objective)
        for place, spec in enumerate(specs):
            [alone] = _values(run, [spec], objective).values()
            assert found[place] == alone
        assert [len(own) for own in found.values()] == [1 + 3] * len(points)
        assert name != "macro_f1" or len({own[0].value for own in found.values()}) == len(points)


def test_strengths_of_majority_bias_give_what_its_marts_say(tmp_path: Path) -> None:
    sql = "select avg(mean_f1) + max(rb_at_10) as sum from majority_by_model where method like 'cc%'"
    plan = MajorityPlan(predict=("likelihood",), calibration=("cc",), n_repeats=3)
    base = whole_spec(plan.spec)
    search = _search(search={STRENGTH: [0, 0.5, 1]}, spec=base)
    objective = Objective("majority_bias", "sum", sql, [], "published", 42)
    run = Run.open(plan.write(tmp_path / "run"))
    strengths = (0.5, 1.0)
    found = _values(run, [search.at({STRENGTH: strength}) for strength in strengths], objective)
    for place, strength in enumerate(strengths):
        plan.spec["calibration"] = [f"cc@{strength}"]
        uri = plan.write(tmp_path / str(place))
        assert found[place][0].value == pytest.approx(Relations(uri).rows(sql)[0]["sum"])
    # The one prompt whose p_hat is not a half turns another way only with all of it: 0.9 / 0.95 against 0.1 / 0.05.
    assert found[0][0].value != found[1][0].value
    halves = Objective("majority_bias", "sum", sql, [], "half", 42)
    [own] = _values(run, [search.at({STRENGTH: 1})], halves).values()
    assert {value.sample for value in own} == {"choice", "evaluation"}


def _searching(folder: Path, plan: Plan, search: SearchSpec) -> Run:
    """Return a search whose shared outputs are those of a plan."""
    run = Run.open(str(folder))
    run.create()
    run.write_text("spec.yaml", dump_spec(search))
    name = objective_columns(search.spec.kind, search.objective.sql, search.per)[0]
    inputs: Any = SearchInputs(name, None, search.n_trials)  # nothing else of it is asked for
    run.write_json("plan.json", SEARCH.write(run, search, inputs))
    run.write_json("environment.json", {})
    plan.write(folder / SHARED)
    run.write_json(MADE, {"files": []})
    return run


def _ended(run: Run, search: SearchSpec, points: Sequence[Point]) -> list[dict[str, Any]]:
    """Return the rows of ``search_trials`` of a search whose trials are computed, in one block."""
    make_block(0, run_uri=run.uri, points={0: points})
    measure(run.uri)
    return query([run.uri], "from search_trials").to_pylist()


def _held_out(n_main: int, n_held_out: int) -> Plan:
    """Return a task whose held-out rows and main rows have nothing in common."""
    plan = Plan()
    plan.task("task001", ["a", "b"])
    for purpose, n, p in (("main", n_main, 0.3), ("held_out", n_held_out, 0.7), ("bias_score", 32, 0.6)):
        for number in range(n):
            plan.probabilities("task001", purpose, "ab"[number % 2], [p, 1 - p])
    for _ in range(3):
        plan.probabilities("task001", "cc", None, [0.6, 0.4])
    return plan


def test_held_out_rows_stand_in_place_of_main_rows_and_choose(tmp_path: Path) -> None:
    """All main rows are told b and all others a; uncalibrated accuracy is a half, by 40 and by 20 + 32 rows."""
    run = Run.open(_held_out(40, 20).write(tmp_path / "run"))
    numbers = "t.n_rows::double as n_rows, t.n_bias_score_rows::double as n_bias, l.n_predicted::double as n_a"
    of_a = "t join label_bias_by_label l using (task, method) where method = 'none' and label = 'a'"
    # What the choice does not see may lack the number: that decides nothing.
    alone = "select if(n_rows = 52, 1, null) as x from label_bias_by_task where method = 'none'"
    by_sample = {}
    for sql, per in ((f"select task, {numbers} from label_bias_by_task {of_a}", ["task"]), (alone, [])):
        [found] = _values(run, [_search().spec], Objective("label_bias", "x", sql, per, "held_out", 42)).values()
        by_sample |= {(own.objective, own.sample): own.value for own in found if own.left_out is None}
    for name, expected in {"n_rows": (52, 40), "n_bias": (16, 16), "n_a": (52, 0), "x": (1, None)}.items():
        assert (by_sample[name, "choice"], by_sample[name, "evaluation"]) == expected
    [row] = Relations(run.uri).rows("from label_bias_by_task where method = 'none'")
    assert (row["n_rows"], row["n_bias_score_rows"]) == (40, 32)


def test_a_setting_scores_the_demonstrations_of_others(tmp_path: Path) -> None:
    write_task(tmp_path, n_instances=400)
    spec = label_bias_spec(tmp_path)
    plans = {}
    for held_out in (False, True):
        own = spec.model_copy(update={"held_out": held_out})
        [plan] = plan_tasks(own, make_tokenizer())
        plans[held_out] = [row for part in plan.parts for row in part.prompts.to_pylist()]
    demonstrations = {
        row["instance_id"]: row["position"] for row in plan.splits.to_pylist() if row["role"] == "demonstration"
    }
    by_setting: dict[tuple[int, int], set[int]] = {}
    for row in plans[True]:
        if row["purpose"] == "held_out":
            assert demonstrations[row["instance_id"]] == row["row"]
            by_setting.setdefault((row["n_demos"], row["demo_set"]), set()).add(row["row"])
    assert by_setting[0, 0] == set(range(64))
    for n_demos, demo_set in by_setting:
        shown = set(range(n_demos * demo_set, n_demos * (demo_set + 1)))
        assert by_setting[n_demos, demo_set] == set(range(64)) - shown
    ids = [row["prompt_id"] for row in plans[True] if row["purpose"] != "held_out"]
    assert ids == [row["prompt_id"] for row in plans[False]]


def test_a_block_records_what_fails_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sql = "select nullif(max(if(method = 'cc', 1, 0.5)), 1) as x from label_bias_by_task where method like 'cc%'"
    search = _search(objective={"sql": sql, "maximize": True}, choose_on="published")
    run = _searching(tmp_path / "search", two_tasks(), search)
    points: list[Point] = [{STRENGTH: strength} for strength in (0.5, 1, 2, 1.5)]
    shared = [TransientError("full"), inspected(Run.open(f"{run.uri}/{SHARED}"))]
    monkeypatch.setattr("biaseval.search.computed_trials.inspected", Mock(side_effect=shared))
    with pytest.raises(TransientError, match="full"):
        make_block(0, run_uri=run.uri, points={0: points})
    make_block(0, run_uri=run.uri, points={0: points})
    rows = run.read_part("trials", 0).to_pylist()
    assert [row["state"] for row in rows] == ["done", "failed", "failed", "done"]
    assert "returns null" in rows[1]["problem"]
    assert "a strength is 0 (no calibration) to 1.5" in rows[2]["problem"]
    assert [row["objectives"] for row in rows] == ['{"x": 0.5}', None, None, '{"x": 0.5}']
    assert {row["run"] for row in rows} == {None}


def _skewed() -> Plan:
    """Return three tasks: one always answered alike, one right, a small one."""
    plan = Plan()
    for task, n_rows in (("constant", 200), ("right", 200), ("small", 20)):
        plan.task(task, ["a", "b", "c"])
        golds = ["a"] * (n_rows * 6 // 10) + ["b"] * (n_rows * 3 // 10) + ["c"] * (n_rows // 10)
        for purpose, own in (("main", golds), ("bias_score", list("abc") * 10)):
            for place, gold in enumerate(own):
                said = gold if place else "c"
                likely = [0.6 if label == said else 0.2 for label in "abc"]
                plan.probabilities(task, purpose, gold, [0.5, 0.3, 0.2] if task == "constant" else likely)
        for _ in range(3):
            plan.probabilities(task, "cc", None, [0.8, 0.15, 0.05] if task == "constant" else [1 / 3] * 3)
    return plan


def test_a_constant_answer_that_is_chosen_is_no_better_than_one(tmp_path: Path) -> None:
    """By RSD, always a is the least biased answer of its task: what is chosen stays, and is not praised."""
    sql = "select task, avg(rsd) as rsd from label_bias_by_task where method like 'cc%' group by task"
    search = _search(search={STRENGTH: [0, 0.5, 1]}, objective={"sql": sql, "maximize": False}, per=["task"])
    run = _searching(tmp_path / "search", _skewed(), search)
    rows = _ended(run, search, [{STRENGTH: strength} for strength in (0, 0.5, 1)])
    above = {(row["scope"], row["trial"]): row["is_above_constant"] for row in rows}
    assert {above["constant", trial] for trial in range(3)} == {False}
    assert {above["right", trial] for trial in range(3)} == {True}
    assert {above["small", trial] for trial in range(3)} == {None}
    best = query([run.uri], "select scope, trial, is_above_constant from search_best").to_pylist()
    assert {row["scope"]: row["is_above_constant"] for row in best} == {"constant": False, "right": True, "small": None}
    assert {row["scope"]: row["trial"] for row in best}["constant"] == 0
    stored = query([run.uri], "select is_above_constant from trial_values where left_out is not null").to_pylist()
    assert {row["is_above_constant"] for row in stored} == {None}
    said = query([run.uri], "select text from search_conclusions").to_pylist()
    assert any("the chosen trial is not shown to be better in 2 of 3" in row["text"] for row in said)


def test_an_objective_that_rests_on_few_and_many_settings_is_not_shown(tmp_path: Path) -> None:
    """The mean over all tasks is of one that is better and two that are not shown to be; its best is of the one."""
    found = "select avg(accuracy) as mean, max(accuracy) as best from label_bias_by_task where method like 'cc%'"
    sql = f"select what, x from ({found}) unpivot (x for what in (mean, best))"
    search = _search(objective={"sql": sql, "maximize": True}, per=["what"])
    run = _searching(tmp_path / "search", _skewed(), search)
    rows = _ended(run, search, [{STRENGTH: 1}])
    assert {row["scope"]: row["is_above_constant"] for row in rows} == {"mean": None, "best": True}
