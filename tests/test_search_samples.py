"""Samples of a search, and searched thresholds."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from biaseval.analysis import query
from biaseval.errors import BiasevalError
from biaseval.runs import report_run
from biaseval.search.computed_trials import Computed, make_block
from biaseval.search.samples import ChooseOn, assigned
from biaseval.search.trials import MADE, SHARED
from biaseval.spec import dump_spec, stored_spec
from biaseval.store import Run
from tests.labelplans import Plan
from tests.qaplans import HEURISTIC_COLUMNS, QaPlan
from tests.relation import Relations
from tests.searches import searched

pytestmark = [pytest.mark.usefixtures("few_groups"), pytest.mark.slow]

Place = tuple[str, int]
"""A sample and a group of it."""


def about(articles: Sequence[object], title: str | None = None) -> QaPlan:
    """Return questions about articles, of which each number is one."""
    plan = QaPlan()
    plan.questions({"ans_len": [1.0] * len(articles)})
    for row, article in zip(plan.examples, articles, strict=True):
        row["context"], row["title"] = f"article {article}", title
    return plan


def articles_of(
    plan: QaPlan, folder: Path, choose_on: ChooseOn = "half", seed: int = 42
) -> dict[tuple[str, str], set[Place]]:
    """Return where the questions about each article of each data set are."""
    contexts = {(row["dataset"], row["example_id"]): row["context"] for row in plan.examples}
    found: dict[tuple[str, str], set[Place]] = {}
    plan.write(folder)
    for row in members_of(folder, "qa_bias", choose_on, seed):
        if row["sample"] != "all":
            place = row["dataset"], contexts[row["dataset"], row["example_id"]]
            found.setdefault(place, set()).add((row["sample"], row["group"]))
    return found


def members_of(folder: Path, kind: str, choose_on: ChooseOn = "half", seed: int = 42) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = assigned(Run.open(str(folder)), kind, choose_on, seed).to_pylist()
    return rows


def test_questions_about_one_article_stay_together(tmp_path: Path) -> None:
    sizes = [7, 1, 3, 1, 1, 4, 2, 1, 1, 1, 6, 2, 1, 3, 1, 1, 1, 5, 2, 1, 3, 1, 1, 2, 8]
    order = [(7 * place) % sum(sizes) for place in range(sum(sizes))]  # neighbours are about different ones
    every = [article for article, size in enumerate(sizes) for _ in range(size)]
    found = articles_of(about([every[place] for place in order]), tmp_path)
    assert len(found) == len(sizes)
    assert {len(places) for places in found.values()} == {1}
    loads = Counter[Place]()
    for (_, article), places in found.items():
        loads[next(iter(places))] += sizes[int(article.split()[1])]
    # Each article goes where there is least: places differ by one article at most.
    assert len(loads) == 2 * 3
    assert {group for _, group in loads} == set(range(3))
    assert max(loads.values()) - min(loads.values()) <= max(sizes)


def test_a_set_about_one_article_is_not_halved(tmp_path: Path) -> None:
    """Articles are told by their titles where they have one."""
    plan = about([0] * 6)
    plan.spec["datasets"]["out_of_distribution"] = {"nq": "nq.json"}
    plan.questions({"ans_len": [1.0] * 4}, dataset="nq")
    plan.examples[-1]["context"] = "another"
    titled = about(range(4), title="one")
    single = (
        "choose_on: squad has a single article or row, which cannot be halved; give more, or choose on all of it "
        r"\(choose_on: published\)"
    )
    for name, lacking in (("half", plan), ("titled", titled)):
        with pytest.raises(BiasevalError, match=single):
            articles_of(lacking, tmp_path / name)
    found = articles_of(plan, tmp_path / "published", "published")
    assert [places for (dataset, _), places in found.items() if dataset == "squad"] == [{("choice", 0)}]
    assert len(articles_of(about(range(4), title=""), tmp_path / "untitled")) == 4


def test_halves_are_those_of_the_seed_whatever_else_is_measured(tmp_path: Path) -> None:
    alone, both = about(range(30)), about(range(30))
    both.spec["datasets"]["out_of_distribution"] = {"nq": "nq.json"}
    both.questions({"ans_len": [1.0] * 30}, dataset="nq")
    for number, row in enumerate(both.examples[30:]):
        row["context"] = f"article {number}"
    found, of_both = articles_of(alone, tmp_path / "one"), articles_of(both, tmp_path / "both")
    assert found.items() < of_both.items()
    assert articles_of(alone, tmp_path / "other", seed=43) != found
    # The same articles of another set are dealt out for themselves.
    assert any(of_both["nq", article] != places for (_, article), places in found.items())


def test_a_row_is_in_one_half_whatever_its_setting(tmp_path: Path) -> None:
    plan, tasks = Plan(), ("task001", "task002")
    for task in tasks:
        plan.task(task, ["a", "b"])
        for n_demos, demo_set in ((0, 0), (2, 0), (2, 1)):
            for purpose, n in (("main", 9), ("bias_score", 4), ("cc", 3)):
                for _ in range(n):
                    gold = None if purpose == "cc" else "a"
                    plan.probabilities(task, purpose, gold, [0.6, 0.4], n_demos=n_demos, demo_set=demo_set)
    plan.write(tmp_path)
    found = members_of(tmp_path, "label_bias")
    # A row stands there once, and calibration inputs are in no half.
    rows = [(purpose, row) for purpose, n in (("main", 9), ("bias_score", 4)) for row in range(n)]
    keys = [(row["task"], row["purpose"], row["row"]) for row in found]
    assert sorted(keys) == sorted((task, *row) for task in tasks for row in rows)
    sizes = Counter((row["task"], row["as_purpose"], row["sample"]) for row in found)
    by_purpose = {("main", "choice"): 5, ("main", "evaluation"): 4, ("bias_score", "choice"): 2}
    expected = {**by_purpose, ("bias_score", "evaluation"): 2}
    assert sizes == {(task, *place): n for task in tasks for place, n in expected.items()}
    assert all(row["as_purpose"] == row["purpose"] for row in found)
    chosen = [{key[1:] for key, row in zip(keys, found, strict=True) if (key[0], row["sample"]) == (task, "choice")}
              for task in tasks]  # fmt: skip
    assert chosen[0] != chosen[1]


SEARCHED_COLUMNS = {
    column: name for column, name in HEURISTIC_COLUMNS.items() if name in ("ans_len", "word_dist", "cos_sim")
}


def _planned(shared: Path) -> QaPlan:
    """Return the golden questions as one data set about 60 articles."""
    questions = pq.read_table(shared / "golden/qa/significance_text_table.parquet").to_pydict()
    plan = QaPlan(heuristics=list(SEARCHED_COLUMNS.values()), bootstrap={"trials": 20, "sample": 200})
    plan.questions(
        {
            heuristic: [
                None if heuristic in ("word_dist", "subj_pos") and value < 0 else float(value)
                for value in questions[column]
            ]
            for column, heuristic in SEARCHED_COLUMNS.items()
        }
    )
    for number, row in enumerate(plan.examples):
        row["title"] = f"article {number % 60}"
    plan.answers([float(value) for value in questions["exact_match"]], questions["f1"])
    return plan


def _searched(plan: QaPlan, **changes: Any) -> Any:
    left_out = dict.fromkeys(("search", "objective", "trials"), ...)
    content = {"spec": plan.spec, "preset": "mikula2024-thresholds", **left_out}
    return stored_spec(searched(**content, **changes), "spec")


@pytest.fixture(scope="module")
def found(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[QaPlan, Run]:
    plan = _planned(shared)
    search = _searched(plan)
    run = Run.open(str(tmp_path_factory.mktemp("search")))
    run.write_text("spec.yaml", dump_spec(search))
    run.write_json("environment.json", {})
    run.write_json("plan.json", {"n_trials": search.n_trials, "objectives": ["bias_significance"], "batch": 4})
    plan.write(Path(run.uri) / SHARED)
    run.write_json(MADE, {"files": []})
    points = [{"thresholds.*": value} for value in search.search["thresholds.*"]["grid"]]
    for unit in Computed(search).units:
        make_block(unit.number, run_uri=run.uri, points={unit.number: points[unit.number : unit.number + unit.size]})
    report_run(run.uri, page=False)
    return plan, run


def _rows(run: Run, sql: str) -> list[dict[str, Any]]:
    return query([run.uri], sql).to_pylist()


def _exhaustive(plan: QaPlan, folder: Path) -> dict[tuple[str, str], float | None]:
    """Return by scope and rule what is chosen among all thresholds of a run that measures all its questions at once."""
    rules = ", ".join(f"{rule}_threshold(candidates, 200) as {rule}" for rule in ("paper", "reference"))
    sql = (
        f"select concat_ws(', ', model, dataset, heuristic) as scope, {rules} from (select model, dataset, heuristic, "
        "list({'threshold': threshold, 'distance': bias_significance, 'n_lower': n_lower, 'n_higher': n_higher} "
        "order by threshold) as candidates from qa_bias_candidates group by all)"
    )
    found = Relations(plan.write(folder)).rows(sql)
    return {(row["scope"], rule): row[rule] for row in found for rule in ("paper", "reference")}


def test_thresholds_are_those_of_an_exhaustive_search_rule_by_rule(found: tuple[QaPlan, Run], tmp_path: Path) -> None:
    plan, run = found
    expected = _exhaustive(plan, tmp_path)
    rows = _rows(run, "from search_thresholds where sample = 'all'")
    assert {(row["scope"], row["rule"]): row["threshold"] for row in rows} == expected
    assert len(expected) == 2 * len(SEARCHED_COLUMNS)
    assert any(value is not None for value in expected.values())
    assert len({value for value in expected.values() if value is not None}) >= 2


def test_a_half_chooses_as_a_run_of_this_half_does(found: tuple[QaPlan, Run], tmp_path: Path) -> None:
    plan, run = found
    members = assigned(Run.open(f"{run.uri}/{SHARED}"), "qa_bias", "half", 42).to_pylist()
    chosen = {row["example_id"] for row in members if row["sample"] == "choice"}
    assert 0 < len(chosen) < len(plan.examples)
    half = QaPlan(**{key: plan.spec[key] for key in ("heuristics", "bootstrap")})
    half.examples = [row for row in plan.examples if row["example_id"] in chosen]
    half.attributes = [row for row in plan.attributes if row["example_id"] in chosen]
    half.predictions = [row for row in plan.predictions if row["example_id"] in chosen]
    expected = _exhaustive(half, tmp_path)
    rows = _rows(run, "from search_thresholds where sample = 'choice'")
    assert {(row["scope"], row["rule"]): row["threshold"] for row in rows} == expected


def test_what_half_a_set_chose_is_measured_on_the_other(found: tuple[QaPlan, Run]) -> None:
    rows = _rows(found[1], "from search_thresholds")
    asked = "from trial_values where sample = 'evaluation' and left_out is null and objective = 'bias_significance'"
    measured = {(row["trial"], row["scope"]): row["value"] for row in _rows(found[1], asked)}
    assert {row["sample"] for row in rows} == {"all", "choice"}
    for row in rows:
        is_chosen = row["sample"] == "choice" and row["threshold"] is not None
        assert is_chosen or (row["evaluation"], row["evaluation_low"]) == (None, None)
        if row["evaluation"] is not None:
            assert row["evaluation_low"] is None or row["evaluation_low"] <= row["evaluation"] <= row["evaluation_high"]
            assert row["evaluation"] == measured[row["trial"], row["scope"]]
        assert row["threshold"] is not None or row["bias_significance"] in (0, None)
    assert any(row["evaluation_low"] is not None for row in rows)
