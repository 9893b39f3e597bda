"""A search of thresholds: its rules choose what an exhaustive search chooses, on all questions and on one half."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from biaseval.analysis import query
from biaseval.report import search_page
from biaseval.runs import analyse_run
from biaseval.search.computed_trials import Computed, make_block
from biaseval.search.samples import assigned
from biaseval.search.trials import MADE, SHARED
from biaseval.spec import SearchSpec, dump_spec, stored_spec
from biaseval.store import Run
from tests.measuring import measure
from tests.qaplans import HEURISTIC_COLUMNS, QaPlan
from tests.searches import searched

Rows = list[dict[str, Any]]

COUNTS = [name for name in HEURISTIC_COLUMNS.values() if name != "cos_sim"]


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


def _searched(plan: QaPlan, **changes: Any) -> SearchSpec:
    content = {
        "spec": plan.spec,
        "preset": "mikula2024-thresholds",
        **dict.fromkeys(("search", "objective", "trials"), ...),
    }
    spec = stored_spec(searched(**content, **changes), "spec")
    assert isinstance(spec, SearchSpec)
    return spec


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
    analyse_run(run.uri)
    return plan, run


def _rows(run: Run, sql: str) -> Rows:
    rows: Rows = query([run.uri], sql).to_pylist()
    return rows


def _exhaustive(plan: QaPlan, folder: Path) -> dict[tuple[str, str], float | None]:
    """Return by scope and rule what is chosen among all thresholds of a run that measures all its questions at once."""
    run = plan.write(folder)
    measure(run)
    rules = ", ".join(f"{rule}_threshold(candidates, 200) as {rule}" for rule in ("paper", "reference"))
    sql = (
        f"select concat_ws(', ', model, dataset, heuristic) as scope, {rules} from (select model, dataset, heuristic, "
        "list({'threshold': threshold, 'distance': bias_significance, 'n_lower': n_lower, 'n_higher': n_higher} "
        "order by threshold) as candidates from qa_bias_candidates group by all)"
    )
    return {(row["scope"], rule): row[rule] for row in query([run], sql).to_pylist() for rule in ("paper", "reference")}


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
    assert {row["sample"] for row in rows} == {"all", "choice"}
    for row in rows:
        is_chosen = row["sample"] == "choice" and row["threshold"] is not None
        assert is_chosen or (row["evaluation"], row["evaluation_low"]) == (None, None)
        if row["evaluation"] is not None:
            assert row["evaluation_low"] is None or row["evaluation_low"] <= row["evaluation"] <= row["evaluation_high"]
            [value] = _rows(
                found[1],
                f"select value from trial_values where trial = {row['trial']} and scope = '{row['scope']}' and "
                "sample = 'evaluation' and left_out is null and objective = 'bias_significance'",
            )
            assert value["value"] == row["evaluation"]
        if row["threshold"] is None:
            assert row["bias_significance"] in (0, None)
    assert any(row["evaluation_low"] is not None for row in rows)


def test_each_trial_is_one_threshold_of_every_heuristic(found: tuple[QaPlan, Run]) -> None:
    rows = _rows(found[1], "select trial, value, scope from search_trials inner join trials using (trial) order by all")
    assert len({row["trial"] for row in rows}) == 110
    # Counts are tried at whole numbers alone.
    [tenth] = _rows(found[1], "select trial from search_parameters where number = 0.3")
    scopes = [row["scope"] for row in rows if row["trial"] == tenth["trial"] and row["value"] is not None]
    assert scopes == ["bert, squad, cos_sim"]
    assert _rows(found[1], "select distinct state from trials") == [{"state": "done"}]


def test_the_report_sets_the_choice_of_a_half_beside_that_of_all(found: tuple[QaPlan, Run]) -> None:
    page = search_page(found[1]).html
    table = page[page.index("Thresholds by the rules of the paper") :]
    table = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", table[: table.index("</table>")]))
    rows = _rows(found[1], "from search_thresholds where scope like '%word_dist' and rule = 'paper' order by sample")
    published, chosen = rows
    shown = f"bert, squad, word_dist paper {chosen['threshold']:.0f} {chosen['bias_significance']:.2f}"
    assert shown in table
    assert f"{chosen['evaluation']:.2f} [" in table
    assert f"{published['threshold']:.0f} {published['bias_significance']:.2f}" in table
