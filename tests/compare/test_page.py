"""What is said of a comparison, its page, and what the command prints."""

import json
import re
import shutil
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from biaseval.analysis.comparing import N_LISTED, Compared, compare_runs, comparing
from biaseval.cli import printing
from biaseval.report import write_comparison
from biaseval.report.compare import RELATIONS, compare_layout, compare_page, difference_charts
from tests.commands import call
from tests.compare.runs import GOLDS, HITS, agreement, compared_rows, conclusions, label_plan, make
from tests.handmade import found_by
from tests.pages import Page, assert_answered, assert_said, assert_whole
from tests.relation import Together
from tests.specs import as_older

Rows = list[dict[str, Any]]


# Sentences, of differences that are written by hand

_HERE = {"run": "old", "other_run": "new", "who": "new", "against": "old", "scope": "9 rows", "holds_for": "new rows"}
_TEST = {"least_effect": 0.01, "unit": "row", "n_units": 9, "reason": None, "verdict_p": 0.5, "baseline": None}
_METRICS = {"accuracy": "performance", "macro_f1": "performance", "rsd": "bias", "bias_score": "bias"}


def told(*changes: Mapping[str, Any], **every: Any) -> str:
    """Return the conclusions on two settings, none and CC, of four metrics each that are not told apart.

    Args:
        *changes: what is otherwise, where metric and setting (``at``) are the same.
        **every: what is otherwise everywhere.
    """
    rows: Rows = []
    for at, deployed in (("none", "Without mitigation"), ("CC", "With the best supported mitigation"), ("DC", "")):
        for number, (metric, measures) in enumerate(_METRICS.items(), 1):
            row = {**_HERE, **_TEST, "metric": metric, "shown": metric, "measures": measures, "number": number}
            row |= {"place": at, "place_number": len(rows), "is_mitigated": at != "none", "is_headline": at == "CC"}
            row |= {"deployed": deployed or None, "is_first": True, "is_low_better": measures == "bias"}
            row |= {"value": 0.5, "other_value": 0.6, "estimate": 0.1, "verdict": "unclear", "verdict_low": -0.2}
            row |= {"verdict_high": 0.4, "verdict_smallest_detectable": 0.3, "n_predictions": 10, "n_differing": 4}
            row |= {"is_above_constant": True, "other_is_above_constant": True}
            for change in changes:
                own = dict(change)
                if own.pop("at", at) == at and own.pop("metric", metric) == metric:
                    row |= own
            rows.append(row | every)
    given = pa.Table.from_pylist(rows)
    for number, field in enumerate(given.schema):
        if pa.types.is_null(field.type):
            kind = pa.float64() if field.name == "baseline" else pa.string()
            given = given.set_column(number, field.name, given[field.name].cast(kind))
    made = "with compared as (from compared_words('measured')) from compare_conclusions('compared', 'own')"
    own = [{"run": run, "lead": "Ready to deploy?", "text": f"Not shown: {run} is"} for run in ("old", "new", "third")]
    found = found_by(made, measured=given, own=own)
    return "\n".join(f"{row['lead']} {row['text']}" for row in found)


_HIGHER, _LOWER = ({"metric": "accuracy", "verdict": verdict} for verdict in ("higher", "lower"))
_RSD = {"metric": "rsd", "verdict": "lower"}
_NOT = {"is_above_constant": None}


@pytest.mark.parametrize(("changes", "words"), [
    ((), ["^new is compared with old: performance is not shown to differ; bias is not shown .* CC; shared: 9 rows.\n",
        "Switch from old to new. No test speaks for it or against it",
        "Ready to deploy new. Not shown: new is\nReady to deploy old. Not shown: old is\n", "!third",
        "How sure: the chance of any false finding is about 5 %, for new rows. In .* up to 30.0 points of accuracy"]),
    (({"at": "CC", **_HIGHER},), ["^new is better than old: better accuracy; bias is not shown to differ. CC; shared",
        "new. The tests speak for it", "Ready to deploy new. [^\n]*\nReady to deploy old"]),
    (({"at": "CC", **_LOWER},), ["^new is worse than old: worse accuracy", "Ready to deploy old",
        "In the settings of the headline, the runs may miss .* 0.300 in rsd"]),
    (({"at": "CC", **_RSD},), ["^new is less biased than old, measured by rsd; performance is not shown to differ. C",
        "!higher", "With no mitigation on either side: new against old: perf"]),
    (({"at": "none", **_HIGHER},), ["^new is compared with old: perf", "side: new against old: better acc"]),
    (({"at": "CC", "metric": "rsd", "verdict": "higher"},), ["^new is more biased than old, measured by rsd; perf",
        "No: the tests speak against it"]),
    (({"at": "CC", **_LOWER}, {"at": "CC", **_RSD}),
        ["^new is compared with old, with mixed results: worse accuracy; less bias in rsd", "Weigh the gain"]),
    (({"at": "CC", **_RSD}, {"at": "CC", "metric": "bias_score", "verdict": "higher"}),
        ["^new is compared with old, with mixed results: performance is .*; less bias in rsd and more .*score. CC"]),
    (({"verdict": "negligible"},), ["^new is compared with old: no more than a neg.* in performance; no more",
        "!may miss", "side: new against old: no more than"]),
    (({"verdict": "too few"},), ["^new is compared with old: performance cannot be tested; bias cannot be"]),
    # A side that is not shown to be better than always answering one label earns no praise.
    (({**_HIGHER, "other_is_above_constant": False},), ["^new is compared with old: no verdict on .*, because new is",
        "!better acc"]),
    (({**_HIGHER, **_NOT},), ["^new is better than old: better accuracy", "!is not shown to be better"]),
    (({**_RSD, **_NOT},), ["no verdict on bias, because old is not shown to be better than always",
        "!less bias"]),
    (({**_LOWER, **_NOT},), ["^new is compared with old: no verdict on performance", "!worse accuracy"]),
    (({"baseline": 0.7, "metric": "accuracy"},), [r"In accuracy neither is as good as always answering one label\.\n"]),
    (({"baseline": 0.55, "metric": "accuracy"},), ["!neither is as good"]),
    (({"estimate": 0.0},),
        ["^No metric differs. .*all 12 differences are 0, and 12 of 30 predict", "!mitigation:", "!Switch"]),
    (({"estimate": 0.0, "n_differing": 0},), ["^Identical. .*not one of 30 predictions differs"]),
])  # fmt: skip
def test_what_is_said_of_differences(changes: tuple[Mapping[str, Any], ...], words: list[str]) -> None:
    assert_said(told(*changes), words)


# The page and the command


def test_the_command_prints_conclusions_differences_and_a_page(
    labels: list[str],
    compared: Compared,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "page.html"
    found = call(capsys, monkeypatch, "compare", *labels, "--out", str(out))
    assert found.code == 0, found.err
    headline = "other is better than first: better accuracy and macro-F1; bias is not shown to differ."
    accuracy = r"accuracy +│ +0\.5000 │ +0\.7679 │ +0\.5000 │ +\+0\.268"
    assert_said(found.out, [f"^{re.escape(headline)}", accuracy, f"page: {out}\n$", "!further differences"])
    source = out.read_text()
    known = {f"{value:.6g}" for row in compared.tests for value in row.values() if isinstance(value, float)}
    titles = {title for title in Page(source).values("title") if re.fullmatch(r"-?\d[\d.e+-]*", title)}
    assert len(titles) > 10
    assert titles - known == set()
    assert_whole(source)
    assert_answered(source, labels, 4)
    said = ["16", "0.500 → 0.768 better", "17 of these predictions", "Ready to deploy other. Better than always"]
    assert_said(Page(source).text, [re.escape(headline), *said])
    assert {"summary", "overview", "differences", "rows", "shared", "words"} <= set(Page(source).values("id"))
    monkeypatch.setattr("biaseval.analysis.comparing.comparing", lambda *_: nullcontext((compared, None)))
    as_json = json.loads(call(capsys, monkeypatch, "compare", *labels, "--json").out)
    assert (as_json["runs"], as_json["tests"]) == (["first", "other"], json.loads(json.dumps(compared.tests)))
    assert as_json["conclusions"][0]["lead"] == headline
    monkeypatch.setattr(printing, "_MOST_TESTS", 1)
    assert_said(call(capsys, monkeypatch, "compare", *labels).out, [accuracy, "!further differences"])  # all deployed


def test_what_is_compared_is_what_queries_find(labels: list[str], compared: Compared, pair: Together) -> None:
    assert compared.tests == compared_rows(labels)
    with pair.changed():
        assert compared.shared == pair.rows("from label_bias_shared order by all")
        rows = pair.rows("from label_bias_disagreements where run = 'first' order by shuffled")
    assert compared.disagreements == rows[:N_LISTED]


@pytest.mark.slow
def test_ten_runs_stand_side_by_side(labels: list[str], tmp_path: Path) -> None:
    runs = [labels[0], *(str(shutil.copytree(labels[n % 2], tmp_path / f"model{n}")) for n in range(9, 0, -1))]
    with comparing(runs, RELATIONS) as (compared, ask):
        page = compare_page(compared, ask)
        assert compare_page(compared, ask) == page
    heads = [(row["who"], row["lead"] == "Identical.") for row in compared.conclusions if row["line"] == 1]
    assert heads == [(f"model{n}", n % 2 == 0) for n in range(9, 0, -1)]
    assert_whole(page)
    assert_said(Page(page).text, ["Each against each", "9 runs|model9, model8, model7 … against first"])
    assert len(page) < 4_000_000
    assert [chart.text.count("model") >= 9 for chart in difference_charts(compared)] == [True] * 4


def test_equal_metrics_of_other_predictions_are_not_called_identical(labels: list[str], tmp_path: Path) -> None:
    # As right as the first on each gold label of each task: row 3 (b) wrong and row 5 (b) right in place of 11110000.
    hits = {task: right for task, (right, _) in HITS.items()} | {"task1": "11100100"}
    moved, copy = make(label_plan(hits), tmp_path / "moved"), str(shutil.copytree(labels[0], tmp_path / "copy"))
    compared = compare_runs([labels[0], moved, copy])
    said = conclusions(compared).split("\nIdentical. ")
    assert_said(said[0], ["^No metric differs. .*all 4 differences are 0, and 2 of 56 predictions differ"])
    assert_said(said[1], ["^.*all 4 differences are 0, and not one of 56 predictions differs"])
    n_all = len(HITS) * len(GOLDS)
    agreed = {row["other_run"]: (row["n_predictions"], row["n_differing"]) for row in compared.agreement}
    assert agreed == {"moved": (n_all, 2), "copy": (n_all, 0)}
    for run in ("first", "moved"):
        [row] = agreement([labels[0], moved], "label_bias", run)
        assert (row["n_predictions"], row["n_differing"]) == (n_all, 2)
    found = {(row["estimate"], row["p_adjusted"], row["verdict"]) for row in compared.tests}
    assert (found, compared.facts) == ({(0, 1, "unclear")}, [])
    assert [(row["other_run"], row["n_wins"], row["n_losses"]) for row in compared.wins] == [("moved", 1, 1)]
    assert {row["other_run"] for row in compared.disagreements} == {"moved"}


def test_what_runs_are_of_is_shown_key_by_key_and_markup_is_not_interpreted(tmp_path: Path, labels: list[str]) -> None:
    hostile, digest = "<img src=//evil onerror=alert(1)>", "0123456789abcdef" * 4
    plan = label_plan({task: hits[1] for task, hits in HITS.items()})
    for row in plan.prompts:
        row["input_text"] = hostile
    changed = as_older(make(plan, tmp_path / "it's <b>"))
    changed.write_json("environment.json", {"versions": {"torch": "2.9"}, "model": {"digest": digest, "model": {}}})
    spec = changed.read_text("spec.yaml").replace("path: models/tiny", "path: models/other")
    changed.write_text("spec.yaml", spec.replace("max_eval: 1000", "max_eval: 999") + "further: 1\n")
    runs = [changed.uri, labels[0]]
    facts = {row["fact"]: row["values"] for row in compare_runs(runs).facts}
    assert facts["spec.model.path"] == {"first": "models/tiny", "it's <b>": "models/other"}
    assert facts["versions.torch"] == {"first": None, "it's <b>": "2.9"}
    source = Path(write_comparison(runs, str(tmp_path / "page.html"))).read_text()
    assert_whole(source)
    assert_answered(source, runs, 4)
    words = [f"it's <b>: {digest[:12]} · first: –", "it's <b>: 1 · first: –", re.escape(hostile)]
    assert_said(Page(source).text, words)
    assert "<img src=//evil" not in source


@pytest.mark.parametrize(("paths", "files", "about"), [
    (("a/tiny", "b/large/"), (None, None), ["first: tiny", "other: large"]),
    (("a/tiny", "b/tiny"), (None, None), ["first: a/tiny", "other: b/tiny"]),
    (("a/tiny", "a/tiny"), ("0" * 64, "1" * 64), ["first: a/tiny 000000000000", "other: a/tiny 111111111111"]),
    (("tiny", "b/own"), ("0" * 64, "0" * 64), ["first, other: one model, called tiny and own"]),
])  # fmt: skip
def test_the_first_line_says_which_runs_are_of_one_model(
    paths: tuple[str, ...], files: tuple[str | None, ...], about: list[str], compared: Compared
) -> None:
    values = [dict(zip(compared.runs, own, strict=True)) for own in (paths, files)]
    facts = [{"fact": "spec.model.path", "values": values[0]}, {"fact": "fingerprint.model", "values": values[1]}]
    assert list(compare_layout(replace(compared, origins=facts), lambda _: []).about)[: len(about)] == about


def test_sides_that_a_constant_answer_equals_are_not_praised_on_the_page(compared: Compared, tmp_path: Path) -> None:
    """The first has an accuracy of one half on four a and four b; the other is better than that."""
    [row] = [row for row in compared.told if row["metric"] == "accuracy"]
    assert (row["value"], row["baseline"], row["word"], row["doubt"]) == (0.5, 0.5, "better", None)
    runs = [
        make(label_plan(dict.fromkeys(HITS, own), golds="aaaaaabb"), tmp_path / name)
        for name, own in (("seldom", "00000011"), ("often", "11111100"))
    ]
    compared = compare_runs(runs)
    [row] = [row for row in compared.told if row["metric"] == "accuracy"]
    assert (row["value"], row["other_value"], row["baseline"], row["verdict"]) == (0.25, 0.75, 0.75, "higher")
    assert (row["word"], row["doubt"]) == ("higher", "often is no better than always answering one label")
    source = Path(write_comparison(runs, str(tmp_path / "page.html"))).read_text()
    assert_said(conclusions(compared), ["often is no better than always answering one label there; no verdict on bias"])
    assert not re.search(r'class="word (gain|cost)"', source)
