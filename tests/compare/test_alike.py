"""What is said, and folded, of runs that do not differ; what the runs are of."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from biaseval.analysis.comparing import compare_runs
from biaseval.report.compare_page import write_compared
from biaseval.report.compare_tables import header
from biaseval.report.compare_words import sentences
from tests.compare.runs import GOLDS, HITS, agreement, label_plan, make
from tests.pages import Page
from tests.specs import as_older


@pytest.fixture(scope="module")
def moved(labels: list[str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a run as right as the first on each gold label of each task, and on other rows."""
    hits = {task: right for task, (right, _) in HITS.items()} | {"task1": "11100100"}  # 11110000
    return make(label_plan(hits), tmp_path_factory.mktemp("moved") / "moved")


def test_differing_predictions_are_counted(labels: list[str]) -> None:
    [row] = agreement(labels, "label_bias", "first")
    # Two labels: a prediction differs where one is right and the other wrong.
    expected = sum(one != two for first, other in HITS.values() for one, two in zip(first, other, strict=True))
    assert (row["n_predictions"], row["n_differing"]) == (len(HITS) * len(GOLDS), expected)
    [back] = agreement(labels, "label_bias", "other")
    assert (back["n_predictions"], back["n_differing"]) == (row["n_predictions"], row["n_differing"])


def test_equal_metrics_of_other_predictions_are_not_called_identical(labels: list[str], moved: str) -> None:
    # The first four rows of GOLDS have a, a, a, b: row 3 (b) wrong and row 5 (b) right instead.
    compared = compare_runs([labels[0], moved])
    assert {row["estimate"] for row in compared.tests} == {0}
    assert [(row["n_predictions"], row["n_differing"]) for row in compared.agreement] == [(56, 2)]
    assert sentences(compared) == [
        "moved against first, 7 tasks with 56 rows: all 4 differences are 0, and 2 of 56 predictions differ."
    ]


def test_agreement_is_not_asked_of_runs_that_differ(labels: list[str]) -> None:
    compared = compare_runs(labels)
    assert compared.agreement == []
    assert "identical" not in " ".join(sentences(compared))


def test_charts_and_tables_are_folded_where_all_differences_are_0(labels: list[str], tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(labels[0], copy)
    alike = Path(write_compared([labels[0], str(copy)], str(tmp_path / "alike.html"))).read_text()
    assert "identical. Not one of 56 predictions differs" in Page(alike).text
    for title in ("Charts", "Table", "6 tests"):
        assert re.search(rf"<details>\s*<summary>{title}: all differences are 0</summary>", alike), title
    differing = Path(write_compared(labels, str(tmp_path / "differing.html"))).read_text()
    assert "all differences are 0" not in differing
    assert "<details open>" in differing


def test_constant_answers_of_several_runs_are_one_sentence(tmp_path: Path) -> None:
    always = dict.fromkeys(HITS, "".join("1" if gold == "a" else "0" for gold in GOLDS))
    first = make(label_plan(always, n_demos=(0, 2)), tmp_path / "first")
    shutil.copytree(first, tmp_path / "copy")
    _, constant = sentences(compare_runs([first, str(tmp_path / "copy")]))
    assert constant == (
        "No better than one label for all: no calibration, 0 demonstrations: first and copy; no calibration, 2 "
        "demonstrations: first and copy. Differences there, of bias as of accuracy and F1, say little else."
    )


def test_the_header_has_model_fingerprint_and_seed_and_what_else_differs(labels: list[str], tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(labels[0], changed)
    digest = "0123456789abcdef" * 4
    as_older(changed).write_text("environment.json", json.dumps({"model": {"digest": digest}}))
    spec = (changed / "spec.yaml").read_text()
    (changed / "spec.yaml").write_text(spec.replace("max_eval: 1000", "max_eval: 999") + "further: 1\n")
    lines, n_more = header(compare_runs([labels[0], str(changed)]))
    found = {line.name: line.values for line in lines}
    assert found["model"] == ["models/tiny", "models/tiny"]
    assert found["fingerprint of the model"] == ["–", digest[:12]]
    assert found["seed"] == ["42", "42"]
    assert found["further"] == ["–", "1"]
    assert n_more == 0
    page = Path(write_compared([labels[0], str(changed)], str(tmp_path / "page.html"))).read_text()
    [table] = re.findall(r'<table class="dense header sortable">.*?</table>', page, re.S)
    for line in lines:
        assert line.name in table
        assert all(value in table for value in line.values)
