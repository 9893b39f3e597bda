"""The page of one run."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure as Canvas

from biaseval.analysis import query
from biaseval.report import write_comparison
from biaseval.report.comparison_data import read_comparison
from biaseval.report.comparison_words import caveats
from biaseval.report.majority import f1_figures, render_majority_page
from biaseval.report.majority_findings import read_majority_findings
from biaseval.report.majority_words import cautions
from biaseval.report.ternary import plot_ternary
from biaseval.runs import write_report
from biaseval.store import Run
from tests.browser import found_by_script, needs_browser
from tests.majority_report.runs import HOSTILE, make_run, table, tables, ternary
from tests.majorityplans import ANSWERS, F1, LARGE, MajorityPlan
from tests.measuring import measure
from tests.pages import Page


def test_the_page_of_a_run_answers_whether_calibration_widens_the_boundary(runs: list[str]) -> None:
    write_report(runs[1])
    source = Run.open(runs[1]).read_text("report.html")
    shown = table(source, "Each calibration of the label likelihoods against none")
    gains = {
        (row["method"].upper(), "with" if row["instruction"] else "without"): row
        for row in query([runs[1]], "from majority_remedies").to_pylist()
    }
    assert len(shown) - 2 == len(gains) == 2
    for method, instruction, before, after, rb, _, _, mean, *_ in shown[2:]:
        gain = gains[method, instruction]
        assert "[" not in rb  # the test of RB@10 is of its mean over seeds
        assert rb.split()[0].replace("−", "-") == f"{gain['rb_at_10_difference'] + 0.0:+.3f}"
        assert (before, after) == (f"{gain['rb_at_10_before']:.3f}", f"{gain['rb_at_10']:.3f}")
        ends = [gain[f"mean_f1_difference{end}"] + 0.0 for end in ("", "_low", "_high")]
        assert mean.replace("−", "-").startswith(f"{ends[0]:+.3f} [{ends[1]:+.3f}, {ends[2]:+.3f}]")
    text = Page(source).text
    # By leave-one-out FFFF of 0/100, seed 3, becomes TTTT, which moves the mean and leaves one setting inside.
    assert [line[1] for line in shown[2:]] == ["without", "with"]
    assert [line[4].split(" ", 1)[1] for line in shown[2:]] == ["too few seeds to say"] * 2
    assert [line[7].split("]")[1].strip() for line in shown[2:]] == ["no clear change"] * 2
    changed = "mean weighted F1 no clear change"
    assert f"What calibration changes: {changed}; " in text
    assert "; RB@10 too few seeds to say. The instruction: weighted F1 with minus without it: at the tails" in text
    assert "hold for these draws of demonstrations; of others 2 seeds say too little" in text


@pytest.mark.parametrize(
    ("verdict", "reason", "word"),
    [
        ("higher", None, "higher"),
        ("lower", None, "lower"),
        ("negligible", None, "negligible"),
        ("unclear", None, "no clear change"),
        ("unclear", "constant answer", "not judged (not shown to beat one label)"),
        ("too few", "too few seeds", "too few seeds to say"),
        (None, None, "not judged"),
    ],
)
def test_the_page_says_of_the_boundary_what_its_test_says(
    verdict: str | None, reason: str | None, word: str, runs: list[str]
) -> None:
    findings = read_majority_findings(Run.open(runs[1]))
    of_boundary = {"metric": "rb_at_10", "verdict": verdict, "reason": reason}
    verdicts = [row | of_boundary if row["metric"] == "rb_at_10" else row for row in findings.verdicts]
    source = render_majority_page(replace(findings, verdicts=verdicts), [])
    _, *lines = table(source, "Means over 3 settings")
    assert [line[7] for line in lines] == ["0.333", "0.333", f"0.333 {word}", f"0.333 {word}"]
    told = re.search(r"What calibration changes: .*; RB@10 (.*?)\. The instruction", Page(source).text)
    assert told is not None
    named = f"{word} with LOOC without instruction (+0.000) and LOOC with instruction (+0.000)"
    assert told[1] == (named if word in ("higher", "lower") else word)


SUPPORTED = {
    "evidence": "bias falls, no loss",
    "f1_evidence": "no loss",
    "bias_falls_in": "sd_f1",
    "is_rb_at_10_judged": False,
    "rb_at_10_reason": "too few seeds",
    "is_above_constant": True,
    "is_supported": True,
}
NONE = (
    "no remedy is shown to lower sd or raise RB@10, to lose less than 0.01 of mean weighted F1, and to be better "
    "than one label for all."
)


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        (
            {},
            "What to do: sd is lower, and a loss of mean weighted F1 of 0.01 or more is ruled out, with LOOC with "
            "instruction (RB@10 was not judged: fewer than 6 seeds). For words on RB@10, draw 6 seeds or more.",
        ),
        (
            {
                "f1_evidence": "higher",
                "bias_falls_in": "sd_f1 and rb_at_10",
                "is_rb_at_10_judged": True,
            },
            "What to do: sd is lower and RB@10 higher, and mean weighted F1 is higher, with LOOC with instruction. For",
        ),
        (
            {
                "evidence": "F1 rises, bias not shown to fall",
                "f1_evidence": "higher",
                "bias_falls_in": None,
                "is_supported": False,
            },
            f"{NONE} Mean weighted F1 is higher with LOOC with instruction, but no lower sd or higher RB@10 is "
            "shown (RB@10 was not judged: fewer than 6 seeds).",
        ),
        (
            {"evidence": "bias rises", "f1_evidence": "higher", "bias_falls_in": None, "is_supported": False},
            "Mean weighted F1 is higher with LOOC with instruction, but sd is higher or RB@10 lower (RB@10 was",
        ),
        (
            {"is_above_constant": False, "is_supported": False, "mean_f1": 0.4, "constant_f1": 0.53},
            f"{NONE} With LOOC with instruction sd is lower; it is still no better than one label for all (0.530).",
        ),
        ({"evidence": "not shown", "bias_falls_in": None, "is_supported": False}, f"{NONE} For words"),
    ],
)
def test_a_remedy_is_advised_by_its_evidence(changed: Mapping[str, Any], wanted: str, runs: list[str]) -> None:
    findings = read_majority_findings(Run.open(runs[1]))
    remedies = [{**row, **SUPPORTED, **changed} if row["instruction"] else row for row in findings.remedies]
    assert wanted in Page(render_majority_page(replace(findings, remedies=remedies), [])).text


def test_the_first_screen_has_the_verdict_and_one_figure_with_the_constant_answer(runs: list[str]) -> None:
    write_report(runs[1])
    source = Run.open(runs[1]).read_text("report.html")
    first = source[source.index("<main>") : source.index('id="boundary"')]
    assert first.index('id="verdict"') < first.index("<li>") < first.index("<img") < first.index("<table")
    assert first.count("<img") == 1
    leads = re.findall(r"<strong>(.*?):</strong>", first)
    assert leads == [
        "No better than one label for all",
        "Proportions, label likelihood",
        "Robustness boundary, label likelihood",
        "What calibration changes",
        "How sure",
        "What to do",
    ]
    assert "; the best constant answer 0.643." in Page(first).values("alt")[0]
    measured = "llm-7000000000 on boolq · 200 test rows · 3 settings of 2 demonstrations · 2 seeds · label likelihood"
    assert f"{measured} · no calibration and LOOC · without and with instruction" in Page(first).text
    [effect, _, *_] = query([runs[1]], "from majority_by_model where method = 'none' order by instruction").to_pylist()
    assert f"Predictions follow them (without and with instruction) by {effect['majority_effect']:+.3f} [" in first


def test_each_table_of_numbers_has_the_query_that_shows_it(adapted_run: str) -> None:
    source = Run.open(adapted_run).read_text("report.html")
    queries = {html.unescape(code) for code in re.findall(r'class="query">.*?<code>(.*?)</code>', source)}
    assert len(queries) > 10
    for one in queries:
        assert query([adapted_run], one).num_rows > 0, one


def test_long_lists_of_ways_are_folded_behind_whole_ways(adapted_run: str) -> None:
    source = Run.open(adapted_run).read_text("report.html")
    first, rest, *_ = source.split('<table class="dense remedies stacked">')[1:]
    places = [re.findall(r'<th scope="row">(.*?)</th>', part.split("</table>")[0]) for part in (first, rest)]
    assert places[0] == [f"label likelihood{way}" for way in ("", ", LOOC", ", LoRA") for _ in range(2)]
    assert len(places[1]) == 6
    assert first.rindex("<details>") > first.index("</table>")


def test_too_few_test_rows_give_no_verdict_on_the_boundary(tmp_path: Path) -> None:
    few = make_run(tmp_path / "few", 7_000, calibration=("looc",), n_repeats=1)
    write_report(few)
    text = Page(Run.open(few).read_text("report.html")).text
    assert "Robustness boundary, label likelihood: too few rows for RB@10 (the settings' intervals reach 0." in text
    assert "RB@10 too few rows to say." in text
    assert "More test rows would tell more of the boundary." in text
    assert "Too few test rows for RB@10 (every way of predicting)" in text
    more = make_run(tmp_path / "more", 13_000, LARGE, n_repeats=1)
    write_comparison([few, more], str(tmp_path / "page.html"))
    text = Page((tmp_path / "page.html").read_text()).text
    assert "few and more: too few test rows for RB@10" in text
    assert "the widest boundary" not in text
    assert "The summary judges no RB@10 there." in text
    assert "the boundary, RB@10, is" not in text
    assert not re.search(r"RB@10 (rises|falls|stays)", text)


def test_a_run_that_always_answers_the_same_is_said_to_have_no_robustness(runs: list[str], tmp_path: Path) -> None:
    always = make_run(tmp_path / "always", 13_000_000_000, dict.fromkeys(ANSWERS, ("TTTT", "TTTT")))
    write_report(always)
    text = Page(Run.open(always).read_text("report.html")).text
    same = "(mean weighted F1 0.643, accuracy 0.750; 100.0 % of the answers over all settings are one label)"
    told = f"No better than one label for all: label likelihood without instruction {same} and label likelihood with"
    assert f"{told} instruction {same}; one label for all has 0.643 and 0.750." in text
    assert "RB@10 says nothing, as no setting is better than one label for all, without and with instruction." in text
    [lines] = [
        rows for caption, rows in tables(Run.open(always).read_text("report.html")).items() if "as Table 1" in caption
    ]
    assert [line[10:12] for line in lines[1:]] == [["50.0%", "50.0%"]] * 2
    told = " ".join(caveats(read_comparison([runs[1], always])))
    assert "better than one label for all in always (label likelihood; mean weighted F1 up to 0.643" in told


def test_constant_answers_are_left_out_of_the_boundary_over_several_runs(runs: list[str], tmp_path: Path) -> None:
    always = make_run(tmp_path / "always", 13_000_000_000, dict.fromkeys(ANSWERS, ("TTTT", "TTTT")))
    write_comparison([runs[1], always], str(tmp_path / "page.html"))
    text = Page((tmp_path / "page.html").read_text()).text
    told = "the boundary, RB@10, is 0.333 on BoolQ (mean weighted F1 0.542 to 0.863), for these draws of demonstrations"
    none = "in 2 of 4 with and without instruction no setting is shown to be better than one label for all"
    assert f"{told}; {none}, and RB@10 says nothing there." in text


def test_rb_at_10_of_few_seeds_has_its_caveat_also_without_a_remedy(runs: list[str]) -> None:
    findings = read_majority_findings(Run.open(runs[3]))
    assert not findings.remedies
    [told] = cautions(findings)
    assert told == (
        "RB@10, and which settings are inside the boundary, hold for these draws of demonstrations; of others 2 seeds "
        "say too little, as no test over fewer than 6 can reach 5 %."
    )
    source = render_majority_page(findings, [])
    assert "Means over 3 settings, for these draws of demonstrations" in source
    many = replace(findings, by_model=[{**row, "n_seeds": 6} for row in findings.by_model])
    assert not cautions(many)


def test_rows_behind_what_is_followed_are_listed(runs: list[str]) -> None:
    source = render_majority_page(read_majority_findings(Run.open(runs[1])), [])
    head, *lines = table(source, "whose predictions change most between the most skewed settings (0/100, 100/0)")
    assert head == ["Row", "Instruction", "Changed", "Gold", "With 0/100", "With 100/0", "Input"]
    assert [line[1] for line in lines] == ["without"] * 10 + ["with"] * 10
    # Without instruction all is False with 0/100, and True with 100/0.
    assert {(line[2], *line[4:6]) for line in lines[:10]} == {("1.000", "False 2", "True 2")}


def test_equal_f1_in_every_setting_is_no_constant_answer(runs: list[str], tmp_path: Path) -> None:
    right = make_run(tmp_path / "right", 13_000_000_000, dict.fromkeys(ANSWERS, ("TTTF", "TTTF")))
    findings = read_majority_findings(Run.open(right))
    assert {(row["rb_at_10"], row["sd_f1"]) for row in findings.by_model} == {(1.0, 0.0)}
    assert "better than one label" not in " ".join(caveats(read_comparison([runs[1], right])))
    write_report(right)
    assert "one label for all has" not in Page(Run.open(right).read_text("report.html")).text


def test_settings_with_the_same_counts_are_named_on_the_page_over_several_runs(runs: list[str]) -> None:
    comparison = read_comparison(runs[:2])
    assert "same counts" not in " ".join(caveats(comparison))
    [dataset] = comparison.datasets
    doubled = [*dataset.settings, {**dataset.settings[0], "setting": "10/90"}]
    told = " ".join(caveats(replace(comparison, datasets=[replace(dataset, settings=doubled)])))
    assert (
        "BoolQ: settings with the same counts of demonstrations count as several and are one: 0/100 and 10/90 (0/2)"
        in told
    )


@pytest.mark.parametrize("predictions", ["----", "FF-T", "T---"])
def test_nothing_is_marked_inside_where_the_boundary_says_nothing(predictions: str, tmp_path: Path) -> None:
    """No right answer at all (FF-T has none for T T T F, as one output more is no label), or mostly no label."""
    answers = dict.fromkeys(ANSWERS, (predictions, predictions))
    run = make_run(tmp_path / "run", 7_000, answers, predict=("generate",))
    findings = read_majority_findings(Run.open(run))
    assert any(row["is_within"] for row in findings.by_setting)
    source = render_majority_page(findings, f1_figures(findings))
    assert '<td class="best">' not in source
    assert "inside the boundary)" not in source
    told = Page(source).text
    assert "settings are within 10 points" not in told
    settings, rows = ternary()
    axes = Canvas().add_subplot()
    points = [{**row, "boundary": None, "is_marked": False} for row in rows if row["instruction"]]
    plot_ternary(axes, title="a", points=points, settings=settings, limits=(0.4, 0.8))
    assert {to_hex(line.get_markeredgecolor()) for line in axes.lines if line.get_marker() == "o"} == {"#ffffff"}


def test_the_most_frequent_outputs_stand_with_the_label_they_were_taken_for(tmp_path: Path) -> None:
    answers = {("0/100", True): ("TTTF", "TTT-"), ("50/50", True): ("TTTF",) * 2, ("100/0", True): ("TTTF",) * 2}
    plan = MajorityPlan(("likelihood", "generate"), answers=answers)
    for row in plan.generations:
        row["text"] = {"True": " true\n", "False": HOSTILE, None: ""}[row["prediction"]]
    run = plan.write(tmp_path)
    measure(run)
    write_report(run)
    source = Run.open(run).read_text("report.html")
    _, *lines = table(source, "most frequent outputs of free generation")
    # 0/100, seed 3, has one more output that is no label.
    assert [line[1:] for line in lines] == [["True", "17", "70.8%"], ["False", "5", "20.8%"], ["no label", "2", "8.3%"]]
    found = Page(source)
    assert all(shown in found.text for shown in ('" true\\n"', f'"{HOSTILE}"', '""'))
    assert "onerror" not in {name for _, name, _ in found.attributes}


def test_ways_instructions_and_regions_have_one_order(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 7_000, predict=("generate", "likelihood"))
    write_report(run)
    source = Run.open(run).read_text("report.html")
    ways = ["label likelihood", "free generation"]
    assert [row[:2] for row in table(source, "as Table 1")[1:]] == [
        [way, instruction] for way in ways for instruction in ("without", "with")
    ]
    head, *gaps = table(source, "What the instruction changes")
    assert [row[:2] for row in gaps] == [[way, region] for way in ways for region in ("tails", "middle")]
    assert head[-3:] == ["Settings", "Seeds", "Rows"]
    assert gaps[0][-3:] == ["2", "2", "1,600"]  # 2 settings and 2 seeds, with and without, of 200 rows
    alt = Page(source).values("alt")[0]
    assert alt.index("without 0.100") < alt.index("; with 0.767")


def test_the_page_of_a_run_has_the_settings_in_the_layout_of_table_2(runs: list[str]) -> None:
    write_report(runs[1])
    source = Run.open(runs[1]).read_text("report.html")
    head, names, *lines = table(source, "layout of Table 2")
    assert head == ["Setting", "label likelihood", "label likelihood, LOOC"]
    assert names == ["without", "with"] * 2
    assert [line[0] for line in lines] == ["0/100", "50/50", "100/0"]
    for line in lines:
        for cell, instruction in zip(line[1:3], (False, True), strict=True):
            expected = sum(F1[answer] for answer in ANSWERS[line[0], instruction]) / 2
            assert cell.startswith(f"{expected:.3f} [")
    # Only the best of 0.767, 1 and 0.821, and of 0.1, 0.883 and 0.643, is inside.
    assert re.findall(r'<td class="best">(\d\.\d+)', source) == ["0.883", "1.000"] * 2


def test_findings_of_a_run_name_the_ways_in_the_order_of_tables(runs: list[str]) -> None:
    findings = read_majority_findings(Run.open(runs[0]))
    assert findings.ways() == [("likelihood", "none"), ("likelihood", "looc")]


@needs_browser
def test_tables_fit_a_screen_and_scroll_by_themselves_on_a_small_one(adapted_run: str, tmp_path: Path) -> None:
    findings = read_majority_findings(Run.open(adapted_run))
    constant = {"verdict": "unclear", "reason": "constant answer"}
    verdicts = [row | constant if row["metric"] != "mean_f1" else row for row in findings.verdicts]
    source = render_majority_page(replace(findings, verdicts=verdicts), f1_figures(findings))
    assert "not judged (not shown to beat one label)" in source
    too_wide = "return [...document.querySelectorAll('.wide')].filter(one => one.scrollWidth > one.clientWidth).length"
    assert found_by_script(source, too_wide, tmp_path, 1280) == 0
    page_is = "return document.documentElement.scrollWidth - window.innerWidth"
    assert found_by_script(source, page_is, tmp_path, 500) <= 0


def test_the_caption_says_that_intervals_and_p_need_not_agree(adapted_run: str) -> None:
    text = Page(Run.open(adapted_run).read_text("report.html")).text
    assert "they may leave out 0 where the p (Holm) of rows and draws does not reach .05" in text
