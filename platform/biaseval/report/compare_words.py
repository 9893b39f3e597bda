"""What a comparison of runs says, in words: places, metrics, verdicts, and what runs do not share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from biaseval.analysis.comparing import KINDS, Compared
from biaseval.report.findings import METRICS, Row
from biaseval.report.methods import method_name, method_order
from biaseval.report.summary import join, signed
from biaseval.report.ways import INSTRUCTIONS, way_name, way_order

VERDICTS = {
    "higher": "higher",
    "lower": "lower",
    "negligible": "negligible",
    "unclear": "not told apart",
    "too few": "too few units",
    None: "not measured",
}
"""What the words of the macro ``verdict`` are on pages."""

TOLD_APART = ("higher", "lower")
"""The verdicts that say that two runs differ."""

_NAMES = {
    "label_bias": METRICS,
    "majority_bias": {
        "accuracy": "accuracy",
        "mean_f1": "weighted F1",
        "sd_f1": "std over settings",
        "tails_f1": "F1 at the tails",
        "middle_f1": "F1 in the middle",
    },
    "qa_bias": {"exact_match": "exact match", "f1": "F1", "gap": "gap"},
}
"""The display names of the metrics of each kind, in the order of tables."""

FIRST_METRIC = {"label_bias": "rsd", "majority_bias": "mean_f1", "qa_bias": "exact_match"}
"""The metric of the matrix of all pairs."""

_N_SHOWN = 6
"""Differences that a sentence lists."""

Place = tuple[object, ...]


def metric_name(kind: str, row: Row) -> str:
    """Return what a metric is called, with the heuristic that it is of."""
    name = str(_NAMES[kind].get(row["metric"], row["metric"]))
    return f"{name} by {row['heuristic']}" if row.get("heuristic") else name


def metric_order(kind: str, row: Row) -> tuple[int, str]:
    """Return the sort key of a metric."""
    names = list(_NAMES[kind])
    return (names.index(row["metric"]) if row["metric"] in names else len(names), row.get("heuristic") or "")


def place_of(kind: str, row: Row) -> Place:
    """Return the sort key of the setting that a test is of, the same for all metrics of it."""
    if kind == "label_bias":
        return (row["n_demos"], method_order(row["method"]))
    if kind == "majority_bias":
        return (row["n_demos"], way_order(row), list(INSTRUCTIONS).index(row["instruction"]))
    return (row["dataset"],)


def place_name(kind: str, row: Row) -> str:
    """Return what a setting is called."""
    if kind == "label_bias":
        return f"{method_name(row['method'])}, {_count(row['n_demos'], 'demonstration')}"
    if kind == "majority_bias":
        way = way_name(row["predict"], row["method"])
        return f"{way}, {_count(row['n_demos'], 'demonstration')}, {INSTRUCTIONS[row['instruction']]} instruction"
    return str(row["dataset"])


def subject(compared: Compared, run: str, model: str | None = None) -> str:
    """Return what a run is called, or a model of it where runs have several."""
    several = compared.kind == "qa_bias" and any(len(row["models"]) > 1 for row in compared.shared)
    return f"{run}: {model}" if several and model else run


def is_of_these_tasks(kind: str, row: Row) -> bool:
    """Return whether a test is over rows of few tasks, so that its word is about these tasks and no others."""
    return kind == "label_bias" and row["unit"] == "row"


def verdict_word(kind: str, row: Row) -> str:
    """Return what a test says, in words, and of which tasks it says it where that is not of others like them."""
    word = VERDICTS[row["verdict"]]
    is_said = row["verdict"] not in (None, "too few")
    return f"{word} on {_these(row)}" if is_said and is_of_these_tasks(kind, row) else word


def _these(row: Row) -> str:
    return "this task" if row["n_tasks"] == 1 else "these tasks"


def band(row: Row) -> str:
    """Return the simultaneous interval of a difference, or nothing where there is none."""
    low, high = row["simultaneous_low"], row["simultaneous_high"]
    return "" if low is None else f"[{signed(low)}, {signed(high)}]"


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
    others = compared.others
    scope = (
        f"{KINDS[compared.kind][0].upper()}{KINDS[compared.kind][1:]} of {join(others)} against {compared.reference}"
    )
    rows = against_reference(compared)
    told = [
        *constant_answers(compared, rows),
        f"{scope}: every difference is the former minus the latter, on what both share.",
    ]
    for pair in dict.fromkeys((row["other_run"], row.get("model"), row.get("other_model")) for row in rows):
        other_run, model, other_model = pair
        own = [row for row in rows if (row["other_run"], row.get("model"), row.get("other_model")) == pair]
        who = f"{subject(compared, other_run, other_model)} against {subject(compared, compared.reference, model)}"
        told.append(_pair_sentence(compared, who, compared.pair(compared.reference, other_run), own))
    return told


def constant_answers(compared: Compared, rows: Sequence[Row]) -> list[str]:
    """Return which runs give almost always the same answer, whatever the input."""
    places: dict[str, dict[str, None]] = {}
    for row in rows:
        where = place_name(compared.kind, row)
        for run, number, always in (
            (row["run"], row.get("n_constant", 0), row.get("is_constant")),
            (row["other_run"], row.get("n_other_constant", 0), row.get("other_is_constant")),
        ):
            if number or always:
                told = f"{where}, in {number:,} of {_count(row['n_tasks'], 'task')}" if number else where
                places.setdefault(run, {})[told] = None
    return [
        f"{run} gives almost always the same answer, more than 95 % of the time ({_some(list(found), 3)}): "
        "differences in bias from it say little but that."
        for run, found in places.items()
    ]


def _pair_sentence(compared: Compared, who: str, shared: Row, rows: Sequence[Row]) -> str:
    parts = []
    apart = sorted((row for row in rows if row["verdict"] in TOLD_APART), key=lambda row: -abs(row["estimate"]))
    for word in TOLD_APART:
        named = [
            f"{metric_name(compared.kind, row)} ({place_name(compared.kind, row)}) "
            f"by {signed(row['estimate'])} {band(row)}"
            for row in apart[:_N_SHOWN]
            if row["verdict"] == word
        ]
        if named:
            parts.append(f"{VERDICTS[word]}: {', '.join(named)}")
    if len(apart) > _N_SHOWN:
        parts.append(f"{len(apart) - _N_SHOWN} more differ by less (table)")
    if unclear := [row for row in rows if row["verdict"] == "unclear"]:
        parts.append(
            f"{len(unclear)} not told apart; smallest differences that would mostly be found: "
            f"{_detectable(compared, unclear)}"
        )
    if n_negligible := sum(row["verdict"] == "negligible" for row in rows):
        parts.append(f"{n_negligible} negligible (below {rows[0]['least_effect']:g})")
    if n_few := sum(row["verdict"] == "too few" for row in rows):
        parts.append(f"{n_few} with too few units for a verdict (below 6)")
    found = "; ".join(parts) or "nothing is measured in both"
    where = f" on {_these(rows[0])}" if rows and is_of_these_tasks(compared.kind, rows[0]) else ""
    counted = f"{len(apart)} of {_count(len(rows), 'comparison')} told apart{where}"
    return f"{who}, {scope_of(compared.kind, shared)}: {counted}. {found[0].upper()}{found[1:]}."


def _detectable(compared: Compared, rows: Sequence[Row]) -> str:
    """Return from which difference on each metric's would mostly be found, the largest over its settings."""
    by_metric: dict[str, float] = {}
    for row in sorted(rows, key=lambda row: metric_order(compared.kind, row)):
        name = metric_name(compared.kind, row)
        by_metric[name] = max(by_metric.get(name, 0.0), row["smallest_detectable"] or 0.0)
    return join([f"{least:.3f} ({name})" for name, least in by_metric.items()])


def scope_of(kind: str, shared: Row) -> str:
    """Return how much two runs share."""
    if kind == "label_bias":
        return f"{_count(shared['n_tasks'], 'task')} with {_count(shared['n_rows'], 'row')}"
    if kind == "majority_bias":
        return _count(shared["n_rows"], "test row")
    return f"{_count(shared['n_questions'], 'question')} on {_count(shared['n_articles'], 'article')}"


def caveats(compared: Compared) -> list[str]:
    """Return what a reader must know before trusting the verdicts, a sentence each."""
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
    units = {row["unit"] for row in compared.tests if row["run"] == compared.reference}
    if compared.kind == "label_bias" and "row" in units:
        told.append(
            "With fewer than 6 shared tasks the units of the tests are rows: verdicts are for other rows of these "
            "tasks, and say nothing about other tasks."
        )
    if compared.kind == "qa_bias" and any(row["metric"] == "gap" for row in compared.tests):
        told.append(
            "Gap: exact match in one segment minus the other, at one threshold for both models. Where the spec does "
            "not fix it, it is chosen by the answers of both together, so that it favours neither; it may differ from "
            "the threshold in each run's report."
        )
    if len(compared.others) > 1:
        told.append(
            "The 5 % error rate is that of all verdicts between two runs together; "
            f"there are {len(compared.others)} such pairs here with {compared.reference}, each with its own 5 %."
        )
    return told


def not_shared(kind: str, pair: Row, back: Row) -> list[str]:
    """Return what two runs do not share, a phrase each.

    Args:
        kind: of the runs.
        pair: what the other run shares with the first.
        back: the same in the other direction.
    """
    found = [phrase for column, phrase in _PHRASES.get(kind, {}).items() if pair.get(column) is False]
    return [phrase(pair, back) for phrase in _COUNTED[kind] if phrase(pair, back)] + found


_SEED = "other seeds in the specs (seed)"
_PHRASES = {
    "label_bias": {
        "has_same_scoring": "scored in another way (scoring.normalization, scoring.eos), which may be all that differs",
        "has_same_inputs": "the rows are written otherwise in the prompt (format, instruction or length limit)",
        "has_same_contexts": (
            "other demonstrations or another text before the rows: the draw of them is part of each difference"
        ),
        "has_same_sets": "other demonstration sets; means are over the sets that both have",
        "has_same_bias_score_rows": "the rows of BiasScore differ in some tasks, which BiasScore leaves out",
        "has_same_n_demos": "other numbers of demonstrations; only those of both are compared",
        "has_same_methods": "other methods; only those of both are compared",
        "has_same_seed": _SEED,
    },
    "majority_bias": {
        "has_same_scoring": "scored in another way (scoring.normalization, scoring.eos), which may be all that differs",
        "has_same_contexts": "other demonstrations or another instruction: the draw of them is part of each difference",
        "has_same_seeds": "other seeds of the demonstrations; each has its mean over its own",
        "has_same_n_demos": "other numbers of demonstrations; only those of both are compared",
        "has_same_methods": "other methods or ways of predicting; only those of both are compared",
        "has_same_instructions": "only one has prompts with and without instruction; those of both are compared",
        "has_same_seed": _SEED,
    },
    "qa_bias": {
        "has_same_variant": "another variant of the measurement (variant)",
        "has_same_seed": _SEED,
    },
}
"""Columns of the guards to what it means that they are false."""


def _differing_tasks(pair: Row, back: Row) -> str:
    tasks = pair["differing_tasks"]
    return f"left out, with other rows or labels in each: {_some(tasks)}" if tasks else ""


def _lacking_tasks(pair: Row, back: Row) -> str:
    tasks = [*pair["lacking_tasks"], *back["lacking_tasks"]]
    return f"left out, in one of the two only: {_some(tasks)}" if tasks else ""


def _differing_questions(pair: Row, back: Row) -> str:
    number = pair["n_differing"]
    return f"left out: {_count(number, 'question')} with the same id and another text" if number else ""


def _lacking_questions(pair: Row, back: Row) -> str:
    number = pair["n_lacking"] + back["n_lacking"]
    return f"left out: {_count(number, 'question')} in one of the two only" if number else ""


def _differing_values(pair: Row, back: Row) -> str:
    names = pair["differing_heuristics"]
    return f"other values of {join(names)} (text tools); those of the run first by name are used" if names else ""


_COUNTED: dict[str, Sequence[Callable[[Row, Row], str]]] = {
    "label_bias": (_differing_tasks, _lacking_tasks),
    "majority_bias": (),
    "qa_bias": (_differing_questions, _lacking_questions, _differing_values),
}
"""What the guards count or name, as phrases; nothing where all is shared."""


def _some(names: Sequence[str], n_shown: int = 5) -> str:
    if len(names) <= n_shown:
        return join(names)
    return f"{', '.join(names[:n_shown])} and {len(names) - n_shown:,} more"


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
