"""What objectives are on samples: the same as on a run that has measured nothing else; and which are none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biaseval.analysis import query
from biaseval.errors import BiasevalError, InputError
from biaseval.pipelines.directory import read_spec
from biaseval.runs.kinds import kind_of
from biaseval.search.objectives import Computing, Objective, Value, objective_columns
from biaseval.search.samples import ChooseOn, assigned, kept
from biaseval.search.trials import Came, deriving
from biaseval.spec import LabelBiasSpec, MajorityBiasSpec, QaBiasSpec
from biaseval.store import Run
from tests.labelplans import Plan, two_tasks
from tests.majorityplans import MajorityPlan
from tests.measuring import measure
from tests.qaplans import QaPlan

F1 = "select avg(macro_f1) as f1 from label_bias_by_task"

Values = dict[tuple[str, str, str, int | None], float | None]
"""Objective, scope, sample and the group that is left out, to the value."""


def found(
    run: Run, sql: str, per: Sequence[str] = (), choose_on: ChooseOn = "half", seed: int = 42
) -> list[Value | BiasevalError]:
    """Return what a query comes to on each sample of a run, and without each of its groups."""
    spec = read_spec(run)
    assert isinstance(spec, LabelBiasSpec | MajorityBiasSpec | QaBiasSpec)
    name = objective_columns(spec.kind, sql, per)[0]
    objective = Objective(spec.kind, name, sql, per, choose_on, seed)
    alone = Computing(deriving(kind_of(spec), spec), [()])
    return [own for _, own in objective.values(run, [alone])]


def values(run: Run, *queries: str, **how: Any) -> Values:
    """Return what queries come to, all of them being numbers."""
    every = [own for sql in queries for own in found(run, sql, **how)]
    assert not [own for own in every if isinstance(own, BiasevalError)]
    return {own[:4]: own.value for own in every if isinstance(own, Value)}


def came_of(every: Sequence[Value | BiasevalError]) -> Came:
    return Came.of(every, "x")


# What can be asked


def test_an_objective_is_called_as_its_column() -> None:
    assert objective_columns("label_bias", F1) == ["f1"]
    behind = "select max(rsd) as worst from label_bias_by_task -- of all tasks"
    assert objective_columns("label_bias", behind) == ["worst"]
    by_task = "select task, n_demos, accuracy from label_bias_by_task"
    assert objective_columns("label_bias", by_task, ["task", "n_demos"]) == ["accuracy"]


@pytest.mark.parametrize("number", ["1", "1.5", "1::hugeint", "1::utinyint", "1::float", "sum(n_demos)"])
def test_any_sort_of_number_is_one(number: str) -> None:
    assert objective_columns("label_bias", f"select {number} as x from contexts") == ["x"]


def test_beside_the_number_that_is_looked_for_others_may_stand() -> None:
    sql = "select task, rsd, bias_score, n_rows from label_bias_by_task"
    assert objective_columns("label_bias", sql, ["task"]) == ["rsd", "bias_score", "n_rows"]


ONE = "it must return one number"


@pytest.mark.parametrize(
    ("sql", "per", "expected"),
    [
        ("select macro_fl from label_bias_by_task", [], 'Referenced column "macro_fl" not found in FROM clause!'),
        ("select avg(x) from qa_by_dataset", [], "Table with name qa_by_dataset does not exist!"),
        ("selec 1", [], "Parser Error: syntax error"),
        ("select 1 as a; select 2 as b", [], "Parser Error: syntax error"),
        ("drop table prompts", [], "Parser Error: syntax error"),
        ("select task from label_bias_by_task", [], f"returns task (VARCHAR); {ONE}: select task"),
        ("select rsd > 0 as is_biased from label_bias_by_task", [], f"returns is_biased (BOOLEAN); {ONE}"),
        ("select 1 as a, 2.5 as b", [], f"returns a (INTEGER), b (DECIMAL(2,1)); {ONE}: select 1"),
        ("select labels from tasks", [], f"returns labels (VARCHAR[]); {ONE}"),
        ("select rsd, bias_score from label_bias_by_task", [], f"returns rsd (DOUBLE), bias_score (DOUBLE); {ONE}"),
        (
            "select task, method, rsd from label_bias_by_task",
            ["task"],
            "returns method (VARCHAR), rsd (DOUBLE) beside task",
        ),
        ("select task from label_bias_by_task", ["task"], f"returns nothing beside task; {ONE}: select task"),
        (F1, ["task"], "objective.sql: lacks the column task that per names; select it: select avg(macro_f1)"),
        (F1, ["task", "n_demos"], "lacks the column task, n_demos that per names"),
    ],
)
def test_what_is_no_objective_is_refused(sql: str, per: list[str], expected: str) -> None:
    with pytest.raises(InputError) as caught:
        objective_columns("label_bias", sql, per)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "sql"),
    [
        ("qa_bias", "select max(f1) as f1 from evaluations"),
        ("qa_bias", "select max(f1_biased) as f1 from qa_bias_models"),
        ("label_bias", "select max(weight) as weight from calibration_parameters"),
        ("label_bias", "select 1 as one"),
    ],
)
def test_what_is_the_same_on_every_half_can_only_be_asked_of_all(kind: str, sql: str) -> None:
    assert objective_columns(kind, sql, [], "published")
    with pytest.raises(InputError, match=r"objective.sql: is the same on every half .*choose_on: published"):
        objective_columns(kind, sql, [], "half")


# What has no number


def one_task(n_rows: int = 8) -> Plan:
    """Return a task whose rows are told right and wrong by turns, without bias-score rows or calibration."""
    plan = Plan()
    plan.spec["calibration"] = []
    plan.task("task001", ["a", "b"])
    for number in range(n_rows):
        plan.probabilities("task001", "main", "ab"[number % 2], [0.7, 0.3])
    return plan


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        (
            "select accuracy as x from label_bias_by_label cross join label_bias_by_task",
            "2 rows; it must return one number",
        ),
        ("select accuracy as x from label_bias_by_task where n_demos = 9", "no row; it must return one"),
        ("select null::double as x", "null or no finite number; it must return one number"),
        ("select 'nan'::double as x", "null or no finite number; it must return one number"),
        ("select 'inf'::double as x", "null or no finite number; it must return one number"),
    ],
)
def test_a_trial_without_one_number_has_failed(tmp_path: Path, sql: str, what: str) -> None:
    came = came_of(found(Run.open(one_task().write(tmp_path)), sql))
    assert came.state == "failed"
    assert came.values == ()
    assert came.problem == f"objective x: the query returns {what} of every trial"


def test_a_trial_whose_query_breaks_has_failed(tmp_path: Path) -> None:
    came = came_of(found(Run.open(one_task().write(tmp_path)), "select max(task)::int as x from label_bias_by_task"))
    assert came.state == "failed"
    assert came.problem is not None
    assert "Conversion Error: Could not convert string 'task001' to INT32" in came.problem


def test_a_number_that_lacks_only_without_a_group_fails_nothing(tmp_path: Path) -> None:
    """Of four rows in each half only one is left where three are needed: those have no value."""
    sql = "select if(sum(n_rows) >= 4, 1, null) as x from label_bias_by_task where method = 'none'"
    given = values(Run.open(one_task().write(tmp_path)), sql)
    assert given == {
        ("x", "all", sample, left_out): 1.0 if left_out is None else None
        for sample in ("choice", "evaluation")
        for left_out in (None, 0, 1, 2, 3)
    }


def test_of_several_scopes_some_may_lack_a_number(tmp_path: Path) -> None:
    run = Run.open(two_tasks().write(tmp_path))
    numbers = "avg(accuracy) filter (task = 'task001_animals') as x, sum(n_rows) as n"
    sql = f"select task, n_demos, {numbers} from label_bias_by_task where method = 'none' group by all"
    given = values(run, sql, per=["task", "n_demos"])
    # Beside it stands how many rows there are: of 30 one half, in two sets.
    assert [given["n", f"task001_animals, {n}", "choice", None] for n in (0, 2)] == [15, 30]
    whole = {key[1]: value for key, value in given.items() if (key[0], *key[2:]) == ("x", "choice", None)}
    assert whole.keys() == {f"{task}, {n}" for task in ("task001_animals", "task002_letters") for n in (0, 2)}
    assert [scope for scope, value in whole.items() if value is None] == ["task002_letters, 0", "task002_letters, 2"]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (
            "select task, accuracy as x from label_bias_by_task where n_demos = 2",
            "objective x: the query returns several rows of task001_animals; let per name what tells them apart",
        ),
        (
            "select task, 1 as x from tasks where task = 'absent'",
            "objective x: the query returns no row; it must return one of every trial",
        ),
    ],
)
def test_a_trial_without_a_row_for_each_scope_has_failed(tmp_path: Path, sql: str, expected: str) -> None:
    came = came_of(found(Run.open(two_tasks().write(tmp_path)), sql, per=["task"]))
    assert (came.state, came.problem) == ("failed", expected)


def test_what_came_of_a_trial_is_told_by_objective_and_scope() -> None:
    rows = [
        Value("f1", "all", "choice", None, 0.5),
        Value("f1", "all", "choice", 0, 0.25),
        Value("f1", "all", "evaluation", None, 0.75),
        Value("rsd", "task001", "choice", None, 0.125),
        Value("rsd", "task002", "choice", None, None),
    ]
    came = Came.of(rows, "f1", steps=7)
    assert (came.state, came.steps, came.problem) == ("done", 7, None)
    # What stands beside an objective is none.
    assert (came.found("choice"), came.found("evaluation")) == ('{"f1": 0.5}', '{"f1": 0.75}')
    assert Came.of(rows[:2], "f1").found("evaluation") is None
    assert Came.of(rows[3:], "rsd").found("choice") == '{"rsd": {"task001": 0.125, "task002": null}}'


# What it is on a sample

QUERIES = (
    "select avg(f1) as f1 from qa_by_dataset where model = 'bert'",
    "select f1_high - f1_low as width from qa_by_dataset where model = 'roberta'",
    "select max(bias_significance) as bias from qa_bias_by_heuristic where model = 'bert'",
    "select sum(threshold * n_lower) as segments from qa_bias_candidates where model = 'roberta'",
    "select count(*) as n from qa_examples",
)


def articles(n_articles: int = 30) -> QaPlan:
    """Return the answers of two readers to one to three questions about each of some articles."""
    rng = np.random.default_rng(3)
    plan = QaPlan(("bert", "roberta"), bootstrap={"trials": 20, "sample": 5})
    sizes = rng.integers(1, 4, size=n_articles)
    n = int(sizes.sum())
    lengths = rng.integers(1, 5, size=n)
    plan.questions({"ans_len": lengths.tolist()})
    for row, article in enumerate(rng.permutation(np.repeat(np.arange(n_articles), sizes))):
        plan.examples[row]["context"] = f"article {article}"
    for model, share in (("bert", 0.9), ("roberta", 0.5)):
        right = rng.random(n) < np.where(lengths > 2, share, 0.4)
        plan.answers(right.astype(float).tolist(), (0.5 + right / 2).tolist(), model=model)
    return plan


def of_these(plan: QaPlan, questions: set[tuple[str, str]], folder: Path) -> str:
    """Write a run that has measured only these questions, and return its place."""
    own = QaPlan(("bert", "roberta"), bootstrap={"trials": 20, "sample": 5})
    for name in ("examples", "attributes", "predictions"):
        setattr(own, name, [row for row in getattr(plan, name) if (row["dataset"], row["example_id"]) in questions])
    uri = own.write(folder)
    measure(uri)
    return uri


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> tuple[QaPlan, Run, Values]:
    """Return a plan of answered questions, its run, and what queries come to on its halves."""
    plan = articles()
    run = Run.open(plan.write(tmp_path_factory.mktemp("answered"), n_parts=2))
    return plan, run, values(run, *QUERIES)


@pytest.mark.slow
@pytest.mark.parametrize(("sample", "left_out"), [("choice", None), ("evaluation", None), ("choice", 4)])
def test_an_objective_of_readers_is_that_of_a_run_of_these_questions_alone(
    answered: tuple[QaPlan, Run, Values], tmp_path: Path, sample: str, left_out: int | None
) -> None:
    plan, run, given = answered
    members = kept(assigned(run, "qa_bias", "half", 42), sample, left_out).to_pylist()
    questions = {(row["dataset"], row["example_id"]) for row in members}
    assert len(plan.examples) / 2 - 9 < len(questions) < len(plan.examples) / 2 + 3
    alone = of_these(plan, questions, tmp_path / "alone")
    for sql in QUERIES:
        [[name, expected]] = query([alone], sql).to_pydict().items()
        assert expected[0] is not None
        assert given[name, "all", sample, left_out] == pytest.approx(expected[0], abs=1e-12), name
    assert given["n", "all", sample, left_out] == len(questions)


def test_an_objective_on_all_of_it_is_that_of_the_run(answered: tuple[QaPlan, Run, Values], tmp_path: Path) -> None:
    plan, run, halved = answered
    given = values(run, *QUERIES[:1], choose_on="published")
    whole = plan.write(tmp_path / "run")
    measure(whole)
    for sql in QUERIES:
        [[name, expected]] = query([whole], sql).to_pydict().items()
        # Of questions that are halved it is computed to be compared, without intervals.
        assert halved[name, "all", "all", None] == pytest.approx(expected[0], abs=1e-12), name
    assert given["f1", "all", "choice", None] == halved["f1", "all", "all", None]
    assert {sample for _, _, sample, _ in given} == {"choice"}
    assert {left_out for _, _, sample, left_out in halved if sample == "all"} == {None}


def test_an_objective_for_each_reader_is_that_of_the_reader(answered: tuple[QaPlan, Run, Values]) -> None:
    given = values(answered[1], "select model, f1 from qa_by_dataset", per=["model"])
    bert = {key[2:]: value for key, value in given.items() if key[1] == "bert"}
    assert bert == {key[2:]: value for key, value in answered[2].items() if key[0] == "f1"}
    other = {key[2:]: value for key, value in given.items() if key[1] == "roberta"}
    assert other.keys() == bert.keys()
    assert other != bert


@pytest.mark.slow
def test_an_objective_over_proportions_is_that_of_a_run_of_these_rows_alone(tmp_path: Path) -> None:
    plan = MajorityPlan(calibration=("cc", "looc"), n_repeats=6)
    run = Run.open(plan.write(tmp_path / "run"))
    queries = (
        "select avg(weighted_f1) as f1 from majority_over_seeds",
        "select max(share_majority + half_width) as rb from majority_by_model where method = 'cc'",
    )
    given = values(run, *queries)
    members = kept(assigned(run, "majority_bias", "half", 42), "choice", None).to_pylist()
    own = {row["row"] for row in members}
    assert len(own) == 12
    gone = {row["prompt_id"] for row in plan.prompts if row["purpose"] == "majority" and row["row"] not in own}
    for name in ("prompts", "label_scores", "generations"):
        setattr(plan, name, [row for row in getattr(plan, name) if row["prompt_id"] not in gone])
    alone = plan.write(tmp_path / "alone")
    measure(alone)
    for sql in queries:
        [[name, expected]] = query([alone], sql).to_pydict().items()
        assert math.isfinite(expected[0])
        assert given[name, "all", "choice", None] == pytest.approx(expected[0], abs=1e-12), name
