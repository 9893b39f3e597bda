"""The figure of a comparison: differences from the first run, with the intervals that hold for all of them together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from textwrap import wrap
from typing import TYPE_CHECKING

from biaseval.analysis.comparing import Compared
from biaseval.report.compare_kinds import COMPARED_KINDS
from biaseval.report.compare_tables import test_lines
from biaseval.report.compare_words import metric_order, place_of
from biaseval.report.drawing import Drawing
from biaseval.report.figures import Figure
from biaseval.report.findings import Row
from biaseval.report.summary import signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_LINES = 40
_N_LETTERS = 36
"""The length at which the names of lines go on in a line below."""

_COLORS = {True: "#0063a3", False: "#777777"}
"""Of what is told apart, and of what is not."""


def difference_figures(compared: Compared) -> list[Figure]:
    """Return a panel per metric: a line per setting and other run.

    Where that is too much for a panel, the setting is one: that of most demonstrations without calibration of label
    bias, else the first.
    """
    rows = [row for row in test_lines(compared) if row["estimate"] is not None]
    metrics = sorted({metric_order(compared.kind, row) for row in rows})
    figures = []
    for number, metric in enumerate(metrics):
        own = [row for row in rows if metric_order(compared.kind, row) == metric]
        chosen = own if len(own) <= _MOST_LINES else _one_setting(compared.kind, own)[:_MOST_LINES]
        name, title = f"differences_{number}", own[0]["metric_name"]
        n_lines = max(len(_wrapped(label)) for label in _names(chosen)[1])
        height = 1.2 + (0.12 + 0.15 * n_lines) * len(chosen)
        drawing = Drawing(name, partial(_plot, title=title, rows=chosen), (5.4, height))
        figures.append(Figure(name, "all", metric[1] or title, _in_words(title, chosen), drawing))
    return figures


def _one_setting(kind: str, rows: Sequence[Row]) -> list[Row]:
    plain = [row for row in rows if row.get("method", "none") == "none"] or list(rows)
    places = [place_of(kind, row) for row in plain]
    place = COMPARED_KINDS[kind].shown_place(places)
    return [row for row in plain if place_of(kind, row) == place]


def _names(rows: Sequence[Row]) -> tuple[str, list[str]]:
    """Return what all lines have in common, for the title, and what tells them apart."""
    places, runs = {row["place"] for row in rows}, {row["who"] for row in rows}
    if len(places) == 1:
        return str(rows[0]["place"]), [str(row["who"]) for row in rows]
    if len(runs) == 1:
        return str(rows[0]["who"]), [str(row["place"]) for row in rows]
    return "", [f"{row['who']}: {row['place']}" for row in rows]


def _wrapped(name: str) -> list[str]:
    """Return the lines in which a name stands beside the axis."""
    return wrap(name, _N_LETTERS)


def _in_words(title: str, rows: Sequence[Row]) -> str:
    told = [
        f"{row['who']} against {row['against']}, {row['place']}: "
        f"{signed(row['estimate'])} {row['band']} ({row['word']})"
        for row in rows
    ]
    return f"{title}, differences: {'; '.join(told)}."


def _plot(axes: Axes, title: str, rows: Sequence[Row]) -> None:
    common, names = _names(rows)
    labels = ["\n".join(_wrapped(name)) for name in reversed(names)]
    for height, row in enumerate(reversed(rows)):
        color = _COLORS[row["is_told_apart"]]
        if row["band"]:
            axes.hlines(height, row["verdict_low"], row["verdict_high"], color=color, linewidth=1.6)
        inside = color if row["is_told_apart"] else "white"
        axes.plot([row["estimate"]], [height], color=color, marker="o", markersize=5, markerfacecolor=inside)
    least = rows[0]["least_effect"]
    axes.axvspan(-least, least, color="#dddddd", alpha=0.6, linewidth=0)
    axes.axvline(0, color="#333333", linewidth=0.8)
    axes.set_yticks(range(len(rows)), labels)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(labelsize=8)
    axes.locator_params(axis="x", nbins=5)
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.set_title(title, loc="left", fontweight="bold")
    axes.set_xlabel(f"difference: {common}" if common else "difference")
    axes.grid(axis="x", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
