"""The report of QA-bias runs whose answers have a known bias; the marts behind it are the real ones."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from biaseval.errors import BiasevalError
from biaseval.pipelines import write_report
from biaseval.report.findings import Row
from biaseval.report.qa import render_qa_page, threshold_sentence
from biaseval.report.qa_figures import prediction_bias_figures, short_names, threshold_place
from biaseval.report.qa_findings import N_EXAMPLES, QaFindings, excerpt, heuristic_name, read_qa_findings
from biaseval.report.qa_summary import qa_caveats
from biaseval.report.qa_verdict import conclude_qa, first_rows, measured_qa
from biaseval.store import Run
from tests.measuring import measure
from tests.specs import write_plan
from tests.test_qa_sql import QaPlan
from tests.test_report import Page, mart, page_of

SAMPLE = 20
N = 200
"""Questions of ``squad``: half with short, half with long answers; a quarter each with few and many common words."""

LENGTHS = [1.0] * (N // 2) + [3.0] * (N // 2)
COMMON = [2.0, 5.0] * (N // 2)
NEAR: list[float | None] = [None if row % 4 == 0 else float(row % 3) for row in range(N)]


def right(share_short: float, share_long: float, gain_common: float = 0.0) -> list[float]:
    """Return exact matches: so many of the short and of the long answers, and more where many words are common."""
    answers = []
    for row in range(N):
        share = (share_short if LENGTHS[row] == 1 else share_long) + (gain_common if COMMON[row] == 5 else 0)
        answers.append(float((row // 2 * 37 % 50) / 50 < share))
    return answers


def make_run(
    folder: Path,
    *,
    models: Mapping[str, Sequence[float | None]] | None = None,
    texts: Row | None = None,
    change: Callable[[QaPlan], None] = lambda plan: None,
    n_parts: int = 1,
    **spec: Any,
) -> Run:
    """Return a finished run without report: models, with exact match on ``squad``, also have a set of 40 elsewhere."""
    answers = models or {"strong": right(0.98, 0.6, 0.02), "weak": right(0.3, 0.1, 0.6)}
    content = {
        "datasets": {
            "in_distribution": {"squad": "squad.json"},
            "out_of_distribution": {"trivia": "trivia.json", "news": "news.json"},
        },
        "bootstrap": {"trials": 20, "sample": SAMPLE},
        "heuristics": ["ans_len", "sim_word", "word_dist"],
    }
    plan = QaPlan(tuple(answers), **content | spec)
    columns = {"ans_len": LENGTHS, "sim_word": COMMON, "word_dist": NEAR}
    heuristics = plan.spec["heuristics"]
    plan.questions({name: columns.get(name, COMMON) for name in heuristics})
    for dataset, n_rows in (("trivia", 40), ("news", 20)):
        plan.questions({name: columns.get(name, COMMON)[:n_rows] for name in heuristics}, dataset=dataset)
    for model, exact in answers.items():
        plan.answers(exact, [None if one is None else min(1.0, one + 0.25) for one in exact], model)
        plan.answers([1.0, 0.0] * 20, [1.0, 0.5] * 20, model, dataset="trivia")
        plan.answers([1.0, 0.0, 0.0, 0.0] * 5, None, model, dataset="news")
    for row, example in enumerate(plan.examples):
        answer = f"answer{row}"
        words = " ".join(f"word{number}" for number in range(100))
        text = {
            "title": f"title {row}",
            "question": f"What is number {row}?",
            "context": f"{words} {answer} {words}",
            "answers": [answer, answer],
            "answer_starts": [len(words) + 1] * 2,
        }
        example.update(text | (texts or {}))
    change(plan)
    uri = plan.write(folder, n_parts)
    measure(uri)
    return Run.open(uri)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = make_run(tmp_path_factory.mktemp("runs") / "qa")
    notes = [f"note {number}: <approximate> entities" for number in range(8)]
    write_plan(run, notes=notes, models=[{"name": "strong", "n_questions": 260, "n_parameters": 1234567}])
    environment = {
        "versions": {"biaseval": "0.1.0"},
        "hardware": {"cpu": "some", "n_cores": 2},
        "models": {"strong": {"digest": "ab" * 32, "model": {"files": {"config.json": "cd" * 32}}}},
        "inputs": {"datasets.squad": "ef" * 32},
        "text": {
            "sentences and words": {"name": "NLTK data", "is_approximate": False},
            "entities and subjects": {"name": "embedded rules", "is_approximate": True},
        },
    }
    run.write_text("environment.json", json.dumps(environment))
    write_report(run.uri)
    return run


@pytest.fixture(scope="module")
def findings(run: Run) -> QaFindings:
    return read_qa_findings(run)


def told(findings: QaFindings) -> dict[str, str]:
    """Return the lines of the verdict by how they begin."""
    return {line.lead: line.text for line in conclude_qa(findings)}


def against(findings: QaFindings) -> str:
    return told(findings)["Models against each other"]


def points(value: float, low: float, high: float) -> str:
    return f"{value:.1f} [{low:.1f}, {high:.1f}]".replace("-", "−")


def table(source: str, caption: str) -> Page:
    """Return the first table whose caption starts so."""
    [found, *_] = [one for one in re.findall(r"<table.*?</table>", source, re.S) if f"<caption>{caption}" in one]
    return Page(found)


def test_the_written_files_are_the_report_and_its_figures(run: Run) -> None:
    metrics = ("exact_match", "f1")
    names = [f"significance_squad_{metric}" for metric in metrics]
    names += [f"out_of_distribution_{metric}" for metric in reversed(metrics)]
    names += [f"curve_squad_{name}_{metric}" for name in ("ans_len", "sim_word", "word_dist") for metric in metrics]
    files = [*(f"figures/{name}.svg" for name in names), "report.html"]
    assert write_report(run.uri) == [f"{run.uri}/{name}" for name in files]
    for name in files[:-1]:
        assert run.read_text(name).startswith("<?xml")


def test_the_same_run_gives_the_same_bytes(run: Run) -> None:
    names = [path.relative_to(run.root).as_posix() for path in Path(run.root).glob("figures/*.svg")]
    before = {name: run.read_bytes(name) for name in [*names, "report.html"]}
    code = f"from biaseval.pipelines import write_report; write_report({run.uri!r})"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    assert {name: run.read_bytes(name) for name in before} == before


def test_each_of_several_runs_has_its_own_page(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.root, tmp_path / "copy")
    (tmp_path / "copy" / "report.html").unlink()
    assert [write_report(uri)[-1] for uri in (run.uri, str(tmp_path / "copy"))] == [
        f"{run.uri}/report.html",
        f"{tmp_path}/copy/report.html",
    ]
    assert (tmp_path / "copy" / "report.html").read_bytes() == run.read_bytes("report.html")


def test_nothing_in_the_file_leads_outside_it(run: Run) -> None:
    source = run.read_text("report.html")
    page = page_of(run)
    for forbidden in ("http:", "https:", "url(", "@import"):
        assert forbidden not in source
    ids = page.values("id")
    assert len(set(ids)) == len(ids)
    for link in page.values("href"):
        assert link.removeprefix("#") in ids, link
    assert len(page.values("src")) == 10
    for image in page.values("src"):
        assert image.startswith("data:image/svg+xml;base64,")
    assert "default-src 'none'" in " ".join(page.values("content"))


def test_the_only_script_is_the_one_whose_hash_the_page_allows(run: Run) -> None:
    source = run.read_text("report.html")
    [script] = re.findall(r"<script>(.*?)</script>", source, re.S)
    assert source.count("<script") == 1
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"; script-src 'sha256-{digest}'" in " ".join(page_of(run).values("content"))


def test_a_click_sorts_by_the_column_of_the_heading(run: Run) -> None:
    tables = re.findall(r'<table class="[^"]*sortable.*?</table>', run.read_text("report.html"), re.S)
    assert len(tables) >= 4
    for one in tables:
        columns = [int(number) for number in re.findall(r'data-column="(\d+)"', one)]
        assert "rowspan" not in one
        for row in re.findall(r"<tr>(?:(?!</tr>).)*</tr>", one.partition("<tbody>")[2], re.S):
            assert columns == list(range(len(re.findall(r"<t[hd]\b", row))))


def test_tables_have_captions_and_scoped_headers(run: Run) -> None:
    source = run.read_text("report.html")
    assert source.count("<caption>") == source.count("<table")
    assert len(re.findall(r"<th\b", source)) == len(re.findall(r'<th scope="(?:row|col|rowgroup|colgroup)"', source))


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
            # Without a threshold, F1 is not measured.
            cell = shown(value) + (" (–)" if worse is None else f" ({worse:.2f})") if value is not None else "–"
            cells.append(cell)
        values = [value for row in own.values() if (value := row[f"bias_significance{suffix}"]) is not None]
        worse = [row[f"worse_high{suffix}"] for row in own.values() if row[f"worse_high{suffix}"] is not None]
        assert f"{model} {' '.join(cells)} {shown(np.mean(values))} ({np.mean(worse):.2f}) 3 of 3 " in text


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
    page = table(run.read_text("report.html"), "ans-len on squad")
    groups = " ".join(
        f"{row[f'{side}_exact_match']:.2f} [{row[f'{side}_low']:.2f}, {row[f'{side}_high']:.2f}]"
        for side in ("lower", "higher")
    )
    difference = f"+{row['difference']:.2f} [+{row['difference_low']:.2f}, +{row['difference_high']:.2f}]"
    test = findings.tests["strong", "squad", "ans_len"]
    assert test["is_supported"]
    assert (
        f"strong EM {row['bias_significance']:.2f} {test['null_high']:.2f} {test['p_adjusted']:.3f} {difference} "
        f"{groups} 1 ans-len ≤ 1 100 100 0 F1 {row['bias_significance_f1']:.2f} – – +{row['difference_f1']:.2f} "
    ) in page.text


def test_unmeasured_questions_are_counted(run: Run) -> None:
    text = page_of(run).text
    n_tried = len({row["threshold"] for row in mart(run, "qa_bias_candidates") if row["heuristic"] == "word_dist"})
    assert (
        f"No T: not significant, {n_tried} tried on strong, {n_tried} with 20 questions in both groups; undefined for "
        "50 of 200 questions."
    ) in text


def test_the_verdict_tells_the_biases_that_were_put_into_the_answers(findings: QaFindings) -> None:
    strong = findings.by_heuristic["strong", "squad", "ans_len"]
    weak = findings.by_heuristic["weak", "squad", "sim_word"]
    by = points(strong["difference"], strong["difference_low"], strong["difference_high"])
    other = points(-weak["difference"], -weak["difference_high"], -weak["difference_low"])
    assert told(findings)["Biases more than chance"] == (
        f"strong answers ans-len ≤ 1 better by {by} points (exact match of the others "
        f"{np.mean(right(0.98, 0.6, 0.02)[100:]) * 100:.1f} %); weak answers sim-word > {weak['threshold']:g} "
        f"better by {other} points (exact match of the others {np.mean(right(0.3, 0.1, 0.6)[::2]) * 100:.1f} %)."
    )


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
        "ans-len, sim-word and word-dist · variant paper"
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
        for rows in (findings.compared("squad", "gap", "mean"), findings.compared("squad", "exact_match"))
    )
    assert n_gaps > 3
    assert against(findings) == (
        f"the gap between groups differs in {n_gaps} of 28 pairs and exact match differs in {n_matches} of 28 pairs."
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
        null = f"{average['bias_significance_null']:.2f}"
        assert f"{model} {shown_em}" in text
        assert f" {significance} {null} {average['n_significant']} of {average['n_measurable']}" in text


def test_the_direction_is_told_where_higher_values_are_better(tmp_path: Path) -> None:
    run = make_run(tmp_path, models={"common": right(0.2, 0.2, 0.7)})
    findings = read_qa_findings(run)
    row = findings.by_heuristic["common", "squad", "sim_word"]
    assert row["biased_segment"] == "higher"
    by = points(-row["difference"], -row["difference_high"], -row["difference_low"])
    text = told(findings)["Biases more than chance"]
    assert text.startswith(f"common answers sim-word > {row['threshold']:g} better by {by} points (")
    assert "ans-len" not in text
    assert "Models against each other" not in told(findings)  # a single model is compared with none
    assert "searched on the predictions that are measured" in " ".join(qa_caveats(findings))
    for one in findings.examples["common", "squad", "sim_word"]:
        assert one["value"] == (5 if one["is_better"] else 2)


def test_models_are_told_apart_where_their_tests_do(tmp_path: Path) -> None:
    """Two models whose gaps differ by 60 points: tests of 200 questions tell them apart."""
    models = {"fair": right(0.7, 0.7), "strong": right(1, 0.4)}
    findings = read_qa_findings(make_run(tmp_path / "equal", models=models, heuristics=["ans_len"]))
    gap = findings.compared("squad", "gap", "mean")["fair", "strong"]
    by = points(-gap["estimate"], -gap["high"], -gap["low"])
    # Their exact match is the same.
    assert against(findings) == f"the gap between groups is {by} points smaller in fair than in strong."
    better = {"fair": right(1, 1), "strong": right(0.9, 0.2)}
    findings = read_qa_findings(make_run(tmp_path / "better", models=better, heuristics=["ans_len"]))
    match = findings.compared("squad", "exact_match")["fair", "strong"]
    by = points(*(100 * match[name] for name in ("estimate", "low", "high")))
    assert against(findings).endswith(f" and exact match is {by} points higher in fair than in strong.")
    text = table(render_qa_page(findings, []), "Models against each other").text
    gap = findings.compared("squad", "gap", "mean")["fair", "strong"]
    assert f"fair minus strong −{-gap['estimate']:.2f} [−{-gap['low']:.2f}, −{-gap['high']:.2f}] < 0.001 lower " in text


def test_models_that_no_test_tells_apart_have_the_difference_that_would_have_been_seen(tmp_path: Path) -> None:
    twins = {"one": right(1, 0.3), "other": right(1, 0.32)}
    findings = read_qa_findings(make_run(tmp_path / "twins", models=twins))
    gap = findings.compared("squad", "gap", "mean")["one", "other"]
    match = findings.compared("squad", "exact_match")["one", "other"]
    assert against(findings) == (
        f"nothing tells them apart. One test alone would find, four times in five, {gap['smallest_detectable']:.1f} "
        f"points of the gap between groups and {100 * match['smallest_detectable']:.1f} points of exact match."
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
        " Their average biases cannot be compared: ans-len could not be measured for all of them."
    )
    some: list[float | None] = [*twin[:-1], None]
    findings = read_qa_findings(make_run(tmp_path / "some", models={"full": full, "gaps": some}, **spec))
    assert against(findings).endswith(
        " Their average biases cannot be compared: they did not answer the same questions."
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
        "none of 1 is more than chance. Average significance, and what the same search finds: luck "
        f"{average['bias_significance']:.2f} ({average['bias_significance_null']:.2f} in answers without bias)."
    )
    assert findings.examples == {}
    source = render_qa_page(findings, [])
    text = table(source, "ans-len on squad").text
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
    text = table(render_qa_page(findings, []), "ans-len on squad").text
    low, high = (format(row[f"difference_{end}"], "+.2f").replace("-", "−") for end in ("low", "high"))
    assert f" +{row['difference']:.2f} [{low}, {high}] " in text


def test_a_run_whose_biases_were_not_tested_says_so(findings: QaFindings) -> None:
    untested = {place: row | {"n_significant": None} for place, row in findings.averages.items()}
    assert told(dataclasses.replace(findings, averages=untested))["Biases"] == (
        "whether they are more than chance was not tested."
    )


def test_the_figure_marks_what_is_more_than_chance_by_its_shape(run: Run, findings: QaFindings) -> None:
    exact, f1 = prediction_bias_figures(findings)[:2]
    n_supported = 0
    for (model, dataset, heuristic), test in findings.tests.items():
        if dataset == "squad" and test["bias_significance"] is not None:
            n_supported += test["is_supported"]
            value = f"{heuristic_name(heuristic)} {test['bias_significance']:.2f}"
            [own] = [one for one in exact.text.split("; ") if re.search(rf"(^|: ){model} ", one)]
            assert (f"{value} (more than chance)" in own) == test["is_supported"], (model, heuristic)
    assert 0 < n_supported < len(findings.heuristics) * 2
    assert exact.text.count("(more than chance)") == n_supported
    assert "(more than chance)" not in f1.text
    # A hollow mark is white inside.
    n_hollow = len(findings.heuristics) * 2 - n_supported
    assert len(re.findall(r"<use [^>]*fill: #ffffff", exact.svg.decode())) == n_hollow
    assert b"<use" in f1.svg
    assert not re.findall(r"<use [^>]*fill: #ffffff", f1.svg.decode())


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


def test_questions_about_one_article_show_nothing(tmp_path: Path) -> None:
    def one_title(plan: QaPlan) -> None:
        for row in plan.examples:
            row["title"] = "Rome"

    models = {"fair": right(0.7, 0.7), "strong": right(1, 0.2)}
    findings = read_qa_findings(make_run(tmp_path, models=models, change=one_title))
    assert findings.by_heuristic["strong", "squad", "ans_len"]["bias_significance"] > 30
    assert told(findings)["Biases"].startswith("none of 6 (2 models) is more than chance.")
    assert against(findings).startswith("no test can compare them: ")
    assert any(one.startswith("All questions of squad, trivia and news are about one") for one in qa_caveats(findings))


def test_a_model_that_answers_badly_has_no_success(tmp_path: Path) -> None:
    run = make_run(tmp_path, models={"good": right(1, 0.9), "broken": right(0.1, 0.1)})
    [caveat] = [one for one in qa_caveats(read_qa_findings(run)) if "Fewer than half" in one]
    assert "broken (10.0 % on squad)" in caveat
    assert "good" not in caveat


def test_without_significant_bias_the_page_says_so(tmp_path: Path) -> None:
    run = make_run(tmp_path, models={"fair": right(0.5, 0.5), "fairer": right(0.6, 0.6)})
    findings = read_qa_findings(run)
    on_squad = [row for row in findings.by_heuristic.values() if row["dataset"] == "squad"]
    assert {row["bias_significance"] for row in on_squad} == {0}
    text = told(findings)["Biases"]
    assert re.fullmatch(
        r"none of 6 \(2 models\) is more than chance\. Average significance, and what the same search finds: fair "
        r"0\.00 \(\d\.\d\d in answers without bias\) and fairer 0\.00 \(\d\.\d\d in answers without bias\)\.",
        text,
    )
    assert findings.examples == {}
    text = Page(render_qa_page(findings, [])).text
    assert "There are none: on squad, no bias is more than chance." in text
    assert "fair 0 (–) 0 (–) 0 (–) 0 (–) 3 of 3" in text


def test_groups_that_are_too_small_are_not_zero(tmp_path: Path) -> None:
    run = make_run(tmp_path, bootstrap={"trials": 20, "sample": 60}, thresholds={"sim_word": 99.0})
    findings = read_qa_findings(run)
    row = findings.by_heuristic["strong", "squad", "sim_word"]
    assert (row["status"], row["n_lower"], row["n_higher"]) == ("groups too small", 200, 0)
    text = Page(render_qa_page(findings, [])).text
    assert re.search(r"strong \d+\.\d\d \(\d+\.\d\d\) too small (\S+ \(\S+\)|too small) ", text)
    assert " EM – – – – – – 99 groups too small 200 0 0 " in text
    caveats = " ".join(qa_caveats(findings))
    assert "squad: sim-word" in caveats
    assert "trivia: sim-word and word-dist cannot be measured, a group has fewer than 60 questions" in caveats
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
    assert "my.module:n_commas A heuristic of the user." in text


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


def test_markup_in_texts_is_shown_and_not_interpreted(tmp_path: Path) -> None:
    hostile = "<img src=//evil onerror=alert(1)>"
    answer = "<b>&amp; 'it'</b>"
    texts = {
        "question": f"Who? {hostile}",
        "context": f"</mark></p>{hostile} {answer} <script>alert(2)</script>",
        "answers": [answer],
        "answer_starts": [len(f"</mark></p>{hostile} ")],
    }

    def predict(plan: QaPlan) -> None:
        for row in plan.predictions:
            row["prediction"] = f"</b>{hostile}"

    run = make_run(tmp_path, texts=texts, change=predict)
    write_plan(run, notes=[hostile], models=[])
    run.write_text("environment.json", json.dumps({"text": {hostile: {"name": hostile, "is_approximate": True}}}))
    write_report(run.uri)
    page = page_of(run)
    for text in (f"Who? {hostile}", f"</mark></p>{hostile}", answer, "<script>alert(2)</script>", f"</b>{hostile}"):
        assert text in page.text
    assert "onerror" not in {name for _, name, _ in page.attributes}
    assert not any(value.startswith("//") for value in page.values("src"))
    source = run.read_text("report.html")
    assert source.count("<script") == 1
    assert "<b>&amp; '" not in source


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
    assert "sentences and words NLTK data yes" in text
    assert "entities and subjects embedded rules approximate" in text


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
    assert "Samples of 90 without replacement hold much of the smaller group of ans-len on squad (100 quest" in caveat
    wide = make_run(tmp_path / "wide", bootstrap={"trials": 20, "sample": 50}, **spec)
    assert not any(one.startswith("Samples") for one in qa_caveats(read_qa_findings(wide)))
    bootstrap = {"trials": 20, "sample": 90, "replacement": True}
    replaced = make_run(tmp_path / "replaced", bootstrap=bootstrap, **spec)
    assert not any(one.startswith("Samples") for one in qa_caveats(read_qa_findings(replaced)))


def test_a_threshold_stands_between_the_bins_it_separates() -> None:
    bins = [(0.0, 0.0), (1.0, 1.0), (2.0, 4.0), (7.0, 30.0)]
    assert [threshold_place(bins, threshold) for threshold in (-1, 0, 0.5, 1, 4, 5, 99)] == [
        -0.5, 0.5, 0.5, 1.5, 2.5, 2.5, 3.5,
    ]  # fmt: skip
    assert threshold_place(bins, 3) == pytest.approx(2)  # inside a bin, where its value lies


def test_short_names_differ() -> None:
    assert short_names(["bert", "roberta"]) == {"bert": "bert", "roberta": "roberta"}
    long = [f"{'a' * 30}{middle}{'z' * 30}" for middle in "xyx"[:2]]
    shown = list(short_names(long, 11).values())
    assert shown == ["aaaaa…zzzzz", "aaaaa…zzzzz (2)"]


@pytest.mark.filterwarnings("error")
def test_the_smallest_and_long_names_leave_room_for_the_plot(tmp_path: Path) -> None:
    one = read_qa_findings(make_run(tmp_path / "one", models={"only": right(0.9, 0.5)}, heuristics=["sim_word"]))
    assert all(b"</svg>" in figure.svg for figure in prediction_bias_figures(one))
    names = [f"{'long-' * 18}{number}" for number in range(9)]
    heuristics = ["ans_len", f"{'package.' * 12}module:function"]
    many = make_run(tmp_path / "many", models={name: right(0.9, 0.5) for name in names}, heuristics=heuristics)
    assert all(b"</svg>" in figure.svg for figure in prediction_bias_figures(read_qa_findings(many)))


def test_figures_tell_their_numbers_in_words(run: Run, findings: QaFindings) -> None:
    alternatives = page_of(run).values("alt")
    significance = findings.by_heuristic["strong", "squad", "ans_len"]["bias_significance"]
    assert any(
        text.startswith("Bias significance, EM") and f"ans-len {significance:.2f}" in text for text in alternatives
    )
    [curve] = [text for text in alternatives if text.startswith("EM by ans-len on squad")]
    for row in findings.curves["squad", "ans_len"]:
        assert f"{100 * row['exact_match']:.1f} at {row['value_low']:g}" in curve


def test_missing_facts_of_plan_and_environment_are_left_out(tmp_path: Path) -> None:
    text = Page(render_qa_page(read_qa_findings(make_run(tmp_path)), [])).text
    assert "Where the heuristics" not in text
    assert "None" not in text


def test_a_run_without_marts_says_what_writes_them(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    for path in (tmp_path / "run" / "marts").iterdir():
        path.unlink()
    with pytest.raises(BiasevalError, match=r"marts/.*missing; biaseval report .* writes it"):
        write_report(run.uri)
    assert not run.has("report.html")
