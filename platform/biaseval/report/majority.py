"""The report of a majority-bias run: P2's Tables 1 and 2, Figures 2 and 3, and what calibration changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

import yaml

from biaseval.analysis import open_runs
from biaseval.report.figures import Figure
from biaseval.report.findings import METHODS, Row
from biaseval.report.page import page_templates
from biaseval.report.proportions import instruction_figures
from biaseval.report.summary import paired, signed
from biaseval.report.ways import INSTRUCTIONS, WAYS, boundary, way_name, way_order, ways_of
from biaseval.store import Run

_MANY_WITHOUT_LABEL = 0.03
"""In P2 fewer outputs than this share are no label."""


@dataclass(frozen=True)
class MajorityFindings:
    """What the report shows. Shares and F1 are in [0, 1]; a number that was not measured is None."""

    model: str
    by_model: list[Row]
    """The rows of ``majority_by_model``, by way, method and instruction (with it first)."""
    by_setting: list[Row]
    """The rows of ``majority_over_seeds``, in the same order and by the setting's number."""
    gaps: list[Row]
    """The rows of ``majority_instruction_gap``."""
    gains: list[Row]
    """The rows of ``majority_calibration_gain``, by method and instruction."""
    settings: list[Row]
    spec: Row
    plan: Row
    environment: Row

    def ways(self) -> list[tuple[str, str]]:
        """Return each way of predicting with its method of calibration, in the order of tables."""
        return ways_of(self.by_model)

    def of(self, method: str, instruction: bool) -> Row:
        """Return the row of ``majority_by_model`` for predictions by likelihood."""
        return next(
            row
            for row in self.by_model
            if (row["predict"], row["method"], row["instruction"]) == ("likelihood", method, instruction)
        )


def read_majority_findings(run: Run) -> MajorityFindings:
    """Return what the report of a majority-bias run shows.

    Raises:
        BiasevalError: the run has no metrics yet.
    """
    marts = ("by_model", "over_seeds", "instruction_gap", "calibration_gain")
    with closing(open_runs([run.uri])) as connection:
        by_model, by_setting, gaps, gains, settings = (
            connection.sql(f"from {name}").to_arrow_table().to_pylist()
            for name in (*(f"majority_{mart}" for mart in marts), "settings")
        )
    gains = [{**row, "predict": "likelihood"} for row in gains]
    return MajorityFindings(
        model=yaml.safe_load(run.read_text("spec.yaml"))["name"],
        by_model=sorted(by_model, key=_order),
        by_setting=sorted(by_setting, key=lambda row: (_order(row), row["number"])),
        gaps=sorted(gaps, key=lambda row: (*way_order(row), row["region"])),
        gains=sorted(gains, key=_order),
        settings=sorted(settings, key=lambda row: row["number"]),
        spec=yaml.safe_load(run.read_text("spec.yaml")),
        plan=json.loads(run.read_text("plan.json")) if run.has("plan.json") else {},
        environment=json.loads(run.read_text("environment.json")) if run.has("environment.json") else {},
    )


def f1_figures(findings: MajorityFindings) -> list[Figure]:
    """Return weighted F1 over the settings, with and without instruction, for each way of predicting and method."""
    figures = []
    for predict, method in findings.ways():
        name = f"f1_{predict}" if method == "none" else f"f1_{predict}_{method}"
        rows = [row for row in findings.by_setting if (row["predict"], row["method"]) == (predict, method)]
        figures += instruction_figures(name, way_name(predict, method), rows, findings.settings)
    return figures


class Cell(NamedTuple):
    """A number of a table whose columns are instructions, grouped."""

    row: Row | None
    """What has the number and its interval; None where there is nothing."""
    metric: str
    is_within: bool = False
    """Inside the robustness boundary."""


def render_majority_page(findings: MajorityFindings, figures: Sequence[Figure]) -> str:
    """Return the HTML of the report; everything from the run is escaped."""
    columns = [
        (way, [instruction for instruction in INSTRUCTIONS if _has(findings.by_model, way, instruction)])
        for way in findings.ways()
    ]
    return (
        page_templates()
        .get_template("majority.html.j2")
        .render(
            findings=findings,
            figures=figures,
            summary=_summary(findings),
            caveats=[*no_label_caveats(findings.by_model), *findings.plan.get("notes", [])],
            way=way_name,
            instructions=INSTRUCTIONS,
            columns=[(way_name(*way), [INSTRUCTIONS[one] for one in given]) for way, given in columns],
            lines=[
                (
                    setting["setting"],
                    [
                        cell
                        for way, given in columns
                        for cell in setting_cells(
                            [row for row in findings.by_setting if (row["predict"], row["method"]) == way],
                            given,
                            setting["setting"],
                        )
                    ],
                )
                for setting in findings.settings
            ],
            environment={name: fact for name, fact in findings.environment.items() if name != "data"},
        )
    )


def setting_cells(rows: Sequence[Row], instructions: Sequence[bool], setting: str) -> list[Cell]:
    """Return the weighted F1 of a setting without and with instruction, as P2's Table 2 has it.

    Args:
        rows: of ``majority_over_seeds``, of one model, way of predicting and method.
        instructions: those that have a column.
        setting: the line of the table.
    """
    cells = []
    for instruction in instructions:
        column = [row for row in rows if row["instruction"] is instruction]
        row = next((row for row in column if row["setting"] == setting), None)
        cells.append(Cell(row, "weighted_f1", row is not None and row["weighted_f1"] >= boundary(column)))
    return cells


def no_label_caveats(rows: Sequence[Row]) -> list[str]:
    """Return a sentence for each way of predicting with many outputs that are no label; rows of majority_by_model."""
    shares: dict[str, float] = {}
    for row in rows:
        shares[row["predict"]] = max(shares.get(row["predict"], 0.0), row["share_no_label"])
    return [
        f"Up to {share:.1%} of the outputs of {WAYS.get(predict, predict)} are no label and count as wrong; where most "
        "are, RB@10 is near 1 and says nothing of robustness."
        for predict, share in shares.items()
        if share >= _MANY_WITHOUT_LABEL
    ]


def _has(rows: Sequence[Row], way: tuple[str, str], instruction: bool) -> bool:
    return any((row["predict"], row["method"]) == way and row["instruction"] is instruction for row in rows)


def _order(row: Row) -> tuple[int, tuple[int, str], bool]:
    return (*way_order(row), not row["instruction"])


def _summary(findings: MajorityFindings) -> list[str]:
    """Return what the run found, in words: each way of predicting, and what calibration changes."""
    sentences = []
    for row in findings.by_model:
        if row["method"] != "none":
            continue
        way = way_name(row["predict"], row["method"])
        sentence = (
            f"{way[0].upper()}{way[1:]}, {INSTRUCTIONS[row['instruction']]} instruction: "
            f"{round(row['rb_at_10'] * row['n_settings'])} of {row['n_settings']} settings are within 10 points of the "
            f"best weighted F1 ({row['max_f1']:.3f}), mean {row['mean_f1']:.3f}"
        )
        if row["share_majority"] is not None:
            sentence += f"; {row['share_majority']:.1%} of predictions are the demonstrations' majority label"
        sentences.append(f"{sentence}.")
    return [*sentences, *_calibration(findings)]


def _calibration(findings: MajorityFindings) -> list[str]:
    """Return whether each calibration widens the robustness boundary, and whether performance rises with it."""
    sentences = []
    for gain in findings.gains:
        after, before = (findings.of(method, gain["instruction"]) for method in (gain["method"], "none"))
        sentences.append(
            f"{METHODS.get(gain['method'], gain['method'])}, {INSTRUCTIONS[gain['instruction']]} instruction: "
            f"{_verdict(gain, 'rb_at_10', 'widens', 'narrows', 'does not clearly move')} the boundary, RB@10 "
            f"{before['rb_at_10']:.3f} to {after['rb_at_10']:.3f} ({paired(gain, 'rb_at_10')}); mean weighted F1 "
            f"{_verdict(gain, 'mean_f1', 'rises', 'falls', 'does not clearly change')}, {before['mean_f1']:.3f} to "
            f"{after['mean_f1']:.3f} ({signed(gain['mean_f1'])})."
        )
    return sentences


def _verdict(gain: Row, metric: str, up: str, down: str, unclear: str) -> str:
    low, high = gain[f"{metric}_low"], gain[f"{metric}_high"]
    if low is None or low <= 0 <= high:
        return unclear
    return up if gain[metric] > 0 else down
