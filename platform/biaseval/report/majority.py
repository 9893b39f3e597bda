"""The report of a majority-bias run: the verdict, P2's Tables 1 and 2, Figures 2 and 3, and what mitigation changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from biaseval.report.figures import Figure
from biaseval.report.findings import Row
from biaseval.report.ids import ids_of_ways
from biaseval.report.majority_findings import METRICS_OF_VERDICTS, MajorityFindings
from biaseval.report.majority_words import cautions, conclude, evidence, measured, mitigations, verdict_word
from biaseval.report.methods import is_adapted
from biaseval.report.mitigation import cost_groups
from biaseval.report.page import page_templates
from biaseval.report.proportions import instruction_figures
from biaseval.report.ways import INSTRUCTIONS, way_name

_N_FIRST = 6
"""Lines of the first table, without those of the same way of predicting that still belong there."""


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
            constant = findings.of(predict, method, rows[0]["instruction"])["constant_f1"]
            drawn = instruction_figures(
                name, way_name(predict, method), rows, findings.settings, compared=compared, constant=constant
            )
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
    first_names = {f"f1_{ways[0][0]}{given}" for given in ("", *(f"_{shown}" for shown in INSTRUCTIONS.values()))}
    n_first = _n_first(findings.by_model)
    return (
        page_templates()
        .get_template("majority.html.j2")
        .render(
            findings=findings,
            measured=measured(findings),
            conclusions=conclude(findings),
            caveats=cautions(findings),
            mitigations=mitigations(findings),
            first_figures=[figure for figure in figures if figure.name in first_names],
            figures=[figure for figure in figures if figure.name not in first_names],
            first_rows=findings.by_model[:n_first],
            further_rows=findings.by_model[n_first:],
            ids=[*ids_of_ways(ways), ("metric", METRICS_OF_VERDICTS)],
            training=training,
            costs=[] if findings.adaptation is None else cost_groups(findings.adaptation, _place),
            way=way_name,
            instructions=INSTRUCTIONS,
            metrics=METRICS_OF_VERDICTS,
            verdict=verdict_word,
            evidence=evidence,
            tables=[_setting_table(findings, group) for group in groups if group],
            environment={name: fact for name, fact in findings.environment.items() if name != "data"},
        )
    )


def _n_first(rows: Sequence[Row]) -> int:
    """Return how many rows the first table has: whole ways of predicting, and all if that leaves few out."""
    places = [(row["predict"], row["method"]) for row in rows]
    last = next((n for n in range(_N_FIRST, len(rows)) if places[n] != places[n - 1]), len(rows))
    return last if len(rows) > _N_FIRST + 2 else len(rows)


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


def _place(row: Row) -> str:
    return f"{way_name(row['predict'], 'none')}, {INSTRUCTIONS[row['instruction']]} instruction"


def _has(rows: Sequence[Row], way: tuple[str, str], instruction: bool) -> bool:
    return any((row["predict"], row["method"]) == way and row["instruction"] is instruction for row in rows)
