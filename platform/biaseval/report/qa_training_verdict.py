"""What debiasing gains and costs, in one sentence: how many readers' intervals exclude 0."""

from __future__ import annotations

from collections.abc import Sequence

from biaseval.report.findings import Row
from biaseval.report.qa_findings import QaFindings
from biaseval.report.qa_training_cells import direction, estimate
from biaseval.report.qa_training_data import Block, QaTraining
from biaseval.report.qa_training_names import BIAS_MODEL, MEAN
from biaseval.report.qa_training_words import addressed_rows, reader_label
from biaseval.report.summary import Line, counted, join

_N_NAMED = 2
"""Readers that the sentence names."""


def debiasing(findings: QaFindings, training: QaTraining) -> list[Line]:
    """Return what debiased readers gain and lose against the standard readers; how many there are, where none is."""
    readers = [row for row in training.readers if row["method"] != BIAS_MODEL]
    n_given_up = sum(row["problem"] is not None for row in readers)
    trained = f"{counted(len(readers), 'reader')} trained{f', {n_given_up} given up' if n_given_up else ''}"
    told = [sentence for dataset in findings.in_distribution if (sentence := _changes(findings, training, dataset))]
    return [Line("Debiasing" if told else "Readers", f"{'. '.join([*told, trained])}.")]


def _changes(findings: QaFindings, training: QaTraining, dataset: str) -> str:
    labels: dict[str, str] = {}
    rows: list[Row] = []
    for block in training.blocks:
        for method in block.methods:
            for row in addressed_rows(training, block, dataset, method):
                labels[row["model"]] = _label(training, block, row)
                rows.append(row)
    if not rows:
        return ""
    whole = [row for row in rows if not row["is_nearly_broken"]]
    fallen = [row for row in whole if direction(row, "significance_change") == "lower"]
    risen = [row for row in whole if direction(row, "significance_change") == "higher"]
    named = [f"{labels[row['model']]} {estimate(row, 'significance_change')}" for row in _largest(fallen)]
    more = len(fallen) - len(named)
    names = f" ({', '.join([*named, *([f'{more} more'] if more else [])])})" if fallen else ""
    n_broken = len(rows) - len(whole)
    broken = f"; {n_broken} are nearly broken (the worse group falls by a third)" if n_broken else ""
    gain = (
        f"on {dataset}, the significance of the bias that a reader addresses falls in {len(fallen) or 'none'} of "
        f"{len(rows)}{names} and rises in {len(risen) or 'none'}{broken}"
    )
    models = [row["model"] for row in rows]
    fallen_models = [row["model"] for row in fallen]
    places = [(f"on {dataset}", dataset)]
    sets = findings.out_of_distribution
    if sets:
        places.append((f"elsewhere (mean of {len(sets)} sets)" if len(sets) > 1 else f"on {sets[0]}", _other(sets)))
    costs = [f"{name} {_counted(training, models, fallen_models, place)}" for name, place in places]
    return f"{gain}. F1 {'; '.join(costs)}"


def _counted(training: QaTraining, models: Sequence[str], fallen: Sequence[str], place: str) -> str:
    """Return in how many readers F1 falls and rises at a place, and in how many of those whose bias fell."""

    def sort(names: Sequence[str], wanted: str) -> int:
        rows = [training.elsewhere.get((model, place)) for model in names]
        return sum(row is not None and direction(row, "f1_change") == wanted for row in rows)

    told = _falls_and_rises(sort(models, "lower"), sort(models, "higher"))
    if len(fallen) in (0, len(models)) or told == _NOWHERE:
        return told
    return f"{told} (of those {len(fallen)}, {_falls_and_rises(sort(fallen, 'lower'), sort(fallen, 'higher'))})"


_NOWHERE = "changes in none"


def _falls_and_rises(n_fallen: int, n_risen: int) -> str:
    told = [f"{word} in {size}" for word, size in (("falls", n_fallen), ("rises", n_risen)) if size]
    return join(told) if told else _NOWHERE


def _other(sets: Sequence[str]) -> str:
    return MEAN if len(sets) > 1 else sets[0]


def _largest(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row["significance_change"])[:_N_NAMED]


def _label(training: QaTraining, block: Block, row: Row) -> str:
    label = reader_label(block, row)
    return label if len(training.blocks) == 1 else f"{block.name} {label}"
