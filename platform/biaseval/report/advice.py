"""What follows from a label-bias run: its remedies by the strength of the evidence (``label_bias_remedies``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from biaseval.report.findings import METRICS, Findings, Row
from biaseval.report.summary import (
    MIN_UNITS,
    beside_constant,
    demonstrations,
    demos,
    join,
    numbers,
    p_value,
    remedy_name,
    scope_of_words,
    signed,
)


class Conclusion(NamedTuple):
    """A line of the verdict, with what stands below it."""

    lead: str
    text: str
    items: tuple[str, ...] = ()
    """A line each."""
    end: str = ""
    """Below these."""


_LEAD = "What to do"
_NOT_EACH_OTHER = "Remedies are compared with no remedy, not with each other."

_OTHERS, _THESE = "", "same_tasks_"
"""What the columns of the evidence begin with: that for other tasks like these, and that for these very tasks."""

_RISES = "bias falls, accuracy rises"
_OPEN = "bias falls, loss not ruled out"
_UNSHOWN = "not shown"
_WORSE = "do not use: bias rises or performance falls"

_TITLES = {
    _RISES: "{falls}, accuracy rises",
    "bias falls, no loss": "{falls}, no loss of accuracy beyond {least}",
    _OPEN: "{falls}, a loss of accuracy is not ruled out (band of all tests at once)",
    "bias falls, accuracy falls": "{falls}, accuracy or macro-F1 falls",
    "bias falls, not shown to be better than a constant answer": "{falls}, "
    "and the answers are not shown to be better than one label for all",
    "bias falls, no better than a constant answer": "{falls}, and the answers are no better than one label for all",
    "mixed": "One of RSD and BiasScore falls, the other rises",
    "bias rises": "Bias rises, and accuracy or macro-F1 rises",
    _UNSHOWN: "No change of bias is shown",
    _WORSE: "Do not use: bias rises, or accuracy or macro-F1 falls, and nothing is gained",
}
"""The column ``advice`` to the title of its line, in the order of lines."""

_FALLS = {"rsd and bias_score": "RSD and BiasScore fall", "rsd": "RSD falls", "bias_score": "Only BiasScore falls"}
"""The column ``bias_falls_in`` in words, in the order of lines."""

_BIASES, _PERFORMANCES = ("rsd", "bias_score"), ("accuracy", "macro_f1")


def advice(findings: Findings) -> list[Conclusion]:
    """Return the remedies by what is shown of them: on these tasks, then on others like them."""
    if not findings.remedies:
        if "imported" in findings.spec:
            return [Conclusion(_LEAD, "no remedy was measured; the scores are imported, without any that could be.")]
        return [Conclusion(_LEAD, "no remedy was measured; the spec's key calibration names some.")]
    scope = scope_of_words(findings)
    if not scope.has_words:
        return [Conclusion(_LEAD, f"measure {MIN_UNITS} rows or more; nothing can be recommended from these.")]
    items = _lines(findings, _THESE)
    others = ""
    if scope.n_tasks > 1:
        others = f"None of this is shown for other tasks; measure {MIN_UNITS} tasks or more. "
    if scope.has_words_for_others:
        every = _lines(findings, _OTHERS)
        shown = [line for line in every if not line.startswith(_TITLES[_UNSHOWN])]
        others = "No change of bias is shown for other tasks like these. "
        if shown and every == items:
            others = "All of this is shown for other tasks like these, too. "
        elif shown:
            others = ""
            items += [f"For other tasks like these: {line}" for line in _lowered(shown)]
    return [Conclusion(_LEAD, f"on {scope.these}:", tuple(items), f"{others}{_NOT_EACH_OTHER}")]


def _lowered(lines: Sequence[str]) -> list[str]:
    """Return lines that go on behind a colon, names in capitals as they are."""
    return [line if line.startswith("RSD") else f"{line[0].lower()}{line[1:]}" for line in lines]


def _lines(findings: Findings, side: str) -> list[str]:
    """Return a line per advice on remedies, and what of bias falls."""
    groups: dict[tuple[str, str | None], list[Row]] = {}
    for row in findings.remedies:
        advised = row[f"{side}advice"]
        falls_in = row[f"{side}bias_falls_in"] if "{falls}" in _TITLES[advised] else None
        groups.setdefault((advised, falls_in), []).append(row)
    least = f"{_verdict(findings, findings.remedies[0], 'accuracy')['least_effect']:g}"
    lines = []
    for advised, title in _TITLES.items():
        for falls_in in (*_FALLS, None):
            if rows := groups.get((advised, falls_in)):
                shown = title.format(falls=_FALLS.get(falls_in or ""), least=least)
                lines.append(f"{shown}: {_named(rows, findings, advised, side)}.")
    return lines


def _verdict(findings: Findings, row: Row, metric: str) -> Row:
    return findings.verdicts[row["n_demos"], row["method"], row["against_n_demos"], row["against_method"]][metric]


def _named(remedies: Sequence[Row], findings: Findings, advised: str, side: str) -> str:
    """Return remedies with the numbers of demonstrations of each, and what else is shown of it there."""
    places: dict[str, list[Row]] = {}
    for row in remedies:
        name = "more demonstrations" if row["method"] == "none" else remedy_name(row, findings)
        places.setdefault(name, []).append(row)
    named: list[str] = []
    for name, rows in places.items():
        noted: dict[str, list[int]] = {}
        for row in rows:
            noted.setdefault(_note(row, findings, advised, side), []).append(row["n_demos"])
        told: list[str] = []
        for note, each in noted.items():
            what = "" if named or told else f" {demonstrations(each[-1])}"
            told.append(f"{numbers(each)}{what}{f': {note}' if note else ''}")
        baseline = f", compared with {rows[0]['against_n_demos']}" if rows[0]["method"] == "none" else ""
        named.append(f"{name} ({'; '.join(told)}{baseline})")
    return join(named)


def _note(row: Row, findings: Findings, advised: str, side: str) -> str:
    """Return what is shown of a remedy beside the title of its line: what speaks against it, or for it."""
    notes = [_band(findings, row, side)] if advised == _OPEN else []
    asked = [(_BIASES, "higher", "rise"), (_PERFORMANCES, "higher", "rise"), (_PERFORMANCES, "lower", "fall")]
    for metrics, word, verb in asked[:1] if advised == _RISES else asked:
        found = [METRICS[metric] for metric in metrics if row[f"{metric}_{side}verdict"] == word]
        if found:
            notes.append(f"{join(found)} {verb}{'s' if len(found) == 1 else ''}")
    is_worth_it = advised != _WORSE and (notes or advised != _UNSHOWN)
    constants = [(row["accuracy"], row["majority_accuracy"]), (row["macro_f1"], row["majority_macro_f1"])]
    if is_worth_it and any(value is not None and value <= constant for value, constant in constants):
        notes.append(beside_constant(row))
    mean = findings.mean(row["n_demos"], row["method"])
    if is_worth_it and mean is not None and mean["n_demo_sets"] > 1 and (n := mean["n_demo_sets_not_above"]):
        n_all, what = (
            mean["n_demo_sets"] * mean["n_tasks"],
            "pairs of a task and a set" if mean["n_tasks"] > 1 else "sets",
        )
        notes.append(f"no better than one label for all in {n:,} of {n_all:,} {what} of demonstrations")
    return ", ".join(notes)


def _band(findings: Findings, row: Row, side: str) -> str:
    verdict = _verdict(findings, row, "accuracy")
    low, high = verdict[f"{side}simultaneous_low"], verdict[f"{side}simultaneous_high"]
    if low is None:
        return "not bounded"
    if low == high:  # nothing differs, of so few units that some may (the macro verdict)
        return f"none in {verdict['n_units']:,} {verdict['unit']}, too few to exclude one"
    return f"{signed(low)} to {signed(high)}"


def closest(findings: Findings) -> str:
    """Return, behind a semicolon, what is closest to a word for other tasks; nothing where no difference has a p."""
    rows = [
        row
        for place, by_metric in findings.verdicts.items()
        for metric in ("rsd", "accuracy", "macro_f1")  # what is closest of BiasScore may be noise alone
        if place[3] == "none"
        and (row := by_metric[metric])["verdict"] == "unclear"
        and row["word_p_adjusted"] is not None
        and row["estimate"]
    ]
    if not rows:
        return ""
    least = min(row["word_p_adjusted"] for row in rows)
    first, *others = [row for row in rows if row["word_p_adjusted"] <= least + _TIE]
    if others:
        return f"; the closest are {len(others) + 1} differences of adjusted {p_value(least)}"
    direction = "lower" if first["estimate"] < 0 else "higher"
    place = remedy_name(first, findings)
    if first["method"] != "none":
        place += f", {demos(first['n_demos'])}"
    return (
        f"; the closest is {METRICS[first['metric']]} with {place}: {direction} in {first[f'n_tasks_{direction}']} of "
        f"{first['n_tasks']} tasks on their own, adjusted {p_value(least)}"
    )


_TIE = 1e-9
"""Values of p that differ by less are the same: shares of the same patterns of signs."""
