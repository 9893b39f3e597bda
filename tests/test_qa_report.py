"""The report of QA-bias runs whose answers have a known bias; the marts behind it are the real ones."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biaseval.errors import BiasevalError
from biaseval.pipelines import write_report
from biaseval.report.findings import Row
from biaseval.report.qa import render_qa_page, threshold_sentence
from biaseval.report.qa_figures import prediction_bias_figures, short_names, threshold_place
from biaseval.report.qa_findings import N_EXAMPLES, QaFindings, excerpt, read_qa_findings
from biaseval.report.qa_summary import compare_models, qa_caveats, summarize_models
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
    models: dict[str, Sequence[float | None]] | None = None,
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


def told(findings: QaFindings) -> str:
    """Return all sentences of the summary."""
    by_model = [f"{model}: {' '.join(sentences)}" for model, sentences in summarize_models(findings)]
    return " ".join([*compare_models(findings), *by_model])


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
    for forbidden in ("http:", "https:", "url(", "<script", "@import"):
        assert forbidden not in source
    ids = page.values("id")
    assert len(set(ids)) == len(ids)
    for link in page.values("href"):
        assert link.removeprefix("#") in ids, link
    assert len(page.values("src")) == 10
    for image in page.values("src"):
        assert image.startswith("data:image/svg+xml;base64,")
    assert "default-src 'none'" in " ".join(page.values("content"))


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
            cells.append(shown(value) + (" (–)" if worse is None else f" ({worse:.2f})"))
        values = [row[f"bias_significance{suffix}"] for row in own.values()]
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
    # The error of a mean of two independent means.
    for metric, columns in (
        ("exact_match", ([1, 0] * 20, [1, 0, 0, 0] * 5)),
        ("f1", ([1, 0.5] * 20, [1, 0, 0, 0] * 5)),
    ):
        error = np.sqrt(sum(np.var(column, ddof=1) / len(column) for column in columns)) / 2
        assert mean[f"{metric}_high"] - mean[metric] == pytest.approx(1.96 * error, rel=1e-4)
        assert mean[metric] - mean[f"{metric}_low"] == pytest.approx(1.96 * error, rel=1e-4)


def test_each_heuristic_has_its_groups_intervals_and_the_plain_difference(run: Run) -> None:
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
    assert (
        f"strong EM {row['bias_significance']:.2f} {difference} {groups} 1 ans-len ≤ 1 100 100 0 F1 "
        f"{row['bias_significance_f1']:.2f} +{row['difference_f1']:.2f} "
    ) in page.text


def test_unmeasured_questions_are_counted(run: Run) -> None:
    text = page_of(run).text
    n_tried = len({row["threshold"] for row in mart(run, "qa_bias_candidates") if row["heuristic"] == "word_dist"})
    assert (
        f"No T: not significant, {n_tried} tried on strong, {n_tried} with 20 questions in both groups; undefined for "
        "50 of 200 questions."
    ) in text


def test_the_summary_tells_the_biases_that_were_put_into_the_answers(findings: QaFindings) -> None:
    text = told(findings)
    strong, weak = (findings.by_heuristic[model, "squad", "ans_len"] for model in ("strong", "weak"))
    by = f"{strong['difference']:.1f} [{strong['difference_low']:.1f}, {strong['difference_high']:.1f}]"
    assert (
        f"Largest: ans-len {strong['bias_significance']:.2f} (better where ans-len ≤ 1, by {by}; EM of the worse group "
        f"at most {strong['worse_high']:.1f})."
    ) in text
    assert weak["biased_segment"] == "lower"


def test_the_direction_is_told_where_higher_values_are_better(tmp_path: Path) -> None:
    run = make_run(tmp_path, models={"common": right(0.2, 0.2, 0.7)})
    findings = read_qa_findings(run)
    row = findings.by_heuristic["common", "squad", "sim_word"]
    assert row["biased_segment"] == "higher"
    by = f"{-row['difference']:.1f} [{-row['difference_high']:.1f}, {-row['difference_low']:.1f}]"
    text = told(findings)
    assert f"sim-word {row['bias_significance']:.2f} (better where sim-word > {row['threshold']:g}, by {by};" in text
    assert "; 1 significant." in text
    assert "ans-len" not in text
    assert compare_models(findings) == []  # a single model is compared with none
    assert "searched on the predictions that are measured" in " ".join(qa_caveats(findings))
    for one in findings.examples["common", "squad", "sim_word"]:
        assert one["value"] == (5 if one["is_better"] else 2)


def test_models_are_compared_with_their_exact_match(tmp_path: Path) -> None:
    findings = read_qa_findings(make_run(tmp_path, heuristics=["ans_len"]))
    em = {model: 100 * findings.by_dataset[model, "squad"]["exact_match"] for model in ("strong", "weak")}
    average = {model: findings.averages[model, "squad"]["bias_significance"] for model in ("strong", "weak")}
    assert average["weak"] < average["strong"]
    assert compare_models(findings) == [
        f"On squad, weak has the lowest average bias significance ({average['weak']:.2f} with EM {em['weak']:.1f}); "
        f"strong has the highest EM ({average['strong']:.2f} with EM {em['strong']:.1f})."
    ]


def test_several_models_may_have_the_lowest_bias(tmp_path: Path) -> None:
    models = {"fair": right(0.5, 0.5), "fairer": right(0.9, 0.9), "strong": right(1, 0.1)}
    findings = read_qa_findings(make_run(tmp_path, models=models))
    [sentence] = [one for one in compare_models(findings) if one.startswith("On squad")]
    assert sentence.startswith(
        "On squad, 2 models have the lowest average bias significance (0.00); fairer has the high"
    )


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
    assert compare_models(findings) == ["On squad, no bias of any model is significant."]
    assert told(findings).count("0.00 EM points on squad, over 3 heuristics; none significant.") == 2
    assert "Largest" not in told(findings)
    assert findings.examples == {}
    text = Page(render_qa_page(findings, [])).text
    assert "There are none: on squad, no bias is significant." in text
    assert "fair 0 (–) 0 (–) 0 (–) 0 (–) 3 of 3" in text


def test_groups_that_are_too_small_are_not_zero(tmp_path: Path) -> None:
    run = make_run(tmp_path, bootstrap={"trials": 20, "sample": 60}, thresholds={"sim_word": 99.0})
    findings = read_qa_findings(run)
    row = findings.by_heuristic["strong", "squad", "sim_word"]
    assert (row["status"], row["n_lower"], row["n_higher"]) == ("groups too small", 200, 0)
    text = Page(render_qa_page(findings, [])).text
    assert re.search(r"strong \d+\.\d\d \(\d+\.\d\d\) too small (\S+ \(\S+\)|too small) ", text)
    assert " EM – – – – 99 groups too small 200 0 0 " in text
    caveats = " ".join(qa_caveats(findings))
    assert "squad: sim-word" in caveats
    assert "trivia: sim-word and word-dist cannot be measured, a group has fewer than 60 questions" in caveats
    n_measurable = sum(
        findings.by_heuristic["strong", "squad", name]["status"] != "groups too small" for name in findings.heuristics
    )
    assert f"over the {n_measurable} measurable of 3 heuristics" in told(findings)
    assert threshold_sentence(findings, "squad", "sim_word") == "T = 99, given by the spec."


def test_a_heuristic_without_two_values_has_no_threshold(tmp_path: Path) -> None:
    def same(plan: QaPlan) -> None:
        for row in plan.attributes:
            row["value"] = 7.0 if row["heuristic"] == "sim_word" else row["value"]

    findings = read_qa_findings(make_run(tmp_path, change=same, heuristics=["sim_word"]))
    assert "squad: no bias can be measured, the values do not differ." in qa_caveats(findings)
    assert told(findings).count("No heuristic can be measured on squad.") == 2
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
    assert "out of distribution (n = 40)" in told(findings)  # one set: no mean of sets


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
    assert "<script" not in source
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


def test_notes_of_the_plan_and_approximate_texts_are_told(run: Run) -> None:
    text = page_of(run).text
    care = text.partition("Read with care")[2].partition("Prediction bias")[0]
    for number in range(8):
        assert f"note {number}: <approximate> entities" in care
    assert "3 more notes of the plan" in care
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
