"""The summary of a run in sentences, each made from its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from biaseval.report.findings import METRICS, Findings, Row
from biaseval.report.methods import is_adapted, method_name
from biaseval.report.mitigation import cost_sentence, training_caveats, training_sentence

_SAME = 1e-9
"""Means closer than this are the same: what is left is the order of summation."""


def summarize(findings: Findings) -> list[str]:
    """Return the sentences of the summary, one finding each."""
    sentences = [
        _scope(findings),
        *_demonstrations(findings),
        *_mitigation(findings),
        *_adaptation(findings),
        _equivalent_labels(findings),
        *_most_biased(findings),
    ]
    return [sentence for sentence in sentences if sentence]


def caveats(findings: Findings) -> list[str]:
    """Return what a reader must know before trusting the numbers, a sentence each."""
    n_tasks = len(findings.tasks)
    largest = findings.n_demos[-1]
    inferred = [task["task"] for task in findings.tasks if task["template_source"] == "inferred"]
    left_out = findings.plan.get("left_out") or {}
    n_fewer = sum(row["n_fewer_demos"] for row in findings.cut_prompts)
    n_truncated = sum(row["n_truncated"] for row in findings.cut_prompts)
    sentences = []
    if n_tasks == 1:
        sentences.append("A single task has no interval over tasks: these numbers say nothing about other tasks.")
    elif n_tasks < 10:
        sentences.append(f"The intervals come from resampling only {n_tasks} tasks and are rough.")
    if findings.n_without_hit:
        sentences.append(
            f"{_tasks(findings.n_without_hit)} without a single correct prediction "
            f"(no {findings.mitigation}, {_demos(largest)}) "
            f"{_plural(findings.n_without_hit, 'counts', 'count')} with RSD 0, as in the reference code, "
            "which makes the mean RSD look better."
        )
    if n_fewer:
        sentences.append(f"{n_fewer:,} prompts hold fewer demonstrations than asked for: the length limit was reached.")
    if n_truncated:
        sentences.append(f"{n_truncated:,} prompts were cut on the right: they pass the limit without demonstrations.")
    if inferred:
        sentences.append(
            f"The domain-context template of {_tasks(len(inferred))} is inferred from the inputs; "
            "templates change what DC measures."
        )
    if left_out:
        were = _plural(len(left_out), "was", "were")
        sentences.append(f"{_tasks(len(left_out))} {were} left out; the reasons are under Settings.")
    if findings.adaptation is not None:
        sentences += training_caveats(findings.adaptation)
    return sentences


def _scope(findings: Findings) -> str:
    n_labels = sorted({len(task["labels"]) for task in findings.tasks})
    n_rows = sum(task["n_main"] for task in findings.tasks)
    many = f"{n_labels[0]} to {n_labels[-1]}" if len(n_labels) > 1 else f"{n_labels[0]}"
    calibrations = [method_name(method) for method in findings.methods if method != "none" and not is_adapted(method)]
    with_what = f"and calibrated by {join(calibrations)}" if calibrations else "and not calibrated"
    if findings.adaptation is not None:
        n_adapters = sum(row["n_adapters"] for row in findings.adaptation.training)
        adapters = f"{n_adapters:,} LoRA {_plural(n_adapters, 'adapter', 'adapters')}"
        with_what = f"by itself and with {adapters}, {with_what}"
    counts = join([str(number) for number in findings.n_demos])
    demonstrations = "demonstration" if findings.n_demos == (1,) else "demonstrations"
    return (
        f"{findings.model} was scored on {n_rows:,} test instances of {_tasks(len(findings.tasks))} with {many} "
        f"labels, with {counts} {demonstrations} in the prompt, {with_what}."
    )


def _demonstrations(findings: Findings) -> list[str]:
    smallest, largest = findings.n_demos[0], findings.n_demos[-1]
    first, last = findings.mean(smallest, "none"), findings.mean(largest, "none")
    if first is None or last is None:
        return []
    metrics = [metric for metric in ("rsd", "bias_score", "macro_f1") if first[metric] is not None]
    if smallest == largest:
        values = [f"mean {METRICS[metric]} is {_estimate(first, metric)}" for metric in metrics]
        return [f"Without {findings.mitigation} and with {_demos(smallest)}, {join(values)}."]
    change = next((row for row in findings.changes if row["method"] == "none" and row["n_demos"] == largest), None)
    sentences = []
    for metric in metrics:
        if last[metric] is None:
            continue
        ends = f"from {_estimate(first, metric)} with {_demos(smallest)} to {_estimate(last, metric)} with {largest}"
        verb, evidence = _verdict(change, metric, last[metric] - first[metric])
        sentences.append(f"Without {findings.mitigation}, mean {METRICS[metric]} {verb} {ends}{evidence}.")
    return sentences


def _mitigation(findings: Findings) -> list[str]:
    """Return what each method changes against none, and which has the lowest mean RSD."""
    changes = [
        row
        for row in findings.changes
        if row["method"] != "none" and row["against_method"] == "none" and row["rsd"] is not None
    ]
    if not changes:
        return []
    calibrations = [row for row in changes if not is_adapted(row["method"])]
    sentences = [_largest_fall(findings, calibrations, "Calibration", "calibration method")] if calibrations else []
    if lora := [row for row in changes if row["method"] == "lora"]:
        sentences += [_largest_fall(findings, lora, "LoRA alone"), *_clear_changes(lora)]
    lowest = []
    for n_demos in findings.n_demos:
        rows = [row for row in findings.by_suite["all"] if row["n_demos"] == n_demos and row["rsd"] is not None]
        if len(rows) > 1:
            least = min(row["rsd"] for row in rows)
            names = [_name(row["method"], findings) for row in rows if row["rsd"] - least <= _SAME]
            lowest.append(f"{join(names)} with {n_demos} ({least:.3f})")
    if lowest and len(findings.n_demos) > 1:
        sentences.append(f"The lowest mean RSD by number of demonstrations: {', '.join(lowest)}.")
    sentences += _clear_rises(changes)
    return sentences


def _adaptation(findings: Findings) -> list[str]:
    """Return what calibration changes on top of LoRA, how the adapters were trained, and what all mitigation needed."""
    if findings.adaptation is None:
        return []
    changes = [row for row in findings.changes if row["against_method"] == "lora" and row["rsd"] is not None]
    told = []
    if changes:
        told = [_largest_fall(findings, changes, "On top of LoRA, calibration", "calibration method on top of LoRA")]
        told += _clear_rises(changes, " against LoRA alone")
        clear = [row for row in changes if _is_clear(row, "rsd")]
        if not clear and all(row["rsd_low"] is not None for row in changes):
            told.append("Against LoRA alone, no calibration clearly changes mean RSD at any number of demonstrations.")
    return [*told, training_sentence(findings.adaptation.training), cost_sentence(findings.adaptation.costs)]


def _clear_rises(changes: Sequence[Row], against: str = "") -> list[str]:
    """Return where mean RSD clearly rises, if anywhere."""
    by_method: dict[str, list[str]] = {}
    for row in changes:
        if row["rsd_low"] is not None and row["rsd_low"] > 0:
            by_method.setdefault(method_name(row["method"]), []).append(str(row["n_demos"]))
    if not by_method:
        return []
    places = [f"{method} ({join(numbers)} demonstrations)" for method, numbers in by_method.items()]
    return [f"Mean RSD clearly rises{against}, its paired interval lying above 0, with {join(places)}."]


def _clear_changes(lora: Sequence[Row]) -> list[str]:
    """Return which metrics LoRA alone clearly moves, and at which numbers of demonstrations; none without intervals."""
    told = []
    for metric in ("rsd", "bias_score", "macro_f1"):
        rows = [row for row in lora if row[f"{metric}_low"] is not None]
        if not rows:
            continue
        places: dict[str, list[str]] = {}
        for row in rows:
            verb = ("falls" if row[metric] < 0 else "rises") if _is_clear(row, metric) else "does not clearly change"
            places.setdefault(verb, []).append(str(row["n_demos"]))
        verbs = join([f"{verb} with {join(numbers)}" for verb, numbers in places.items()])
        told.append(f"mean {METRICS[metric]} {verbs}")
    if not told:
        return []
    return [f"LoRA alone against no mitigation, by paired intervals and number of demonstrations: {'; '.join(told)}."]


def _largest_fall(findings: Findings, changes: Sequence[Row], what: str, none_of: str | None = None) -> str:
    """Return where RSD falls most, of changes against one method.

    Args:
        findings: of the run.
        changes: those to choose from.
        what: what the sentence says to lower RSD.
        none_of: what none of lowers it; None where there is only one.
    """
    best = min(changes, key=lambda row: row["rsd"])
    against = best["against_method"]
    if best["rsd"] >= -_SAME:
        if none_of is None:
            return f"{what} lowers mean RSD at no number of demonstrations."
        return f"No {none_of} lowers mean RSD at any number of demonstrations."
    alike = [row for row in changes if row["rsd"] - best["rsd"] <= _SAME]
    before, after = findings.mean(best["n_demos"], against), findings.mean(best["n_demos"], best["method"])
    if before is None or after is None:
        return ""
    settings = [_demos(row["n_demos"]) for row in alike]
    if none_of is not None:
        settings = [f"{method_name(row['method'])} at {demos}" for row, demos in zip(alike, settings, strict=True)]
    where = f"{'at' if none_of is None else 'with'} {join(settings)}"
    others = [
        f"{METRICS[metric]} goes from {before[metric]:.3f} to {after[metric]:.3f}"
        for metric in ("bias_score", "macro_f1")
        if before[metric] is not None and after[metric] is not None
    ]
    there = f" At the same time, mean {join(others)}." if others else ""
    in_tasks = f"; lower in {best['n_tasks_lower_rsd']:,} of {_tasks(best['n_tasks'])}" if best["n_tasks"] > 1 else ""
    return (
        f"{what} lowers mean RSD most {where}: from {_estimate(before, 'rsd')} to "
        f"{_estimate(after, 'rsd')} ({paired(best, 'rsd')}{in_tasks}).{there}"
    )


def _equivalent_labels(findings: Findings) -> str:
    largest = findings.n_demos[-1]
    if "semantically_equivalent" not in findings.by_suite:
        return ""
    part, whole = findings.mean(largest, "none", "semantically_equivalent"), findings.mean(largest, "none")
    if part is None or whole is None:
        return ""
    return (
        f"On the {_tasks(part['n_tasks'])} with semantically equivalent labels, mean RSD "
        f"without {findings.mitigation} and with {_demos(largest)} is {_estimate(part, 'rsd')}, against "
        f"{_estimate(whole, 'rsd')} on all tasks."
    )


def _most_biased(findings: Findings) -> list[str]:
    if not findings.most_biased:
        return []
    worst = findings.most_biased[0]
    ties = [task for task in findings.most_biased if worst["rsd"] - task["rsd"] <= _SAME]
    if worst["rsd"] == 0:
        return [f"No task has RSD above 0 without {findings.mitigation} and with {_demos(findings.n_demos[-1])}."]
    label = preferred_label(worst["labels"])
    also = f" ({len(ties) - 1} more are as biased)" if len(ties) > 1 else ""
    return [
        f"Most biased without {findings.mitigation} and with {_demos(findings.n_demos[-1])} is {worst['task']}{also}: "
        f"RSD {worst['rsd']:.3f}; it prefers “{label['label']}”, {label['predicted_share']:.1%} of the predictions and "
        f"{label['gold_share']:.1%} of the gold labels."
    ]


def preferred_label(labels: Sequence[Row]) -> Row:
    """Return the label that is predicted most beyond its share of the gold labels (the first of those, on ties)."""
    return max(labels, key=lambda label: label["predicted_share"] - label["gold_share"])


def _verdict(change: Row | None, metric: str, difference: float) -> tuple[str, str]:
    """Return the verb for a change and the evidence for it, in brackets."""
    if abs(difference) <= _SAME:
        return "stays the same,", ""
    verb = "falls" if difference < 0 else "rises"
    if change is None or change[f"{metric}_low"] is None:
        return verb, ""
    return verb if _is_clear(change, metric) else "does not clearly change,", f" ({paired(change, metric)})"


def paired(row: Row, metric: str) -> str:
    """Return a paired difference with its interval, and whether that includes 0."""
    value, low, high = (signed(row[name]) for name in (metric, f"{metric}_low", f"{metric}_high"))
    if row[f"{metric}_low"] is None:
        return f"difference {value}"
    return f"paired difference {value} [{low}, {high}]{'' if _is_clear(row, metric) else ', which includes 0'}"


def _is_clear(row: Row, metric: str) -> bool:
    """Return whether a difference has an interval that lies to a side of 0."""
    low, high = row[f"{metric}_low"], row[f"{metric}_high"]
    return low is not None and (low > 0 or high < 0)


def signed(value: float | None) -> str:
    """Return a difference with its sign."""
    # Adding 0.0 turns the -0.0 that rounding may leave into 0.0.
    return "" if value is None else f"{round(value, 3) + 0.0:+.3f}".replace("-", "\N{MINUS SIGN}")


def _estimate(row: Row, metric: str) -> str:
    if row[f"{metric}_low"] is None:
        return f"{row[metric]:.3f}"
    return f"{row[metric]:.3f} [{row[f'{metric}_low']:.3f}, {row[f'{metric}_high']:.3f}]"


def _name(method: str, findings: Findings) -> str:
    return method_name(method, findings.mitigation)


def _demos(number: int) -> str:
    return f"{number} demonstration{'' if number == 1 else 's'}"


def _tasks(number: int) -> str:
    return f"{number:,} task{'' if number == 1 else 's'}"


def _plural(number: int, singular: str, plural: str) -> str:
    return singular if number == 1 else plural


def join(words: Iterable[str]) -> str:
    """Return words as a sentence lists them: ``a, b and c``."""
    *first, last = list(words)
    return f"{', '.join(first)} and {last}" if first else last
