"""Figures: a metric against the number of demonstrations, a line per method (the panels of P1's Figures 2 and 3).

Dashed: the noise of rows, what they leave of a bias where there is none; or always giving the most frequent label.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

from biaseval.report.drawing import FONT_SIZE, SIZE_INCHES, Drawing
from biaseval.report.findings import METRICS, Row
from biaseval.report.methods import method_name, method_order, mitigation_of, side_by_side

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS = ("rsd", "accuracy", "macro_f1", "bias_score")

_REFERENCES = {
    "rsd": ("rsd_floor", "noise of rows"),
    "bias_score": ("bias_score_floor", "noise of rows"),
    "accuracy": ("majority_accuracy", "majority class"),
    "macro_f1": ("majority_macro_f1", "majority class"),
}
"""Metric to the column that it is seen against, of the method none, and what that is called."""

_SOFT = "#777777"


class _Style(NamedTuple):
    color: str
    marker: str
    line: str
    is_hollow: bool = False


# After Okabe & Ito (colour-blind safe), darkened so that labels in these colours are readable; markers and dashes
# tell the methods apart in print.
_STYLES = {
    "none": _Style("#333333", "o", "-"),
    "cc": _Style("#b84a00", "s", "--"),
    "dc": _Style("#0063a3", "^", "-."),
    "looc": _Style("#007a57", "D", (0, (6, 1.5))),  # type: ignore[arg-type]
    "lora": _Style("#9c4380", "v", ":"),
}
_FURTHER_STYLES = (_Style("#806600", "P", "-"), _Style("#555599", "X", "--"), _Style("#9c4380", "*", ":"))


@dataclass(frozen=True)
class Figure:
    """One panel."""

    name: str
    """The file's name without its ending."""
    suite: str
    metric: str
    text: str
    """What a reader who cannot see the figure is told."""
    drawing: Drawing
    line: int = 0
    """Figures of one line stand side by side."""

    @cached_property
    def svg(self) -> bytes:
        """The panel as pages have it."""
        return self.drawing.file("svg")


def metric_figures(by_suite: Mapping[str, Sequence[Row]]) -> list[Figure]:
    """Return a figure per suite and metric of `PANELS`; a metric that was not measured has none.

    Calibrated models with adapters have figures of their own, on the same scale.

    Args:
        by_suite: suite to its rows of ``label_bias_by_model``.
    """
    figures = []
    for suite, rows in by_suite.items():
        groups = side_by_side(row["method"] for row in rows)
        for line, methods in enumerate(groups):
            chosen = [row for row in rows if row["method"] in methods]
            for metric in PANELS:
                if any(_is_number(row[metric]) for row in chosen):
                    name = "_".join([metric, *(["lora"] if line else []), *([] if suite == "all" else [suite])])
                    top = _top(metric, rows) if len(groups) > 1 else None
                    title = f"{METRICS[metric]}{' with LoRA' if line else ''}"
                    drawing = Drawing(name, partial(_plot, title=title, metric=metric, rows=chosen, top=top))
                    figures.append(Figure(name, suite, metric, _in_words(title, metric, chosen), drawing, line))
    return figures


def loss_figure(losses: Sequence[Row]) -> Figure:
    """Return the figure of the training loss by step; rows are those of `findings.Adaptation.losses`."""
    first, last = losses[0], losses[-1]
    text = (
        f"Training loss by step, mean over adapters: {first['mean_loss']:.4f} at step {first['step'] + 1}, "
        f"{last['mean_loss']:.4f} at step {last['step'] + 1}."
    )
    drawing = Drawing("training_loss", partial(_plot_losses, losses=losses))
    return Figure(drawing.name, "all", "loss", text, drawing)


def _plot_losses(axes: Axes, losses: Sequence[Row]) -> None:
    from matplotlib.ticker import MaxNLocator

    style = _STYLES["lora"]
    steps = [row["step"] + 1 for row in losses]
    axes.plot(steps, [row["mean_loss"] for row in losses], color=style.color, marker=style.marker, markersize=4)
    low, high = ([row[end] for row in losses] for end in ("low", "high"))
    if len(steps) > 1:
        axes.fill_between(steps, low, high, color=style.color, alpha=0.13, linewidth=0)
    else:
        axes.vlines(steps, low, high, color=style.color, linewidth=1.5)
    axes.set_title("training loss", loc="left", fontweight="bold", fontsize=FONT_SIZE + 1)
    axes.set_xlabel("optimizer step")
    axes.set_ylabel("nats a token")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)


def _top(metric: str, rows: Sequence[Row]) -> float:
    """Return the upper end of an axis that has room for every number and interval of these rows."""
    ends = [row[name] for row in rows for name in (metric, f"{metric}_high")]
    return 1.05 * float(max(end for end in ends if _is_number(end)))


def _in_words(title: str, metric: str, rows: Sequence[Row]) -> str:
    lines = []
    mitigation = mitigation_of(row["method"] for row in rows)
    for method in sorted({row["method"] for row in rows}, key=method_order):
        points = [
            f"{row[metric]:.3f} at {row['n_demos']}"
            for row in rows
            if row["method"] == method and _is_number(row[metric])
        ]
        lines.append(f"{method_name(method, mitigation)} {', '.join(points)}")
    column, reference = _REFERENCES[metric]
    if levels := [f"{level:.3f} at {n_demos}" for n_demos, level in _levels(rows, column)]:
        lines.append(f"{reference} {', '.join(levels)}")
    return f"{title} by number of demonstrations: {'; '.join(lines)}."


def _levels(rows: Sequence[Row], column: str) -> list[tuple[int, float]]:
    """Return the numbers of demonstrations at which the method none has a reference, with that."""
    return [(row["n_demos"], row[column]) for row in rows if row["method"] == "none" and _is_number(row[column])]


def _plot(axes: Axes, title: str, metric: str, rows: Sequence[Row], top: float | None) -> None:
    n_demos = sorted({row["n_demos"] for row in rows})
    methods = sorted({row["method"] for row in rows}, key=method_order)
    names = {method: method_name(method, mitigation_of(methods)) for method in methods}
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
        axes.plot(
            places,
            values,
            color=style.color,
            marker=style.marker,
            markerfacecolor="white" if style.is_hollow else style.color,
            linestyle=style.line,
            markersize=5,
        )
        if all(_is_number(row[f"{metric}_low"]) for row in points):
            low = [row[f"{metric}_low"] for row in points]
            high = [row[f"{metric}_high"] for row in points]
            if len(points) > 1:
                axes.fill_between(places, low, high, color=style.color, alpha=0.13, linewidth=0)
            else:
                axes.vlines(places, low, high, color=style.color, linewidth=1.5)
        ends[names[method]] = values[-1]
    column, reference = _REFERENCES[metric]
    if levels := _levels(rows, column):
        across: list[float] = [n_demos.index(number) for number, _ in levels]
        heights = [level for _, level in levels]
        if len(n_demos) == 1:  # a line needs two points
            across, heights = [-0.45, 0.45], heights * 2
        axes.plot(across, heights, color=_SOFT, linestyle=(0, (2, 2)), linewidth=1)
        ends[reference] = heights[-1]
    axes.set_title(title, loc="left", fontweight="bold", fontsize=FONT_SIZE + 1)
    axes.set_xlabel("demonstrations in the prompt")
    axes.set_xticks(range(len(n_demos)), [str(number) for number in n_demos])
    axes.set_xlim(-0.5 if len(n_demos) == 1 else -0.15, len(n_demos) - 1 + (0.5 if len(n_demos) == 1 else 0.15))
    axes.set_ylim(0, max(axes.get_ylim()[1] if top is None else top, 0.05))
    axes.grid(axis="y", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    label_lines(axes, ends, {reference: _SOFT, **{names[method]: style.color for method, style in styles.items()}})


def label_lines(axes: Axes, ends: Mapping[str, float], colors: Mapping[str, str]) -> None:
    """Write each line's name right of its last point, moved up or down as far as the names need not to overlap."""
    top = axes.get_ylim()[1]
    # A name is about 1.3 font sizes high; the axes take about three quarters of the figure's height.
    gap = 1.3 * FONT_SIZE / (72 * SIZE_INCHES[1] * 0.75) * top
    order = sorted(ends, key=lambda name: (ends[name], name))
    heights = _spread([ends[name] for name in order], gap, top)
    for name, height in zip(order, heights, strict=True):
        axes.annotate(
            name,
            xy=(1.02, height),
            xycoords=("axes fraction", "data"),
            color=colors[name],
            va="center",
            fontsize=FONT_SIZE - 1,
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
    """Return a style for each method; a calibration with LoRA is drawn as without, its markers hollow."""
    further = [method for method in methods if _plain(method) not in _STYLES]
    styles = {}
    for method in methods:
        if method in further:
            styles[method] = _FURTHER_STYLES[further.index(method) % len(_FURTHER_STYLES)]
        else:
            styles[method] = _STYLES[_plain(method)]._replace(is_hollow=_plain(method) != method)
    return styles


def _plain(method: str) -> str:
    return method.removeprefix("lora+")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)
