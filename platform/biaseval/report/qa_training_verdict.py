"""What debiasing gains and costs, in one sentence: in how many readers a test over the whole page shows a change."""

from __future__ import annotations

from collections.abc import Sequence

from biaseval.report.findings import Row
from biaseval.report.qa_findings import QaFindings
from biaseval.report.qa_training_cells import estimate
from biaseval.report.qa_training_data import Block, QaTraining
from biaseval.report.qa_training_names import BIAS_MODEL, MEAN
from biaseval.report.qa_training_words import addressed_rows, reader_label, searched
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
    tested = [row for row in whole if row["verdict"]]
    places = [(f"on {dataset}", dataset)]
    sets = findings.out_of_distribution
    if sets:
        places.append((f"elsewhere (mean of {len(sets)} sets)" if len(sets) > 1 else f"on {sets[0]}", _other(sets)))
    models = [row["model"] for row in rows]
    costs = [f"{name} {_answers(training, models, place)}" for name, place in places]
    bias = _bias(tested, labels) if tested else "cannot be tested in any whole reader"
    return (
        f"on {dataset}, the significance of the bias that a reader addresses {bias}"
        f"{_left_out(rows, whole, tested)}{searched(tested, 'falls')}{_steps(training, rows, labels)}. "
        f"F1 of {_the(len(models))}: {'; '.join(costs)}"
    )


def _bias(tested: Sequence[Row], labels: dict[str, str]) -> str:
    """Return in how many of the readers that were tested the verdict is lower or higher."""
    lower = [row for row in tested if row["verdict"] == "lower"]
    higher = [row for row in tested if row["verdict"] == "higher"]
    named = [f"{labels[row['model']]} {estimate(row, 'significance_change')}" for row in _largest(lower)]
    more = len(lower) - len(named)
    names = f" ({', '.join([*named, *([f'{more} more'] if more else [])])})" if lower else ""
    if not lower and not higher:
        return f"is shown to change in none of {len(tested)}"
    return f"falls in {len(lower) or 'none'} of {len(tested)}{names} and rises in {len(higher) or 'none'}"


def _left_out(rows: Sequence[Row], whole: Sequence[Row], tested: Sequence[Row]) -> str:
    """Return which readers are not among those that are counted."""
    n_broken, n_untested = len(rows) - len(whole), len(whole) - len(tested)
    told = [
        *([f"{n_broken} that {_is(n_broken)} nearly broken"] if n_broken else []),
        *([f"{n_untested} that cannot be tested"] if n_untested and tested else []),
    ]
    return f" (besides {join(told)})" if told else ""


def _steps(training: QaTraining, rows: Sequence[Row], labels: dict[str, str]) -> str:
    """Return behind a semicolon which readers made another number of steps than the standard reader of each."""
    readers = {row["model"]: row for row in training.readers}
    told = []
    for row in rows:
        own = readers[row["model"]]
        standard = readers.get(own["standard"])
        if standard is not None and own["steps"] != standard["steps"]:
            told.append(f"{labels[row['model']]} {own['steps']:,} (the standard reader {standard['steps']:,})")
    if not told:
        return ""
    more = len(told) - _N_NAMED
    named = join([*told[:_N_NAMED], f"{more} more"] if more > 0 else told)
    return f"; other numbers of training steps: {named}"


def _answers(training: QaTraining, models: Sequence[str], place: str) -> str:
    """Return in how many readers F1 falls and rises at a place."""
    rows = [row for model in models if (row := training.elsewhere.get((model, place))) and row["f1_verdict"]]
    if not rows:
        return "not tested"
    told = [
        f"{word} in {size}"
        for word, verdict in (("falls", "lower"), ("rises", "higher"))
        if (size := sum(row["f1_verdict"] == verdict for row in rows))
    ]
    return join(told) if told else "shown to change in none"


def _is(size: int) -> str:
    return "is" if size == 1 else "are"


def _the(size: int) -> str:
    return "the reader" if size == 1 else f"all {size}"


def _other(sets: Sequence[str]) -> str:
    return MEAN if len(sets) > 1 else sets[0]


def _largest(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row["significance_change"])[:_N_NAMED]


def _label(training: QaTraining, block: Block, row: Row) -> str:
    label = reader_label(block, row)
    return label if len(training.blocks) == 1 else f"{block.name} {label}"
