"""What objectives are on samples: the same as on a run that has measured nothing else; and which are none."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biaseval.errors import BiasevalError, InputError
from biaseval.pipelines.directory import read_spec
from biaseval.runs.kinds import kind_of
from biaseval.search.objectives import Computing, Objective, Value, objective_columns
from biaseval.search.samples import ChooseOn, assigned, kept
from biaseval.search.trials import Came, deriving
from biaseval.spec import LabelBiasSpec, MajorityBiasSpec, QaBiasSpec
from biaseval.store import Run
from tests.labelplans import Plan
from tests.majorityplans import MajorityPlan
from tests.qaplans import QaPlan
from tests.relation import Relations

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
    """Return what queries come to, all of them being numbers: as one query, whose relations are made once."""
    names = ", ".join(str(re.search(r" as (\w+) from", sql)[1]) for sql in queries)
    every = found(run, f"select 'all' as what, {names} from ({'), ('.join(queries)})", ["what"], **how)
    assert not [own for own in every if isinstance(own, BiasevalError)]
    return {own[:4]: own.value for own in every if isinstance(own, Value)}


pytestmark = [pytest.mark.usefixtures("few_groups"), pytest.mark.slow]

BY_TASK = "select task, rsd, bias_score, n_rows from label_bias_by_task"


@pytest.mark.parametrize(
    ("sql", "per", "names"),
    [
        (F1, [], ["f1"]),
        ("select max(rsd) as worst from label_bias_by_task -- of all tasks", [], ["worst"]),
        ("select task, n_demos, accuracy from label_bias_by_task", ["task", "n_demos"], ["accuracy"]),
        (BY_TASK, ["task"], ["rsd", "bias_score", "n_rows"]),
        *((f"select {number} as x from contexts", [], ["x"]) for number in ("1", "1.5", "1::hugeint", "1::utinyint",
          "1::float", "sum(n_demos)")),
    ],
)  # fmt: skip
def test_an_objective_is_called_as_its_column_beside_which_other_numbers_may_stand(
    sql: str, per: list[str], names: list[str]
) -> None:
    assert objective_columns("label_bias", sql, per) == names


ONE = "it must return one number"


@pytest.mark.parametrize(("sql", "per", "expected"), [
    ("select macro_fl from label_bias_by_task", [], 'Referenced column "macro_fl" not found in FROM clause!'),
    ("select avg(x) from qa_by_dataset", [], "Table with name qa_by_dataset does not exist!"),
    ("select 1 as a; select 2 as b", [], "Parser Error: syntax error"),
    ("select task from label_bias_by_task", [], f"returns task (VARCHAR); {ONE}: select task"),
    ("select rsd > 0 as is_biased from label_bias_by_task", [], f"returns is_biased (BOOLEAN); {ONE}"),
    ("select rsd, bias_score from label_bias_by_task", [], f"returns rsd (DOUBLE), bias_score (DOUBLE); {ONE}"),
    ("select task, method, rsd from label_bias_by_task", ["task"], "returns method (VARCHAR), rsd (DOUBLE) beside"),
    ("select task from label_bias_by_task", ["task"], f"returns nothing beside task; {ONE}: select task"),
    (F1, ["task"], "objective.sql: lacks the column task that per names; select it: select avg(macro_f1)"),
])  # fmt: skip
def test_what_is_no_objective_is_refused(sql: str, per: list[str], expected: str) -> None:
    with pytest.raises(InputError) as caught:
        objective_columns("label_bias", sql, per)
    assert expected in str(caught.value)


@pytest.mark.parametrize(("kind", "sql"), [
    ("qa_bias", "select max(f1) as f1 from evaluations"),
    ("qa_bias", "select max(f1_biased) as f1 from qa_bias_models"),
    ("label_bias", "select max(weight) as weight from calibration_parameters"), ("label_bias", "select 1 as one"),
])  # fmt: skip
def test_what_is_the_same_on_every_half_can_only_be_asked_of_all(kind: str, sql: str) -> None:
    assert objective_columns(kind, sql, [], "published")
    with pytest.raises(InputError, match=r"objective.sql: is the same on every half .*choose_on: published"):
        objective_columns(kind, sql, [], "half")


@pytest.fixture(scope="module")
def one_task_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a task whose rows are told right and wrong by turns, without bias-score rows or calibration."""
    plan = Plan()
    plan.spec["calibration"] = []
    plan.task("task001", ["a", "b"])
    for number in range(8):
        plan.probabilities("task001", "main", "ab"[number % 2], [0.7, 0.3])
    return Run.open(plan.write(tmp_path_factory.mktemp("runs") / "one_task"))


NO_NUMBER = "null or no finite number; it must return one number"


@pytest.mark.parametrize(("sql", "per", "problem"), [
    ("select recall as x from label_bias_by_label", [], "2 rows; it must return one number"),
    ("select accuracy as x from label_bias_by_task where n_demos = 9", [], "no row; it must return one"),
    ("select null::double as x", [], NO_NUMBER), ("select 'nan'::double as x", [], NO_NUMBER),
    ("select 'inf'::double as x", [], NO_NUMBER),
    ("select max(task)::int as x from label_bias_by_task", [], "Could not convert string 'task001' to INT32"),
    ("select 'a' as task, recall as x from label_bias_by_label", ["task"], "several rows of a; let per name what"),
    ("select task, 1 as x from tasks where task = 'absent'", ["task"], "no row; it must return one of every trial"),
])  # fmt: skip
def test_a_trial_without_one_number_of_each_scope_has_failed(
    one_task_run: Run, sql: str, per: list[str], problem: str
) -> None:
    came = Came.of(found(one_task_run, sql, per, "published"), "x")
    assert (came.state, came.values) == ("failed", ())
    told = problem if "convert" in problem else f"objective x: the query returns {problem}"
    assert told in str(came.problem)


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
    return own.write(folder)


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> tuple[QaPlan, Run, Values]:
    """Return a plan of answered questions, its run, and what queries come to on its halves."""
    plan = articles()
    run = Run.open(plan.write(tmp_path_factory.mktemp("answered"), n_parts=2))
    return plan, run, values(run, *QUERIES)


@pytest.mark.parametrize(("sample", "left_out"), [("choice", None), ("evaluation", None), ("choice", 2)])
def test_an_objective_of_readers_is_that_of_a_run_of_these_questions_alone(
    answered: tuple[QaPlan, Run, Values], tmp_path: Path, sample: str, left_out: int | None
) -> None:
    plan, run, given = answered
    members = kept(assigned(run, "qa_bias", "half", 42), sample, left_out).to_pylist()
    questions = {(row["dataset"], row["example_id"]) for row in members}
    assert len(plan.examples) / 2 - 9 < len(questions) < len(plan.examples) / 2 + 3
    alone = Relations(of_these(plan, questions, tmp_path / "alone"))
    for sql in QUERIES:
        [[name, expected]] = alone.rows(sql)[0].items()
        assert expected is not None
        assert given[name, "all", sample, left_out] == pytest.approx(expected, abs=1e-12), name
    assert given["n", "all", sample, left_out] == len(questions)


def test_an_objective_on_all_of_it_is_that_of_the_run(answered: tuple[QaPlan, Run, Values], tmp_path: Path) -> None:
    plan, run, halved = answered
    given = values(run, *QUERIES[:1], choose_on="published")
    whole = Relations(plan.write(tmp_path / "run"))
    for sql in QUERIES:
        [[name, expected]] = whole.rows(sql)[0].items()
        # Of questions that are halved it is computed to be compared, without intervals.
        assert halved[name, "all", "all", None] == pytest.approx(expected, abs=1e-12), name
    assert given["f1", "all", "choice", None] == halved["f1", "all", "all", None]
    assert {sample for _, _, sample, _ in given} == {"choice"}
    assert {left_out for _, _, sample, left_out in halved if sample == "all"} == {None}


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
    alone = Relations(plan.write(tmp_path / "alone"))
    for sql in queries:
        [[name, expected]] = alone.rows(sql)[0].items()
        assert math.isfinite(expected)
        assert given[name, "all", "choice", None] == pytest.approx(expected, abs=1e-12), name
