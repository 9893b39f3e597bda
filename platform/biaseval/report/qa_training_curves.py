"""Figures of how readers are trained: loss and F1 by step, a panel for each method (P3's Figures 5 and 6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from biaseval.report.drawing import Drawing
from biaseval.report.figures import Figure, label_lines
from biaseval.report.findings import Row
from biaseval.report.qa_styles import short_names
from biaseval.report.qa_training_data import Block, QaTraining
from biaseval.report.qa_training_names import BIAS_MODEL, METHODS, slug

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GRID = "#dddddd"
_INK = "#333333"
_N_CHARACTERS_AT_LINES = 14
_SETS = ("#333333", "#0063a3", "#b84a00", "#007a57", "#9c4380", "#806600", "#555599", "#8a1c1c")


def course_suite(block: Block, metric: str) -> str:
    """Return the ``suite`` of a metric over a block's training steps."""
    return f"training_{block.number}_{slug(block.name)}_{metric}"


def course_figures(training: QaTraining, block: Block) -> list[Figure]:
    """Return loss and F1 by step, a panel for each method, all with one scale but that of bias models."""
    measured = ["standard", *block.methods]
    losses = [row["loss_high"] for method in measured for row in training.courses.get((block.number, method), [])]
    tops = {"loss": 1.05 * max(losses, default=1.0), "f1": 100.0}
    figures = []
    for metric in tops:
        for method in (*measured, BIAS_MODEL):
            rows = training.courses.get((block.number, method), [])
            if rows:
                own_top = 1.05 * max(row["loss_high"] for row in rows)
                top = own_top if (metric, method) == ("loss", BIAS_MODEL) else tops[metric]
                figures.append(_course_figure(training, block, method, metric, top))
    return figures


def _course_figure(training: QaTraining, block: Block, method: str, metric: str, top: float) -> Figure:
    rows, readers = training.courses[block.number, method], block.of_method(method)
    dashed = {row["dataset"] for row in rows if row["role"] == "out_of_distribution"}
    datasets = sorted(dict.fromkeys(row["dataset"] for row in rows), key=lambda name: name in dashed)
    by_dataset = {name: [row for row in rows if row["dataset"] == name] for name in datasets}
    scale = 1 if metric == "loss" else 100
    shown = METHODS[method].shown
    words = "; ".join(
        f"{name} {scale * own[0][metric]:.2f} at step {own[0]['step'] + 1}, {scale * own[-1][metric]:.2f} at step "
        f"{own[-1]['step'] + 1}"
        for name, own in by_dataset.items()
    )
    best = [row["best_step"] + 1 for row in readers if row["best_step"] is not None]
    text = f"{'Loss' if metric == 'loss' else 'F1'} by step of {shown} of {block.name}, mean over readers: {words}" + (
        f"; kept at step {', '.join(map(str, best))}." if best else "."
    )
    suite = course_suite(block, metric)
    plot = partial(
        _plot_course,
        title=shown,
        metric=metric,
        by_dataset=by_dataset,
        dashed=dashed,
        best=best,
        n_readers=max(row["n_readers"] for row in rows),
        top=top,
    )
    name = f"{suite}_{method}"
    return Figure(name, suite, metric, text, Drawing(name, plot))


def _plot_course(
    axes: Axes,
    title: str,
    metric: str,
    by_dataset: Mapping[str, Sequence[Row]],
    dashed: set[str],
    best: Sequence[int],
    n_readers: int,
    top: float,
) -> None:
    """Draw a line for each set: the mean of its readers, thin where some have stopped, with lowest and highest."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    scale = 1 if metric == "loss" else 100
    names = short_names(list(by_dataset), _N_CHARACTERS_AT_LINES)
    ends: dict[str, float] = {}
    colors: dict[str, str] = {}
    axes.set_ylim(0, top)
    for number, (dataset, rows) in enumerate(by_dataset.items()):
        color = _SETS[number % len(_SETS)]
        line = (0, (4, 2)) if dataset in dashed else "-"
        n_whole = sum(row["n_readers"] == n_readers for row in rows)
        steps = [row["step"] + 1 for row in rows]
        values = [scale * row[metric] for row in rows]
        marker = "o" if len(rows) == 1 else ""
        axes.plot(steps[:n_whole], values[:n_whole], color=color, linestyle=line, marker=marker, markersize=4)
        axes.plot(
            steps[max(n_whole - 1, 0) :], values[max(n_whole - 1, 0) :], color=color, linestyle=line, linewidth=0.6
        )
        if n_readers > 1:
            low, high = ([scale * row[f"{metric}_{end}"] for row in rows] for end in ("low", "high"))
            axes.fill_between(steps, low, high, color=color, alpha=0.12, linewidth=0)
        ends[names[dataset]], colors[names[dataset]] = values[-1], color
    if best:
        axes.plot(best, [0] * len(best), color=_INK, marker="^", markersize=6, linestyle="", clip_on=False, zorder=3)
    axes.set_title(title, loc="left", fontweight="bold")
    axes.set_xlabel("optimizer step")
    axes.set_ylabel("loss (nats)" if metric == "loss" else "F1 (%)")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda x, _: f"{x / 1000:g}k" if axes.get_xlim()[1] >= 10000 else f"{x:g}")
    )
    axes.grid(axis="y", color=_GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    label_lines(axes, ends, colors)
