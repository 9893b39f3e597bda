"""Figures of trained readers: bias by heuristic (P3's Figure 4), bias against F1 elsewhere; with those of training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from biaseval.report.drawing import Drawing
from biaseval.report.figures import Figure
from biaseval.report.qa_findings import QaFindings
from biaseval.report.qa_styles import short_names
from biaseval.report.qa_training_curves import course_figures
from biaseval.report.qa_training_data import Block, QaTraining
from biaseval.report.qa_training_names import MEAN, METHODS, slug

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GRID = "#dddddd"
_SOFT = "#6b7178"
_N_LEAST = 3
"""Readers that a scatter is drawn of, unless all are at one place."""

_N_CROSSES = 30
"""Readers up to which a scatter shows their intervals."""


class _Style(NamedTuple):
    color: str
    marker: str


# The colours of qa_figures: after Okabe & Ito, darkened.
_STYLES = {
    "standard": _Style("#333333", "o"),
    "resample": _Style("#0063a3", "s"),
    "learned_mixin": _Style("#b84a00", "^"),
    "confidence_regularization": _Style("#007a57", "D"),
    "product_of_experts": _Style("#9c4380", "v"),
}
_ANNOTATORS = _Style("#806600", "*")
_GIVEN = (_Style("#555599", "X"), _Style("#8a1c1c", "p"), _Style("#333333", "P"), _Style("#0063a3", "h"))


class _Reader(NamedTuple):
    """A reader on a heuristic."""

    significance: float
    worse: float | None
    is_broken: bool


class _Series(NamedTuple):
    """Those of one name in the legend: by heuristic, one for each seed."""

    name: str
    style: _Style
    readers: Mapping[str, Sequence[_Reader]]


def bias_suite(block: Block, dataset: str) -> str:
    """Return the ``suite`` of the figure of a block's readers on a data set."""
    return f"debiasing_{block.number}_{slug(block.name, dataset)}"


def given_suite(dataset: str) -> str:
    """Return the ``suite`` of the figure of the spec's models on a data set."""
    return f"debiasing_given_{slug(dataset)}"


def scatter_suite(dataset: str) -> str:
    """Return the ``suite`` of the change of bias on a data set against that of F1 elsewhere."""
    return f"debiasing_elsewhere_{slug(dataset)}"


def training_figures(findings: QaFindings, training: QaTraining | None) -> list[Figure]:
    """Return the figures of the readers that a run trained; none if it trained none.

    ``suite`` is `bias_suite`, `given_suite`, `scatter_suite` or `course_suite`.
    """
    if training is None:
        return []
    figures = []
    for dataset in findings.in_distribution:
        for block in training.blocks:
            series = [*_trained(training, block, dataset), *_given(findings, dataset, is_annotators=True)]
            figures.append(_bias_figure(findings, bias_suite(block, dataset), block.name, dataset, series))
        given = [*_given(findings, dataset, is_annotators=False), *_given(findings, dataset, is_annotators=True)]
        if any(not is_annotators for is_annotators in _spec_models(findings).values()):
            figures.append(_bias_figure(findings, given_suite(dataset), "models that were given", dataset, given))
        figures += _scatter_figures(training, dataset)
    for block in training.blocks:
        figures += course_figures(training, block)
    return [figure for figure in figures if figure is not None]


# Bias by heuristic


def _trained(training: QaTraining, block: Block, dataset: str) -> list[_Series]:
    """Return the standard readers on every heuristic, and the others on the one that they address."""
    found = []
    for method in ("standard", *block.methods):
        readers: dict[str, list[_Reader]] = {}
        for own in block.of_method(method):
            for heuristic in block.heuristics if method == "standard" else (own["bias"],):
                row = training.debiasing.get((own["model"], dataset, heuristic))
                if row is not None and row["bias_significance"] is not None:
                    readers.setdefault(heuristic, []).append(
                        _Reader(row["bias_significance"], row["worse_high"], bool(row["is_nearly_broken"]))
                    )
        if readers:
            found.append(_Series(METHODS[method].shown, _STYLES[method], readers))
    return found


def _given(findings: QaFindings, dataset: str, *, is_annotators: bool) -> list[_Series]:
    """Return the models of the spec that are people, or those that are not."""
    found = []
    names = [name for name, is_people in _spec_models(findings).items() if is_people == is_annotators]
    for number, model in enumerate(names):
        readers: dict[str, list[_Reader]] = {}
        for heuristic in findings.heuristics:
            row = findings.by_heuristic.get((model, dataset, heuristic))
            if row is not None and row["bias_significance"] is not None:
                readers[heuristic] = [_Reader(row["bias_significance"], row["worse_high"], False)]
        if readers:
            style = _ANNOTATORS if is_annotators else _GIVEN[number % len(_GIVEN)]
            found.append(_Series(model, style, readers))
    return found


def _spec_models(findings: QaFindings) -> dict[str, bool]:
    """Return the models of the spec, and whether they are people."""
    return {model["name"]: bool(model.get("annotators")) for model in findings.spec["models"]}


def _bias_figure(findings: QaFindings, name: str, title: str, dataset: str, series: Sequence[_Series]) -> Figure | None:
    heuristics = [name for name in findings.heuristics if any(name in one.readers for one in series)]
    if not heuristics:
        return None
    n_lines = sum(name in one.readers for one in series for name in heuristics)
    n_legend_lines = math.ceil(len(series) / 4)
    size = (8.0, 1.0 + 0.22 * n_legend_lines + max(0.15 * n_lines + 0.12 * len(heuristics), 0.6))
    words = "; ".join(
        f"{heuristic}: "
        + ", ".join(
            f"{one.name} {' and '.join(map(_in_words, one.readers[heuristic]))}"
            for one in series
            if heuristic in one.readers
        )
        for heuristic in heuristics
    )
    text = (
        f"Bias significance in points of exact match on {dataset}, and in brackets the upper bound of the worse "
        f"group’s, {title}: {words}."
    )
    plot = partial(_plot_bias, title=title, heuristics=heuristics, series=series)
    return Figure(name, name, "exact_match", text, Drawing(name, plot, size))


def _in_words(reader: _Reader) -> str:
    return f"{reader.significance:.2f} ({'–' if reader.worse is None else f'{reader.worse:.2f}'})"


def _plot_bias(axes: Axes, title: str, heuristics: Sequence[str], series: Sequence[_Series]) -> None:
    """Draw a line for each heuristic and series that has readers on it, from the top: significance, and worse EM."""
    figure = axes.figure
    grid = figure.add_gridspec(1, 2, width_ratios=(3, 2))
    axes.set_subplotspec(grid[0])
    beside = figure.add_subplot(grid[1], sharey=axes)
    height, ticks = 0.0, []
    places: dict[str, dict[str, float]] = {}
    for heuristic in heuristics:
        top = height
        for one in series:
            if heuristic in one.readers:
                places.setdefault(one.name, {})[heuristic] = height
                height += 1
        ticks.append((top + height - 1) / 2)
        height += 0.8
        for panel in (axes, beside):
            panel.axhline(height - 0.9, color=_GRID, linewidth=0.7)
    for one in series:
        _plot_series(axes, beside, one, places[one.name])
    names = short_names(heuristics)
    axes.set_yticks(ticks, list(names.values()))
    axes.set_ylim(height - 0.9, -0.9)
    axes.set_xlim(0, max(axes.get_xlim()[1], 1.0))
    beside.set_xlim(0, 100)
    axes.set_title(f"Bias significance, {title}", loc="left", fontweight="bold")
    beside.set_title("Worse group", loc="left", fontweight="bold")
    axes.set_xlabel("points of exact match")
    beside.set_xlabel("exact match, at most (%)")
    beside.tick_params(axis="y", labelleft=False)
    for panel in (axes, beside):
        panel.tick_params(axis="y", length=0)
        panel.grid(axis="x", color=_GRID, linewidth=0.7)
        panel.set_axisbelow(True)
    _legend(axes, [(one.name, one.style) for one in series])


def _plot_series(axes: Axes, beside: Axes, one: _Series, places: Mapping[str, float]) -> None:
    """Draw a series at its heights by heuristic: significances in ``axes``, exact match of the worse group beside."""
    color, marker = one.style
    longest = [max(reader.significance for reader in one.readers[heuristic]) for heuristic in places]
    axes.hlines(list(places.values()), 0, longest, color=color, linewidth=1, alpha=0.45)
    for is_broken in (False, True):
        own = [
            (place, reader)
            for heuristic, place in places.items()
            for reader in one.readers[heuristic]
            if reader.is_broken == is_broken
        ]
        known = [(place, reader.worse) for place, reader in own if reader.worse is not None]
        looks: dict[str, Any] = {"color": color, "marker": marker, "markerfacecolor": "white" if is_broken else color}
        looks |= {"markersize": 5, "linestyle": "", "clip_on": False}
        # A line without points that is not clipped has no size, which the layout cannot do with.
        if own:
            axes.plot([reader.significance for _, reader in own], [place for place, _ in own], **looks)
        if known:
            beside.plot([worse for _, worse in known], [place for place, _ in known], **looks)


def _legend(axes: Axes, styles: Sequence[tuple[str, _Style]]) -> None:
    from matplotlib.lines import Line2D

    names = short_names([name for name, _ in styles], 18)
    handles = [
        Line2D([], [], color=style.color, marker=style.marker, linestyle="", markersize=5, label=names[name])
        for name, style in styles
    ]
    axes.figure.legend(
        handles=handles, loc="outside lower left", ncols=4, frameon=False, fontsize=8.5, handletextpad=0.2
    )


# Bias against F1 elsewhere


class _Shift(NamedTuple):
    """A debiased reader: change of significance (points), and of mean F1 out of distribution (points)."""

    method: str
    x: tuple[float, float | None, float | None]
    y: tuple[float, float | None, float | None]
    is_broken: bool


def _scatter_figures(training: QaTraining, dataset: str) -> list[Figure]:
    shifts = []
    for (model, own, _), row in training.debiasing.items():
        other = training.elsewhere.get((model, MEAN))
        if own != dataset or not row["is_addressed"] or other is None:
            continue
        if row["significance_change"] is None or other["f1_change"] is None:
            continue
        x = tuple(row[name] for name in ("significance_change", "significance_change_low", "significance_change_high"))
        y = tuple(
            None if other[name] is None else 100 * other[name]
            for name in ("f1_change", "f1_change_low", "f1_change_high")
        )
        shifts.append(_Shift(row["method"], x, y, bool(row["is_nearly_broken"])))  # type: ignore[arg-type]
    if len(shifts) < _N_LEAST or len({(one.x[0], one.y[0]) for one in shifts}) == 1:
        return []
    shifts.sort(key=lambda shift: list(METHODS).index(shift.method))
    words = ", ".join(f"{METHODS[one.method].shown} {one.x[0]:+.2f} and {one.y[0]:+.2f}" for one in shifts)
    text = f"Change of bias significance on {dataset} and of mean F1 out of distribution, in points: {words}."
    name = scatter_suite(dataset)
    return [Figure(name, name, "f1", text, Drawing(name, partial(_plot_scatter, shifts=shifts), (4.6, 4.0)))]


def _plot_scatter(axes: Axes, shifts: Sequence[_Shift]) -> None:
    axes.axhline(0, color=_SOFT, linewidth=0.8)
    axes.axvline(0, color=_SOFT, linewidth=0.8)
    for shift in shifts:
        color, marker = _STYLES[shift.method]
        (x, x_low, x_high), (y, y_low, y_high) = shift.x, shift.y
        if len(shifts) <= _N_CROSSES and x_low is not None and x_high is not None:
            axes.hlines(y, x_low, x_high, color=color, linewidth=0.8, alpha=0.35)
        if len(shifts) <= _N_CROSSES and y_low is not None and y_high is not None:
            axes.vlines(x, y_low, y_high, color=color, linewidth=0.8, alpha=0.35)
        face = "white" if shift.is_broken else color
        axes.plot([x], [y], color=color, marker=marker, markerfacecolor=face, markersize=5, linestyle="")
    axes.set_title("Bias and F1 elsewhere", loc="left", fontweight="bold")
    axes.set_xlabel("change of significance (points)")
    axes.set_ylabel("change of mean F1 elsewhere (points)")
    axes.grid(color=_GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    _legend(axes, [(METHODS[method].shown, _STYLES[method]) for method in dict.fromkeys(one.method for one in shifts)])
