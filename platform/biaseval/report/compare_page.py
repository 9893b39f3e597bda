"""The page of a comparison of runs: verdicts first, then the differences, then the rows behind them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from biaseval.analysis.compared_kinds import KINDS
from biaseval.analysis.comparing import Compared, compare_runs
from biaseval.errors import InputError
from biaseval.report.compare_figures import difference_figures
from biaseval.report.compare_kinds import COMPARED_KINDS
from biaseval.report.compare_tables import header, listed_rows, matrix, overview, test_lines
from biaseval.report.compare_words import (
    against_reference,
    caveats,
    doubt,
    is_of_these_tasks,
    is_without_difference,
    not_shared,
    sentences,
    tone,
    verdict_word,
)
from biaseval.report.comparison import comparison_content
from biaseval.report.comparison_data import read_comparison
from biaseval.report.ids import Ids
from biaseval.report.page import page_templates
from biaseval.store import write_file


def refuse_other_names(out: str) -> None:
    """Make sure that a page can be written there.

    Raises:
        InputError: it is no name of a page.
    """
    if not out.endswith(".html"):
        raise InputError(f"--out {out}: does not end in .html; name the file of the page")


def write_compared(run_uris: Sequence[str], out: str) -> str:
    """Write the page of several runs of one kind; nothing is written into the runs.

    Args:
        run_uris: finished runs, at least two; the others are compared with the first.
        out: the page's file, which ends in ``.html``; one that exists is replaced in one step.

    Returns:
        The URI of the page.

    Raises:
        InputError: ``out`` is no name of a page, or `compare_runs`.
        BiasevalError: a run is not finished.
    """
    refuse_other_names(out)
    return write_page(compare_runs(run_uris), run_uris, out)


def write_page(compared: Compared, run_uris: Sequence[str], out: str) -> str:
    """Write the page of a comparison that was made already, and return its URI."""
    refuse_other_names(out)
    return write_file(out, render_compare_page(compared, _majority_content(compared, run_uris)))


def render_compare_page(compared: Compared, majority: dict[str, object] | None = None) -> str:
    """Return the HTML of the page; everything from the runs is escaped.

    Args:
        compared: what is compared.
        majority: what the part over majority-bias runs shows (`comparison_content`); None of other runs.
    """
    return (
        page_templates()
        .get_template("compare.html.j2")
        .render(
            compared=compared,
            kind=KINDS[compared.kind].name,
            summary=sentences(compared),
            ids=_ids(compared),
            caveats=caveats(compared),
            header=header(compared),
            is_without_difference=is_without_difference(against_reference(compared)),
            overview=overview(compared),
            matrix=matrix(compared),
            figures=difference_figures(compared),
            tests=test_lines(compared),
            listed=listed_rows(compared),
            shared=_shared(compared),
            word_of=verdict_word,
            doubt_of=doubt,
            tone_of=partial(tone, compared.kind),
            has_baseline=any(row.get("baseline") is not None for row in compared.tests),
            bands_and_p=COMPARED_KINDS[compared.kind].bands_and_p,
            has_words_of_these_tasks=any(is_of_these_tasks(row) for row in compared.tests),
            majority=majority,
            **(majority or {}),
        )
    )


def _ids(compared: Compared) -> list[Ids]:
    """Return what SQL calls the metrics, methods and ways of predicting of the page."""
    metric = ("metric", COMPARED_KINDS[compared.kind].metrics)
    return [*COMPARED_KINDS[compared.kind].ids(compared.tests), metric]


def _shared(compared: Compared) -> list[dict[str, object]]:
    """Return for each other run how much it shares with the first, and what it does not."""
    found: list[dict[str, object]] = []
    for name in compared.runs[1:]:
        pair, back = compared.pair(compared.reference, name), compared.pair(name, compared.reference)
        is_compared = pair["is_comparable"]
        scope = COMPARED_KINDS[compared.kind].scope(pair) if is_compared else "nothing that can be compared"
        found.append({"run": name, "scope": scope, "not": not_shared(compared.kind, pair, back) if is_compared else []})
    return found


def _majority_content(compared: Compared, run_uris: Sequence[str]) -> dict[str, object] | None:
    """Return the part over majority-bias runs; None of other kinds, and where two runs are of one model and data."""
    if compared.kind != "majority_bias":
        return None
    try:
        content = comparison_content(read_comparison(run_uris))
    except InputError:  # one model twice: its tables have a column per model
        return None
    return {name: content[name] for name in ("ways", "runs", "effects", "instructions", "has_adapters")}
