"""The report of a majority-bias run: P2's Table 1, Figures 2 and 3, and each setting."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import yaml

from biaseval.analysis import open_runs
from biaseval.report.figures import Figure, draw, label_lines
from biaseval.report.findings import METHODS, Row, method_order
from biaseval.report.page import page_templates
from biaseval.store import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WAYS = {"likelihood": "label likelihood", "generate": "free generation", "constrained": "constrained generation"}
"""The display names of the ways of predicting, in the order of tables and figures."""

_COLORS = {True: "#0063a3", False: "#b84a00"}
_MARKERS = {True: "o", False: "s"}
_INSTRUCTIONS = {True: "with", False: "without"}
_TOLERANCE = 1e-9
_K = 0.1
_MANY_WITHOUT_LABEL = 0.03
"""In P2 fewer outputs than this share are no label."""


@dataclass(frozen=True)
class MajorityFindings:
    """What the report shows. Shares and F1 are in [0, 1]; a number that was not measured is None."""

    model: str
    by_model: list[Row]
    """The rows of ``majority_by_model``, by way, method and instruction."""
    by_setting: list[Row]
    """The rows of ``majority_over_seeds``, in the same order and by the setting's number."""
    gaps: list[Row]
    """The rows of ``majority_instruction_gap``."""
    settings: list[Row]
    spec: Row
    plan: Row
    environment: Row

    def ways(self) -> list[tuple[str, str]]:
        """Return each way of predicting with its method of calibration, in the order of tables."""
        return list(dict.fromkeys((row["predict"], row["method"]) for row in self.by_model))


def read_majority_findings(run: Run) -> MajorityFindings:
    """Return what the report of a majority-bias run shows.

    Raises:
        BiasevalError: the run has no metrics yet.
    """
    with closing(open_runs([run.uri])) as connection:
        by_model, by_setting, gaps, settings = (
            connection.sql(f"from {name}").to_arrow_table().to_pylist()
            for name in ("majority_by_model", "majority_over_seeds", "majority_instruction_gap", "settings")
        )
    return MajorityFindings(
        model=yaml.safe_load(run.read_text("spec.yaml"))["name"],
        by_model=sorted(by_model, key=_order),
        by_setting=sorted(by_setting, key=lambda row: (_order(row), row["number"])),
        gaps=sorted(gaps, key=lambda row: (*_way_order(row), row["region"])),
        settings=sorted(settings, key=lambda row: row["number"]),
        spec=yaml.safe_load(run.read_text("spec.yaml")),
        plan=json.loads(run.read_text("plan.json")) if run.has("plan.json") else {},
        environment=json.loads(run.read_text("environment.json")) if run.has("environment.json") else {},
    )


def f1_figures(findings: MajorityFindings) -> list[Figure]:
    """Return weighted F1 over the settings, a figure per way of predicting and method.

    With two labels the settings stand at the share of the first (P2's Figures 2 and 3), else side by side.
    """
    figures = []
    for predict, method in findings.ways():
        name = f"f1_{predict}" if method == "none" else f"f1_{predict}_{method}"
        rows = [row for row in findings.by_setting if (row["predict"], row["method"]) == (predict, method)]
        figures.append(
            Figure(
                name=name,
                suite="all",
                metric="weighted_f1",
                text=_in_words(predict, method, rows),
                svg=draw(name, partial(_plot, title=_way(predict, method), rows=rows, settings=findings.settings)),
            )
        )
    return figures


def render_majority_page(findings: MajorityFindings, figures: Sequence[Figure]) -> str:
    """Return the HTML of the report; everything from the run is escaped."""
    return (
        page_templates()
        .get_template("majority.html.j2")
        .render(
            findings=findings,
            figures=figures,
            summary=_summary(findings),
            caveats=_caveats(findings),
            way=_way,
            instructions=_INSTRUCTIONS,
            within=_within(findings),
            environment={name: fact for name, fact in findings.environment.items() if name != "data"},
        )
    )


def _way(predict: str, method: str) -> str:
    shown = WAYS.get(predict, predict)
    return shown if method == "none" else f"{shown}, {METHODS.get(method, method)}"


def _way_order(row: Row) -> tuple[int, tuple[int, str]]:
    ways = list(WAYS)
    return (ways.index(row["predict"]) if row["predict"] in ways else len(ways), method_order(row["method"]))


def _order(row: Row) -> tuple[int, tuple[int, str], bool]:
    return (*_way_order(row), not row["instruction"])


def _within(findings: MajorityFindings) -> set[tuple[str, str, bool, str]]:
    """Return the (predict, method, instruction, setting) that count as near the best of their row of Table 1."""
    best = {_key(row): row["max_f1"] for row in findings.by_model}
    return {
        (*_key(row), row["setting"])
        for row in findings.by_setting
        if row["weighted_f1"] >= best[_key(row)] - _K - _TOLERANCE
    }


def _key(row: Row) -> tuple[str, str, bool]:
    return (row["predict"], row["method"], row["instruction"])


def _summary(findings: MajorityFindings) -> list[str]:
    """Return what the run found, in words: each way of predicting, and what calibration changes."""
    sentences = []
    before = {(row["predict"], row["instruction"]): row for row in findings.by_model if row["method"] == "none"}
    for row in findings.by_model:
        way = _way(row["predict"], row["method"])
        where = f"{way[0].upper()}{way[1:]}, {_INSTRUCTIONS[row['instruction']]} instruction"
        plain = before.get((row["predict"], row["instruction"]), row)
        if row is not plain:
            sentences.append(
                f"{where}: RB@10 {plain['rb_at_10']:.3f} before calibration and {row['rb_at_10']:.3f} after it; mean "
                f"weighted F1 {plain['mean_f1']:.3f} and {row['mean_f1']:.3f}."
            )
            continue
        sentence = (
            f"{where}: {round(row['rb_at_10'] * row['n_settings'])} of {row['n_settings']} settings are within 10 "
            f"points of the best weighted F1 ({row['max_f1']:.3f})"
        )
        if row["share_majority"] is not None:
            sentence += f"; {row['share_majority']:.1%} of predictions are the demonstrations' majority label"
        sentences.append(f"{sentence}.")
    return sentences


def _caveats(findings: MajorityFindings) -> list[str]:
    """Return what a reader should know before trusting the numbers: the plan's notes, and outputs without a label."""
    shares: dict[str, float] = {}
    for row in findings.by_model:
        shares[row["predict"]] = max(shares.get(row["predict"], 0.0), row["share_no_label"])
    sentences = [
        f"Up to {share:.1%} of the outputs of {WAYS.get(predict, predict)} are no label and count as wrong; where most "
        "are, RB@10 is near 1 and says nothing of robustness."
        for predict, share in shares.items()
        if share >= _MANY_WITHOUT_LABEL
    ]
    return [*sentences, *findings.plan.get("notes", [])]


def _in_words(predict: str, method: str, rows: Sequence[Row]) -> str:
    lines = []
    for instruction, name in _INSTRUCTIONS.items():
        points = [f"{row['weighted_f1']:.3f} at {row['setting']}" for row in rows if row["instruction"] is instruction]
        if points:
            lines.append(f"{name} instruction {', '.join(points)}")
    return f"Weighted F1 by label proportions, {_way(predict, method)}: {'; '.join(lines)}."


def _plot(axes: Axes, title: str, rows: Sequence[Row], settings: Sequence[Row]) -> None:
    labels = settings[0]["labels"]
    is_binary = len(labels) == 2
    places: dict[str, Any] = {
        row["setting"]: row["shares"][0] * 100 if is_binary else number for number, row in enumerate(settings)
    }
    ends: dict[str, float] = {}
    for instruction, name in _INSTRUCTIONS.items():
        points = sorted(
            (row for row in rows if row["instruction"] is instruction), key=lambda row: places[row["setting"]]
        )
        if not points:
            continue
        x, y = [places[row["setting"]] for row in points], [row["weighted_f1"] for row in points]
        color = _COLORS[instruction]
        # Settings of more than two labels have no order that a line could follow.
        axes.plot(x, y, color=color, marker=_MARKERS[instruction], linestyle="-" if is_binary else "", markersize=4)
        if all(row["weighted_f1_low"] is not None for row in points):
            low, high = ([row[f"weighted_f1_{end}"] for row in points] for end in ("low", "high"))
            if is_binary and len(points) > 1:
                axes.fill_between(x, low, high, color=color, alpha=0.13, linewidth=0)
            else:
                axes.vlines(x, low, high, color=color, linewidth=1.2)
        axes.axhline(max(y) - _K, color=color, linewidth=0.8, linestyle=":")
        ends[name] = y[-1]
    axes.set_title(title, loc="left", fontweight="bold")
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
    label_lines(axes, ends, {_INSTRUCTIONS[instruction]: color for instruction, color in _COLORS.items()})
