"""What the page concludes is what the tests support."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np

from biaseval.report.findings import Row
from biaseval.report.qa import render_qa_page
from biaseval.report.qa_findings import QaFindings, read_qa_findings
from biaseval.report.qa_summary import qa_caveats
from biaseval.report.qa_verdict import conclude_qa, first_rows, measured_qa
from biaseval.store import Run
from tests.pages import Page, mart
from tests.qa_report.runs import make_run, right, table, told
from tests.qaplans import QaPlan

GIVEN = {"ans_len": 1.0, "sim_word": 2.0, "word_dist": 1.0}
"""Thresholds by heuristic, at which each has a gap, also where a search finds none."""


def against(findings: QaFindings) -> str:
    return told(findings)["Models against each other"]


def points(value: float, low: float, high: float) -> str:
    return f"{value:.1f} [{low:.1f}, {high:.1f}]".replace("-", "−")


def test_the_verdict_tells_the_biases_that_were_put_into_the_answers(findings: QaFindings) -> None:
    strong = findings.by_heuristic["strong", "squad", "ans_len"]
    weak = findings.by_heuristic["weak", "squad", "sim_word"]
    by = points(strong["difference"], strong["difference_low"], strong["difference_high"])
    other = points(-weak["difference"], -weak["difference_high"], -weak["difference_low"])
    assert told(findings)["Biases more than chance"] == (
        f"strong answers questions with ans_len ≤ 1 better by a bias significance of {strong['bias_significance']:.1f} "
        f"points (plain difference {by}; exact match of the others "
        f"{np.mean(right(0.98, 0.6, 0.02)[100:]) * 100:.1f} %); weak answers questions with sim_word > "
        f"{weak['threshold']:g} better by a bias significance of {weak['bias_significance']:.1f} points (plain "
        f"difference {other}; exact match of the others {np.mean(right(0.3, 0.1, 0.6)[::2]) * 100:.1f} %)."
    )


def test_the_text_has_the_number_of_the_figure_and_names_the_other(run: Run, findings: QaFindings) -> None:
    row = findings.by_heuristic["strong", "squad", "ans_len"]
    assert f"{row['bias_significance']:.1f}" != f"{row['difference']:.1f}"
    first = run.read_text("report.html").partition('<dl class="terms">')[0]
    [figure] = re.findall(r'alt="(.*?)"', first)
    assert f"strong ans_len {row['bias_significance']:.2f} (more than chance)" in figure
    assert (
        f"bias significance of {row['bias_significance']:.1f} points (plain difference {row['difference']:.1f} ["
        in first
    )
    assert "the plain difference of the groups is larger" in first


def test_the_verdict_tells_exact_match_and_f1_of_both_kinds_of_sets(findings: QaFindings) -> None:
    own = findings.by_dataset["strong", "squad"]
    shown_own = " and ".join(
        points(*(100 * own[name] for name in (metric, f"{metric}_low", f"{metric}_high")))
        for metric in ("exact_match", "f1")
    )
    text = told(findings)["Exact match and F1 (%)"]
    assert text.startswith(f"On squad, strong {shown_own}; weak 50.0 [")
    assert ". Out of distribution (mean of 2 sets), strong 37.5 [" in text


def test_the_first_line_says_what_was_measured(findings: QaFindings) -> None:
    assert measured_qa(findings) == (
        "strong and weak · squad (200 questions) · out of distribution trivia (40 questions) and news (20 questions) · "
        "ans_len, sim_word and word_dist · variant paper"
    )
    dated = dataclasses.replace(findings, environment={"date": "2026-01-02"})
    assert measured_qa(dated).endswith(" · variant paper · 2026-01-02")


def test_the_verdict_says_over_how_many_tests_mistakes_are_5_percent(run: Run, findings: QaFindings) -> None:
    n_tests = sum(row["dataset"] == "squad" and row["p_adjusted"] is not None for row in mart(run, "qa_bias_tests"))
    assert n_tests == 6
    text = told(findings)["How sure"]
    assert text.startswith(
        "over all models and heuristics of squad (6 tests), the chance that any bias is one by mistake"
    )
    assert "so is that of any difference between models" in text


def test_the_verdict_has_at_most_six_lines_and_names_few_of_many_models(tmp_path: Path) -> None:
    models = {f"model{number}": right(1, 0.2 + 0.05 * number) for number in range(8)}
    findings = read_qa_findings(make_run(tmp_path, models=models, heuristics=["ans_len"]))
    lines = conclude_qa(findings)
    assert len(lines) <= 6
    assert told(findings)["Biases more than chance"].endswith("; 5 further models.")
    em = [100 * findings.by_dataset[model, "squad"]["exact_match"] for model in models]
    assert f"On squad, {min(em):.1f} to {max(em):.1f} and " in told(findings)["Exact match and F1 (%)"]
    n_gaps, n_matches = (
        sum(row["verdict"] in ("lower", "higher") for row in rows.values()) // 2
        for rows in (findings.compared("squad", "gap", "ans_len"), findings.compared("squad", "exact_match"))
    )
    assert n_gaps > 3
    assert against(findings) == (
        f"exact match differs in {n_matches} of 28 pairs and the gap by ans_len differs in {n_gaps} of 28 pairs."
    )
    assert measured_qa(findings).startswith("8 models · ")
    assert [row["model"] for row in first_rows(findings)] == list(models)
    source = render_qa_page(findings, [])
    first, *_, folded = re.findall(r"<table[^>]*>\s*<caption>Exact match in percent, sig.*?</table>", source, re.S)
    assert [first.count("<tr>"), folded.count("<tr>")] == [1 + 6, 1 + 2]
    assert "<summary>2 more</summary>" in source


def test_the_first_table_has_the_numbers_of_the_marts(run: Run, findings: QaFindings) -> None:
    text = table(run.read_text("report.html"), "Exact match in percent, significance").text
    for model in ("strong", "weak"):
        em, average = findings.by_dataset[model, "squad"], findings.averages[model, "squad"]
        shown_em = f"{100 * em['exact_match']:.2f} [{100 * em['exact_match_low']:.2f}, "
        significance = "{:.2f} [{:.2f}, {:.2f}]".format(
            *(average[f"bias_significance{end}"] for end in ("", "_low", "_high"))
        )
        null = f"{average['bias_significance_null']:.2f}, up to {average['bias_significance_null_high']:.2f}"
        assert f"{model} {shown_em}" in text
        assert f" {significance} {null} {average['n_significant']} of {average['n_measurable']}" in text


def test_the_direction_is_told_where_higher_values_are_better(tmp_path: Path) -> None:
    run = make_run(tmp_path, models={"common": right(0.2, 0.2, 0.7)})
    findings = read_qa_findings(run)
    row = findings.by_heuristic["common", "squad", "sim_word"]
    assert row["biased_segment"] == "higher"
    by = points(-row["difference"], -row["difference_high"], -row["difference_low"])
    text = told(findings)["Biases more than chance"]
    assert text.startswith(
        f"common answers questions with sim_word > {row['threshold']:g} better by a bias significance of "
    )
    assert f" points (plain difference {by}; exact match of the others " in text
    assert "ans_len" not in text
    assert "Models against each other" not in told(findings)  # a single model is compared with none
    assert "searched on the predictions that are measured" in " ".join(qa_caveats(findings))
    for one in findings.examples["common", "squad", "sim_word"]:
        assert one["value"] == (5 if one["is_better"] else 2)


def test_models_are_told_apart_where_their_tests_do(tmp_path: Path) -> None:
    """Two models whose gaps differ by 60 points: tests of 200 questions tell them apart."""
    models = {"fair": right(0.7, 0.7), "strong": right(1, 0.4)}
    findings = read_qa_findings(make_run(tmp_path / "equal", models=models, heuristics=["ans_len"]))
    gap = findings.compared("squad", "gap", "ans_len")["fair", "strong"]
    by = points(-100 * gap["estimate"], -100 * gap["simultaneous_high"], -100 * gap["simultaneous_low"])
    # Their exact match is the same.
    assert against(findings) == f"the gap by ans_len (T = 1) is {by} points smaller in fair than in strong."
    better = {"fair": right(1, 1), "strong": right(0.9, 0.2)}
    findings = read_qa_findings(make_run(tmp_path / "better", models=better, heuristics=["ans_len"]))
    match = findings.compared("squad", "exact_match")["fair", "strong"]
    by = points(*(100 * match[name] for name in ("estimate", "simultaneous_low", "simultaneous_high")))
    assert against(findings).startswith(
        f"exact match is {by} points higher in fair than in strong and the gap by ans_len"
    )
    text = table(render_qa_page(findings, []), "Models against each other").text
    gap = findings.compared("squad", "gap", "ans_len")["fair", "strong"]
    by, low, high = (f"−{-100 * gap[name]:.2f}" for name in ("estimate", "simultaneous_low", "simultaneous_high"))
    assert f"fair minus strong gap by ans_len {by} [{low}, {high}] < 0.001 lower " in text
    assert "mean" not in text.partition("fair minus strong")[2]


def test_models_that_no_test_tells_apart_have_the_difference_that_would_have_been_seen(tmp_path: Path) -> None:
    twins = {"one": right(1, 0.3), "other": right(1, 0.32)}
    findings = read_qa_findings(make_run(tmp_path / "twins", models=twins, thresholds=GIVEN))
    gaps = [findings.compared("squad", "gap", name)["one", "other"] for name in findings.heuristics]
    sizes = [100 * gap["smallest_detectable"] for gap in gaps if gap["smallest_detectable"]]
    assert len(sizes) > 1
    match = findings.compared("squad", "exact_match")["one", "other"]
    assert against(findings) == (
        "nothing tells them apart. One test alone would find, four times in five, "
        f"{min(sizes):.1f} to {max(sizes):.1f} points of the gap by a heuristic "
        f"and {100 * match['smallest_detectable']:.1f} points of exact match."
    )


def test_averages_over_other_heuristics_or_questions_are_not_compared(tmp_path: Path) -> None:
    """Without the last 50 answers, the model has as many long answers as the sample, and fewer with fewer."""
    full, twin = right(1, 0.3), right(1, 0.4)

    def drop(plan: QaPlan) -> None:
        for model in plan.spec["models"]:
            files = dict.fromkeys(("squad", "trivia", "news"), "p.json")
            model |= {"path": None, "predictions": files, "on_missing": "drop"}

    fewer: list[float | None] = [*twin[:120], *[None] * 80]
    spec: Row = {"heuristics": ["ans_len", "sim_word"], "change": drop, "bootstrap": {"trials": 20, "sample": 50}}
    findings = read_qa_findings(make_run(tmp_path / "fewer", models={"full": full, "gaps": fewer}, **spec))
    assert findings.by_heuristic["gaps", "squad", "ans_len"]["status"] == "groups too small"
    assert against(findings).endswith(
        " Means over heuristics cannot be compared: ans_len could not be measured for all of them."
    )
    some: list[float | None] = [*twin[:-1], None]
    findings = read_qa_findings(make_run(tmp_path / "some", models={"full": full, "gaps": some}, **spec))
    assert against(findings).endswith(
        " Means over heuristics cannot be compared: they did not answer the same questions."
    )


def test_a_bias_that_chance_explains_is_not_called_one(tmp_path: Path) -> None:
    """Groups of 100 that differ by ten points: samples of 90 of them are apart, and nothing else."""
    spec: Row = {"bootstrap": {"trials": 20, "sample": 90}, "heuristics": ["ans_len"]}
    findings = read_qa_findings(make_run(tmp_path, models={"luck": right(0.6, 0.5)}, **spec))
    row, test = (of["luck", "squad", "ans_len"] for of in (findings.by_heuristic, findings.tests))
    assert row["bias_significance"] > 1
    assert (test["is_supported"], findings.averages["luck", "squad"]["n_significant"]) == (False, 0)
    average = findings.averages["luck", "squad"]
    assert told(findings)["Biases"] == (
        "none of 1 is shown to be more than chance. Average significance, and what the same search finds: luck "
        f"{average['bias_significance']:.2f} ({average['bias_significance_null']:.2f} in answers without bias, in 95 % "
        f"of them up to {average['bias_significance_null_high']:.2f})."
    )
    assert (average["is_above_null"], average["bias_significance_low"]) == (False, 0)
    assert (
        f"[0.00, {average['bias_significance_high']:.2f}]"
        in table(render_qa_page(findings, []), "Exact match in percent, significance").text
    )
    assert told(findings)["What to do"].endswith(
        f"; four of five such runs find {test['smallest_detectable']:.2f} points. "
        "More questions would show smaller ones."
    )
    assert findings.examples == {}
    source = render_qa_page(findings, [])
    text = table(source, "ans_len on squad").text
    assert " not more than chance 100 100 0 " in text
    # The threshold was searched, and its interval is not corrected for that.
    assert row["difference_low"] is not None
    assert f" {test['p_adjusted']:.3f} +{row['difference']:.2f} {row['lower_exact_match']:.2f} [" in text
    assert "color-mix" not in source.partition("<caption>Bias significance in EM")[2].partition("</table>")[0]


def test_the_interval_at_a_threshold_that_the_spec_gives_is_shown_of_any_bias(tmp_path: Path) -> None:
    spec: Row = {"bootstrap": {"trials": 20, "sample": 90}, "heuristics": ["ans_len"], "thresholds": {"ans_len": 1.0}}
    findings = read_qa_findings(make_run(tmp_path, models={"luck": right(0.6, 0.5)}, **spec))
    row, test = (of["luck", "squad", "ans_len"] for of in (findings.by_heuristic, findings.tests))
    assert (test["is_supported"], row["searched_on"]) == (False, None)
    text = table(render_qa_page(findings, []), "ans_len on squad").text
    low, high = (format(row[f"difference_{end}"], "+.2f").replace("-", "−") for end in ("low", "high"))
    assert f" +{row['difference']:.2f} [{low}, {high}] " in text


def test_a_run_whose_biases_were_not_tested_says_so(findings: QaFindings) -> None:
    untested = {place: row | {"n_significant": None} for place, row in findings.averages.items()}
    assert told(dataclasses.replace(findings, averages=untested))["Biases"] == (
        "whether they are more than chance was not tested."
    )


def test_a_model_that_always_answers_the_same_is_told_first(tmp_path: Path) -> None:
    def same(plan: QaPlan) -> None:
        for row in plan.predictions:
            if (row["model"], row["dataset"]) == ("stuck", "squad") and row["example_id"] != "q0":
                row["prediction"] = ""

    models = {"fair": right(0.7, 0.7), "stuck": right(1, 0.2)}
    findings = read_qa_findings(make_run(tmp_path, models=models, change=same))
    first = conclude_qa(findings)[0]
    assert first == (
        "The same answer",
        "stuck to 99.5 % of the 200 questions of squad; nothing else that is measured there says anything but that.",
    )
    assert first.text in render_qa_page(findings, [])
    assert told(findings)["What to do"].startswith(
        "first mend stuck, which nearly always gives the same answer. No bias "
    )


def test_the_verdict_says_what_to_do_about_a_bias_that_is_shown(findings: QaFindings) -> None:
    assert told(findings)["What to do"] == (
        "look at the examples of ans_len and sim_word; measure on a set where that shortcut does not lead; a reader "
        "of your own can be trained against it (train.methods in a spec)."
    )


def test_without_a_bias_the_verdict_says_what_noise_alone_would_show(tmp_path: Path) -> None:
    spec: Row = {"bootstrap": {"trials": 20, "sample": 90}, "heuristics": ["ans_len"]}
    findings = read_qa_findings(make_run(tmp_path, models={"luck": right(0.6, 0.5)}, **spec))
    test = findings.tests["luck", "squad", "ans_len"]
    assert told(findings)["What to do"] == (
        "no bias is shown, but the model may still have one: noise alone reaches "
        f"{test['null_high']:.2f} points, depending on the heuristic; four of five such runs find "
        f"{test['smallest_detectable']:.2f} points. More questions would show smaller ones."
    )
    untested = {place: row | {"is_supported": None} for place, row in findings.tests.items()}
    again = told(dataclasses.replace(findings, tests=untested))["What to do"]
    assert again == "measure this run again: its biases were not tested."


def test_questions_about_one_article_show_nothing(tmp_path: Path) -> None:
    def one_title(plan: QaPlan) -> None:
        for row in plan.examples:
            row["title"] = "Rome"

    models = {"fair": right(0.7, 0.7), "strong": right(1, 0.2)}
    findings = read_qa_findings(make_run(tmp_path, models=models, change=one_title))
    assert findings.by_heuristic["strong", "squad", "ans_len"]["bias_significance"] > 30
    assert told(findings)["Biases"].startswith("none of 6 (2 models) is shown to be more than chance.")
    assert against(findings).startswith("no test can compare them: ")
    assert any(one.startswith("All questions of squad, trivia and news are about one") for one in qa_caveats(findings))


def test_a_model_that_answers_badly_has_no_success(tmp_path: Path) -> None:
    run = make_run(tmp_path, models={"good": right(1, 0.9), "broken": right(0.1, 0.1)})
    [caveat] = [one for one in qa_caveats(read_qa_findings(run)) if "Fewer than half" in one]
    assert "broken (10.0 % on squad)" in caveat
    assert "good" not in caveat


def test_no_bias_of_a_model_that_answers_hardly_anything_right_is_no_verdict(tmp_path: Path) -> None:
    models = {"fair": right(0.7, 0.7), "empty": right(0.02, 0.02)}
    findings = read_qa_findings(make_run(tmp_path / "both", models=models))
    assert findings.averages["empty", "squad"]["n_significant"] == 0
    few = (
        "oo few right answers to tell of empty (exact match 2.0 %): below 10 % exact match, groups can hardly lie "
        "apart, whatever a model relies on."
    )
    text = told(findings)["Biases"]
    assert text.startswith(
        "none of 3 is shown to be more than chance. Average significance, and what the same search finds: fair "
    )
    assert text.endswith(f" T{few}")
    advice = told(findings)["What to do"]
    assert advice.startswith(
        "nothing can be told of empty before more answers are right: train on, or take another. No "
    )
    lines = re.findall(r"<tr>.*?</tr>", render_qa_page(findings, []), re.S)
    assert next(
        Page(line).text.strip().endswith("too few right answers to tell") for line in lines if "empty</th>" in line
    )
    alone = read_qa_findings(make_run(tmp_path / "alone", models={"empty": right(0.02, 0.02)}))
    assert told(alone)["Biases"] == f"t{few}"
    assert "none" not in told(alone)["What to do"]


def test_a_bias_of_a_model_with_few_right_answers_is_told_where_it_shows(tmp_path: Path) -> None:
    found = read_qa_findings(make_run(tmp_path, models={"lean": right(0.18, 0.0)}, heuristics=["ans_len"]))
    assert found.by_dataset["lean", "squad"]["exact_match"] < 0.1
    assert told(found)["Biases more than chance"].startswith(
        "lean answers questions with ans_len ≤ 2 better by a bias significance of "
    )


def test_averages_over_other_heuristics_say_which(tmp_path: Path) -> None:
    """The second model lacks answers, so that one of its groups is too small."""

    def drop(plan: QaPlan) -> None:
        for model in plan.spec["models"]:
            files = dict.fromkeys(("squad", "trivia", "news"), "p.json")
            model |= {"path": None, "predictions": files, "on_missing": "drop"}

    fewer: list[float | None] = [*right(0.5, 0.5)[:120], *[None] * 80]
    spec: Row = {"heuristics": ["ans_len", "sim_word"], "change": drop, "bootstrap": {"trials": 20, "sample": 50}}
    models = {"full": right(0.5, 0.5), "gaps": fewer}
    findings = read_qa_findings(make_run(tmp_path / "fewer", models=models, **spec))
    assert findings.averages["gaps", "squad"]["measurable"] == ["sim_word"]
    text = told(findings)["Biases"]
    assert re.search(
        r"full \S+ \(\S+ in answers without bias, in 95 % of them up to \S+; over ans_len and sim_word\)", text
    )
    assert re.search(r"gaps \S+ \(\S+ in answers without bias, in 95 % of them up to \S+; over sim_word\)", text)
    source = render_qa_page(findings, [])
    for caption in ("Exact match in percent, significance", "Bias significance in EM points on squad"):
        shown = table(source, caption).text
        assert re.search(r" full .* over ans_len and sim_word .* gaps .* over sim_word ", shown), caption
    assert "Averages over other heuristics cannot be compared." in source
    same = read_qa_findings(make_run(tmp_path / "same", models={"full": right(0.5, 0.5), "twin": right(0.5, 0.4)}))
    assert 'class="over"' not in render_qa_page(same, [])


def test_the_first_screen_explains_its_abbreviations(run: Run, findings: QaFindings) -> None:
    source = run.read_text("report.html")
    [first] = re.findall(r'<section aria-labelledby="verdict".*?</section>', source, re.S)
    terms = Page(re.findall(r'<dl class="terms">.*?</dl>', first, re.S)[0]).text
    for name in ("Exact match (EM)", "F1", "Bias significance", "ans_len", "sim_word", "word_dist"):
        assert f" {name} " in terms
    shown = Page(first.replace("Exact match (EM)", "")).text + " ".join(re.findall(r'alt="(.*?)"', first))
    assert not re.search(r"\bEM\b", shown)


def test_without_significant_bias_the_page_says_so(tmp_path: Path) -> None:
    run = make_run(tmp_path, models={"fair": right(0.5, 0.5), "fairer": right(0.6, 0.6)})
    findings = read_qa_findings(run)
    on_squad = [row for row in findings.by_heuristic.values() if row["dataset"] == "squad"]
    assert {row["bias_significance"] for row in on_squad} == {0}
    text = told(findings)["Biases"]
    none = r"0\.00 \(\d\.\d\d in answers without bias, in 95 % of them up to \d\.\d\d\)"
    assert re.fullmatch(
        r"none of 6 \(2 models\) is shown to be more than chance\. Average significance, and what the same search finds: "  # noqa: E501
        rf"fair {none} and fairer {none}\.",
        text,
    )
    assert findings.examples == {}
    text = Page(render_qa_page(findings, [])).text
    assert "There are none: on squad, no bias is more than chance." in text
    assert "fair 0 (–) 0 (–) 0 (–) 0 (–) 3 of 3" in text


def test_a_sentence_about_a_gap_names_its_heuristic_and_the_mean_stands_in_the_table(tmp_path: Path) -> None:
    """The mean over heuristics of which two find nothing is a third of the gap, and no headline."""
    models = {"fair": right(0.7, 0.7), "strong": right(1, 0.4)}
    findings = read_qa_findings(make_run(tmp_path, models=models, thresholds=GIVEN))
    gap, mean = (findings.compared("squad", "gap", name)["fair", "strong"] for name in ("ans_len", "mean"))
    assert len(mean["heuristics"]) > 1
    assert abs(gap["estimate"]) > 1.4 * abs(mean["estimate"])
    sentence = against(findings)
    assert f"the gap by ans_len (T = 1) is {-100 * gap['estimate']:.1f} [" in sentence
    assert f"{-100 * mean['estimate']:.1f}" not in " ".join(told(findings).values())
    text = table(render_qa_page(findings, []), "Models against each other").text
    shown = f"mean gap over {len(mean['heuristics'])} heuristics −{-100 * mean['estimate']:.2f} ["
    assert f"fair minus strong {shown}" in text
    for name in mean["heuristics"]:
        own = findings.compared("squad", "gap", name)["fair", "strong"]
        assert f"fair minus strong gap by {name} {100 * own['estimate']:+.2f}".replace("-", "−") in text
