"""The HTML report of a run: one file that works offline, and its figures as SVG files."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from biaseval.errors import InputError
from biaseval.report.figures import Figure, metric_figures
from biaseval.report.findings import read_findings
from biaseval.report.majority import f1_figures, read_majority_findings, render_majority_page
from biaseval.report.page import render_page
from biaseval.report.qa import render_qa_page
from biaseval.report.qa_figures import qa_figures
from biaseval.report.qa_findings import read_qa_findings
from biaseval.store import Run

__all__ = ["write_report"]


def write_report(run_uris: Sequence[str]) -> list[str]:
    """Write ``report.html`` and ``figures/*.svg`` into each run, from its marts and tables.

    The same run gives the same bytes. Each file appears in one step, the report last.

    Args:
        run_uris: finished label-bias, majority-bias and QA-bias runs, local paths or ``s3://`` URIs.

    Returns:
        The URIs of the files written, run by run.

    Raises:
        InputError: no run is named, or one holds no run of these kinds.
        BiasevalError: a run has no metrics yet; the message says how to get them.
    """
    if not run_uris:
        raise InputError("RUN: no run directory is named; name at least one")
    pages = {"majority_bias": _majority_page, "qa_bias": _qa_page}
    written = []
    for run in map(Run.open, run_uris):
        figures, page = pages.get(_kind(run), _label_bias_page)(run)
        files = {f"figures/{figure.name}.svg": figure.svg for figure in figures}
        files["report.html"] = page.encode()
        for name, content in files.items():
            run.write_bytes(name, content)
            written.append(f"{run.uri}/{name}")
    return written


def _kind(run: Run) -> str:
    spec = yaml.safe_load(run.read_text("spec.yaml")) if run.has("spec.yaml") else None
    return str(spec.get("kind")) if isinstance(spec, dict) else ""


def _label_bias_page(run: Run) -> tuple[list[Figure], str]:
    findings = read_findings(run)
    figures = metric_figures(findings.by_suite)
    return figures, render_page(findings, figures)


def _majority_page(run: Run) -> tuple[list[Figure], str]:
    findings = read_majority_findings(run)
    figures = f1_figures(findings)
    return figures, render_majority_page(findings, figures)


def _qa_page(run: Run) -> tuple[list[Figure], str]:
    findings = read_qa_findings(run)
    figures = qa_figures(findings)
    return figures, render_qa_page(findings, figures)
