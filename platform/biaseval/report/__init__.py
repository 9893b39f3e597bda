"""The HTML report of a run, or of several: one file that works offline; and a run's figures as SVG files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from biaseval.errors import InputError
from biaseval.report.cautions import caveats
from biaseval.report.compare_page import write_compared
from biaseval.report.comparison import render_comparison_page
from biaseval.report.comparison_data import read_comparison
from biaseval.report.figures import Figure, loss_figure, metric_figures
from biaseval.report.findings import Adaptation, read_findings
from biaseval.report.majority import f1_figures, render_majority_page
from biaseval.report.majority_findings import read_majority_findings
from biaseval.report.majority_words import cautions
from biaseval.report.page import render_page
from biaseval.report.qa import render_qa_page
from biaseval.report.qa_figures import prediction_bias_figures
from biaseval.report.qa_findings import read_qa_findings
from biaseval.report.qa_summary import qa_cautions
from biaseval.report.qa_training import read_qa_training
from biaseval.report.qa_training_figures import training_figures
from biaseval.report.search import render_search_page
from biaseval.report.search_figures import search_figures
from biaseval.report.search_findings import read_search_findings
from biaseval.report.search_words import search_caveats
from biaseval.store import Run, write_file

__all__ = ["label_bias_page", "majority_bias_page", "qa_bias_page", "search_page", "write_comparison"]


@dataclass(frozen=True)
class Page:
    """The report of a run."""

    figures: list[Figure]
    render: Callable[[], str]
    cautions: list[str]
    """What it says that a reader must know before trusting the numbers, a sentence each."""

    @property
    def html(self) -> str:
        """All of it, made when it is asked for: figures alone need none."""
        return self.render()


def write_comparison(run_uris: Sequence[str], out: str) -> str:
    """Write one page over several runs of one kind, with its figures inside; nothing is written into the runs.

    Of majority-bias runs it has the tables and figures of P2, a column per model; of others it is `write_compared`.

    Args:
        run_uris: finished runs, at least two; local paths or ``s3://`` URIs.
        out: the page's file, which ends in ``.html``; one that exists is replaced in one step.

    Returns:
        The URI of the page.

    Raises:
        InputError: only some runs are majority-bias runs, ``out`` is no name of a page, `read_comparison`, or
            `write_compared`.
        BiasevalError: a run has no metrics yet; the message says how to get them.
    """
    if not any(Run.open(uri).parts("settings") for uri in run_uris):
        return write_compared(run_uris, out)
    _refuse_other_kinds(run_uris, out)
    return write_file(out, render_comparison_page(read_comparison(run_uris)))


def _refuse_other_kinds(run_uris: Sequence[str], out: str) -> None:
    """Make sure that one page can be written over these runs.

    Raises:
        InputError: a directory holds no majority-bias run; ``out`` is no name of a page. The message lists all.
    """
    problems = [
        f"{run.uri}: holds no majority-bias run; --out makes one page of such runs, leave it away for reports of others"
        for run in map(Run.open, run_uris)
        if not run.parts("settings")
    ]
    if not out.endswith(".html"):
        problems.append(f"--out {out}: does not end in .html; name the file of the page")
    if problems:
        raise InputError.of(problems)


def label_bias_page(run: Run) -> Page:
    """Return the report of a label-bias run that has its metrics.

    The same run gives the same bytes.

    Raises:
        BiasevalError: it has no metrics yet; the message says how to get them.
    """
    findings = read_findings(run)
    figures = metric_figures(findings.by_suite)
    training = _training_figures(findings.adaptation)
    return Page([*figures, *training], partial(render_page, findings, figures, training), caveats(findings))


def majority_bias_page(run: Run) -> Page:
    """Return the same of a majority-bias run; Raises: the same."""
    findings = read_majority_findings(run)
    figures = f1_figures(findings)
    training = _training_figures(findings.adaptation)
    page = partial(render_majority_page, findings, figures, training)
    return Page([*figures, *training], page, cautions(findings))


def qa_bias_page(run: Run) -> Page:
    """Return the same of a QA-bias run; Raises: the same."""
    findings = read_qa_findings(run)
    training = read_qa_training(run, findings)
    figures = [*prediction_bias_figures(findings), *training_figures(findings, training)]
    return Page(figures, partial(render_qa_page, findings, figures, training), qa_cautions(findings))


def search_page(run: Run) -> Page:
    """Return the same of a search; Raises: the same."""
    findings = read_search_findings(run)
    figures = search_figures(findings)
    return Page(figures, partial(render_search_page, findings, figures), search_caveats(findings))


def _training_figures(adaptation: Adaptation | None) -> list[Figure]:
    return [] if adaptation is None else [loss_figure(adaptation.losses)]
