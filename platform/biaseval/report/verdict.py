"""What a run may be said to show, in sentences: each word of them is a verdict of the marts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from biaseval.report.advice import Conclusion, advice, closest
from biaseval.report.findings import METRICS, Findings, Row
from biaseval.report.format_words import range_of_formats
from biaseval.report.methods import method_name
from biaseval.report.summary import (
    BESIDE_CONSTANT,
    MIN_UNITS,
    beside_constant,
    counted,
    demos,
    join,
    p_value,
    scope_of_words,
    signed,
    word,
)

_N_NAMED = 3
"""Tasks that a sentence names rather than counts."""


def conclude(findings: Findings) -> list[Conclusion]:
    """Return the verdict: what the model does without mitigation, how sure that is, and what follows."""
    lines = [*_constant(findings), *_bias(findings, "rsd"), *_bias(findings, "bias_score"), *_wordings(findings)]
    return [*_primary(findings), *lines, *_baseline(findings), *_certainty(findings), *advice(findings)]


def _primary(findings: Findings) -> list[Conclusion]:
    """Return the answer to the primary question of the run, if it has one."""
    asked, scope = findings.spec.get("primary"), scope_of_words(findings)
    if not asked:
        return []
    rows = [
        row
        for by_metric in findings.verdicts.values()
        for row in by_metric.values()
        if row["is_primary"] and row["metric"] == asked["metric"]
    ]
    lead = f"Primary question, {METRICS[asked['metric']]} with {method_name(asked['method'], findings.mitigation)}"
    if not rows or not scope.has_words:
        return [Conclusion(lead, "nothing is measured that could be tested.")]
    told = f"on {scope.these}, {_by_word(rows, 'same_tasks_')}"
    if scope.has_words_for_others:
        told += f"; for other tasks like these, {_by_word(rows, '')}"
    return [Conclusion(lead, f"{told}. Its p is adjusted for the {counted(len(rows), 'test')} of this line only.")]


def _by_word(rows: Sequence[Row], side: str) -> str:
    """Return the words of differences, each with its numbers of demonstrations, the change there and its p."""
    told: dict[str, list[str]] = {}
    for row in rows:
        p = row[f"{side}word_p_adjusted"]
        shown = "" if p is None else f", adjusted {p_value(p)}"
        place = f"with {row['n_demos']} ({signed(row['estimate'])}{shown})"
        told.setdefault(word(row[f"{side}verdict"], row["unit"]), []).append(place)
    return "; ".join(f"{verdict or 'no word'} {join(places)}" for verdict, places in told.items()) + " demonstrations"


def _constant(findings: Findings) -> list[Conclusion]:
    """Return where the answers are not shown to be better than one label for all, without mitigation."""
    rows = _without_mitigation(findings, findings.n_demos)
    if findings.scope["n_tasks"] > 1:
        if not (there := [row for row in rows if row["n_tasks_not_above"]]):
            return []
        first, *further = there
        told = [f"{first['n_tasks_not_above']} of {first['n_tasks']} tasks with {demos(first['n_demos'])}"]
        told += [f"{row['n_tasks_not_above']} with {row['n_demos']}" for row in further]
        return [Conclusion(_NO_BETTER[False], f"in {join(told)} (no {findings.mitigation}).")]
    lines = []
    for is_above, lead in _NO_BETTER.items():
        told = [
            f"{beside_constant(row)}, with {demos(row['n_demos'])}{_answers(findings, row)}"
            for row in rows
            if row["is_above_constant"] is is_above
        ]
        if told:
            lines.append(Conclusion(lead, f"{'; '.join(told)} (no {findings.mitigation})."))
    return lines


_NO_BETTER = {
    is_above: f"{BESIDE_CONSTANT[is_above][0].upper()}{BESIDE_CONSTANT[is_above][1:]}" for is_above in (False, None)
}


def _answers(findings: Findings, row: Row) -> str:
    """Return in brackets what the only task is mostly answered with, behind each set of demonstrations."""
    sets = [each for each in findings.answers if each["n_demos"] == row["n_demos"]]
    shares = [f"“{each['label']}” {_percent(each['predicted_share'])}" for each in sets]
    if len({each["label"] for each in sets}) == 1:
        least, most = (_percent(end(each["predicted_share"] for each in sets)) for end in (min, max))
        return f" (“{sets[0]['label']}” is {least if least == most else f'{least} to {most}'} of the answers)"
    return f" (the most frequent answer differs between sets of demonstrations: {join(shares)} of the answers)"


def _without_mitigation(findings: Findings, n_demos: Iterable[int]) -> list[Row]:
    return [row for row in (findings.mean(number, "none") for number in n_demos) if row is not None]


def _bias(findings: Findings, metric: str) -> list[Conclusion]:
    """Return the bias at the smallest and largest number of demonstrations, beside what rows alone leave.

    Of a number between them too, where it is highest there.
    """
    every = [row for row in _without_mitigation(findings, findings.n_demos) if row[metric] is not None]
    rows = [row for row in every if row["n_demos"] in findings.ends]
    if not rows:
        return []
    if (worst := max(every, key=lambda row: row[metric]))[metric] > max(row[metric] for row in rows):
        rows = sorted([*rows, worst], key=lambda row: row["n_demos"])
    first, *further = rows
    told = [
        f"{first[metric]:.3f} with {demos(first['n_demos'])}{_beside(findings, first, metric, 'the noise of rows')}"
    ]
    told += [f"{row[metric]:.3f} with {row['n_demos']}{_beside(findings, row, metric, 'it')}" for row in further]
    perfect = rows[-1]["bias_score_of_perfect"]
    best = f" A model that is always right has {perfect:.3f}." if metric == "bias_score" and perfect else ""
    return [Conclusion(f"{METRICS[metric]}, no {findings.mitigation}", f"{'; '.join(told)}.{best}")]


def _wordings(findings: Findings) -> list[Conclusion]:
    """Return how far RSD moves over the formats of the prompt, at the smallest and largest number of demonstrations."""
    if findings.formats is None:
        return []
    told = [
        f"{range_of_formats(row, findings.formats)} with {demos(row['n_demos'])}{_spread(row)}"
        for row in findings.formats.spread
        if row["metric"] == "rsd" and row["n_demos"] in findings.ends
    ]
    lead = f"RSD over {len(findings.formats.names)} formats, no {findings.mitigation}"
    return [Conclusion(lead, f"{'; '.join(told)}.")] if told else []


def _spread(row: Row) -> str:
    """Return in brackets how far formats lie apart, beside what other rows alone leave, where that is known."""
    alone = row["deviation_of_rows"]
    if alone is None or not row["range"]:
        return ""
    return f" (standard deviation {row['deviation']:.3f}, where rows alone leave {alone:.3f})"


def _baseline(findings: Findings) -> list[Conclusion]:
    """Return the performance at the smallest and largest number of demonstrations beside that of one label for all."""
    rows = _without_mitigation(findings, findings.ends)
    rows = [row for row in rows if row["accuracy"] is not None and row["majority_accuracy"] is not None]
    if not rows:
        return []
    first, *further = rows
    told = [f"{_performance(first)} with {demos(first['n_demos'])}"]
    told += [f"{_performance(row)} with {row['n_demos']}" for row in further]
    constant = f"one label for all has {first['majority_accuracy']:.3f} and {first['majority_macro_f1']:.3f}"
    return [Conclusion(f"Accuracy and macro-F1, no {findings.mitigation}", f"{'; '.join(told)}; {constant}.")]


def _performance(row: Row) -> str:
    return f"{row['accuracy']:.3f} and {'–' if row['macro_f1'] is None else format(row['macro_f1'], '.3f')}"


def _beside(findings: Findings, row: Row, metric: str, noise: str) -> str:
    """Return a comma, and how a bias of a setting without mitigation compares with the noise of its rows."""
    floor = row[f"{metric}_floor"]
    if metric == "bias_score" and not row["n_tasks_bias_score_tested"]:
        return f", which cannot be tested{_why_not_tested(findings, row)}"
    if floor is None:
        return ", of which the rows cannot tell the noise"
    n_above, n_tested = row[f"n_tasks_{metric}"], row[f"n_tasks_{metric}_tested"]
    if row["n_tasks"] > 1:
        of = f"{row['n_tasks']} tasks"
        if n_tested < row["n_tasks"]:
            of = f"the {n_tested} tasks that can be tested"
        counted = f"{n_above} of {of}{_tasks(findings, row, metric)}"
        smallest = _smallest(row, metric) if n_above < n_tested else ""
        return f", above {noise} ({floor:.3f} on average) in {counted}{smallest}"
    [task] = [each for each in findings.by_task if (each["n_demos"], each["method"]) == (row["n_demos"], "none")]
    told = "above" if n_above else "not told from"
    smallest = "" if n_above else _smallest(row, metric)
    tested = f", {told} {noise} ({floor:.3f}; {p_value(task[f'{metric}_p'])}{smallest})"
    return tested + (_preferred(findings, row) if metric == "rsd" and row["is_above_constant"] else "")


def _why_not_tested(findings: Findings, row: Row) -> str:
    """Return behind a colon how few rows of which label BiasScore has."""
    if row["n_tasks"] > 1:
        return ": each task has a label with fewer than 5 of its rows"
    [task] = [each for each in findings.by_task if (each["n_demos"], each["method"]) == (row["n_demos"], "none")]
    n_few, n_rows = task["n_fewest_bias_score_rows"], task["n_bias_score_rows"] // task["n_demo_sets"]
    label = task["fewest_bias_score_label"]
    if not n_few:
        return f": none of its {n_rows} rows is “{label}”"
    return f": {n_few} of its {n_rows} rows {'is' if n_few == 1 else 'are'} “{label}”"


def _smallest(row: Row, metric: str) -> str:
    """Return which bias the test of a task would mostly have told, on average over tasks."""
    found = row[f"{metric}_smallest_detectable"]
    if found is None:
        return "; a run of this size cannot show any"
    where = " in a task tested alone" if row["n_tasks"] > 1 else ""
    return f"; a run of this size shows {found:.3f}{where} in four of five cases"


def _preferred(findings: Findings, row: Row) -> str:
    """Return behind a comma which label the model prefers in the only task, if it is one in all demonstration sets."""
    [label] = [each for each in findings.preferred if each["n_demos"] == row["n_demos"]]
    if not label["is_of_all_sets"]:
        return "; the preferred label differs between sets of demonstrations"
    predicted, gold = _percent(label["predicted_share"]), _percent(label["gold_share"])
    return f", with “{label['label']}” {predicted} of the answers and {gold} of the gold labels"


def _tasks(findings: Findings, row: Row, metric: str) -> str:
    """Return in brackets which tasks are above the noise, where they are few of all."""
    above = [
        each["task"]
        for each in findings.by_task
        if (each["n_demos"], each["method"]) == (row["n_demos"], "none") and each[f"is_{metric}_above"]
    ]
    return f" ({join(above)})" if 0 < len(above) <= min(_N_NAMED, row["n_tasks"] - 1) else ""


def _certainty(findings: Findings) -> list[Conclusion]:
    """Return what the words are about, how sure they are, and what comes closest to a word for other tasks."""
    if not findings.remedies:
        return []
    scope = scope_of_words(findings)
    n_units = findings.remedies[0]["n_units"]
    if not scope.has_words:
        return [
            Conclusion(
                "No verdicts",
                f"a test over {n_units} rows cannot reach 5 %, at least {MIN_UNITS} are needed; "
                "the differences are shown without a word.",
            )
        ]
    behind = " behind the same demonstrations" if findings.n_demos[-1] else ""
    twice = ", of the primary question and of the rest each" if findings.spec.get("primary") else ""
    told = (
        f"“lower” and “higher” hold for new rows of {scope.counted}{behind}; the chance that any of them is "
        f"wrong is about 5 %{twice}. “No clear change”: this run cannot tell{_detectable(findings)}."
    )
    if scope.n_tasks > 1 and not scope.has_words_for_others:
        told += f" Of other tasks {scope.n_tasks} say nothing; at least {MIN_UNITS} are needed."
    elif scope.n_tasks > 1:
        told += f" For other tasks like these {_for_others(findings)}"
    return [Conclusion("How sure", told)]


def _detectable(findings: Findings) -> str:
    """Return behind a semicolon from which size on remedies' changes would mostly be found in these tasks."""
    told = []
    for metric in ("rsd", "accuracy"):
        sizes = [
            by_metric[metric]["same_tasks_smallest_detectable"]
            for place, by_metric in findings.verdicts.items()
            if place[3] == "none" and by_metric[metric]["same_tasks_verdict"] == "unclear"
        ]
        if found := [size for size in sizes if size]:
            told.append(f"{max(found):.3f} of {METRICS[metric]}")
    return (
        f"; a test alone would mostly find {join(told)} there, and half of it in four times as many rows"
        if told
        else ""
    )


def _for_others(findings: Findings) -> str:
    """Return what the words for other tasks are, or that there is none, with the closest miss."""
    verdicts = [
        row["verdict"]
        for place, by_metric in findings.verdicts.items()
        for row in by_metric.values()
        if place[3] == "none"
    ]
    if {"lower", "higher"} & set(verdicts):
        return "“other tasks” has a word of its own, with the same 5 %."
    return f"nothing is shown{closest(findings)}."


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
