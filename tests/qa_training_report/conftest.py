"""The studies whose pages are read."""

from __future__ import annotations

import dataclasses

import pytest

from biaseval.report.figures import Figure
from biaseval.report.qa import render_qa_page
from biaseval.report.qa_findings import QaFindings, read_qa_findings
from biaseval.report.qa_training_data import QaTraining
from biaseval.report.qa_training_figures import training_figures
from biaseval.store import Run
from tests.publishedstudy import METHODS, OUTSIDE, Study
from tests.qa_training_report.reading import trained


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """P3's debiased readers, with a product of experts of which one was given up."""
    study_ = Study()
    for method in ("all", *METHODS[1:]):
        for other in (*OUTSIDE, "mean"):
            study_.correlation(method, other, 23 if method == "all" else 6, -0.31, -0.63, 0.11, -0.25)
    study_.give_up("bert-base+product_of_experts(sim_word)", "<b>not finite</b> at step 340")
    return study_.write(tmp_path_factory.mktemp("runs") / "whole")


@pytest.fixture(scope="session")
def findings(whole: Run) -> QaFindings:
    return read_qa_findings(whole)


@pytest.fixture(scope="session")
def training(whole: Run, findings: QaFindings) -> QaTraining:
    return trained(whole, findings)


@pytest.fixture(scope="session")
def figures(findings: QaFindings, training: QaTraining) -> list[Figure]:
    """Those of the study, of whose training two methods'."""
    courses = {place: rows for place, rows in training.courses.items() if place[1] in ("standard", "bias_model")}
    return training_figures(findings, dataclasses.replace(training, courses=courses))


@pytest.fixture(scope="session")
def source(findings: QaFindings, training: QaTraining, figures: list[Figure]) -> str:
    return render_qa_page(findings, figures, training)


@pytest.fixture(scope="session")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two bases and seeds, against one bias."""
    many = Study(
        ("bert-base", "roberta-base"), METHODS[:2], ("ans_len",), (1, 2), ("triviaqa",), ("ans_len", "cos_sim")
    )
    many.correlation("all", "mean", 4, -0.9, -0.998, 0.5, -0.8)
    return many.write(tmp_path_factory.mktemp("runs") / "seeded", [{"name": "t5", "path": "t5"}])
