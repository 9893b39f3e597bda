"""The report of a majority-bias run: P2's Tables 1 and 2, Figures 2 and 3, and what calibration and LoRA change."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import NamedTuple

import yaml

from biaseval.analysis import open_runs
from biaseval.report.figures import Figure
from biaseval.report.findings import Adaptation, Row, read_adaptation
from biaseval.report.methods import is_adapted, method_name
from biaseval.report.mitigation import cost_groups, cost_sentence, training_caveats, training_sentence
from biaseval.report.page import page_templates
from biaseval.report.proportions import instruction_figures
from biaseval.report.summary import join, paired, signed
from biaseval.report.ways import INSTRUCTIONS, REGIONS, WAYS, row_order, way_name, way_order, ways_of
from biaseval.store import Run

_BOUNDARY_VERDICTS = {
    1: "widens the boundary",
    -1: "narrows the boundary",
    0: "the boundary stays the same",
    None: "does not clearly move the boundary",
}
_MEAN_VERDICTS = {1: "rises", -1: "falls", 0: "stays the same", None: "does not clearly change"}


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
    gains: list[Row]
    """The rows of ``majority_calibration_gain``, by way, method and instruction."""
    adaptation: Adaptation | None
    """None in a run without adapters."""
    settings: list[Row]
    outputs: list[Row]
    """The rows of ``frequent_outputs``."""
    spec: Row
    plan: Row
    environment: Row

    def ways(self) -> list[tuple[str, str]]:
        """Return each way of predicting with its method, in the order of tables."""
        return ways_of(self.by_model)

    def of(self, predict: str, method: str, instruction: bool) -> Row:
        """Return the row of ``majority_by_model`` for this way of predicting, method and instruction."""
        return next(
            row
            for row in self.by_model
            if (row["predict"], row["method"], row["instruction"]) == (predict, method, instruction)
        )


def read_majority_findings(run: Run) -> MajorityFindings:
    """Return what the report of a majority-bias run shows.

    Raises:
        BiasevalError: the run has no metrics yet.
    """
    spec = yaml.safe_load(run.read_text("spec.yaml"))
    marts = ("by_model", "over_seeds", "instruction_gap", "calibration_gain")
    with closing(open_runs([run.uri])) as connection:
        by_model, by_setting, gaps, gains, settings = (
            connection.sql(f"from {name}").to_arrow_table().to_pylist()
            for name in (*(f"majority_{mart}" for mart in marts), "settings")
        )
        frequent = connection.sql("from frequent_outputs order by is_adapted, n_outputs desc, text, prediction")
        outputs = frequent.to_arrow_table().to_pylist()
        gains = sorted(gains, key=row_order)
        adaptation = read_adaptation(connection, gains, place="instruction")
    return MajorityFindings(
        model=spec["name"],
        by_model=sorted(by_model, key=row_order),
        by_setting=sorted(by_setting, key=lambda row: (row_order(row), row["number"])),
        gaps=sorted(gaps, key=lambda row: (way_order(row), REGIONS.index(row["region"]))),
        gains=gains,
        adaptation=adaptation,
        settings=sorted(settings, key=lambda row: row["number"]),
        # Quoted, as spaces and line ends are part of an output.
        outputs=[{**row, "shown": json.dumps(row["text"], ensure_ascii=False)} for row in outputs],
        spec=spec,
        plan=json.loads(run.read_text("plan.json")) if run.has("plan.json") else {},
        environment=json.loads(run.read_text("environment.json")) if run.has("environment.json") else {},
    )


def f1_figures(findings: MajorityFindings) -> list[Figure]:
    """Return weighted F1 over the settings, with and without instruction, for each way of predicting and method.

    In a run with adapters each line has the same way and calibration, without and with LoRA.
    """
    ways = findings.ways()
    pairs = list(dict.fromkeys((predict, _without_lora(method)) for predict, method in ways))
    figures = []
    for line, pair in enumerate(pairs):
        beside = [(predict, method) for predict, method in ways if (predict, _without_lora(method)) == pair]
        by_way = {way: [row for row in findings.by_setting if (row["predict"], row["method"]) == way] for way in beside}
        for (predict, method), rows in by_way.items():
            name = f"f1_{predict}" if method == "none" else f"f1_{predict}_{method.replace('+', '_')}"
            compared = [row for others in by_way.values() for row in others]
            drawn = instruction_figures(name, way_name(predict, method), rows, findings.settings, compared=compared)
            figures += [replace(figure, line=line if findings.adaptation else 0) for figure in drawn]
    return figures


def _without_lora(method: str) -> str:
    return "none" if method == "lora" else method.removeprefix("lora+")


class Cell(NamedTuple):
    """A number of a table whose columns are instructions, grouped."""

    row: Row | None
    """What has the number and its interval; None where there is nothing."""
    metric: str
    is_marked: bool = False
    """Inside a robustness boundary that says something."""


def render_majority_page(findings: MajorityFindings, figures: Sequence[Figure], training: Sequence[Figure] = ()) -> str:
    """Return the HTML of the report; everything from the run is escaped.

    Args:
        findings: of the run.
        figures: of weighted F1.
        training: of the adapters' training.
    """
    ways = findings.ways()
    groups = [[way for way in ways if is_adapted(way[1]) is adapted] for adapted in (False, True)]
    return (
        page_templates()
        .get_template("majority.html.j2")
        .render(
            findings=findings,
            figures=figures,
            training=training,
            costs=[] if findings.adaptation is None else cost_groups(findings.adaptation, _place),
            summary=_summary(findings),
            caveats=_caveats(findings),
            way=way_name,
            instructions=INSTRUCTIONS,
            tables=[_setting_table(findings, group) for group in groups if group],
            environment={name: fact for name, fact in findings.environment.items() if name != "data"},
        )
    )


def _setting_table(
    findings: MajorityFindings, ways: Sequence[tuple[str, str]]
) -> tuple[list[tuple[str, list[str]]], list[tuple[str, list[Cell]]]]:
    """Return the columns and lines of the table of every setting, for these ways of predicting."""
    columns = [
        (way, [instruction for instruction in INSTRUCTIONS if _has(findings.by_model, way, instruction)])
        for way in ways
    ]
    lines = [
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
    ]
    return [(way_name(*way), [INSTRUCTIONS[one] for one in given]) for way, given in columns], lines


def setting_cells(rows: Sequence[Row], instructions: Sequence[bool], setting: str) -> list[Cell]:
    """Return the weighted F1 of a setting without and with instruction, as P2's Table 2 has it.

    Args:
        rows: of ``majority_over_seeds``, of one model, way of predicting and method.
        instructions: those that have a column.
        setting: the line of the table.
    """
    by_instruction = {row["instruction"]: row for row in rows if row["setting"] == setting}
    found = [by_instruction.get(instruction) for instruction in instructions]
    return [Cell(row, "weighted_f1", row is not None and row["is_marked"]) for row in found]


def no_label_caveats(rows: Sequence[Row]) -> list[str]:
    """Return a sentence for each way of predicting with many outputs that are no label; rows of majority_by_model."""
    shares: dict[str, float] = {}
    for row in rows:
        if row["has_many_without_label"]:
            shares[row["predict"]] = max(shares.get(row["predict"], 0.0), row["share_no_label"])
    return [
        f"Up to {share:.1%} of the outputs of {WAYS.get(predict, predict)} are no label and count as wrong; where most "
        "are, RB@10 is near 1 and says nothing of robustness."
        for predict, share in shares.items()
    ]


def full_name(row: Row) -> str:
    """Return a row's way of predicting, method and instruction, in words."""
    return f"{way_name(row['predict'], row['method'])}, {INSTRUCTIONS[row['instruction']]} instruction"


def _caveats(findings: MajorityFindings) -> list[str]:
    """Return what a reader must know before trusting the numbers, a sentence each."""
    sentences = no_label_caveats(findings.by_model)
    sentences += [
        f"{_capital(full_name(row))}: {row['share_most_frequent']:.1%} of the predictions are the same answer; RB@10 "
        f"near 1 is then no robustness, as the demonstrations change nothing. The best constant answer has a weighted "
        f"F1 of {row['constant_f1']:.3f} on these rows, this way {row['mean_f1']:.3f} on average."
        for row in findings.by_model
        if row["is_constant"]
    ]
    if coarse := [row for row in findings.by_model if not row["has_enough_rows"]]:
        every = (
            "every way of predicting" if len(coarse) == len(findings.by_model) else join(list(map(full_name, coarse)))
        )
        sentences.append(
            f"Too few test rows for RB@10 ({every}): the settings' 95 % intervals of weighted F1 reach, in the median, "
            "farther than the 10 points of the boundary to either side, so that chance decides which settings are "
            "inside it. No change of RB@10 is judged there."
        )
    if findings.adaptation is not None:
        sentences += training_caveats(findings.adaptation)
    return [*sentences, *findings.plan.get("notes", [])]


def _place(row: Row) -> str:
    return f"{way_name(row['predict'], 'none')}, {INSTRUCTIONS[row['instruction']]} instruction"


def _capital(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


def _has(rows: Sequence[Row], way: tuple[str, str], instruction: bool) -> bool:
    return any((row["predict"], row["method"]) == way and row["instruction"] is instruction for row in rows)


def _summary(findings: MajorityFindings) -> list[str]:
    """Return what the run found, in words: each way of predicting without and with LoRA, and what methods change."""
    sentences = []
    for row in findings.by_model:
        if row["method"] not in ("none", "lora"):
            continue
        inside = (
            f"{row['n_marked']} of {row['n_settings']} settings are within 10 points of the best weighted F1 "
            f"({row['max_f1']:.3f})"
        )
        if not row["n_marked"]:  # the best setting is within 10 points of itself
            inside = "RB@10 says nothing, as no answer is right or most outputs are no label"
        sentence = (
            f"{_capital(full_name(row))}: {inside}, mean {row['mean_f1']:.3f} (the best constant answer has "
            f"{row['constant_f1']:.3f})"
        )
        if row["share_majority"] is not None:
            sentence += (
                f"; {row['share_majority']:.1%} of predictions are the demonstrations' majority label (a constant "
                f"answer has up to {row['share_majority_of_constant']:.1%} on these settings)"
            )
        sentences.append(f"{sentence}.")
    return [*sentences, *_gains(findings), *_adaptation(findings)]


def _adaptation(findings: MajorityFindings) -> list[str]:
    """Return how the adapters were trained, and what all mitigation needed."""
    if findings.adaptation is None:
        return []
    # The same adapters serve every way of predicting, and likelihoods alone are calibrated.
    costs = findings.adaptation.costs
    once = [row for row in costs if row["predict"] == costs[0]["predict"]]
    return [training_sentence(findings.adaptation.training), cost_sentence(once)]


def _gains(findings: MajorityFindings) -> list[str]:
    """Return whether each method widens the robustness boundary, and whether performance rises with it."""
    sentences = []
    together: dict[str, list[str]] = {}
    for gain in findings.gains:
        after, before = (
            findings.of(gain["predict"], method, gain["instruction"]) for method in (gain["method"], "none")
        )
        way = "" if gain["predict"] == "likelihood" else f"{WAYS[gain['predict']]}, "
        verdict = "too few test rows to say whether it moves the boundary"
        if gain["has_enough_rows"]:
            verdict = _BOUNDARY_VERDICTS[gain["rb_at_10_sign"]]
        if is_adapted(gain["method"]) and gain["method"] != "lora":
            name = f"{method_name(gain['method'])} {INSTRUCTIONS[gain['instruction']]} instruction"
            together.setdefault(verdict, []).append(name)
            continue
        sentences.append(
            f"{method_name(gain['method'])}, {way}{INSTRUCTIONS[gain['instruction']]} instruction: "
            f"{verdict}, RB@10 {before['rb_at_10']:.3f} to {after['rb_at_10']:.3f} ({paired(gain, 'rb_at_10')}); mean "
            f"weighted F1 {_MEAN_VERDICTS[gain['mean_f1_sign']]}, {before['mean_f1']:.3f} to "
            f"{after['mean_f1']:.3f} ({signed(gain['mean_f1'])})."
        )
    if together:
        told = "; ".join(f"{verdict} ({join(names)})" for verdict, names in together.items())
        sentences.append(f"Calibration on top of LoRA, against neither: {told}.")
    return sentences
