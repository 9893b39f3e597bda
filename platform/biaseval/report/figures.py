"""Figures: a metric against the number of demonstrations, a line per method (the panels of P1's Figures 2 and 3)."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from biaseval.report.findings import METHODS, METRICS, Row, method_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS = ("macro_f1", "rsd", "bias_score")

_SIZE_INCHES = (4.2, 3.2)
_FONT_SIZE = 10
_INK = "#333333"


class _Style(NamedTuple):
    color: str
    marker: str
    line: str


# After Okabe & Ito (colour-blind safe), darkened so that labels in these colours are readable; markers and dashes
# tell the methods apart in print.
_STYLES = {
    "none": _Style("#333333", "o", "-"),
    "cc": _Style("#b84a00", "s", "--"),
    "dc": _Style("#0063a3", "^", "-."),
    "looc": _Style("#007a57", "D", (0, (6, 1.5))),  # type: ignore[arg-type]
}
_FURTHER_STYLES = (_Style("#9c4380", "v", ":"), _Style("#806600", "P", "-"), _Style("#555599", "X", "--"))


@dataclass(frozen=True)
class Figure:
    """One panel."""

    name: str
    """The file's name without ``.svg``."""
    suite: str
    metric: str
    text: str
    """What a reader who cannot see the figure is told."""
    svg: bytes


def metric_figures(by_suite: Mapping[str, Sequence[Row]]) -> list[Figure]:
    """Return a figure per suite and metric of `PANELS`; a metric that was not measured has none.

    Args:
        by_suite: suite to its rows of ``label_bias_by_model``.
    """
    figures = []
    for suite, rows in by_suite.items():
        for metric in PANELS:
            if any(_is_number(row[metric]) for row in rows):
                name = metric if suite == "all" else f"{metric}_{suite}"
                figures.append(Figure(name, suite, metric, _in_words(metric, rows), _draw(name, metric, rows)))
    return figures


def _in_words(metric: str, rows: Sequence[Row]) -> str:
    lines = []
    for method in sorted({row["method"] for row in rows}, key=method_order):
        points = [
            f"{row[metric]:.3f} at {row['n_demos']}"
            for row in rows
            if row["method"] == method and _is_number(row[metric])
        ]
        lines.append(f"{METHODS.get(method, method)} {', '.join(points)}")
    return f"{METRICS[metric]} by number of demonstrations: {'; '.join(lines)}."


def _draw(name: str, metric: str, rows: Sequence[Row]) -> bytes:
    return draw(name, lambda axes: _plot(axes, metric, rows))


def draw(name: str, plot: Callable[[Axes], None], size: tuple[float, float] = _SIZE_INCHES) -> bytes:
    """Return a panel as SVG, the same bytes for the same plot.

    Args:
        name: the figure's; ids in the SVG come from it.
        plot: what draws into the panel's axes.
        size: width and height in inches.
    """
    import matplotlib
    from matplotlib.figure import Figure as Canvas
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            {
                "svg.hashsalt": name,  # ids that are the same in every run of the program
                "svg.fonttype": "path",  # looks the same whatever fonts a machine has
                "font.size": _FONT_SIZE,
                "axes.spines.top": False,
                "axes.spines.right": False,
                "axes.edgecolor": _INK,
                "text.color": _INK,
                "axes.labelcolor": _INK,
                "xtick.color": _INK,
                "ytick.color": _INK,
            }
        )
        canvas = Canvas(figsize=size, layout=ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.06))
        axes = canvas.add_subplot()
        plot(axes)
        sink = io.BytesIO()
        canvas.savefig(sink, format="svg", metadata={"Date": None, "Creator": None})
    return sink.getvalue()


def _plot(axes: Axes, metric: str, rows: Sequence[Row]) -> None:
    n_demos = sorted({row["n_demos"] for row in rows})
    methods = sorted({row["method"] for row in rows}, key=method_order)
    styles = _styles(methods)
    ends: dict[str, float] = {}
    for number, method in enumerate(methods):
        # With a single number of demonstrations the points would lie on each other.
        shift = (number - (len(methods) - 1) / 2) * 0.2 if len(n_demos) == 1 else 0.0
        points = [row for row in rows if row["method"] == method and _is_number(row[metric])]
        if not points:
            continue
        style = styles[method]
        places = [n_demos.index(row["n_demos"]) + shift for row in points]
        values = [row[metric] for row in points]
        axes.plot(places, values, color=style.color, marker=style.marker, linestyle=style.line, markersize=5)
        if all(_is_number(row[f"{metric}_low"]) for row in points):
            low = [row[f"{metric}_low"] for row in points]
            high = [row[f"{metric}_high"] for row in points]
            if len(points) > 1:
                axes.fill_between(places, low, high, color=style.color, alpha=0.13, linewidth=0)
            else:
                axes.vlines(places, low, high, color=style.color, linewidth=1.5)
        ends[METHODS.get(method, method)] = values[-1]
    axes.set_title(METRICS[metric], loc="left", fontweight="bold", fontsize=_FONT_SIZE + 1)
    axes.set_xlabel("demonstrations in the prompt")
    axes.set_xticks(range(len(n_demos)), [str(number) for number in n_demos])
    axes.set_xlim(-0.5 if len(n_demos) == 1 else -0.15, len(n_demos) - 1 + (0.5 if len(n_demos) == 1 else 0.15))
    axes.set_ylim(0, max(axes.get_ylim()[1], 0.05))
    axes.grid(axis="y", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    label_lines(axes, ends, {METHODS.get(method, method): style.color for method, style in styles.items()})


def label_lines(axes: Axes, ends: Mapping[str, float], colors: Mapping[str, str]) -> None:
    """Write each line's name right of its last point, moved up or down as far as the names need not to overlap."""
    top = axes.get_ylim()[1]
    # A name is about 1.3 font sizes high; the axes take about three quarters of the figure's height.
    gap = 1.3 * _FONT_SIZE / (72 * _SIZE_INCHES[1] * 0.75) * top
    order = sorted(ends, key=lambda name: (ends[name], name))
    heights = _spread([ends[name] for name in order], gap, top)
    for name, height in zip(order, heights, strict=True):
        axes.annotate(
            name,
            xy=(1.02, height),
            xycoords=("axes fraction", "data"),
            color=colors[name],
            va="center",
            fontsize=_FONT_SIZE - 1,
        )


def _spread(values: Sequence[float], gap: float, top: float) -> list[float]:
    """Return heights in ``[0, top]`` near the ascending ``values``, at least ``gap`` apart (if they have room)."""
    heights: list[float] = []
    for value in values:
        heights.append(max(value, heights[-1] + gap) if heights else value)
    limit = top
    for number in reversed(range(len(heights))):
        heights[number] = min(heights[number], limit)
        limit = heights[number] - gap
    return heights


def _styles(methods: Sequence[str]) -> dict[str, _Style]:
    further = [method for method in methods if method not in _STYLES]
    return {
        method: _STYLES[method] if method in _STYLES else _FURTHER_STYLES[further.index(method) % len(_FURTHER_STYLES)]
        for method in methods
    }


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)
