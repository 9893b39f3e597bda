"""Figures of a QA-bias run over the values of a heuristic: performance in bins, and the threshold among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from biaseval.report.drawing import Drawing
from biaseval.report.figures import Figure, label_lines
from biaseval.report.findings import Row
from biaseval.report.qa_findings import QaFindings
from biaseval.report.qa_styles import (
    GRID,
    INK,
    METRICS,
    Style,
    plain_names,
    put_title,
    short_name,
    short_names,
    style_of,
    title_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CURVES = "curve"
"""How the names of these figures' files begin."""

_N_CHARACTERS_AT_LINES = 14
_N_CHARACTERS_WIDE = 42
"""Of a tick's size, side by side along an axis."""
_BARS = 14.0
"""Points of the scale that the bars of the largest bin take."""


def curve_suite(dataset: str, heuristic: str) -> str:
    """Return the ``suite`` of the curves over a heuristic's values."""
    return f"{dataset} {heuristic}"


def curve_figure(findings: QaFindings, dataset: str, heuristic: str, metric: str) -> Figure:
    """Return the figure of a metric over a heuristic's values; ``suite`` is `curve_suite`."""
    rows = findings.curves[dataset, heuristic]
    bins = _bins(rows)
    thresholds = {
        model: row["threshold"]
        for model in findings.models
        if (row := findings.by_heuristic.get((model, dataset, heuristic))) and row["threshold"] is not None
    }
    title = f"{title_of(metric)} by {heuristic}"
    by_model = {model: own for model in findings.models if (own := [row for row in rows if row["model"] == model])}
    lines = [
        f"{model} " + ", ".join(f"{100 * row[metric]:.1f} at {bins[row['bin']].name}" for row in own)
        for model, own in by_model.items()
    ]
    own_name = plain_names(findings.heuristics)[findings.heuristics.index(heuristic)]
    name = f"{CURVES}_{dataset}_{heuristic.replace(':', '-')}_{metric}"
    plot = partial(
        _plot_curve,
        title=f"{title_of(metric)} by {short_name(own_name)}",
        metric=metric,
        bins=bins,
        by_model=by_model,
        styles={model: style_of(findings, model) for model in by_model},
        thresholds=thresholds,
    )
    return Figure(
        name, curve_suite(dataset, heuristic), metric, f"{title} on {dataset}: {'; '.join(lines)}.", Drawing(name, plot)
    )


class _Bin(NamedTuple):
    low: float
    high: float
    n_rows: int
    """Of the model that answers most of its questions."""

    @property
    def name(self) -> str:
        low, high = (f"{value:.2f}".rstrip("0").rstrip(".") for value in (self.low, self.high))
        return low if low == high else f"{low}–{high}"


def _bins(rows: Sequence[Row]) -> dict[int, _Bin]:
    bins: dict[int, _Bin] = {}
    for row in rows:
        before = bins.get(row["bin"], _Bin(row["value_low"], row["value_high"], 0))
        bins[row["bin"]] = _Bin(
            min(before.low, row["value_low"]), max(before.high, row["value_high"]), max(before.n_rows, row["n_rows"])
        )
    return dict(sorted(bins.items()))


def threshold_place(bins: Sequence[tuple[float, float]], threshold: float) -> float:
    """Return where a threshold lies among bins of (lowest, highest) value that stand at 0, 1, 2 ... side by side."""
    place = -0.5
    for number, (low, high) in enumerate(bins):
        if high <= threshold:
            place = number + 0.5
        elif low <= threshold:
            place = number - 0.5 + (threshold - low) / (high - low)
    return place


def _plot_curve(
    axes: Axes,
    title: str,
    metric: str,
    bins: Mapping[int, _Bin],
    by_model: Mapping[str, Sequence[Row]],
    styles: Mapping[str, Style],
    thresholds: Mapping[str, float],
) -> None:
    places = {number: place for place, number in enumerate(bins)}
    most = max(one.n_rows for one in bins.values())
    axes.bar(
        list(places.values()),
        [_BARS * one.n_rows / most for one in bins.values()],
        width=0.9,
        color="#e3e5e8",
        zorder=0,
    )
    axes.set_ylim(0, 110)
    ends: dict[str, float] = {}
    colors: dict[str, str] = {}
    names = short_names(list(by_model), _N_CHARACTERS_AT_LINES)
    for model, rows in by_model.items():
        color, marker = styles[model]
        x = [places[row["bin"]] for row in rows]
        axes.plot(x, [100 * row[metric] for row in rows], color=color, marker=marker, markersize=3.5, linewidth=1.3)
        banded = [row for row in rows if row[f"{metric}_low"] is not None]
        low, high = ([100 * row[f"{metric}_{end}"] for row in banded] for end in ("low", "high"))
        if len(banded) == len(rows) > 1:
            axes.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)
        else:
            axes.vlines([places[row["bin"]] for row in banded], low, high, color=color, linewidth=1.2)
        ends[names[model]] = 100 * rows[-1][metric]
        colors[names[model]] = color
    for threshold in sorted(set(thresholds.values())):
        own = [model for model in thresholds if thresholds[model] == threshold]
        color = INK if len(own) == len(thresholds) else styles[own[0]].color
        place = threshold_place([(one.low, one.high) for one in bins.values()], threshold)
        axes.axvline(place, color=color, linewidth=1, linestyle=(0, (4, 2)))
        is_left = place < len(bins) / 2
        axes.annotate(
            f" T = {threshold:g} ",
            xy=(place, 109),
            color=color,
            fontsize=8.5,
            va="top",
            ha="left" if is_left else "right",
        )
    put_title(axes, title)
    axes.set_yticks(range(0, 101, 20))
    axes.set_ylabel(f"{METRICS[metric]} (%)")
    ticks = [one.name for one in bins.values()]
    widest = max((len(left) + len(right) for left, right in pairwise(ticks)), default=0) / 2 + 1
    is_crowded = widest * len(ticks) > _N_CHARACTERS_WIDE
    axes.set_xticks(list(places.values()), ticks, rotation=90 if is_crowded else 0, fontsize=7.5)
    axes.set_xlim(-0.6, len(bins) - 0.4)
    axes.grid(axis="y", color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    label_lines(axes, ends, colors)
