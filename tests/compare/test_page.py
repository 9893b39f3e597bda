"""What is printed of a comparison, and its page."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from biaseval.analysis import query
from biaseval.analysis.comparing import N_LISTED, compare_runs
from biaseval.cli import printing
from biaseval.report.compare_page import write_compared
from biaseval.report.compare_tables import matrix, overview
from biaseval.report.compare_words import caveats
from tests.commands import call
from tests.compare.runs import HITS, compared_rows, label_plan, make
from tests.pages import Page


def test_the_command_prints_verdicts_rows_and_a_page(
    labels: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.html"
    found = call(capsys, monkeypatch, "compare", *labels, "--out", str(page))
    assert found.code == 0, found.err
    words = {row["metric"]: row["verdict"] for row in compare_runs(labels).tests if row["run"] == "first"}
    assert words.pop("relative_variance") == words["rsd"]
    assert words.pop("squared_preference") == words["bias_score"]
    n_apart = sum(word in ("higher", "lower") for word in words.values())
    assert len(words) == 4
    assert n_apart >= 2
    assert f"other against first, 7 tasks with 56 rows: {n_apart} of 4 comparisons told apart" in found.out
    assert re.search(r"accuracy +│ +0\.5000 │ +0\.7679 │ +0\.5000 │ +\+0\.268", found.out)
    assert found.out.endswith(f"page: {page}\n")
    text = Page(page.read_text()).text
    assert f"{n_apart} of 4 comparisons told apart" in text
    assert "16 predictions that only other has right" in text
    assert not re.search(r"(src|href)=.(http|//)", page.read_text())
    as_json = json.loads(call(capsys, monkeypatch, "compare", *labels, "--json").out)
    compared = compare_runs(labels)
    assert as_json["runs"] == ["first", "other"]
    assert as_json["tests"] == json.loads(json.dumps(compared.tests))
    assert len(as_json["disagreements"]) == len(compared.disagreements)
    # Of many comparisons those that are told apart are printed.
    left_out = "what is not told apart is not listed here: --json has it, and the page of --out FILE.html\n"
    assert "│ not told apart" in found.out
    assert left_out not in found.out
    monkeypatch.setattr(printing, "_MOST_TESTS", 1)
    short = call(capsys, monkeypatch, "compare", *labels).out
    assert short.endswith(left_out)
    assert "│ not told apart" not in short
    assert re.search(r"accuracy +│ +0\.5000 │ +0\.7679 │ +0\.5000 │ +\+0\.268", short)


def test_every_number_of_the_page_is_a_column(labels: list[str]) -> None:
    compared = compare_runs(labels)
    assert compared.tests == compared_rows(labels)
    assert compared.shared == query(labels, "from label_bias_shared order by all").to_pylist()
    rows = query(labels, "from label_bias_disagreements where run = 'first' order by shuffled").to_pylist()
    assert compared.disagreements == rows[:N_LISTED]


@pytest.mark.slow
def test_ten_runs_stand_side_by_side(labels: list[str], tmp_path: Path) -> None:
    runs = [labels[0]]
    for number in range(9):
        copy = tmp_path / f"model{number}"
        shutil.copytree(labels[number % 2], copy)
        runs.append(str(copy))
    compared = compare_runs(runs)
    shown = overview(compared)
    assert shown.columns == [f"model{number}" for number in range(9)]
    words = {line.metric: [cell.word for cell in line.cells if cell] for line in shown.lines}
    assert words["accuracy"] == ["not told apart", "higher"] * 4 + ["not told apart"]
    square = matrix(compared)
    assert square is not None
    assert (square.metric, len(square.subjects)) == ("RSD", 10)
    for own, line in enumerate(square.lines):
        assert [row is None for row in line] == [other == own for other in range(10)]
    assert not any("such pairs" in caveat for caveat in caveats(compared))
    page = Path(write_compared(runs, str(tmp_path / "page.html"))).read_text()
    assert page.count("predictions that only") == 9
    assert len(page) < 3_000_000
    again = Path(write_compared(runs, str(tmp_path / "again.html"))).read_text()
    assert again == page


def test_markup_in_the_rows_is_shown_and_not_interpreted(tmp_path: Path) -> None:
    hostile = "<img src=//evil onerror=alert(1)>"
    runs = []
    for side, name in enumerate(("first", "other")):
        plan = label_plan({task: hits[side] for task, hits in HITS.items()})
        for row in plan.prompts:
            row["input_text"] = hostile
        runs.append(make(plan, tmp_path / name))
    page = Path(write_compared(runs, str(tmp_path / "page.html"))).read_text()
    assert "<img src=//evil" not in page
    assert hostile in Page(page).text


def test_a_verdict_beside_an_interval_with_zero_is_explained(labels: list[str]) -> None:
    compared = compare_runs(labels)
    assert not any("step-down" in caveat for caveat in caveats(compared))
    rows = [row for row in compared.tests if row["verdict"] == "higher" and row["run"] == "first"]
    assert rows
    tests = [{**row, "verdict_low": -0.001} if row is rows[0] else row for row in compared.tests]
    told = caveats(replace(compared, tests=tests))
    assert told[-1].startswith(
        "The interval of 1 difference that is told apart includes 0. Intervals hold for all tests"
    )
    assert "step-down" in told[-1]
    without = [{**row, "verdict_low": None, "verdict_high": None} if row is rows[0] else row for row in compared.tests]
    assert caveats(replace(compared, tests=without)) == caveats(compared)
