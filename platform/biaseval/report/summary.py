"""The summary of a run in sentences, each made from its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from biaseval.report.findings import METHODS, METRICS, Findings, Row

_SAME = 1e-9
"""Means closer than this are the same: what is left is the order of summation."""


def summarize(findings: Findings) -> list[str]:
    """Return the sentences of the summary, one finding each."""
    sentences = [
        _scope(findings),
        *_demonstrations(findings),
        *_calibration(findings),
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
            f"{_tasks(findings.n_without_hit)} without a single correct prediction (no calibration, {_demos(largest)}) "
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
    return sentences


def _scope(findings: Findings) -> str:
    n_labels = sorted({len(task["labels"]) for task in findings.tasks})
    n_rows = sum(task["n_main"] for task in findings.tasks)
    many = f"{n_labels[0]} to {n_labels[-1]}" if len(n_labels) > 1 else f"{n_labels[0]}"
    calibrations = [_name(method) for method in findings.methods if method != "none"]
    with_what = f"and calibrated by {join(calibrations)}" if calibrations else "and not calibrated"
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
        return [f"Without calibration and with {_demos(smallest)}, {join(values)}."]
    change = next((row for row in findings.changes if row["method"] == "none" and row["n_demos"] == largest), None)
    sentences = []
    for metric in metrics:
        if last[metric] is None:
            continue
        ends = f"from {_estimate(first, metric)} with {_demos(smallest)} to {_estimate(last, metric)} with {largest}"
        verb, evidence = _verdict(change, metric, last[metric] - first[metric])
        sentences.append(f"Without calibration, mean {METRICS[metric]} {verb} {ends}{evidence}.")
    return sentences


def _calibration(findings: Findings) -> list[str]:
    changes = [row for row in findings.changes if row["method"] != "none" and row["rsd"] is not None]
    if not changes:
        return []
    sentences = [_largest_fall(findings, changes)]
    lowest = []
    for n_demos in findings.n_demos:
        rows = [row for row in findings.by_suite["all"] if row["n_demos"] == n_demos and row["rsd"] is not None]
        if len(rows) > 1:
            least = min(row["rsd"] for row in rows)
            names = [_name(row["method"]) for row in rows if row["rsd"] - least <= _SAME]
            lowest.append(f"{join(names)} with {n_demos} ({least:.3f})")
    if lowest and len(findings.n_demos) > 1:
        sentences.append(f"The lowest mean RSD by number of demonstrations: {', '.join(lowest)}.")
    harmful = [row for row in changes if row["rsd_low"] is not None and row["rsd_low"] > 0]
    if harmful:
        by_method: dict[str, list[str]] = {}
        for row in harmful:
            by_method.setdefault(_name(row["method"]), []).append(str(row["n_demos"]))
        places = [f"{method} ({join(numbers)} demonstrations)" for method, numbers in by_method.items()]
        sentences.append(f"Mean RSD clearly rises, its paired interval lying above 0, with {join(places)}.")
    return sentences


def _largest_fall(findings: Findings, changes: Sequence[Row]) -> str:
    best = min(changes, key=lambda row: row["rsd"])
    if best["rsd"] >= -_SAME:
        return "No calibration method lowers mean RSD at any number of demonstrations."
    alike = [row for row in changes if row["rsd"] - best["rsd"] <= _SAME]
    before, after = findings.mean(best["n_demos"], "none"), findings.mean(best["n_demos"], best["method"])
    if before is None or after is None:
        return ""
    settings = join([f"{_name(row['method'])} at {_demos(row['n_demos'])}" for row in alike])
    others = [
        f"{METRICS[metric]} goes from {before[metric]:.3f} to {after[metric]:.3f}"
        for metric in ("bias_score", "macro_f1")
        if before[metric] is not None and after[metric] is not None
    ]
    there = f" At the same time, mean {join(others)}." if others else ""
    in_tasks = f"; lower in {best['n_tasks_lower_rsd']:,} of {_tasks(best['n_tasks'])}" if best["n_tasks"] > 1 else ""
    return (
        f"Calibration lowers mean RSD most with {settings}: from {_estimate(before, 'rsd')} to "
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
        f"On the {_tasks(part['n_tasks'])} with semantically equivalent labels, mean RSD without calibration and with "
        f"{_demos(largest)} is {_estimate(part, 'rsd')}, against {_estimate(whole, 'rsd')} on all tasks."
    )


def _most_biased(findings: Findings) -> list[str]:
    if not findings.most_biased:
        return []
    worst = findings.most_biased[0]
    ties = [task for task in findings.most_biased if worst["rsd"] - task["rsd"] <= _SAME]
    if worst["rsd"] == 0:
        return [f"No task has RSD above 0 without calibration and with {_demos(findings.n_demos[-1])}."]
    label = preferred_label(worst["labels"])
    also = f" ({len(ties) - 1} more are as biased)" if len(ties) > 1 else ""
    return [
        f"Most biased without calibration and with {_demos(findings.n_demos[-1])} is {worst['task']}{also}: RSD "
        f"{worst['rsd']:.3f}; it prefers “{label['label']}”, {label['predicted_share']:.1%} of the predictions and "
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
    is_clear = change[f"{metric}_low"] > 0 or change[f"{metric}_high"] < 0
    return verb if is_clear else "does not clearly change,", f" ({paired(change, metric)})"


def paired(row: Row, metric: str) -> str:
    """Return a paired difference with its interval, and whether that includes 0."""
    value, low, high = (signed(row[name]) for name in (metric, f"{metric}_low", f"{metric}_high"))
    if row[f"{metric}_low"] is None:
        return f"difference {value}"
    is_clear = row[f"{metric}_low"] > 0 or row[f"{metric}_high"] < 0
    return f"paired difference {value} [{low}, {high}]{'' if is_clear else ', which includes 0'}"


def signed(value: float | None) -> str:
    """Return a difference with its sign."""
    # Adding 0.0 turns the -0.0 that rounding may leave into 0.0.
    return "" if value is None else f"{round(value, 3) + 0.0:+.3f}".replace("-", "\N{MINUS SIGN}")


def _estimate(row: Row, metric: str) -> str:
    if row[f"{metric}_low"] is None:
        return f"{row[metric]:.3f}"
    return f"{row[metric]:.3f} [{row[f'{metric}_low']:.3f}, {row[f'{metric}_high']:.3f}]"


def _name(method: str) -> str:
    return METHODS.get(method, method)


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
