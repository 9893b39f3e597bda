"""A word about a side that a constant answer equals praises nobody."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from biaseval.analysis import query
from biaseval.analysis.comparing import Compared, compare_runs
from biaseval.report.compare_page import render_compare_page
from biaseval.report.compare_words import sentences, tone
from biaseval.report.findings import Row
from tests.commands import call
from tests.compare.runs import HITS, compared_rows, label_plan, make
from tests.majorityplans import ANSWERS, LARGE, MajorityPlan
from tests.pages import Page


def _runs(folder: Path, hits: Mapping[str, str], golds: str = "aaaaaabb") -> list[str]:
    """Return runs of seven tasks that are right on the same rows of each."""
    return [make(label_plan(dict.fromkeys(HITS, own), golds=golds), folder / name) for name, own in hits.items()]


def _accuracy(compared: Compared) -> Row:
    [found] = [row for row in compared.tests if (row["run"], row["metric"]) == (compared.reference, "accuracy")]
    return found


def _line(source: str, caption: str, metric: str) -> str:
    """Return the line of a metric in the first table whose caption begins so."""
    [table, *_] = [one for one in re.findall(r"<table.*?</table>", source, re.S) if f"<caption>{caption}" in one]
    [line] = [row for row in re.findall(r"<tr>.*?</tr>", table, re.S) if f">{metric}</td>" in row]
    return line


def test_two_constant_answers_differ_and_neither_is_praised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = _runs(tmp_path, {"seldom": "00000011", "often": "11111100"})
    compared = compare_runs(runs)
    row = _accuracy(compared)
    assert (row["value"], row["other_value"], row["baseline"], row["verdict"]) == (0.25, 0.75, 0.75, "higher")
    assert (row["is_above_constant"], row["other_is_above_constant"]) == (False, False)
    doubt = "no better than one label for all: seldom and often"
    source = render_compare_page(compared)
    for caption in ("Each run beside seldom", "Difference: the run minus seldom"):
        line = _line(source, caption, "accuracy")
        assert f'<span class="word ">higher</span> <span class="doubt">{doubt}</span>' in line
        assert "0.750" in Page(line).text.split()  # the majority class
    assert not re.search(r'class="word (gain|cost)"', source)
    [*_, higher, lower] = sentences(compared)
    assert higher.startswith("Higher in often: ")
    assert "accuracy (no calibration, 0 demonstrations) by +0.500 [+0.500, +0.500], " in higher
    assert higher.count(f" (in all of these, {doubt})") == 1
    assert lower.startswith("Lower in often: RSD ")
    printed = call(capsys, monkeypatch, "compare", *runs)
    assert printed.code == 0, printed.err
    assert re.search(r"accuracy +│ +0\.2500 │ +0\.7500 │ +0\.7500 │ +\+0\.500", printed.out)


def test_a_side_that_is_not_shown_to_be_better_than_one_label_is_named(labels: list[str]) -> None:
    """The first has an accuracy of one half on four a and four b; the other is better than that."""
    compared = compare_runs(labels)
    row = _accuracy(compared)
    assert (row["value"], row["baseline"], row["verdict"]) == (0.5, 0.5, "higher")
    assert (row["is_above_constant"], row["other_is_above_constant"]) == (None, True)
    line = _line(render_compare_page(compared), "Each run beside first", "accuracy")
    doubt = "not shown to be better than one label for all: first"
    assert f'<span class="word ">higher</span> <span class="doubt">{doubt}</span>' in line
    [back] = compared_rows(labels, where="run = 'other' and metric = 'accuracy'")
    assert (back["baseline"], back["is_above_constant"], back["other_is_above_constant"]) == (0.5, True, None)


def test_what_is_above_the_majority_class_is_praised_by_direction(tmp_path: Path) -> None:
    compared = compare_runs(_runs(tmp_path, {"good": "11111101", "better": "11111111"}))
    line = _line(render_compare_page(compared), "Each run beside good", "accuracy")
    assert '<span class="word gain">higher</span></td>' in line
    row = _accuracy(compared)
    assert tone("label_bias", row | {"verdict": "lower"}) == "cost"
    assert tone("label_bias", row | {"metric": "rsd", "verdict": "lower"}) == "gain"
    assert tone("majority_bias", row | {"metric": "sd_f1"}) == tone("qa_bias", row | {"metric": "gap"}) == "cost"
    assert tone("label_bias", row | {"verdict": "unclear"}) == ""


def test_the_baseline_is_the_mean_over_the_tasks_that_are_shared(labels: list[str]) -> None:
    by_metric = {row["metric"]: row for row in compared_rows(labels, where="run = 'first'")}
    for metric in ("accuracy", "macro_f1"):
        [mean] = query([labels[0]], f"select avg(majority_{metric}) as mean from label_bias_by_task").to_pylist()
        assert by_metric[metric]["baseline"] == pytest.approx(mean["mean"])
    assert {by_metric[metric]["baseline"] for metric in ("rsd", "bias_score", "relative_variance")} == {None}


def test_majority_runs_have_the_best_constant_answer_beside_them(tmp_path: Path) -> None:
    runs = [
        make(MajorityPlan(("likelihood",), answers=answers, n_repeats=3), tmp_path / name)
        for name, answers in (("small", ANSWERS), ("large", LARGE))
    ]
    [constant] = query([runs[0]], "select distinct majority_accuracy, constant_f1 from majority_by_model").to_pylist()
    for row in compared_rows(runs, "majority_bias"):
        baselines = {"accuracy": constant["majority_accuracy"], "sd_f1": None, "rb_at_10": None}
        assert row["baseline"] == baselines.get(row["metric"], constant["constant_f1"])
