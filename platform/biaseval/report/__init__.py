"""The HTML report of one or several runs, as one file that works offline, and a run's figures as SVG files."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from biaseval.analysis import answers
from biaseval.environment import raw_spec, read_environment
from biaseval.report.blocks import Ask, Layout, render
from biaseval.report.charts import Chart
from biaseval.report.compare import write_comparison
from biaseval.report.label_bias import label_bias_charts, label_bias_layout, label_bias_notes
from biaseval.report.majority_bias import f1_charts, majority_bias_layout
from biaseval.report.qa_bias import qa_bias_charts, qa_bias_layout, qa_bias_notes
from biaseval.report.search import search_charts, search_layout, search_notes
from biaseval.report.settings import loss_charts, notes_block
from biaseval.store import Run

__all__ = ["label_bias_page", "majority_bias_page", "qa_bias_page", "search_page", "write_comparison"]


@dataclass(frozen=True)
class Page:
    """The report of a run."""

    figures: Sequence[Chart]
    render: Callable[[], str]
    cautions: Sequence[str]
    """Cautions for readers of the numbers, one sentence each."""
    conclusions: Sequence[str] = ()
    """Conclusions of the run, one sentence each; the first answers its question."""

    @property
    def html(self) -> str:
        """The HTML, rendered on request, because figures do not need it."""
        return self.render()


def label_bias_page(run: Run) -> Page:
    """Return the report of a label-bias run that has its metrics.

    The same run gives the same bytes.

    Raises:
        BiasevalError: the run has no metrics yet; the message says how to compute them.
    """
    notes = label_bias_notes(run, raw_spec(run), read_environment(run))
    return _page(run, lambda ask: [*label_bias_charts(ask), *loss_charts(ask)], label_bias_layout, notes)


def _page(
    run: Run,
    charts_of: Callable[[Ask], list[Chart]],
    layout: Callable[[Run, Ask, Sequence[Chart]], Layout],
    notes: Sequence[str],
) -> Page:
    """Return a page with notes and the sentences of the relations ``KIND_conclusions`` and ``KIND_cautions``."""
    kind, ask, said = raw_spec(run)["kind"], answers(run), {}
    for name in ("conclusions", "cautions"):
        said[name] = [f"{row['lead']} {row['text']}".strip() for row in ask(f"from {kind}_{name}")]
    charts = charts_of(ask)
    return Page(charts, lambda: render(layout(run, ask, charts), ask), [*said["cautions"], *notes], said["conclusions"])


def majority_bias_page(run: Run) -> Page:
    """Return the report of a majority-bias run; details as for `label_bias_page`."""
    return _page(run, lambda ask: [*f1_charts(ask), *loss_charts(ask)], majority_bias_layout, notes_block(run))


def qa_bias_page(run: Run) -> Page:
    """Return the report of a QA-bias run; details as for `label_bias_page`."""
    return _page(run, qa_bias_charts, qa_bias_layout, qa_bias_notes(run))


def search_page(run: Run) -> Page:
    """Return the report of a search; details as for `label_bias_page`."""
    return _page(run, partial(search_charts, run), search_layout, search_notes(run))
