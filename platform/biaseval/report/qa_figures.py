"""Figures of a QA-bias run: bias by heuristic, performance by data set (P3's Figures 2 and 3), and over attributes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from biaseval.report.drawing import Drawing
from biaseval.report.figures import Figure
from biaseval.report.findings import Row
from biaseval.report.qa_curves import curve_figure
from biaseval.report.qa_findings import QaFindings
from biaseval.report.qa_styles import GRID, METRICS, Style, plain_names, put_title, short_names, style_of, title_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIGNIFICANCE, ELSEWHERE = "significance", "out_of_distribution"
"""What a figure shows; also how its file's name begins."""

_WIDTH_INCHES = 4.2
_SOFT = "#6b7178"
_N_LEGEND_COLUMNS = 2

Estimate = tuple[float, float | None, float | None]
"""A value in points, and its interval."""

Shown = Estimate | str
"""A value, or why there is none."""

_NOT_MEASURED, _NO_THRESHOLD = "not measured", "no threshold"


def prediction_bias_figures(findings: QaFindings) -> list[Figure]:
    """Return bias significance of each in-distribution set, performance by data set, and performance over attributes.

    Each comes for exact match and for F1. ``suite`` is the data set, or `curve_suite`.
    """
    figures = [_significance(findings, dataset, metric) for dataset in findings.in_distribution for metric in METRICS]
    figures += [_performance(findings, metric) for metric in ("f1", "exact_match")]
    for dataset in findings.in_distribution:
        for heuristic in findings.heuristics:
            if findings.curves.get((dataset, heuristic)):
                figures += [curve_figure(findings, dataset, heuristic, metric) for metric in METRICS]
    return figures


def _significance(findings: QaFindings, dataset: str, metric: str) -> Figure:
    values: dict[str, list[Shown]] = {}
    supported: dict[str, list[bool]] = {}
    for model in findings.models:
        rows = [findings.by_heuristic.get((model, dataset, heuristic)) for heuristic in findings.heuristics]
        if any(rows):
            supported[model] = [row is not None and findings.is_supported(row) for row in rows]
            values[model] = [_bias(row, metric) for row in rows]
    return _grouped(
        findings,
        f"{SIGNIFICANCE}_{dataset}_{metric}",
        dataset,
        metric,
        f"Bias significance, {METRICS[metric]}",
        f"points of {METRICS[metric]}",
        plain_names(findings.heuristics),
        values,
        supported if metric == "exact_match" and _is_tested(findings, dataset) else None,
    )


def _bias(row: Row | None, metric: str) -> Shown:
    """Return a significance, or why there is none: F1 has none without a threshold, where exact match has 0."""
    if row is None:
        return _NOT_MEASURED
    value = row["bias_significance" if metric == "exact_match" else "bias_significance_f1"]
    if value is not None:
        return (value, None, None)
    return _NO_THRESHOLD if row["status"] == "not significant" else _NOT_MEASURED


def _is_tested(findings: QaFindings, dataset: str) -> bool:
    return any(row["is_supported"] is not None for row in findings.tests.values() if row["dataset"] == dataset)


def _performance(findings: QaFindings, metric: str) -> Figure:
    values: dict[str, list[Shown]] = {}
    for model in findings.models:
        rows = [findings.by_dataset.get((model, dataset)) for dataset in findings.datasets]
        if any(rows):
            values[model] = [_NOT_MEASURED if row is None else _estimate(row, metric) for row in rows]
    title = f"{title_of(metric)} by data set"
    return _grouped(
        findings,
        f"{ELSEWHERE}_{metric}",
        ELSEWHERE,
        metric,
        title,
        f"{METRICS[metric]} (%)",
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
    values: Mapping[str, Sequence[Shown]],
    supported: Mapping[str, Sequence[bool]] | None = None,
) -> Figure:
    """Return a figure of blocks of lines; ``supported`` tells which are more than chance, where that is a question."""
    styles = {model: style_of(findings, model) for model in values}
    n_legend_lines = math.ceil(len(values) / _N_LEGEND_COLUMNS)
    n_lines = len(groups) * (len(values) + 1)
    around = 1.05 + 0.2 * n_legend_lines + (0.17 if supported else 0)
    size = (_WIDTH_INCHES, around + max(0.11 * n_lines, 0.22 * len(groups), 0.5))
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


def _in_words(value: Shown) -> str:
    return value if isinstance(value, str) else f"{value[0]:.2f}"


def _plot_grouped(
    axes: Axes,
    title: str,
    unit: str,
    groups: Sequence[str],
    values: Mapping[str, Sequence[Shown]],
    styles: Mapping[str, Style],
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
        known = [(group, value) for group, value in enumerate(own) if not isinstance(value, str)]
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
            if isinstance(reason := own[group], str) and len({others[group] for others in values.values()}) > 1:
                axes.text(0, place, f" {reason}", color=_SOFT, fontsize=6.5, va="center")
    for group in range(len(groups)):
        reasons = {own[group] for own in values.values()}
        if len(reasons) == 1 and isinstance(reason := reasons.pop(), str):
            axes.text(0, group, f" {reason}", color=_SOFT, fontsize=8.5, va="center")
    put_title(axes, title)
    axes.set_xlabel(unit if supported is None else f"{unit}\nfilled: more than chance")
    axes.set_xlim(0, max(axes.get_xlim()[1], 1.0))
    axes.set_yticks(range(len(groups)), list(short_names(groups).values()))
    axes.set_ylim(len(groups) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    for edge in range(1, len(groups)):
        axes.axhline(edge - 0.5, color=GRID, linewidth=0.7)
    axes.grid(axis="x", color=GRID, linewidth=0.7)
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
