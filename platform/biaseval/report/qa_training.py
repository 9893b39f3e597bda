"""The part of a QA-bias report on the readers that the run trained (P3): what its template needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from biaseval.report.figures import Figure
from biaseval.report.qa_findings import QaFindings
from biaseval.report.qa_training_cells import change_cell, duration, number
from biaseval.report.qa_training_curves import course_suite
from biaseval.report.qa_training_data import QaTraining, read_qa_training
from biaseval.report.qa_training_figures import bias_suite, given_suite, scatter_suite
from biaseval.report.qa_training_names import BIAS_MODEL, MEAN, METHODS
from biaseval.report.qa_training_words import (
    addressed_rows,
    correlated,
    found,
    reader_name,
    study,
    training_caveats,
)

__all__ = ["QaTraining", "read_qa_training", "training_context"]

_N_OPEN_ROWS = 30
"""Rows of a table that is not folded."""


def training_context(
    findings: QaFindings, training: QaTraining | None, figures: Sequence[Figure]
) -> dict[str, Any] | None:
    """Return what the template of the trained readers needs beside the report's own; None without such readers."""
    if training is None:
        return None
    suites: dict[str, list[Figure]] = {}
    for figure in figures:
        suites.setdefault(figure.suite, []).append(figure)
    return {
        "training": training,
        "methods": METHODS,
        "study": study(training),
        "given_up": [row for row in training.readers if row["problem"] is not None],
        "found": [
            (block, dataset, sentences)
            for block in training.blocks
            for dataset in findings.in_distribution
            if (sentences := found(findings, training, block, dataset))
        ],
        "correlated": [sentence for dataset in findings.in_distribution if (sentence := correlated(training, dataset))],
        "caveats": training_caveats(findings, training),
        "figures": suites,
        "sets": [*findings.datasets, *([MEAN] if len(findings.out_of_distribution) > 1 else [])],
        "change": change_cell,
        "number": number,
        "percent": lambda share: number(None if share is None else 100 * share),
        "reader_name": reader_name,
        "addressed_rows": addressed_rows,
        "duration": duration,
        "bias_model": BIAS_MODEL,
        "mean": MEAN,
        "n_open_rows": _N_OPEN_ROWS,
        "bias_suite": bias_suite,
        "given_suite": given_suite,
        "scatter_suite": scatter_suite,
        "course_suite": course_suite,
    }
