"""What follows from a QA-bias run, in one to three sentences that go by tests alone."""

from __future__ import annotations

from biaseval.report.findings import Row
from biaseval.report.qa_findings import QaFindings
from biaseval.report.qa_summary import has_few_right
from biaseval.report.qa_training_cells import number
from biaseval.report.qa_training_data import Block, QaTraining
from biaseval.report.qa_training_names import MEAN
from biaseval.report.qa_training_words import addressed_rows, reader_label
from biaseval.report.summary import Line, counted, join

_N_NAMED = 3
"""Models, biases or readers that a sentence names."""

_KEPT = ("higher", "negligible")
"""Verdicts on F1 by which it is not lost."""


def advise(findings: QaFindings, training: QaTraining | None) -> list[Line]:
    """Return what to do; nothing where no set is in distribution."""
    if not findings.in_distribution:
        return []
    stuck = [
        model
        for model in findings.models
        if any(_is_stuck(findings, model, dataset) for dataset in findings.in_distribution)
    ]
    told = [f"first mend {_some(stuck)}, which nearly always gives the same answer."] if len(stuck) == 1 else []
    if len(stuck) > 1:
        told = [f"first mend {_some(stuck)}, which nearly always give the same answer."]
    tests, few = [], dict[str, None]()
    for (model, dataset, _), row in findings.tests.items():
        if dataset not in findings.in_distribution or _is_stuck(findings, model, dataset):
            continue
        if has_few_right(findings, model, dataset) and not row["is_supported"]:
            few[model] = None
        else:
            tests.append(row)
    if few:
        told.append(
            f"Nothing can be told of {_some(list(few))} before more answers are right: train on, or take another."
        )
    told += _of_biases(findings, tests, is_trained=training is not None)
    told += _of_readers(findings, training) if training is not None else []
    text = " ".join(told)
    return [Line("What to do", f"{text[0].lower()}{text[1:]}")] if text else []


def _is_stuck(findings: QaFindings, model: str, dataset: str) -> bool:
    row = findings.by_dataset.get((model, dataset))
    return bool(row and row["is_constant"])


def _of_biases(findings: QaFindings, tests: list[Row], *, is_trained: bool) -> list[str]:
    tested = [row for row in tests if row["is_supported"] is not None]
    found = {row["heuristic"] for row in tested if row["is_supported"]}
    if found:
        names = _some([name for name in findings.heuristics if name in found])
        debias = "" if is_trained else "; a reader of your own can be trained against it (train.methods in a spec)"
        return [f"Look at the examples of {names}; measure on a set where that shortcut does not lead{debias}."]
    if tested:
        noise = [row["null_high"] for row in tested]
        least, most = number(min(noise)), number(max(noise))
        reach = least if least == most else f"{least} to {most}"
        search = f": noise alone reaches {reach} points, depending on the heuristic"
        return [
            f"No bias is shown, but the model may still have one{search if max(noise) else ''}{_detectable(tested)}. "
            "More questions would show smaller ones."
        ]
    if any(row["bias_significance"] is not None for row in tests):
        return ["Measure this run again: its biases were not tested."]
    sample = findings.spec["bootstrap"]["sample"]
    return [f"Measure more questions: each group needs {sample:,} of them."] if tests else []


def _detectable(tests: list[Row]) -> str:
    """Return behind a semicolon which significances single tests would mostly find; nothing where that is not known."""
    found = [row["smallest_detectable"] for row in tests if row["smallest_detectable"]]
    if not found:
        return ""
    least, most = number(min(found)), number(max(found))
    return f"; four of five such runs find {least if least == most else f'{least} to {most}'} points"


def _of_readers(findings: QaFindings, training: QaTraining) -> list[str]:
    """Return which debiased readers rely less on their bias without a loss of F1, as far as tests show it."""
    rows = [
        (block, row)
        for dataset in findings.in_distribution
        for block in training.blocks
        for method in block.methods
        for row in addressed_rows(training, block, dataset, method)
    ]
    if not rows:
        return []
    fallen = [(block, row) for block, row in rows if row["verdict"] == "lower" and not row["is_nearly_broken"]]
    if not fallen:
        return ["No debiased reader is shown to rely less on its bias: prefer none of them for that."]
    kept = list(dict.fromkeys(_name(training, block, row) for block, row in fallen if _keeps(findings, training, row)))
    seeds = "" if any(len(block.seeds) > 1 for block in training.blocks) else " Train other seeds before you choose."
    if not kept:
        return [
            f"Of {counted(len(fallen), 'reader')} whose bias falls, none is shown to keep its F1 within a point "
            f"everywhere: weigh both.{seeds}"
        ]
    return [f"Bias falls, and F1 is shown not to fall by a point, in {_some(kept)}.{seeds}"]


def _keeps(findings: QaFindings, training: QaTraining, row: Row) -> bool:
    outside = findings.out_of_distribution
    places = [row["dataset"], *([MEAN if len(outside) > 1 else outside[0]] if outside else [])]
    own = [training.elsewhere.get((row["model"], place)) for place in places]
    return all(one is not None and one["f1_verdict"] in _KEPT for one in own)


def _name(training: QaTraining, block: Block, row: Row) -> str:
    label = reader_label(block, row)
    return label if len(training.blocks) == 1 else f"{block.name} {label}"


def _some(names: list[str]) -> str:
    more = len(names) - _N_NAMED
    return join([*names[:_N_NAMED], f"{more} more"] if more > 0 else names)
