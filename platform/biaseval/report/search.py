"""The report of a search: response curves, the chosen point, what tells it from others, what it is worth and cost."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from biaseval.report.figures import Figure
from biaseval.report.page import page_templates
from biaseval.report.search_cells import domain_words, estimate_cell, flat_range, number, parameter
from biaseval.report.search_figures import RESPONSE, SLICE
from biaseval.report.search_findings import N_SHOWN, Choice, SearchFindings
from biaseval.report.search_words import costs, rough_shares, search_caveats, summarize_search, told_apart

_N_OPEN = 20
"""Trials up to which their table is not folded."""

_N_LISTED = 100
"""Trials up to which a table has all; of more, it has so many of the best."""

_STATES = {"done": "done", "stopped": "stopped early", "failed": "failed"}


def render_search_page(findings: SearchFindings, figures: Sequence[Figure]) -> str:
    """Return the HTML of the report; everything from the run is escaped.

    Args:
        findings: of the run.
        figures: of the run.
    """
    return (
        page_templates()
        .get_template("search.html.j2")
        .render(
            findings=findings,
            summary=summarize_search(findings),
            caveats=search_caveats(findings),
            costs=costs(findings),
            states=_STATES,
            names={key.key: key.name for key in findings.keys},
            drawn={
                kind: {choice.scope: _of(figures, kind, choice) for choice in findings.drawn}
                for kind in (RESPONSE, SLICE)
            },
            n_open=_N_OPEN,
            n_listed=_N_LISTED,
            n_shown=N_SHOWN,
            first_run=next((row["run"] for row in findings.trials if row["run"] and row["state"] == "done"), None),
            has_steps=any(row["steps"] for row in findings.trials),
            told_apart=partial(told_apart, findings),
            flat_range=flat_range,
            rough_shares=rough_shares,
            cell=estimate_cell,
            shown=number,
            parameter=parameter,
            domain=domain_words,
        )
    )


def _of(figures: Sequence[Figure], kind: str, choice: Choice) -> list[Figure]:
    return [figure for figure in figures if figure.suite == choice.scope and figure.name.startswith(f"{kind}_")]
