"""Figures of weighted F1 over the settings of label proportions (P2's Figures 2 and 3; a triangle for three labels)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from biaseval.report.drawing import Drawing
from biaseval.report.figures import Figure, label_lines
from biaseval.report.findings import Row
from biaseval.report.ternary import plot_ternary
from biaseval.report.ways import INSTRUCTIONS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STRIPES = (
    ("#0063a3", "o"),
    ("#b84a00", "s"),
    ("#007a57", "^"),
    ("#9c4380", "D"),
    ("#806600", "v"),
    ("#333333", "P"),
    ("#555599", "X"),
)
_CONSTANT_COLOR = "#777777"
_BY_INSTRUCTION = {"with": _STRIPES[0], "without": _STRIPES[1]}


class Series(NamedTuple):
    """The settings of one line, or of one panel: of an instruction, or of a model."""

    name: str
    rows: Sequence[Row]
    """Rows of ``majority_over_seeds``, one per setting."""


def instruction_figures(
    name: str,
    title: str,
    rows: Sequence[Row],
    settings: Sequence[Row],
    *,
    compared: Sequence[Row] = (),
    constant: float | None = None,
) -> list[Figure]:
    """Return what one model did with and without instruction (P2's Figure 3).

    Two labels: a figure with a line for each, at the share of the first label. Three labels: a triangle for each. More
    labels: a figure with the settings side by side.

    Args:
        name: the figures' name.
        title: what the panels show: a way of predicting, or a model.
        rows: of ``majority_over_seeds``, of one model, way of predicting and method.
        settings: the rows of the ``settings`` table.
        compared: rows whose triangles have the same colours for the same weighted F1.
        constant: weighted F1 of the best constant answer, a dashed line where there are no triangles.
    """
    series = [
        Series(shown, [row for row in rows if row["instruction"] is instruction])
        for instruction, shown in INSTRUCTIONS.items()
    ]
    series = [one for one in series if one.rows]
    if len(settings[0]["labels"]) != 3:
        return [line_figure(name, title, series, settings, constant)]
    values = [row["weighted_f1"] for row in (*rows, *compared)]
    low, high = math.floor(min(values) * 20) / 20, math.ceil(max(values) * 20) / 20
    limits = (low, high if high > low else low + 0.05)
    figures = []
    for one in series:
        heading = f"{title}, {one.name} instruction"
        plot = partial(plot_ternary, title=heading, points=one.rows, settings=settings, limits=limits)
        # The labels' names and the settings' shares are a triangle's only scale for who cannot see it.
        text = f"Weighted F1 by % of {', '.join(settings[0]['labels'])}, {_in_words(heading, one.rows)}"
        panel = f"{name}_{one.name}"
        figures.append(Figure(panel, "all", "weighted_f1", text, Drawing(panel, plot)))
    return figures


def line_figure(
    name: str, title: str, series: Sequence[Series], settings: Sequence[Row], constant: float | None = None
) -> Figure:
    """Return a figure with a line for each series (P2's Figure 2 has one for each model), and its boundary dotted.

    Args:
        name: the figure's name.
        title: what it shows.
        series: the lines.
        settings: the rows of the ``settings`` table.
        constant: weighted F1 of the best constant answer, a dashed line.
    """
    words = "; ".join(_in_words(one.name, one.rows) for one in series)
    if constant is not None:
        words += f"; the best constant answer {constant:.3f}"
    plot = partial(_plot_lines, title=title, series=series, settings=settings, constant=constant)
    text = f"Weighted F1 by label proportions, {title}: {words}."
    return Figure(name, "all", "weighted_f1", text, Drawing(name, plot))


def _in_words(name: str, rows: Sequence[Row]) -> str:
    points = [f"{row['weighted_f1']:.3f} at {row['setting']}" for row in rows]
    n_marked = sum(row["is_marked"] for row in rows)
    inside = f" ({n_marked} of {len(points)} inside the boundary)" if n_marked else ""
    return f"{name} {', '.join(points)}{inside}"


def _styles(series: Sequence[Series]) -> Mapping[str, tuple[str, str]]:
    return {
        one.name: _BY_INSTRUCTION.get(one.name, _STRIPES[number % len(_STRIPES)]) for number, one in enumerate(series)
    }


def _plot_lines(
    axes: Axes, title: str, series: Sequence[Series], settings: Sequence[Row], constant: float | None
) -> None:
    labels = settings[0]["labels"]
    is_binary = len(labels) == 2
    places: dict[str, Any] = {
        row["setting"]: row["shares"][0] * 100 if is_binary else number for number, row in enumerate(settings)
    }
    ends: dict[str, float] = {}
    styles = _styles(series)
    for one in series:
        points = sorted(one.rows, key=lambda row: places[row["setting"]])
        x, y = [places[row["setting"]] for row in points], [row["weighted_f1"] for row in points]
        color, marker = styles[one.name]
        # Settings of more than two labels have no order that a line could follow.
        axes.plot(x, y, color=color, marker=marker, linestyle="-" if is_binary else "", markersize=4)
        if all(row["weighted_f1_low"] is not None for row in points):
            low, high = ([row[f"weighted_f1_{end}"] for row in points] for end in ("low", "high"))
            if is_binary and len(points) > 1:
                axes.fill_between(x, low, high, color=color, alpha=0.13, linewidth=0)
            else:
                axes.vlines(x, low, high, color=color, linewidth=1.2)
        least = points[0]["boundary"]
        if least is not None:
            axes.axhline(least, color=color, linewidth=0.8, linestyle=":")
        ends[one.name.replace("$", r"\$")] = y[-1]
    axes.set_title(title.replace("$", r"\$"), loc="left", fontweight="bold", fontsize=10)
    axes.set_ylabel("weighted F1")
    axes.set_ylim(0, 1)
    if is_binary:
        axes.set_xlabel(f"demonstrations labelled {labels[0]} (%)".replace("$", r"\$"))
    else:
        axes.set_xlabel(f"% of {', '.join(labels)}".replace("$", r"\$"))
        names = [row["setting"] for row in settings]
        axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    axes.grid(axis="y", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    colors = {name.replace("$", r"\$"): color for name, (color, _) in styles.items()}
    if constant is not None:
        axes.axhline(constant, color=_CONSTANT_COLOR, linewidth=1, linestyle="--")
        ends["constant"], colors["constant"] = constant, _CONSTANT_COLOR
    label_lines(axes, ends, colors)
