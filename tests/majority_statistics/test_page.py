"""The page says what the tests support, and how few seeds there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from biaseval.report.majority import render_majority_page
from biaseval.report.majority_findings import read_majority_findings
from biaseval.runs import write_report
from biaseval.store import Run
from tests.majority_report.runs import make_run
from tests.majorityplans import ANSWERS, MajorityPlan, rows
from tests.measuring import measure
from tests.pages import Page


def test_an_answer_that_is_always_the_same_is_said_first_and_has_no_boundary(tmp_path: Path) -> None:
    answers = {place: ("TTTT", "TTTT") if place[1] else given for place, given in ANSWERS.items()}
    run = make_run(tmp_path / "run", 7_000, answers, calibration=("looc",))
    write_report(run)
    text = Page(Run.open(run).read_text("report.html")).text
    first = text[text.index("Verdict No better") :]
    assert first.startswith("Verdict No better than one label for all: label likelihood ")
    assert "accuracy 0.750; 100.0 % of the answers over all settings are one label)" in first
    assert "RB@10 says nothing, as no setting is better than one label for all, with instruction" in text
    assert "not judged (not shown to beat one label) in 1 of 2" in text
    assert "3 of 3 settings are within" not in text


def test_one_seed_is_said_to_be_one_draw(tmp_path: Path) -> None:
    plan = MajorityPlan(("likelihood",), n_repeats=50)
    plan.contexts = [row for row in plan.contexts if row["demo_set"] == 3]
    plan.prompts = [row for row in plan.prompts if row["demo_set"] == 3]
    kept = {row["prompt_id"] for row in plan.prompts}
    plan.label_scores = [row for row in plan.label_scores if row["prompt_id"] in kept]
    run = plan.write(tmp_path)
    measure(run)
    write_report(run)
    text = Page(Run.open(run).read_text("report.html")).text
    assert "There is one seed: all numbers hold for one draw of demonstrations in each setting." in text
    assert "Proportions: one seed cannot tell whether they matter" in text
    assert "shown to matter" not in text
    [tests] = [part for part in Run.open(run).read_text("report.html").split("<table") if "by sign flips" in part]
    bands = [line.split("<td")[5] for line in tests.split("<tr>")[2:]]
    assert bands == [">–</td>"] * 2  # the gaps at the tails and in the middle
    assert all(row["simultaneous_low"] is not None for row in rows(run, "from majority_verdicts"))


@pytest.mark.parametrize(("p", "told"), [(0.0005, "(p < 0.001, sd 0."), (0.4, "(p = 0.400; ")])
def test_the_page_says_whether_proportions_matter(p: float, told: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 7_000)
    findings = read_majority_findings(Run.open(run))
    for row in findings.by_model:
        row["proportions_p_adjusted"] = p
    text = Page(render_majority_page(findings, [])).text
    assert told in text
    assert ("Proportions: not shown to matter without (p = " in text) is (p > 0.05)
    assert ("Proportions: weighted F1 depends on them without (p < " in text) is (p <= 0.05)


def test_every_verdict_stands_on_the_page_with_its_test(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 7_000, calibration=("looc",))
    write_report(run)
    source = Run.open(run).read_text("report.html")
    [table] = [part for part in source.split("<table") if "by sign flips" in part]
    assert table.count("<tr>") - 1 == len(rows(run, "from majority_verdicts")) == 2 * 3 + 2 * 2
    assert "200 rows" in table
    assert "2 seeds" in table
    assert "too few seeds" in table
