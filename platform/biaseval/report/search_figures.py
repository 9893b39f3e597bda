"""Figures of a search: the objective over each key, and over two numbers at once."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from biaseval.report.drawing import Drawing
from biaseval.report.figures import Figure
from biaseval.report.findings import Row
from biaseval.report.qa_styles import short_names
from biaseval.report.search_cells import number, parameter
from biaseval.report.search_findings import Choice, Key, Objective, Samples, SearchFindings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RESPONSE, SLICE = "response", "slice"
"""What a figure shows; also how its file's name begins."""

N_WITH_BARS = 40
"""Trials up to which each has its interval drawn; of more, those over a single number have a band."""

_SIZE_INCHES = (4.2, 3.4)
_GRID = "#dddddd"
_INK = "#333333"
_SOFT = "#8f98a3"
_N_CHARACTERS = 22
_N_CHARACTERS_UPRIGHT = 24
_FAR = 100.0
"""Ratio of the largest to the smallest value from which a grid above 0 is drawn by its logarithm."""

_SPREAD = 1000.0
"""Ratio of the largest value of an objective to the middle one from which both are shown by their logarithm."""


class _Sample(NamedTuple):
    column: str
    label: str
    color: str
    marker: str
    line: str
    is_hollow: bool


# After Okabe & Ito (colour-blind safe), as in the other figures; shape and filling tell the halves apart in print.
_CHOICE = _Sample("value", "", "#0063a3", "o", "-", False)
_EVALUATION = _Sample("evaluation", "", "#b84a00", "s", "--", True)


def search_figures(findings: SearchFindings) -> list[Figure]:
    """Return the figures of each choice: ``suite`` is its scope, ``metric`` the objective.

    A response for each key, and one over the two numbers that matter most.
    """
    figures: list[Figure] = []
    names, objective = _Names(), findings.objective
    for choice in findings.drawn:
        scope = [choice.scope] if findings.has_several_choices else []
        for key in findings.keys:
            figures.append(_response(findings, choice, key, names(RESPONSE, *scope, objective, key)))
        two = _two_numbers(findings, choice)
        if two is not None:
            figures.append(_slice(findings, choice, *two, names(SLICE, *scope, objective)))
    return figures


class _Names:
    """Names of files, each given once."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def __call__(self, *parts: str | Objective | Key) -> str:
        shown = [part if isinstance(part, str) else part.name for part in parts]
        plain = "_".join(re.sub(r"[^A-Za-z0-9._-]", "-", part) for part in shown)
        name, n = plain, 1
        while name in self._given:
            n += 1
            name = f"{plain}-{n}"
        self._given.add(name)
        return name


def _drawn_samples(samples: Samples) -> list[_Sample]:
    chose = _CHOICE._replace(label=samples.choice)
    return [chose] if samples.evaluation is None else [chose, _EVALUATION._replace(label=samples.evaluation)]


# Over a key


@dataclass(frozen=True)
class _Axis:
    """Where values of a key stand along the axis."""

    key: Key
    is_log: bool
    places: Mapping[str, int]
    """Shown value to place, of a key without numbers; empty otherwise."""

    def of(self, value: object) -> float:
        """Return a value's place; of a logarithmic axis, the logarithm."""
        if not self.key.is_numeric:
            return self.places[parameter(value)]
        assert isinstance(value, int | float)
        return math.log10(value) if self.is_log else float(value)

    def at(self, place: float) -> float:
        """Return what matplotlib is told of a place."""
        return 10.0**place if self.is_log else place


def _axis(key: Key, points: Sequence[Row]) -> _Axis:
    values = [row["parameters"][key.key] for row in points]
    if not key.is_numeric:
        given = [shown for shown in map(parameter, key.values) if shown in set(map(parameter, values))]
        return _Axis(key, False, {shown: place for place, shown in enumerate(given)})
    is_wide = key.domain == "grid" and min(values) > 0 and max(values) / min(values) >= _FAR
    return _Axis(key, key.domain == "loguniform" or is_wide, {})


def _response(findings: SearchFindings, choice: Choice, key: Key, name: str) -> Figure:
    objective = findings.objective
    title = f"{objective.name} by {key.name}"
    is_only = len(findings.keys) == 1
    plot = partial(
        _plot_response,
        title=title,
        choice=choice,
        objective=objective,
        axis=_axis(key, choice.measured),
        samples=_drawn_samples(findings.samples),
        is_only=is_only,
    )
    chosen = choice.chosen
    value = number(chosen["of"]["value"], objective.digits)
    text = f"{title}, {len(choice.measured)} trials; chosen: {parameter(chosen['parameters'][key.key])} ({value})."
    return Figure(name, choice.scope, objective.name, text, Drawing(name, plot, _SIZE_INCHES))


def _plot_response(
    axes: Axes,
    title: str,
    choice: Choice,
    objective: Objective,
    axis: _Axis,
    samples: Sequence[_Sample],
    is_only: bool,
) -> None:
    key = axis.key.key
    trials = sorted(choice.measured, key=lambda row: (axis.of(row["parameters"][key]), row["trial"]))
    places = [axis.of(row["parameters"][key]) for row in trials]
    apart = _apart(places, len(samples))
    has_bars = len(trials) <= N_WITH_BARS
    is_band = not has_bars and is_only and axis.key.is_numeric
    for turn, sample in enumerate(samples):
        rows = [row["of"] for row in trials]
        shifted = _beside(places, apart, turn, len(samples)) if has_bars else places
        x = [axis.at(place) for place in shifted]
        if is_band:
            _plot_band(axes, x, rows, sample)
        else:
            _plot_points(axes, x, rows, sample, has_bars=has_bars)
    numbered = next(number_ for number_, row in enumerate(trials) if row["is_chosen"])
    own = trials[numbered]["of"]
    shift = _beside(places, apart, 0, len(samples))[numbered] if has_bars else places[numbered]
    _plot_chosen(axes, axis.at(shift), own, with_interval=not has_bars)
    if is_only and axis.key.is_numeric:
        _plot_flat(axes, [axis.at(axis.of(row["parameters"][key])) for row in trials if _is_flat(row)])
    _finish_axes(axes, title, axis.key.name, objective.name)
    if axis.is_log:
        axes.set_xscale("log")
    if axis.key.is_numeric:
        _show_numbers(axes, axis, trials)
    if axis.places:
        _name_places(axes, list(axis.places))
    _scale(axes.set_yscale, [row["of"]["value"] for row in trials])
    _legend(axes)


def _apart(places: Sequence[float], n_samples: int) -> float:
    """Return how far marks at the same place stand from each other."""
    width = (places[-1] - places[0]) or 1.0
    most = max(places.count(place) for place in set(places)) * n_samples
    gap = min((right - left for left, right in pairwise(sorted(set(places)))), default=1.0)
    return min(max(0.6 * gap / most, 0.004 * width), 0.018 * width)


def _beside(places: Sequence[float], apart: float, turn: int, n_samples: int) -> list[float]:
    """Return where the marks of a sample stand, side by side with the others of their place."""
    seen: dict[float, int] = {}
    shifted = []
    for place in places:
        number_ = seen.get(place, 0)
        seen[place] = number_ + 1
        middle = (places.count(place) * n_samples - 1) / 2
        shifted.append(place + (number_ * n_samples + turn - middle) * apart)
    return shifted


def _plot_points(axes: Axes, x: Sequence[float], rows: Sequence[Row], sample: _Sample, *, has_bars: bool) -> None:
    known = [(place, row) for place, row in zip(x, rows, strict=True) if row[sample.column] is not None]
    if has_bars:
        barred = [(place, row) for place, row in known if row[f"{sample.column}_low"] is not None]
        low, high = ([row[f"{sample.column}_{end}"] for _, row in barred] for end in ("low", "high"))
        axes.vlines([place for place, _ in barred], low, high, color=sample.color, linewidth=1, alpha=0.55)
    axes.plot(
        [place for place, _ in known],
        [row[sample.column] for _, row in known],
        color=sample.color,
        marker=sample.marker,
        markerfacecolor="white" if sample.is_hollow else sample.color,
        markersize=4.5 if has_bars else 3,
        markeredgewidth=1 if has_bars else 0.6,
        alpha=1 if has_bars else 0.5,
        linestyle="",
        label=sample.label,
    )


def _plot_band(axes: Axes, x: Sequence[float], rows: Sequence[Row], sample: _Sample) -> None:
    values, low, high = (
        [math.nan if row[name] is None else row[name] for row in rows]
        for name in (sample.column, f"{sample.column}_low", f"{sample.column}_high")
    )
    axes.plot(x, values, color=sample.color, linestyle=sample.line, linewidth=1.3, label=sample.label)
    axes.fill_between(x, low, high, color=sample.color, alpha=0.15, linewidth=0)


def _is_flat(row: Row) -> bool:
    return row["of"]["is_within_noise"] and not row["is_chosen"]


def _plot_flat(axes: Axes, x: Sequence[float]) -> None:
    """Mark along the axis the other values at which the interval of the difference from the chosen one includes 0."""
    if not x:
        return
    axes.plot(
        x,
        [0.015] * len(x),
        transform=axes.get_xaxis_transform(),
        color=_INK,
        marker="|",
        markersize=7,
        linestyle="",
        label="interval with 0",
    )


def _plot_chosen(axes: Axes, x: float, row: Row, *, with_interval: bool) -> None:
    axes.axvline(x, color=_INK, linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
    if with_interval and row["value_low"] is not None:
        axes.vlines(x, row["value_low"], row["value_high"], color=_INK, linewidth=1.5, zorder=5)
    _ring(axes, x, row["value"])


def _ring(axes: Axes, x: float, y: float) -> None:
    axes.plot(
        [x],
        [y],
        marker="o",
        markersize=10,
        markerfacecolor="none",
        markeredgecolor=_INK,
        markeredgewidth=1.6,
        linestyle="",
        label="chosen",
        zorder=6,
        clip_on=False,
    )


def _show_numbers(axes: Axes, axis: _Axis, trials: Sequence[Row]) -> None:
    """Have ticks where values can be: at whole numbers, or at the only value."""
    from matplotlib.ticker import MaxNLocator, NullLocator

    values = {row["parameters"][axis.key.key] for row in trials}
    if len(values) == 1:
        [value] = values
        axes.set_xlim(axis.at(axis.of(value) - 0.5), axis.at(axis.of(value) + 0.5))
        axes.set_xticks([value], [parameter(value)])
        axes.xaxis.set_minor_locator(NullLocator())
    elif not axis.is_log and all(isinstance(value, int) for value in values):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _name_places(axes: Axes, shown: Sequence[str]) -> None:
    is_crowded = sum(map(len, shown)) + 2 * len(shown) > _N_CHARACTERS_UPRIGHT * 2
    short = list(short_names(shown, _N_CHARACTERS).values())
    axes.set_xticks(range(len(shown)), list(map(_escaped, short)), rotation=90 if is_crowded else 0)
    axes.set_xlim(-0.5, len(shown) - 0.5)


# Over two keys


def _two_numbers(findings: SearchFindings, choice: Choice) -> tuple[Key, Key] | None:
    """Return the two keys of numbers that go with most of the variance, as the spec has them."""
    order = [row["key"] for row in choice.importance]
    numeric = sorted((key for key in findings.keys if key.is_numeric), key=lambda key: order.index(key.key))[:2]
    if len(numeric) < 2:
        return None
    x, y = sorted(numeric, key=findings.keys.index)
    return x, y


def _slice(findings: SearchFindings, choice: Choice, first: Key, second: Key, name: str) -> Figure:
    objective = findings.objective
    title = f"{objective.name} by {first.name} and {second.name}"
    plot = partial(_plot_slice, choice=choice, objective=objective, first=first, second=second)
    chosen = choice.chosen
    at = " and ".join(parameter(chosen["parameters"][key.key]) for key in (first, second))
    text = f"{title}: a mark for each trial, its colour the value on the data of the choice; chosen: {at}."
    return Figure(name, choice.scope, objective.name, text, Drawing(name, plot, _SIZE_INCHES))


def _plot_slice(axes: Axes, choice: Choice, objective: Objective, first: Key, second: Key) -> None:
    measured = choice.measured
    x_axis, y_axis = (_axis(key, choice.trials) for key in (first, second))

    def places(rows: Sequence[Row]) -> tuple[list[float], list[float]]:
        return [row["parameters"][first.key] for row in rows], [row["parameters"][second.key] for row in rows]

    lost = [row for row in choice.trials if row["of"] is None]
    if lost:
        axes.plot(*places(lost), color=_SOFT, marker="x", markersize=5, linestyle="", label="stopped or failed")
    for scale, axis in ((axes.set_xscale, x_axis), (axes.set_yscale, y_axis)):
        if axis.is_log:
            scale("log")
    values = [row["of"]["value"] for row in measured]
    n_marks = len({tuple(row["parameters"][key.key] for key in (first, second)) for row in measured})
    drawn = axes.scatter(
        *places(measured), c=values, cmap="viridis", s=min(90, max(12, 4000 / n_marks)), edgecolors="white",
        linewidths=0.4, zorder=3,
    )  # fmt: skip
    [x], [y] = places([choice.chosen])
    _ring(axes, x, y)
    _finish_axes(axes, f"{objective.name} by two keys", first.name, second.name)
    axes.grid(axis="x", color=_GRID, linewidth=0.7)
    bar = axes.figure.colorbar(drawn, ax=axes, label=_escaped(objective.name), shrink=0.85, pad=0.03, aspect=20)
    bar.outline.set_visible(False)
    _legend(axes)


# Common to all


def _finish_axes(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(_escaped(title), loc="left", fontweight="bold", wrap=True)
    axes.set_xlabel(_escaped(x))
    axes.set_ylabel(_escaped(y))
    axes.grid(axis="y", color=_GRID, linewidth=0.7)
    axes.set_axisbelow(True)


def _scale(set_scale: Callable[..., None], values: Sequence[float | None]) -> None:
    """Show by their logarithm values of which the largest is far from the middle one."""
    sizes = sorted(abs(value) for value in values if value)
    middle = sizes[len(sizes) // 2] if sizes else 0.0
    if middle and sizes[-1] > _SPREAD * middle:
        set_scale("symlog", linthresh=middle)


def _legend(axes: Axes) -> None:
    if axes.figure is not None:
        axes.figure.legend(loc="outside lower left", ncols=3, frameon=False, fontsize=8.5, handletextpad=0.2)


def _escaped(text: str) -> str:
    """Return text in which a dollar is a dollar."""
    return text.replace("$", r"\$")
