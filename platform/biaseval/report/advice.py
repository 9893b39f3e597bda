"""What follows from a label-bias run: its remedies by the strength of the evidence (``label_bias_remedies``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from biaseval.report.findings import METRICS, Findings, Row
from biaseval.report.summary import (
    MIN_UNITS,
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

_RISES = "Bias falls and accuracy rises"
_NO_LOSS = "{falls}, no loss of accuracy beyond {least}"
_OPEN = "{falls}, a loss of accuracy is not ruled out (band of all tests at once)"
_MIXED = "One of RSD and BiasScore falls, the other rises"
_UNSHOWN = "No change of bias is shown"
_USELESS = "Do not use, as accuracy is below the majority class, or the answers are nearly all the same"
_WORSE = "Do not use, as bias rises, or accuracy or macro-F1 falls"
_BIASES, _PERFORMANCES = ("rsd", "bias_score"), ("accuracy", "macro_f1")
_RSD, _BIAS_SCORE = "RSD falls", "Only BiasScore falls"

_ORDER = (
    (_RISES, _RSD),
    (_NO_LOSS, _RSD),
    (_NO_LOSS, _BIAS_SCORE),
    (_OPEN, _RSD),
    (_OPEN, _BIAS_SCORE),
    (_MIXED, ""),
    (_UNSHOWN, ""),
    (_USELESS, ""),
    (_WORSE, ""),
)
"""The strengths of evidence, with what falls, in the order of lines."""


def advice(findings: Findings) -> list[Conclusion]:
    """Return the remedies by what is shown of them: on these tasks, then on others like them."""
    if not findings.remedies:
        return [Conclusion(_LEAD, "no remedy was measured; the spec's key calibration names some.")]
    scope = scope_of_words(findings)
    if not scope.has_words:
        return [Conclusion(_LEAD, f"measure {MIN_UNITS} rows or more; nothing can be recommended from these.")]
    items = _lines(findings, _THESE)
    others = ""
    if scope.n_tasks > 1:
        others = f"None of this is shown for other tasks; measure {MIN_UNITS} tasks or more. "
    if scope.has_words_for_others:
        shown = _lines(findings, _OTHERS)
        others = "None of this is shown for other tasks like these. "
        if shown == items:
            others = "All of this is shown for other tasks like these, too. "
        elif shown := [line for line in shown if not line.startswith(_UNSHOWN)]:
            others = ""
            items += [f"For other tasks like these: {line}" for line in _lowered(shown)]
    return [Conclusion(_LEAD, f"on {scope.these}:", tuple(items), f"{others}{_NOT_EACH_OTHER}")]


def _lowered(lines: Sequence[str]) -> list[str]:
    """Return lines that go on behind a colon, names in capitals as they are."""
    return [line if line.startswith("RSD") else f"{line[0].lower()}{line[1:]}" for line in lines]


def _lines(findings: Findings, side: str) -> list[str]:
    """Return a line per strength of evidence that remedies have."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in findings.remedies:
        groups.setdefault(_strength(row, side), []).append(row)
    least = f"{_verdict(findings, findings.remedies[0], 'accuracy')['least_effect']:g}"
    lines = []
    for strength in _ORDER:
        if strength in groups:
            title, falls = strength
            named = _named(groups[strength], findings, title, side)
            lines.append(f"{title.format(falls=falls, least=least)}: {named}.")
    return lines


def _strength(row: Row, side: str) -> tuple[str, str]:
    """Return of which strength the evidence for a remedy is, as in `_ORDER`."""
    evidence, falls_in = row[f"{side}evidence"], row[f"{side}bias_falls_in"]
    words = [row[f"{metric}_{side}verdict"] for metric in _PERFORMANCES]
    if "lower" in words or evidence == "bias rises":
        return (_WORSE, "")
    if falls_in and (row["is_below_majority"] or row["n_tasks_constant"] == row["n_tasks"]):
        return (_USELESS, "")
    if evidence == "mixed":
        return (_MIXED, "")
    if evidence == "bias falls, accuracy rises":
        return (_RISES, _RSD)
    falls = _BIAS_SCORE if falls_in == "bias_score" else _RSD
    if evidence == "bias falls, no loss":
        return (_NO_LOSS, falls)
    if evidence == "bias falls, loss not ruled out":
        return (_OPEN, falls)
    return (_UNSHOWN, "")


def _verdict(findings: Findings, row: Row, metric: str) -> Row:
    return findings.verdicts[row["n_demos"], row["method"], row["against_n_demos"], row["against_method"]][metric]


def _named(remedies: Sequence[Row], findings: Findings, title: str, side: str) -> str:
    """Return remedies with the numbers of demonstrations of each, and what else is shown of it there."""
    places: dict[str, list[Row]] = {}
    for row in remedies:
        name = "more demonstrations" if row["method"] == "none" else remedy_name(row, findings)
        places.setdefault(name, []).append(row)
    named: list[str] = []
    for name, rows in places.items():
        noted: dict[str, list[int]] = {}
        for row in rows:
            noted.setdefault(_note(row, findings, title, side), []).append(row["n_demos"])
        told: list[str] = []
        for note, each in noted.items():
            what = "" if named or told else f" {demonstrations(each[-1])}"
            told.append(f"{numbers(each)}{what}{f': {note}' if note else ''}")
        baseline = f", compared with {rows[0]['against_n_demos']}" if rows[0]["method"] == "none" else ""
        named.append(f"{name} ({'; '.join(told)}{baseline})")
    return join(named)


def _note(row: Row, findings: Findings, title: str, side: str) -> str:
    """Return what is shown of a remedy beside the title of its line: what speaks against it, or for it."""
    if title == _RISES:
        return ""
    asked = [(_PERFORMANCES, "higher", "rise")]
    if title in (_WORSE, _USELESS):
        asked = [(_BIASES, "higher", "rise"), (_PERFORMANCES, "lower", "fall")]
    notes = [_band(findings, row, side)] if title == _OPEN else []
    for metrics, word, verb in asked:
        found = [METRICS[metric] for metric in metrics if row[f"{metric}_{side}verdict"] == word]
        if found:
            notes.append(f"{join(found)} {verb}{'s' if len(found) == 1 else ''}")
    return ", ".join(notes)


def _band(findings: Findings, row: Row, side: str) -> str:
    verdict = _verdict(findings, row, "accuracy")
    low, high = verdict[f"{side}simultaneous_low"], verdict[f"{side}simultaneous_high"]
    return "not bounded" if low is None else f"{signed(low)} to {signed(high)}"


def closest(findings: Findings) -> str:
    """Return, behind a semicolon, which difference is closest to a word for other tasks; nothing where none has a p."""
    rows = [
        (row["word_p_adjusted"], number, -abs(row["estimate"]), row)
        for place, by_metric in findings.verdicts.items()
        for number, metric in enumerate(("rsd", "bias_score", "accuracy", "macro_f1"))
        if place[3] == "none"
        and (row := by_metric[metric])["verdict"] == "unclear"
        and row["word_p_adjusted"] is not None
        and row["estimate"]
    ]
    if not rows:
        return ""
    *_, row = min(rows, key=lambda each: each[:3])
    direction = "lower" if row["estimate"] < 0 else "higher"
    place = remedy_name(row, findings)
    if row["method"] != "none":
        place += f", {demos(row['n_demos'])}"
    return (
        f"; the closest is {METRICS[row['metric']]} with {place}: {direction} in {row[f'n_tasks_{direction}']} of "
        f"{row['n_tasks']} tasks on their own, adjusted {p_value(row['word_p_adjusted'])}"
    )
