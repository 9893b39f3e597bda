"""Figures of trained readers: exact match of each segment, and the courses of trainings."""

from __future__ import annotations

import dataclasses
import html
import math
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from biaseval.report.figures import Figure
from biaseval.report.qa_findings import QaFindings, read_qa_findings
from biaseval.report.qa_training_data import QaTraining
from biaseval.report.qa_training_figures import training_figures
from biaseval.store import Run
from biaseval.tables import EVALUATIONS
from tests.qa_training_report.reading import trained


def test_figure_4_has_standard_debiased_and_peoples_answers(
    findings: QaFindings, figures: list[Figure], source: str
) -> None:
    [figure] = [one for one in figures if one.suite == "debiasing_0_bert-base-squad"]
    assert (
        "ans_len: standard 12.51 (69.01), RESAM 6.87 (69.75), LMIX 6.36 (18.52), CREG 11.18 (70.89), PoE 7.70 (65.40), "
        "people 13.55 (69.76); "
    ) in figure.text
    assert "ans_pos: standard 0.00 (82.19), people 0.00 (84.00); " in figure.text
    assert (
        "sim_word: standard 1.04 (77.50), RESAM 0.23 (76.94), LMIX 0.68 (20.88), CREG 1.86 (78.76), people"
        in figure.text
    )
    assert html.escape(figure.text) in source
    assert source.count("data:image/svg") == len(figures)
    assert len({one.name for one in figures}) == len(figures)


def test_models_that_were_given_have_a_figure_of_their_own_and_seeds_a_point_each(seeded: Run) -> None:
    own = read_qa_findings(seeded)
    read = trained(seeded, own)
    no_courses = dataclasses.replace(read, courses={}, correlations=(), elsewhere={})
    texts = {one.suite: one.text for one in training_figures(own, no_courses) if one.metric == "exact_match"}
    assert list(texts) == [
        "debiasing_0_bert-base-squad", "debiasing_1_roberta-base-squad", "debiasing_given_squad"
    ]  # fmt: skip
    assert (
        "ans_len: standard 12.51 (69.01) and 12.71 (69.01), RESAM 6.87 (69.75) and 7.07"
        in texts["debiasing_0_bert-base-squad"]
    )
    assert "ans_len: t5 13.55 (69.76); cos_sim: t5 0.55 (79.88)." in texts["debiasing_given_squad"]


def test_courses_are_the_mean_of_the_readers_that_were_asked(
    whole: Run, training: QaTraining, figures: list[Figure]
) -> None:
    evaluations = whole.read_table("evaluations").to_pylist()
    models = {row["model"] for row in training.readers if row["method"] == "product_of_experts" and row["path"]}
    assert len(models) == 5
    for row in training.courses[0, "product_of_experts"]:
        own = [
            one
            for one in evaluations
            if (one["step"], one["dataset"]) == (row["step"], row["dataset"]) and one["model"] in models
        ]
        assert row["n_readers"] == len(own)
        for metric in ("loss", "f1"):
            values = [one[metric] for one in own]
            expected = [np.mean(values), min(values), max(values)]
            assert [row[metric], row[f"{metric}_low"], row[f"{metric}_high"]] == pytest.approx(expected)
    steps = [row["best_step"] + 1 for row in training.readers if row["method"] == "bias_model"]
    first, *_, last = training.courses[0, "bias_model"]
    for metric in ("loss", "f1"):
        panels = [one for one in figures if one.suite == f"training_0_bert-base_{metric}"]
        assert [one.name.removeprefix(f"training_0_bert-base_{metric}_") for one in panels] == [
            "standard",
            "bias_model",
        ]
        assert panels[1].text.endswith(f"kept at step {', '.join(map(str, steps))}.")
    assert f"squad (biased) {first['loss']:.2f} at step 1000" in bias_models_panel(figures, "loss").text
    assert f"{100 * last['f1']:.2f} at step {last['step'] + 1}; kept" in bias_models_panel(figures, "f1").text


def bias_models_panel(figures: Sequence[Figure], metric: str) -> Figure:
    [figure] = [one for one in figures if one.name == f"training_0_bert-base_{metric}_bias_model"]
    return figure


def test_a_training_that_diverged_is_not_in_the_curves(whole: Run, tmp_path: Path) -> None:
    shutil.copytree(whole.root, tmp_path / "copy")
    copy = Run.open(str(tmp_path / "copy"))
    rows = copy.read_table("evaluations").to_pylist()
    for row in rows:
        if row["model"] == "bert-base+resample(ans_len)":
            row["loss"] = math.inf
    copy.write_part("evaluations", 0, EVALUATIONS.rows(rows))
    courses = trained(copy, read_qa_findings(copy)).courses[0, "resample"]
    assert max(row["n_readers"] for row in courses) == 5
    assert all(math.isfinite(row["loss"]) for row in courses)
