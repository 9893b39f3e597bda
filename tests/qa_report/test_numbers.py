"""The numbers, examples and notes of the page are those of the run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy import stats  # type: ignore[import-untyped]

from biaseval.cli.printing import print_metrics
from biaseval.pipelines.directory import read_spec
from biaseval.report.findings import Row
from biaseval.report.qa import render_qa_page, threshold_sentence
from biaseval.report.qa_findings import N_EXAMPLES, QaFindings, excerpt, read_qa_findings
from biaseval.report.qa_summary import qa_caveats
from biaseval.runs import headline, write_report
from biaseval.store import Run
from tests.pages import Page, mart, page_of
from tests.qa_report.runs import make_run, right, table, told
from tests.qaplans import QaPlan


def shown(significance: Any) -> str:
    return "0" if significance == 0 else f"{significance:.2f}"


@pytest.mark.parametrize(("metric", "suffix"), [("EM", ""), ("F1", "_f1")])
def test_every_significance_stands_beside_the_worse_groups_performance(run: Run, metric: str, suffix: str) -> None:
    rows = [row for row in mart(run, "qa_bias_by_heuristic") if row["dataset"] == "squad"]
    assert any(row["bias_significance"] > 5 for row in rows)
    text = table(run.read_text("report.html"), f"Bias significance in {metric} points on squad").text
    for model in ("strong", "weak"):
        own = {row["heuristic"]: row for row in rows if row["model"] == model}
        cells = []
        for row in (own["ans_len"], own["sim_word"], own["word_dist"]):
            value, worse = row[f"bias_significance{suffix}"], row[f"worse_high{suffix}"]
            # Without a threshold F1 is not measured, which is said, or too little is there.
            cell = shown(value) + (" (–)" if worse is None else f" ({worse:.2f})") if value is not None else "no T"
            cells.append(cell)
        values = [value for row in own.values() if (value := row[f"bias_significance{suffix}"]) is not None]
        worse = [row[f"worse_high{suffix}"] for row in own.values() if row[f"worse_high{suffix}"] is not None]
        assert f"{model} {' '.join(cells)} {shown(np.mean(values))} ({np.mean(worse):.2f}) {len(values)} of 3 " in text


def test_performance_and_its_mean_elsewhere_stand_with_intervals_and_counts(run: Run, findings: QaFindings) -> None:
    text = table(run.read_text("report.html"), "In percent").text
    for row in mart(run, "qa_by_dataset"):
        em = f"{100 * row['exact_match']:.2f} [{100 * row['exact_match_low']:.2f}, {100 * row['exact_match_high']:.2f}]"
        f1 = f"{100 * row['f1']:.2f} [{100 * row['f1_low']:.2f}, {100 * row['f1_high']:.2f}]"
        assert f"{row['dataset']} {em} {f1} {row['n_rows']} 0" in text
    mean = findings.elsewhere["strong"]
    assert (mean["exact_match"], mean["f1"]) == (pytest.approx((0.5 + 0.25) / 2), pytest.approx((0.75 + 0.25) / 2))
    assert (mean["n_datasets"], mean["n_rows"]) == (2, 60)
    # The error of a mean of two independent means, with Satterthwaite's degrees of freedom.
    for metric, columns in (
        ("exact_match", ([1, 0] * 20, [1, 0, 0, 0] * 5)),
        ("f1", ([1, 0.5] * 20, [1, 0, 0, 0] * 5)),
    ):
        variances = [np.var(column, ddof=1) / len(column) for column in columns]
        pairs = zip(variances, columns, strict=True)
        freedom = sum(variances) ** 2 / sum(one**2 / (len(column) - 1) for one, column in pairs)
        half_width = stats.t.ppf(0.975, freedom) * np.sqrt(sum(variances)) / 2
        assert mean[f"{metric}_high"] - mean[metric] == pytest.approx(half_width, rel=1e-5)
        assert mean[metric] - mean[f"{metric}_low"] == pytest.approx(half_width, rel=1e-5)


def test_each_heuristic_has_its_groups_intervals_and_the_plain_difference(run: Run, findings: QaFindings) -> None:
    [row] = [
        row
        for row in mart(run, "qa_bias_by_heuristic")
        if (row["model"], row["dataset"], row["heuristic"]) == ("strong", "squad", "ans_len")
    ]
    assert (row["threshold"], row["n_lower"], row["n_higher"]) == (1, 100, 100)
    page = table(run.read_text("report.html"), "ans_len on squad")
    groups = " ".join(
        f"{row[f'{side}_exact_match']:.2f} [{row[f'{side}_low']:.2f}, {row[f'{side}_high']:.2f}]"
        for side in ("lower", "higher")
    )
    difference = f"+{row['difference']:.2f} [+{row['difference_low']:.2f}, +{row['difference_high']:.2f}]"
    test = findings.tests["strong", "squad", "ans_len"]
    assert test["is_supported"]
    assert (
        f"strong EM {row['bias_significance']:.2f} {test['null_high']:.2f} {test['p_adjusted']:.3f} {difference} "
        f"{groups} 1 ans_len ≤ 1 100 100 0 strong F1 {row['bias_significance_f1']:.2f} – – +{row['difference_f1']:.2f} "
    ) in page.text


def test_unmeasured_questions_are_counted(run: Run) -> None:
    text = page_of(run).text
    n_tried = len({row["threshold"] for row in mart(run, "qa_bias_candidates") if row["heuristic"] == "word_dist"})
    assert (
        f"No T: none separates the groups, {n_tried} tried on strong, {n_tried} with 20 questions in both groups; "
        "undefined for 50 of 200 questions."
    ) in text


def test_groups_that_are_too_small_are_not_zero(tmp_path: Path) -> None:
    run = make_run(tmp_path, bootstrap={"trials": 20, "sample": 60}, thresholds={"sim_word": 99.0})
    findings = read_qa_findings(run)
    row = findings.by_heuristic["strong", "squad", "sim_word"]
    assert (row["status"], row["n_lower"], row["n_higher"]) == ("groups too small", 200, 0)
    text = Page(render_qa_page(findings, [])).text
    assert re.search(r"strong \d+\.\d\d \(\d+\.\d\d\) too small (\S+ \(\S+\)|too small) ", text)
    assert " EM – – – – – – 99 groups too small 200 0 0 " in text
    caveats = " ".join(qa_caveats(findings))
    assert "squad: sim_word" in caveats
    assert "trivia: sim_word and word_dist cannot be measured, a group has fewer than 60 questions" in caveats
    assert threshold_sentence(findings, "squad", "sim_word") == "T = 99, given by the spec."


def test_a_heuristic_without_two_values_has_no_threshold(tmp_path: Path) -> None:
    def same(plan: QaPlan) -> None:
        for row in plan.attributes:
            row["value"] = 7.0 if row["heuristic"] == "sim_word" else row["value"]

    findings = read_qa_findings(make_run(tmp_path, change=same, heuristics=["sim_word"]))
    assert "squad: no bias can be measured, the values do not differ." in qa_caveats(findings)
    assert told(findings)["Biases"] == "no heuristic can be measured on squad."
    assert threshold_sentence(findings, "squad", "sim_word") == "No T: no threshold to try."
    text = Page(render_qa_page(findings, [])).text
    assert "strong one value – 0 of 1 " in text


def test_a_users_heuristic_goes_by_its_name(tmp_path: Path) -> None:
    run = make_run(tmp_path, heuristics=["ans_len", "my.module:n_commas"])
    files = write_report(run.uri)
    assert f"{run.uri}/figures/curve_squad_my.module-n_commas_f1.svg" in files
    text = page_of(run).text
    assert "my.module:n_commas The user's function n_commas of the module my.module." in text
    source = {"name": "a function", "is_approximate": False, "meaning": "How many commas."}
    environment = {"text": {"my.module:n_commas": source}}
    run.write_json("environment.json", environment)
    write_report(run.uri)
    assert "my.module:n_commas How many commas." in page_of(run).text


def test_the_terminal_says_of_each_bias_what_tests_make_of_it(
    run: Run, findings: QaFindings, capsys: pytest.CaptureFixture[str]
) -> None:
    print_metrics(run.uri, headline(read_spec(run)))
    lines = [line for line in capsys.readouterr().out.splitlines() if "│" in line]
    assert max(map(len, lines)) <= 110
    shown = {tuple(cells[:3]): cells for line in lines if (cells := [cell.strip() for cell in line[1:-1].split("│")])}
    assert set(shown) == set(findings.by_heuristic)
    for key, row in findings.by_heuristic.items():
        *_, significance, worse, p, detectable, finding = shown[key]
        test, value = findings.tests[key], row["bias_significance"]
        assert [significance, p] == ["" if one is None else f"{one:.4f}" for one in (value, test["p_adjusted"])]
        groups = [row["lower_exact_match"], row["higher_exact_match"]]
        assert worse == ("" if None in groups else f"{min(groups):.4f}")
        assert detectable == ("" if test["smallest_detectable"] is None else f"{test['smallest_detectable']:.4f}")
        if test["is_supported"]:
            assert finding == f"better where {'≤' if row['biased_segment'] == 'lower' else '>'} {row['threshold']:g}"
        elif value is None:
            assert finding == {"no threshold to try": "one value only"}.get(row["status"], row["status"])
        else:
            assert finding == ("within chance" if value else "no bias found")
    findings_of = {cells[-1].split(" where")[0] for cells in shown.values()}
    assert {"better", "no bias found"} <= findings_of, findings_of


def test_missing_predictions_are_counted_and_sets_without_answers_left_out(tmp_path: Path) -> None:
    exact: list[float | None] = [*right(0.9, 0.5)]
    exact[3] = exact[150] = None

    def predictions_of_some_sets(plan: QaPlan) -> None:
        for model, names in zip(plan.spec["models"], (["squad", "trivia"], ["squad"]), strict=True):
            model |= {"path": None, "predictions": dict.fromkeys(names, "p.json"), "on_missing": "drop"}
        plan.predictions = [
            row
            for row in plan.predictions
            if row["dataset"] == "squad" or (row["model"], row["dataset"]) == ("whole", "trivia")
        ]

    run = make_run(tmp_path, models={"whole": right(0.9, 0.6), "gaps": exact}, change=predictions_of_some_sets)
    findings = read_qa_findings(run)
    assert findings.datasets == ("squad", "trivia")
    caveat = "gaps has no answer to 2 of the 200 questions of squad, which are left out for it alone."
    assert caveat in qa_caveats(findings)
    source = render_qa_page(findings, [])
    text = table(source, "In percent").text
    assert re.search(r"gaps squad .*\] 198 2", text)
    assert "trivia" not in text.partition("gaps")[2]
    assert "news" not in Page(source).text.partition("The spec, with every default")[0]
    assert "Out of distribution, whole 50.0 [" in told(findings)["Exact match and F1 (%)"]  # one set: no mean of sets


def test_examples_are_right_where_the_bias_helps_and_wrong_where_it_does_not(run: Run, findings: QaFindings) -> None:
    assert ("strong", "squad", "ans_len") in findings.examples
    assert {dataset for _, dataset, _ in findings.examples} == {"squad"}
    for (model, dataset, heuristic), examples in findings.examples.items():
        row = findings.by_heuristic[model, dataset, heuristic]
        assert row["bias_significance"] > 0
        assert [one["is_better"] for one in examples] == [True] * N_EXAMPLES + [False] * N_EXAMPLES
        for one in examples:
            assert one["exact_match"] == one["is_better"]
            is_lower = one["value"] <= row["threshold"]
            assert one["is_better"] == (is_lower == (row["biased_segment"] == "lower"))
            number = int(one["example_id"].removeprefix("q"))
            assert one["question"] == f"What is number {number}?"
            assert one["answer"] == f"answer{number}"
            assert one["gold"] == [f"answer{number}"]
    source = run.read_text("report.html")
    one = findings.examples["strong", "squad", "ans_len"][0]
    assert f"<mark>{one['answer']}</mark>" in source
    assert source.count("<mark>") == sum(len(examples) for examples in findings.examples.values())


def test_the_choice_of_examples_does_not_follow_the_order_of_rows(findings: QaFindings, tmp_path: Path) -> None:
    def reverse(plan: QaPlan) -> None:
        plan.examples.reverse()
        plan.predictions.reverse()
        plan.attributes.reverse()

    assert read_qa_findings(make_run(tmp_path, change=reverse, n_parts=3)).examples == findings.examples


def test_long_texts_are_cut(tmp_path: Path) -> None:
    texts = {
        "question": "why " * 500,
        "context": "left " * 5000 + "gold " * 200 + "right " * 5000,
        "answers": ["gold " * 200] + [f"other{number}" for number in range(9)],
        "answer_starts": [25000] + [0] * 9,
    }
    findings = read_qa_findings(make_run(tmp_path, texts=texts))
    for examples in findings.examples.values():
        for one in examples:
            shown = (one["question"], one["before"], one["answer"], one["after"], *one["gold"])
            assert all(len(text) < 250 for text in shown)
            assert one["before"].endswith("left ")
            assert one["after"].startswith("right")
            assert one["gold"][1:] == ["other0", "other1", "other2", "… (6 more)"]


def test_an_excerpt_holds_the_answer_at_its_place() -> None:
    context = "The cat saw the cat."
    assert excerpt(context, ["cat"], [16]) == ("The cat saw the ", "cat", ".")
    assert excerpt(context, ["cat"], [5]) == ("The ", "cat", " saw the cat.")  # no answer there: the first one
    assert excerpt(context, ["cat"], []) == ("The ", "cat", " saw the cat.")
    assert excerpt(context, ["dog"], [3]) == (context, "", "")
    assert excerpt(context, [], []) == (context, "", "")
    long = excerpt("word " * 100 + "cat" + " word" * 100, ["cat"], [500])
    assert re.fullmatch(r"…(word )+", long[0])
    assert re.fullmatch(r"( word)+…", long[2])


def test_notes_of_the_plan_and_approximate_texts_are_told(run: Run, findings: QaFindings) -> None:
    text = page_of(run).text
    care = text.partition("Read with care")[2].partition("Prediction bias")[0]
    n_cautions = len(qa_caveats(findings)) + 8
    for number in range(8):
        assert f"note {number}: <approximate> entities" in care
    assert f"{n_cautions - 4} more" in care
    assert "sentences and words Punkt with parameters by hand approximate" in text
    assert "entities and subjects spaCy en_core_web_sm 3.8.0 yes" in text


def test_models_are_listed_with_the_beginning_of_their_fingerprint(run: Run) -> None:
    source = run.read_text("report.html")
    assert "strong extractive strong 1,234,567 260 abababababab" in table(source, "The models").text
    assert "ab" * 32 not in source
    assert "cd" * 32 not in source
    assert "ef" * 32 in source


def test_where_thresholds_come_from_is_told(tmp_path: Path, findings: QaFindings) -> None:
    kept = [one for one in qa_caveats(findings) if one.startswith("Thresholds")]
    assert len(kept) == 1
    # Strong has no threshold where weak has one, and then weak's is kept.
    assert "on the predictions of strong (squad, trivia) and weak (squad) and kept for the other models" in kept[0]
    fixed = {"ans_len": 1.0, "sim_word": 2.0, "word_dist": 0.0}
    given = read_qa_findings(make_run(tmp_path / "given", thresholds=fixed))
    assert not any(one.startswith("Thresholds") for one in qa_caveats(given))
    assert threshold_sentence(given, "squad", "ans_len") == "T = 1, given by the spec."
    each = read_qa_findings(make_run(tmp_path / "each", variant="reference"))
    assert any(one.startswith("Thresholds are searched for each model") for one in qa_caveats(each))
    assert "tried on its own answers" in threshold_sentence(each, "squad", "ans_len")


def test_samples_that_hold_most_of_a_group_are_warned_of(tmp_path: Path) -> None:
    spec: Row = {"thresholds": {"ans_len": 1.0}, "heuristics": ["ans_len"]}
    narrow = make_run(tmp_path / "narrow", bootstrap={"trials": 20, "sample": 90}, **spec)
    [caveat] = [one for one in qa_caveats(read_qa_findings(narrow)) if one.startswith("Samples")]
    assert "Samples of 90 without replacement hold much of the smaller group of ans_len on squad (100 quest" in caveat
    wide = make_run(tmp_path / "wide", bootstrap={"trials": 20, "sample": 50}, **spec)
    assert not any(one.startswith("Samples") for one in qa_caveats(read_qa_findings(wide)))
    bootstrap = {"trials": 20, "sample": 90, "replacement": True}
    replaced = make_run(tmp_path / "replaced", bootstrap=bootstrap, **spec)
    assert not any(one.startswith("Samples") for one in qa_caveats(read_qa_findings(replaced)))


def test_a_threshold_that_was_searched_before_it_was_given_is_a_caution(tmp_path: Path) -> None:
    run = make_run(tmp_path, heuristics=["ans_len"], thresholds={"ans_len": 3})
    assert not any("earlier spec" in sentence for sentence in qa_caveats(read_qa_findings(run)))
    spec = {**run.read_yaml("spec.yaml"), "thresholds": {"ans_len": 2}}
    run.write_text("specs/00000.yaml", yaml.safe_dump(spec))
    assert not any("earlier spec" in sentence for sentence in qa_caveats(read_qa_findings(run)))
    for number, searched in enumerate(("search", {"ans_len": [2.0, 3.0]}), 1):
        run.write_text(f"specs/{number:05d}.yaml", yaml.safe_dump({**spec, "thresholds": searched}))
        [told] = [sentence for sentence in qa_caveats(read_qa_findings(run)) if "earlier spec" in sentence]
        assert told.startswith("The spec gives the threshold of ans_len, which an earlier spec of this run searched")
        run.delete(f"specs/{number:05d}.yaml")
