"""A search of thresholds: its rules choose what an exhaustive search chooses, on all questions and on one half."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from biaseval.analysis import query
from biaseval.report import search_page
from biaseval.runs import report_run
from biaseval.search.computed_trials import Computed, make_block
from biaseval.search.samples import assigned
from biaseval.search.trials import MADE, SHARED
from biaseval.spec import dump_spec, stored_spec
from biaseval.store import Run
from tests.pages import Page
from tests.qaplans import HEURISTIC_COLUMNS, QaPlan
from tests.relation import Relations
from tests.searches import searched


def _planned(shared: Path) -> QaPlan:
    """Return the golden questions as one data set about 60 articles."""
    questions = pq.read_table(shared / "golden/qa/significance_text_table.parquet").to_pydict()
    plan = QaPlan(heuristics=list(HEURISTIC_COLUMNS.values()), bootstrap={"trials": 20, "sample": 200})
    plan.questions(
        {
            heuristic: [
                None if heuristic in ("word_dist", "subj_pos") and value < 0 else float(value)
                for value in questions[column]
            ]
            for column, heuristic in HEURISTIC_COLUMNS.items()
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


@pytest.mark.slow
def test_thresholds_are_those_of_an_exhaustive_search_rule_by_rule(found: tuple[QaPlan, Run], tmp_path: Path) -> None:
    plan, run = found
    expected = _exhaustive(plan, tmp_path)
    rows = _rows(run, "from search_thresholds where sample = 'all'")
    assert {(row["scope"], row["rule"]): row["threshold"] for row in rows} == expected
    assert len(expected) == 2 * len(HEURISTIC_COLUMNS)
    assert any(value is not None for value in expected.values())
    assert len({value for value in expected.values() if value is not None}) >= 3


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


def test_each_trial_is_one_threshold_of_every_heuristic(found: tuple[QaPlan, Run]) -> None:
    rows = _rows(found[1], "select trial, value, scope, state from search_trials order by all")
    assert len({row["trial"] for row in rows}) == 110
    assert {row["state"] for row in rows} == {"done"}
    # Counts are tried at whole numbers alone.
    [tenth] = _rows(found[1], "select trial from search_parameters where number = 0.3")
    scopes = [row["scope"] for row in rows if row["trial"] == tenth["trial"] and row["value"] is not None]
    assert scopes == ["bert, squad, cos_sim"]


def test_the_report_sets_the_choice_of_a_half_beside_that_of_all(found: tuple[QaPlan, Run]) -> None:
    html = search_page(found[1]).html.split("Thresholds by the rules of the paper</h2>")[1]
    shown = Page(html.split("</table>")[0]).text
    asked = "from search_thresholds where scope like '%word_dist' and rule = 'paper' order by sample"
    published, chosen = _rows(found[1], asked)
    for words in (
        *(
            f"word_dist paper {row['sample']} {row['threshold']:.4g} {row['bias_significance']:.4g}"
            for row in (published, chosen)
        ),
        f"{chosen['evaluation']:.4g} [",
    ):
        assert words in shown
