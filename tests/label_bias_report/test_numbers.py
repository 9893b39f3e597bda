"""The numbers, rows and warnings of the page are those of the run."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from biaseval.analysis import query
from biaseval.report.cautions import caveats
from biaseval.report.findings import Findings, read_findings
from biaseval.report.page import render_page
from biaseval.report.verdict import conclude
from biaseval.runs import write_report
from biaseval.store import Run
from tests.label_bias_report.runs import make_run
from tests.pages import mart, page_of


def test_every_number_of_the_suite_stands_in_the_report(run: Run) -> None:
    text = page_of(run).text
    rows = mart(run, "label_bias_by_model")
    assert {row["suite"] for row in rows} == {"all", "semantically_equivalent"}
    for row in rows:
        for metric in ("macro_f1", "accuracy", "rsd", "bias_score"):
            assert f"{row[metric]:.3f} [{row[f'{metric}_low']:.3f}, {row[f'{metric}_high']:.3f}]" in text
    assert f" {12 * 24 * 2:,} " in text  # main rows with demonstrations: tasks x instances x sets
    assert f" {12 * 8 * 2:,} " in text  # BiasScore rows likewise


def test_every_task_has_its_numbers_averaged_over_sets(run: Run, findings: Findings) -> None:
    text = page_of(run).text
    rows = mart(run, "label_bias_by_task")
    for task in {row["task"] for row in rows}:
        sets = [row["rsd"] for row in rows if (row["task"], row["n_demos"], row["method"]) == (task, 8, "looc")]
        assert len(sets) == 2
        [shown] = [row for row in findings.by_task if (row["task"], row["n_demos"], row["method"]) == (task, 8, "looc")]
        assert shown["rsd"] == pytest.approx(np.mean(sets))
        assert f"{shown['rsd']:.3f}" in text


def test_the_paired_difference_is_the_mean_over_tasks_of_the_differences(run: Run, findings: Findings) -> None:
    rows = mart(run, "label_bias_by_task")
    values = {(row["task"], row["n_demos"], row["demo_set"], row["method"]): row["rsd"] for row in rows}
    per_task: dict[str, list[float]] = {}
    for (task, n_demos, demo_set, method), rsd in values.items():
        if n_demos == 2 and method == "dc":
            per_task.setdefault(task, []).append(rsd - values[task, 2, demo_set, "none"])
    differences = np.array([np.mean(sets) for sets in per_task.values()])
    change = findings.verdicts[2, "dc", 2, "none"]["rsd"]
    assert change["estimate"] == pytest.approx(differences.mean())
    assert change["standard_error"] == pytest.approx(differences.std(ddof=1) / np.sqrt(12))
    [remedy] = [row for row in findings.remedies if (row["n_demos"], row["method"]) == (2, "dc")]
    assert remedy["rsd"] - remedy["rsd_before"] == pytest.approx(differences.mean())


def test_rows_behind_a_verdict_are_wrong_and_of_the_preferred_label(run: Run, findings: Findings) -> None:
    assert set(findings.wrong) <= {task["task"] for task in findings.ranked[:10]}
    scores: dict[str, dict[str, float]] = {}
    for row in pq.read_table(f"{run.root}/label_scores").to_pylist():
        scores.setdefault(row["prompt_id"], {})[row["label"]] = sum(row["token_logprobs"])
    prompts = {
        (row["task"], row["n_demos"], row["demo_set"], row["row"]): row
        for row in pq.read_table(f"{run.root}/prompts").to_pylist()
        if row["purpose"] == "main"
    }
    n_rows = 0
    for task, rows in findings.wrong.items():
        labels = findings.labels[task]
        preferred = max(labels, key=lambda label: label["n_predicted"] - label["n_gold"])["label"]
        assert 1 <= len(rows) <= 5
        for row in rows:
            prompt = prompts[task, 8, row["demo_set"], row["row"]]
            logs = scores[prompt["prompt_id"]]
            assert max(logs, key=lambda label: logs[label]) == row["prediction"] == preferred
            assert row["gold"] == prompt["gold"] != preferred
            assert row["gold_probability"] <= row["probability"] < 1
            n_rows += 1
    assert n_rows > 10
    assert query([run.uri], "from wrong_answers where gold = prediction").num_rows == 0
    wrong = query([run.uri], "select count(*) as n from wrong_answers").to_pylist()[0]["n"]
    counts = query([run.uri], "select sum(n_gold - n_correct)::bigint as n from label_bias_by_label").to_pylist()
    assert wrong == counts[0]["n"]


def test_long_texts_of_a_run_are_cut(findings: Findings) -> None:
    task, [row, *_] = next(iter(findings.wrong.items()))
    page = render_page(replace(findings, wrong={task: [{**row, "input_text": "x" * 5000}]}), [])
    assert "x" * 300 + " …" in page
    assert "x" * 301 not in page


def test_tasks_are_ranked_by_bias_beyond_the_noise_and_ties_by_name(findings: Findings) -> None:
    order = [(-row["rsd_excess"], row["task"]) for row in findings.ranked if row["rsd_excess"] is not None]
    assert order == sorted(order)
    assert len(findings.ranked) == 12


def test_label_shares_add_up_to_one(findings: Findings) -> None:
    assert findings.labels.keys() == {task["task"] for task in findings.ranked}
    for labels in findings.labels.values():
        for share in ("gold_share", "predicted_share", "mean_probability"):
            assert sum(label[share] for label in labels) == pytest.approx(1)


def test_shortened_prompts_inferred_templates_and_left_out_tasks_are_told(run: Run, findings: Findings) -> None:
    # One main row per task and set has 7 of 8 demonstrations; LOOC's one fewer is by design.
    assert findings.cut_prompts == [
        {"n_demos": 8, "purpose": "main", "n_rows": 12 * 24 * 2, "n_fewer_demos": 12 * 2, "n_truncated": 0}
    ]
    told = " ".join(caveats(findings))
    assert "tasks are few" not in told
    assert re.search(r"24 of [\d,]+ prompts hold fewer demonstrations", told)
    assert "template of 6 tasks is inferred" in told
    assert "1 task was left out" in told
    text = page_of(run).text
    assert "has <4 labels> & more" in text
    assert "3 inputs do not fit the template" in text
    assert "cd" * 32 in text


def test_a_metric_without_rows_is_not_shown_as_zero(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", n_tasks=2, n_demos=(0, 2), n_bias_score=0)
    written = write_report(run.uri)
    findings = read_findings(run)
    assert all(row["bias_score"] is None for row in findings.by_suite["all"])
    assert not any("bias_score" in name for name in written)
    assert not any("BiasScore" in line.lead for line in conclude(findings))
    assert "–" in page_of(run).text


def test_tasks_without_a_correct_prediction_are_told_for_every_method(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", n_tasks=2, n_demos=(0,), calibration=("dc",), signal=-50.0)
    told = " ".join(caveats(read_findings(run)))
    assert "2 tasks (no calibration, 0 demonstrations) and 2 tasks (DC, 0 demonstrations)." in told
    assert "2 tasks are few" in told


def test_tasks_whose_bias_score_cannot_be_0_and_single_gold_labels_are_named(findings: Findings) -> None:
    first, second, *others = findings.ranked
    ranked = [{**first, "bias_score_of_perfect": 0.5}, {**second, "n_main_gold_labels": 1}, *others]
    told = " ".join(caveats(replace(findings, ranked=ranked)))
    assert f"a model that is always right has more than 0.1 in {first['task']} (0.500)." in told
    assert f"so that RSD is 0 for every method, in {second['task']}." in told
    every = [{**row, "bias_score_of_perfect": 0.2} for row in findings.ranked]
    assert "and 7 more." in " ".join(caveats(replace(findings, ranked=every)))
