"""What a comparison of runs says, in words: places, metrics, verdicts, and what runs do not share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from biaseval.analysis.compared_kinds import KINDS
from biaseval.analysis.comparing import Compared
from biaseval.report.compare_kinds import COMPARED_KINDS, Place, count, some
from biaseval.report.findings import Row
from biaseval.report.summary import BESIDE_CONSTANT, join, signed

VERDICTS = {
    "higher": "higher",
    "lower": "lower",
    "negligible": "negligible",
    "unclear": "not told apart",
    "too few": "too few units",
    None: "not measured",
}
"""What the words of the macro ``verdict`` are on pages."""

_NOT_JUDGED = {None: "not judged", "too few": "not judged"}
"""What they are where a reason stands behind them."""

TOLD_APART = ("higher", "lower")
"""The verdicts that say that two runs differ."""

_LEVEL = 0.05
"""At which differences are told from 0 (the macro ``verdict``)."""

_N_SHOWN = 6
"""Differences that a sentence lists."""

PARTNERS = ("relative_variance", "squared_preference")
"""Metrics whose word is that of RSD or BiasScore (``all_partners``): tables have it, sentences do not repeat it."""


def metric_name(kind: str, row: Row) -> str:
    """Return what a metric is called, with the heuristic that it is of and where that splits the questions."""
    name = COMPARED_KINDS[kind].metrics.get(row["metric"], str(row["metric"]))
    if not row.get("heuristic"):
        return name
    threshold = row["threshold"]
    return f"{name} by {row['heuristic']}{'' if threshold is None else f' (T = {threshold:g})'}"


def metric_order(kind: str, row: Row) -> tuple[int, str]:
    """Return the sort key of a metric."""
    names = list(COMPARED_KINDS[kind].metrics)
    return (names.index(row["metric"]) if row["metric"] in names else len(names), row.get("heuristic") or "")


def place_of(kind: str, row: Row) -> Place:
    """Return the sort key of the setting that a test is of, the same for all metrics of it."""
    return COMPARED_KINDS[kind].place(row)


def place_name(kind: str, row: Row) -> str:
    """Return what a setting is called."""
    return COMPARED_KINDS[kind].place_name(row)


def subject(compared: Compared, run: str, model: str | None = None) -> str:
    """Return what a run is called, or a model of it where runs have several."""
    has_several = any(len(row.get("models", ())) > 1 for row in compared.shared)
    return f"{run}: {model}" if has_several and model else run


def is_of_these_tasks(row: Row) -> bool:
    """Return whether a test is over rows of few tasks, so that its word is about these tasks and no others."""
    return "n_tasks" in row and row["unit"] == "row"


def verdict_word(row: Row) -> str:
    """Return what a test says, in words, and of which tasks it says it where that is not of others like them."""
    if row.get("reason"):
        return f"{_NOT_JUDGED.get(row['verdict'], VERDICTS[row['verdict']])} ({row['reason']})"
    word = VERDICTS[row["verdict"]]
    if row["verdict"] == "unclear" and row["verdict_p"] is not None and row["verdict_p"] <= _LEVEL:
        word = f"differs, perhaps by less than {row['least_effect']:g}"
    is_said = row["verdict"] not in (None, "too few")
    return f"{word} on {_these(row)}" if is_said and is_of_these_tasks(row) else word


def doubt(row: Row) -> str:
    """Return what makes the word of a test no praise: which side is not shown to be better than one label for all."""
    sides: dict[bool | None, list[str]] = {}
    for prefix in ("", "other_"):
        if not row.get(f"{prefix}is_above_constant", True):
            sides.setdefault(row[f"{prefix}is_above_constant"], []).append(row[f"{prefix}run"])
    return "; ".join(f"{BESIDE_CONSTANT[is_above]}: {join(runs)}" for is_above, runs in sides.items())


def in_brackets(text: str) -> str:
    """Return a text behind a blank and in brackets, where there is one."""
    return f" ({text})" if text else ""


def tone(kind: str, row: Row) -> str:
    """Return how a page colours the word of a test: ``gain`` or ``cost`` of the other run, nothing where in doubt."""
    if row["verdict"] not in TOLD_APART or doubt(row):
        return ""
    is_low_better = row["metric"] in COMPARED_KINDS[kind].better_low
    return "gain" if (row["verdict"] == "lower") == is_low_better else "cost"


def _these(row: Row) -> str:
    return "this task" if row["n_tasks"] == 1 else "these tasks"


def band(row: Row) -> str:
    """Return the interval of a difference that its verdict goes by, or nothing where there is none."""
    low, high = row["verdict_low"], row["verdict_high"]
    return "" if low is None or high is None else f"[{signed(low)}, {signed(high)}]"


def against_reference(compared: Compared) -> list[Row]:
    """Return the tests of the other runs against the first, in the order of tables."""
    order = {name: number for number, name in enumerate(compared.runs)}
    rows = [row for row in compared.tests if row["run"] == compared.reference]
    return sorted(
        rows,
        key=lambda row: (
            order[row["other_run"]],
            row.get("model") or "",
            row.get("other_model") or "",
            place_of(compared.kind, row),
            metric_order(compared.kind, row),
        ),
    )


def sentences(compared: Compared) -> list[str]:
    """Return what was compared, then what each other run is against the first."""
    kind = KINDS[compared.kind].name
    scope = f"{kind[0].upper()}{kind[1:]} of {join(compared.others)} against {compared.reference}"
    rows = [row for row in against_reference(compared) if row["metric"] not in PARTNERS]
    told = []
    for pair in dict.fromkeys((row["other_run"], row.get("model"), row.get("other_model")) for row in rows):
        other_run, model, other_model = pair
        own = [row for row in rows if (row["other_run"], row.get("model"), row.get("other_model")) == pair]
        who = f"{subject(compared, other_run, other_model)} against {subject(compared, compared.reference, model)}"
        other = subject(compared, other_run, other_model)
        told += _pair_sentences(compared, who, other, compared.pair(compared.reference, other_run), own)
    constant = constant_answers(compared, rows)
    if is_without_difference(rows):
        return [*told, *constant]
    return [*constant, f"{scope}: every difference is the former minus the latter, on what both share.", *told]


def is_without_difference(rows: Sequence[Row]) -> bool:
    """Return whether something is compared, and all of it is exactly the same."""
    estimates = [row["estimate"] for row in rows if row["estimate"] is not None]
    return bool(estimates) and not any(estimates)


def constant_answers(compared: Compared, rows: Sequence[Row]) -> list[str]:
    """Return where runs are no better than an answer that is always the same."""
    places: dict[str, list[str]] = {}
    for row in rows:
        own = places.setdefault(place_name(compared.kind, row), [])
        own += [row[f"{side}run"] for side in ("", "other_") if row.get(f"{side}is_above_constant", True) is False]
    told = [f"{where}: {join(dict.fromkeys(runs))}" for where, runs in places.items() if runs]
    if not told:
        return []
    return [
        f"{BESIDE_CONSTANT[False].capitalize()}: {some(told, 3, '; ')}. Differences there, of bias as of accuracy and "
        "F1, say little else."
    ]


def _pair_sentences(compared: Compared, who: str, other: str, shared: Row, rows: Sequence[Row]) -> list[str]:
    """Return how much of a pair is told apart, then in which metrics the other is higher, and lower."""
    predictions = _predictions(compared, rows)
    scope = COMPARED_KINDS[compared.kind].scope(shared)
    if predictions and is_without_difference(rows):
        n_predictions, n_differing = predictions
        if n_differing:
            return [
                f"{who}, {scope}: all {len(rows)} differences are 0, and {n_differing:,} of "
                f"{count(n_predictions, 'prediction')} differ."
            ]
        return [
            f"{who}, {scope}: identical. Not one of {count(n_predictions, 'prediction')} differs, and all "
            f"{len(rows)} differences are 0."
        ]
    apart = sorted(
        (row for row in rows if row["verdict"] in TOLD_APART), key=lambda row: (doubt(row), -abs(row["estimate"]))
    )
    where = f" on {_these(rows[0])}" if rows and is_of_these_tasks(rows[0]) else ""
    parts = [f"{len(apart)} of {count(len(rows), 'comparison')} told apart{where}"] if rows else []
    if predictions:
        parts.append(f"{predictions[1]:,} of {count(predictions[0], 'prediction')} differ")
    parts += _not_apart(compared, rows)
    told = [f"{who}, {scope}: {'; '.join(parts) or 'nothing is measured in both'}."]
    for word in TOLD_APART:
        if own := [row for row in apart[:_N_SHOWN] if row["verdict"] == word]:
            told.append(f"{VERDICTS[word].capitalize()} in {other}: {_differences(compared.kind, own)}.")
    if len(apart) > _N_SHOWN:
        told[-1] = f"{told[-1].removesuffix('.')}; {len(apart) - _N_SHOWN} more stand in the table."
    return told


def _not_apart(compared: Compared, rows: Sequence[Row]) -> list[str]:
    """Return how many comparisons are not told apart, and why."""
    parts = []
    if unclear := [row for row in rows if row["verdict"] == "unclear"]:
        found = _detectable(compared, unclear)
        least = f" (smallest differences that would mostly be found: {found})" if found else ""
        parts.append(f"{len(unclear)} not told apart{least}")
    if n_negligible := sum(row["verdict"] == "negligible" for row in rows):
        parts.append(f"{n_negligible} negligible (below {rows[0]['least_effect']:g})")
    few = Counter(row.get("reason") or "too few units" for row in rows if row["verdict"] == "too few")
    parts += [f"{number} with {reason} for a verdict" for reason, number in few.items()]
    lacking = Counter(row.get("reason") or "not measured in both" for row in rows if row["verdict"] is None)
    return parts + [f"{number} not judged ({reason})" for reason, number in lacking.items()]


def _differences(kind: str, rows: Sequence[Row]) -> str:
    """Return differences with their bands, and what makes their word no praise: once, where it is the same of all."""
    doubts = [doubt(row) for row in rows]
    told = [
        f"{metric_name(kind, row)} ({place_name(kind, row)}) by {signed(row['estimate'])} {band(row)}" for row in rows
    ]
    if len(rows) > 1 and doubts[0] and len(set(doubts)) == 1:
        return f"{', '.join(told)} (in all of these, {doubts[0]})"
    return ", ".join(f"{one}{in_brackets(why)}" for one, why in zip(told, doubts, strict=True))


def _predictions(compared: Compared, rows: Sequence[Row]) -> tuple[int, int] | None:
    """Return how many predictions two runs have both, and how many of them differ; None where that was not asked."""
    pairs = {(row["other_run"], row.get("model"), row.get("other_model")) for row in rows}
    own = [row for row in compared.agreement if (row["other_run"], row.get("model"), row.get("other_model")) in pairs]
    return (sum(row["n_predictions"] for row in own), sum(row["n_differing"] for row in own)) if own else None


def _detectable(compared: Compared, rows: Sequence[Row]) -> str:
    """Return from which difference on each metric's would mostly be found, the largest over its settings."""
    by_metric: dict[str, float] = {}
    for row in sorted(rows, key=lambda row: metric_order(compared.kind, row)):
        name = metric_name(compared.kind, row)
        if least := row["verdict_smallest_detectable"]:
            by_metric[name] = max(by_metric.get(name, 0.0), least)
    return join([f"{least:.3f} ({name})" for name, least in by_metric.items()]) if by_metric else ""


def caveats(compared: Compared) -> list[str]:
    """Return what a reader must know before trusting the verdicts, a sentence each."""
    kind = COMPARED_KINDS[compared.kind]
    told = []
    for name in compared.runs[1:]:
        if name not in compared.others:
            told.append(f"{name} shares nothing with {compared.reference} that could be compared, and is left out.")
    by_reason: dict[str, list[str]] = {}
    for name in compared.others:
        pair, back = compared.pair(compared.reference, name), compared.pair(name, compared.reference)
        for reason in not_shared(compared.kind, pair, back):
            by_reason.setdefault(reason, []).append(name)
    told += [f"{join(names)} against {compared.reference}: {reason}." for reason, names in by_reason.items()]
    tests = [row for row in compared.tests if row["run"] == compared.reference]
    if caveat := kind.caveat(tests):
        told.append(caveat)
    if n_holding := sum(row["verdict"] in TOLD_APART and _holds_zero(row) for row in tests):
        told.append(
            f"The interval of {count(n_holding, 'difference')} that {'is' if n_holding == 1 else 'are'} told apart "
            "includes 0. Intervals hold for all tests at once, and p is step-down, which finds more; verdicts go by p."
        )
    return told


def _holds_zero(row: Row) -> bool:
    return row["verdict_low"] is not None and row["verdict_low"] <= 0 <= row["verdict_high"]


def not_shared(kind: str, pair: Row, back: Row) -> list[str]:
    """Return what two runs do not share, a phrase each.

    Args:
        kind: of the runs.
        pair: what the other run shares with the first.
        back: the same in the other direction.
    """
    own = COMPARED_KINDS[kind]
    counted = [phrase for told in own.lacking if (phrase := told(pair, back))]
    return counted + [phrase for column, phrase in own.not_same.items() if pair.get(column) is False]
