"""The HTML report of one or several runs, as one file that works offline, and a run's figures as SVG files."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from biaseval.analysis import open_runs, row_list
from biaseval.environment import raw_spec, read_environment
from biaseval.report.blocks import Figure, Layout, Row, queries, render
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

    figures: Sequence[Figure]
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
    ask = partial(_answer, run)
    charts = [*label_bias_charts(ask), *loss_charts(ask)]
    notes = label_bias_notes(run, raw_spec(run), read_environment(run))
    return _page(run, charts, lambda: label_bias_layout(run, ask, charts), notes)


def _page(run: Run, charts: Sequence[Figure], layout: Callable[[], Layout], notes: Sequence[str]) -> Page:
    """Return a page with notes and the sentences of the relations ``KIND_conclusions`` and ``KIND_cautions``."""
    kind, said = raw_spec(run)["kind"], {}
    with closing(open_runs([run.uri], f"from {kind}_conclusions\nfrom {kind}_cautions")) as connection:
        for name in ("conclusions", "cautions"):
            rows = row_list(connection, f"from {kind}_{name}")
            said[name] = [f"{row['lead']} {row['text']}".strip() for row in rows]
    return Page(charts, lambda: _html(run, layout()), [*said["cautions"], *notes], said["conclusions"])


def _answer(run: Run, sql: str) -> list[Row]:
    """Return the rows of a query through a new connection to a run."""
    with closing(open_runs([run.uri], sql)) as connection:
        return row_list(connection, sql)


def _html(run: Run, page: Layout) -> str:
    """Return the HTML of a page; one connection answers all its queries."""
    with closing(open_runs([run.uri], "\n".join(queries(page.sections)))) as connection:
        return render(page, partial(row_list, connection))


def majority_bias_page(run: Run) -> Page:
    """Return the report of a majority-bias run; details as for `label_bias_page`."""
    ask = partial(_answer, run)
    charts = [*f1_charts(ask), *loss_charts(ask)]
    return _page(run, charts, lambda: majority_bias_layout(run, ask, charts), notes_block(run))


def qa_bias_page(run: Run) -> Page:
    """Return the report of a QA-bias run; details as for `label_bias_page`."""
    ask = partial(_answer, run)
    charts = qa_bias_charts(ask)
    return _page(run, charts, lambda: qa_bias_layout(run, ask, charts), qa_bias_notes(run))


def search_page(run: Run) -> Page:
    """Return the report of a search; details as for `label_bias_page`."""
    ask = partial(_answer, run)
    charts = search_charts(run, ask)
    return _page(run, charts, lambda: search_layout(run, ask, charts), search_notes(run))
