"""Figures of a QA-bias run: bias by heuristic, performance by data set (P3's Figures 2 and 3), and over attributes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from biaseval.report.drawing import Drawing
from biaseval.report.figures import Figure, label_lines
from biaseval.report.findings import Row
from biaseval.report.qa_findings import QaFindings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIGNIFICANCE, ELSEWHERE, CURVES = "significance", "out_of_distribution", "curve"
"""What a figure shows; also how its file's name begins."""

_METRICS = {"exact_match": "exact match", "f1": "F1"}
_WIDTH_INCHES = 4.2
_GRID = "#dddddd"
_INK = "#333333"
_SOFT = "#6b7178"
_N_CHARACTERS = 22
_N_CHARACTERS_AT_LINES = 14
_N_LEGEND_COLUMNS = 2
_N_CHARACTERS_WIDE = 42
"""Of a tick's size, side by side along an axis."""
_BARS = 14.0
"""Points of the scale that the bars of the largest bin take."""


class _Style(NamedTuple):
    color: str
    marker: str


# After Okabe & Ito (colour-blind safe), darkened so that names in these colours are readable.
_STYLES = (
    _Style("#0063a3", "o"),
    _Style("#b84a00", "s"),
    _Style("#007a57", "^"),
    _Style("#9c4380", "D"),
    _Style("#806600", "v"),
    _Style("#333333", "P"),
    _Style("#555599", "X"),
    _Style("#8a1c1c", "p"),
)

Estimate = tuple[float, float | None, float | None]
"""A value in points, and its interval."""


def prediction_bias_figures(findings: QaFindings) -> list[Figure]:
    """Return bias significance of each in-distribution set, performance by data set, and performance over attributes.

    Each comes for exact match and for F1. ``suite`` is the data set, or `curve_suite`.
    """
    figures = [_significance(findings, dataset, metric) for dataset in findings.in_distribution for metric in _METRICS]
    figures += [_performance(findings, metric) for metric in ("f1", "exact_match")]
    for dataset in findings.in_distribution:
        for heuristic in findings.heuristics:
            if findings.curves.get((dataset, heuristic)):
                figures += [_curve(findings, dataset, heuristic, metric) for metric in _METRICS]
    return figures


def curve_suite(dataset: str, heuristic: str) -> str:
    """Return the ``suite`` of the curves over a heuristic's values."""
    return f"{dataset} {heuristic}"


def _significance(findings: QaFindings, dataset: str, metric: str) -> Figure:
    column = "bias_significance" if metric == "exact_match" else "bias_significance_f1"
    values: dict[str, list[Estimate | None]] = {}
    supported: dict[str, list[bool]] = {}
    for model in findings.models:
        rows = [findings.by_heuristic.get((model, dataset, heuristic)) for heuristic in findings.heuristics]
        if any(rows):
            supported[model] = [row is not None and findings.is_supported(row) for row in rows]
            values[model] = [None if row is None or row[column] is None else (row[column], None, None) for row in rows]
    title = f"Bias significance, {_METRICS[metric]}"
    groups = list(findings.heuristics)
    return _grouped(
        findings,
        f"{SIGNIFICANCE}_{dataset}_{metric}",
        dataset,
        metric,
        title,
        f"points of {_METRICS[metric]}",
        groups,
        values,
        supported if metric == "exact_match" and _is_tested(findings, dataset) else None,
    )


def _title(metric: str) -> str:
    """Return a metric's name at the beginning of a title."""
    return f"{_METRICS[metric][0].upper()}{_METRICS[metric][1:]}"


def _is_tested(findings: QaFindings, dataset: str) -> bool:
    return any(row["is_supported"] is not None for row in findings.tests.values() if row["dataset"] == dataset)


def _performance(findings: QaFindings, metric: str) -> Figure:
    values: dict[str, list[Estimate | None]] = {}
    for model in findings.models:
        rows = [findings.by_dataset.get((model, dataset)) for dataset in findings.datasets]
        if any(rows):
            values[model] = [None if row is None else _estimate(row, metric) for row in rows]
    title = f"{_title(metric)} by data set"
    return _grouped(
        findings,
        f"{ELSEWHERE}_{metric}",
        ELSEWHERE,
        metric,
        title,
        f"{_METRICS[metric]} (%)",
        [*findings.in_distribution, *findings.out_of_distribution],
        values,
    )


def _estimate(row: Row, metric: str) -> Estimate:
    value, low, high = (row[name] for name in (metric, f"{metric}_low", f"{metric}_high"))
    return (100 * value, None if low is None else 100 * low, None if high is None else 100 * high)


def _grouped(
    findings: QaFindings,
    name: str,
    suite: str,
    metric: str,
    title: str,
    unit: str,
    groups: Sequence[str],
    values: Mapping[str, Sequence[Estimate | None]],
    supported: Mapping[str, Sequence[bool]] | None = None,
) -> Figure:
    """Return a figure of blocks of lines; ``supported`` tells which are more than chance, where that is a question."""
    styles = {model: _style(findings, model) for model in values}
    n_legend_lines = math.ceil(len(values) / _N_LEGEND_COLUMNS)
    n_lines = len(groups) * (len(values) + 1)
    size = (_WIDTH_INCHES, 1.05 + 0.2 * n_legend_lines + max(0.11 * n_lines, 0.22 * len(groups), 0.5))
    words = "; ".join(
        f"{model} "
        + ", ".join(
            f"{group} {_in_words(value)}{_MORE if supported and supported[model][place] else ''}"
            for place, (group, value) in enumerate(zip(groups, own, strict=True))
        )
        for model, own in values.items()
    )
    plot = partial(
        _plot_grouped, title=title, unit=unit, groups=groups, values=values, styles=styles, supported=supported
    )
    return Figure(name, suite, metric, f"{title} ({unit}) on {suite}: {words}.", Drawing(name, plot, size))


_MORE = " (more than chance)"


def _in_words(value: Estimate | None) -> str:
    return "not measured" if value is None else f"{value[0]:.2f}"


def _plot_grouped(
    axes: Axes,
    title: str,
    unit: str,
    groups: Sequence[str],
    values: Mapping[str, Sequence[Estimate | None]],
    styles: Mapping[str, _Style],
    supported: Mapping[str, Sequence[bool]] | None,
) -> None:
    """Draw a block of lines per group, from the top, with a line from 0 to the value of each model.

    What is not more than chance has a hollow mark and a thin line.
    """
    from matplotlib.lines import Line2D

    step = 1 / (len(values) + 1)
    names = short_names(list(values))
    for number, (model, own) in enumerate(values.items()):
        color, marker = styles[model]
        places = [group + (number + 1) * step - 0.5 for group in range(len(groups))]
        known = [(group, value) for group, value in enumerate(own) if value is not None]
        heights, estimates = [places[group] for group, _ in known], [value for _, value in known]
        filled = [supported is None or supported[model][group] for group, _ in known]
        for is_filled in (True, False):
            shown = [
                (place, value[0])
                for place, value, is_own in zip(heights, estimates, filled, strict=True)
                if is_own == is_filled
            ]
            if not shown:  # marks of nothing that are not clipped have a place, at which the layout leaves room
                continue
            axes.hlines(
                [place for place, _ in shown], 0, [value for _, value in shown], color=color, alpha=0.45,
                linewidth=2.2 if is_filled and supported is not None else 1,
            )  # fmt: skip
            axes.plot(
                [value for _, value in shown], [place for place, _ in shown], color=color, marker=marker, linestyle="",
                markersize=4.5, markerfacecolor=color if is_filled else "white", clip_on=False,
            )  # fmt: skip
        for height, low, high in _intervals(heights, estimates):
            axes.hlines(height, low, high, color=color, linewidth=2.2)
        for group, place in enumerate(places):
            if own[group] is None and any(others[group] for others in values.values()):
                axes.text(0, place, " not measured", color=_SOFT, fontsize=6.5, va="center")
    for group in range(len(groups)):
        if not any(own[group] for own in values.values()):
            axes.text(0, group, " not measured", color=_SOFT, fontsize=8.5, va="center")
    axes.set_title(title, loc="left", fontweight="bold")
    axes.set_xlabel(unit if supported is None else f"{unit}; filled: more than chance")
    axes.set_xlim(0, max(axes.get_xlim()[1], 1.0))
    axes.set_yticks(range(len(groups)), list(short_names(groups).values()))
    axes.set_ylim(len(groups) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    for edge in range(1, len(groups)):
        axes.axhline(edge - 0.5, color=_GRID, linewidth=0.7)
    axes.grid(axis="x", color=_GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    handles = [
        Line2D([], [], color=style.color, marker=style.marker, linestyle="", markersize=4.5, label=names[model])
        for model, style in styles.items()
    ]
    axes.figure.legend(
        handles=handles,
        loc="outside lower left",
        ncols=_N_LEGEND_COLUMNS,
        frameon=False,
        fontsize=8.5,
        handletextpad=0.2,
    )


def _intervals(heights: Sequence[float], estimates: Sequence[Estimate]) -> list[tuple[float, float, float]]:
    """Return (height, low, high) of the estimates that have an interval."""
    return [
        (height, low, high)
        for height, (_, low, high) in zip(heights, estimates, strict=True)
        if low is not None and high is not None
    ]


def _curve(findings: QaFindings, dataset: str, heuristic: str, metric: str) -> Figure:
    rows = findings.curves[dataset, heuristic]
    bins = _bins(rows)
    thresholds = {
        model: row["threshold"]
        for model in findings.models
        if (row := findings.by_heuristic.get((model, dataset, heuristic))) and row["threshold"] is not None
    }
    title = f"{_title(metric)} by {heuristic}"
    by_model = {model: own for model in findings.models if (own := [row for row in rows if row["model"] == model])}
    lines = [
        f"{model} " + ", ".join(f"{100 * row[metric]:.1f} at {bins[row['bin']].name}" for row in own)
        for model, own in by_model.items()
    ]
    name = f"{CURVES}_{dataset}_{heuristic.replace(':', '-')}_{metric}"
    plot = partial(
        _plot_curve,
        title=f"{_title(metric)} by {_short(heuristic, _N_CHARACTERS)}",
        metric=metric,
        bins=bins,
        by_model=by_model,
        styles={model: _style(findings, model) for model in by_model},
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
    styles: Mapping[str, _Style],
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
        color = _INK if len(own) == len(thresholds) else styles[own[0]].color
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
    axes.set_title(title, loc="left", fontweight="bold")
    axes.set_yticks(range(0, 101, 20))
    axes.set_ylabel(f"{_METRICS[metric]} (%)")
    ticks = [one.name for one in bins.values()]
    widest = max((len(left) + len(right) for left, right in pairwise(ticks)), default=0) / 2 + 1
    is_crowded = widest * len(ticks) > _N_CHARACTERS_WIDE
    axes.set_xticks(list(places.values()), ticks, rotation=90 if is_crowded else 0, fontsize=7.5)
    axes.set_xlim(-0.6, len(bins) - 0.4)
    axes.grid(axis="y", color=_GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    label_lines(axes, ends, colors)


def _style(findings: QaFindings, model: str) -> _Style:
    return _STYLES[findings.models.index(model) % len(_STYLES)]


def short_names(names: Sequence[str], n_characters: int = _N_CHARACTERS) -> dict[str, str]:
    """Return each name in about ``n_characters``, cut in the middle; those that would be the same get a number."""
    found: dict[str, str] = {}
    for name in names:
        short = _short(name, n_characters)
        found[name] = short if short not in found.values() else f"{short} ({len(found) + 1})"
    return found


def _short(name: str, n_characters: int) -> str:
    n_end = (n_characters - 1) // 2
    return name if len(name) <= n_characters else f"{name[: n_characters - 1 - n_end]}…{name[-n_end:]}"
