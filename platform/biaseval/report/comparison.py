"""The report over several majority-bias runs: P2's Tables 1 and 2, Figures 2 and 3, and the effect of model size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from biaseval.report.comparison_data import Comparison, DataSet, column_name
from biaseval.report.comparison_words import caveats, count, gain_sentences, scope_sentence, sentences
from biaseval.report.figures import Figure
from biaseval.report.findings import Row
from biaseval.report.ids import ids_of_ways
from biaseval.report.majority import Cell, setting_cells
from biaseval.report.methods import is_adapted
from biaseval.report.page import page_templates
from biaseval.report.proportions import Series, instruction_figures, line_figure
from biaseval.report.ways import INSTRUCTIONS, row_order, way_name, ways_of

_METRICS = {"rb_at_10": "RB@10", "mean_f1": "weighted F1", "sd_f1": "std"}
"""The lines that each data set has in P2's Table 1."""
_EFFECTS = {**_METRICS, "tails_f1": "F1 at the tails", "middle_f1": "F1 in the middle"}


def render_comparison_page(comparison: Comparison) -> str:
    """Return the HTML of the page; everything from the runs is escaped."""
    return page_templates().get_template("comparison.html.j2").render(**comparison_content(comparison))


def comparison_content(comparison: Comparison) -> dict[str, Any]:
    """Return what the templates of the page are given."""
    ways = [_way(comparison, number, *way) for number, way in enumerate(ways_of(comparison.by_model))]
    return {
        "comparison": comparison,
        "summary": [scope_sentence(comparison), *ways[0]["sentences"], *gain_sentences(comparison)],
        "caveats": caveats(comparison),
        "ways": ways,
        "runs": _runs(comparison),
        "effects": _EFFECTS,
        "instructions": INSTRUCTIONS,
        "ids": [*ids_of_ways(ways_of(comparison.by_model)), ("metric", _EFFECTS)],
        "has_adapters": any(is_adapted(row["method"]) for row in comparison.by_model),
    }


def comparison_figures(comparison: Comparison) -> list[Figure]:
    """Return P2's Figures 2 and 3 over the runs, of every way of predicting."""
    ways = comparison_content(comparison)["ways"]
    panels = [panel for way in ways for panel in way["figures"]]
    return [figure for panel in panels for figure in (*panel["by_model"], *panel["by_instruction"])]


def _way(comparison: Comparison, number: int, predict: str, method: str) -> Row:
    """Return the tables and figures of one way of predicting."""

    def chosen(rows: Iterable[Row], runs: set[str]) -> list[Row]:
        return [row for row in rows if row["run"] in runs and (row["predict"], row["method"]) == (predict, method)]

    every = chosen(comparison.by_model, {run for model in comparison.models for run in model.runs})
    given = [instruction for instruction in INSTRUCTIONS if any(row["instruction"] is instruction for row in every)]
    figures: list[Row] = []
    tables: list[Row] = []
    overview = []
    for at, dataset in enumerate(comparison.datasets):
        by_run = {model.name: comparison.of(model, dataset) for model in comparison.models}
        rows = {name: chosen(comparison.by_model, runs) for name, runs in by_run.items()}
        if not any(rows.values()):
            continue
        points = {name: chosen(comparison.by_setting, runs) for name, runs in by_run.items()}
        counts = _counts([row for of_run in rows.values() for row in of_run])
        overview.append(
            (
                f"{dataset.name} ({counts})",
                [
                    (shown, [_cell(rows[name], metric, one) for name in rows for one in given])
                    for metric, shown in _METRICS.items()
                ],
            )
        )
        settings = [row["setting"] for row in dataset.settings]
        lines = [
            (setting, [cell for name in points for cell in setting_cells(points[name], given, setting)])
            for setting in settings
        ]
        tables.append({"dataset": dataset, "lines": lines, "counts": counts})
        prefix = f"f1_{number}_{at}"
        figures.append({"dataset": dataset, **_figures(prefix, dataset, points, given)})
    columns = [(column_name(model), [INSTRUCTIONS[one] for one in given]) for model in comparison.models]
    return {
        "name": way_name(predict, method),
        "where": f"predict = '{predict}' and method = '{method}'",
        "columns": columns,
        "overview": overview,
        "tables": tables,
        "figures": figures,
        "effects": (effects := _effects(comparison, predict, method)),
        "sentences": sentences(comparison, predict, method, every, effects),
    }


def _counts(rows: Sequence[Row]) -> str:
    """Return how many settings, seeds and test rows are behind rows of ``majority_by_model``, in words."""
    numbers = {
        "setting": {row["n_settings"] for row in rows},
        "seed": {row["n_seeds"] for row in rows},
        "test row": {row["n_test_rows"] for row in rows},
    }
    return ", ".join(
        f"{low:,} to {high:,} {thing}s" if (low := min(found)) < (high := max(found)) else count(low, thing)
        for thing, found in numbers.items()
    )


def _runs(comparison: Comparison) -> list[Row]:
    """Return a line for each run, with its model and data, by data set and model."""
    lines = []
    for dataset in comparison.datasets:
        for model in comparison.models:
            for run in sorted(comparison.of(model, dataset)):
                measured = next(row for row in comparison.by_model if row["run"] == run)
                counts = {"n_settings": measured["n_settings"], "n_seeds": measured["n_seeds"]}
                place = {"run": run, "model": model, "dataset": dataset, "n_demos": measured["n_demos"]}
                lines.append({**place, **counts, "n_test": measured["n_test_rows"]})
    return lines


def _cell(rows: Sequence[Row], metric: str, instruction: bool) -> Cell:
    return Cell(next((row for row in rows if row["instruction"] is instruction), None), metric)


def _figures(prefix: str, dataset: DataSet, points: dict[str, list[Row]], given: Sequence[bool]) -> Row:
    """Return P2's Figure 2 (a line per model; none where settings have no order) and Figure 3 (a panel per model)."""
    measured = {name: rows for name, rows in points.items() if rows}
    by_model: list[Figure] = []
    if len(dataset.settings[0]["labels"]) == 2:
        for instruction in given:
            series = [
                Series(name, [row for row in rows if row["instruction"] is instruction])
                for name, rows in measured.items()
            ]
            title = f"{dataset.name}, {INSTRUCTIONS[instruction]} instruction"
            panel = f"{prefix}_{INSTRUCTIONS[instruction]}"
            by_model.append(line_figure(panel, title, [one for one in series if one.rows], dataset.settings))
    by_instruction = [
        figure
        for number, (name, rows) in enumerate(measured.items())
        for figure in instruction_figures(
            f"{prefix}_model{number}",
            name,
            rows,
            dataset.settings,
            compared=[row for others in measured.values() for row in others],
        )
    ]
    return {"by_model": by_model, "by_instruction": by_instruction}


def _effects(comparison: Comparison, predict: str, method: str) -> list[Row]:
    """Return the rows of the effect of size with the names of models and data, from the smallest model on."""
    rows = []
    n_seeds = {row["run"]: row["n_seeds"] for row in comparison.by_model}
    for at, dataset in enumerate(comparison.datasets):
        for number, model in enumerate(comparison.models):
            for row in comparison.effects:
                if row["run"] in comparison.of(model, dataset) and (row["predict"], row["method"]) == (predict, method):
                    larger = next(other for other in comparison.models if row["larger_run"] in other.runs)
                    shown = {"dataset": dataset.name, "smaller": column_name(model), "larger": column_name(larger)}
                    seeds = sorted({n_seeds[row["run"]], n_seeds[row["larger_run"]]})
                    counts = {"n_settings": len(dataset.settings), "n_seeds": " to ".join(map(str, seeds))}
                    rows.append({**row, **shown, **counts, "order": (at, number)})
    return sorted(rows, key=lambda row: (*row["order"], row["larger"], row_order(row)))
