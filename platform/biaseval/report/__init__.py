"""The HTML report of one or several runs, as one file that works offline, and a run's figures as SVG files."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

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

__all__ = ["run_page", "write_comparison"]

_Layout = Callable[[Run, Ask, Sequence[Chart]], Layout]


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


_PARTS: Mapping[str, tuple[Callable[[Run, Ask], list[Chart]], _Layout, Callable[[Run], Sequence[str]]]] = {
    "label_bias": (
        lambda run, ask: [*label_bias_charts(ask), *loss_charts(ask)],
        label_bias_layout,
        lambda run: label_bias_notes(run, raw_spec(run), read_environment(run)),
    ),
    "majority_bias": (lambda run, ask: [*f1_charts(ask), *loss_charts(ask)], majority_bias_layout, notes_block),
    "qa_bias": (lambda run, ask: qa_bias_charts(ask), qa_bias_layout, qa_bias_notes),
    "search": (search_charts, search_layout, search_notes),
}
"""Kind to the charts of its page, its layout, and the notes from files of the run."""


def run_page(run: Run) -> Page:
    """Return the report of a run that has its metrics; the same run gives the same bytes.

    Raises:
        BiasevalError: the run has no metrics yet; the message says how to compute them.
    """
    kind, ask, said = raw_spec(run)["kind"], answers(run), {}
    charts_of, layout, notes_of = _PARTS[kind]
    notes = notes_of(run)
    for name in ("conclusions", "cautions"):
        said[name] = [f"{row['lead']} {row['text']}".strip() for row in ask(f"from {kind}_{name}")]
    charts = charts_of(run, ask)
    return Page(charts, lambda: render(layout(run, ask, charts), ask), [*said["cautions"], *notes], said["conclusions"])
