"""What a run may be said to show, in sentences: each word of them is a verdict of the marts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from biaseval.report.findings import METRICS, Findings, Row
from biaseval.report.methods import method_name

MIN_UNITS = 6
"""Fewer tasks than this, and no test of them can reach 5 %: the word of `verdict` is then ``too few``."""

_SEEN = 0.05
"""The difference of ``*_n_needed`` in the marts."""


class Line(NamedTuple):
    """A line of the verdict."""

    lead: str
    text: str


def conclude(findings: Findings) -> list[Line]:
    """Return the verdict: what the model does without mitigation, how sure that is, and what follows."""
    lines = [*_constant(findings), *_bias(findings, "rsd"), *_bias(findings, "bias_score")]
    return [*lines, *_certainty(findings), *_advice(findings)]


def measured(findings: Findings) -> str:
    """Return what the run measured, in one line."""
    scope = findings.scope
    least, most = scope["n_labels_least"], scope["n_labels_most"]
    n_sets = max(row["n_demo_sets"] for row in findings.by_suite["all"])
    places = f"{_numbers(findings.n_demos)} demonstration{'' if findings.n_demos == (1,) else 's'}"
    sets = f" ({n_sets} sets of them)" if n_sets > 1 else ""
    date = findings.environment.get("date")
    parts = [
        counted(scope["n_tasks"], "task"),
        f"{counted(scope['n_rows'], 'test row')}, {least if least == most else f'{least} to {most}'} labels",
        places + sets,
        join([method_name(method, findings.mitigation) for method in findings.methods]),
        *([str(date)] if date else []),
    ]
    return " · ".join(parts)


def word(verdict: str | None, unit: str) -> str:
    """Return a verdict of the marts as the page says it; nothing where there is none.

    Args:
        verdict: of ``label_bias_verdicts``.
        unit: what the test is over, ``tasks`` or ``rows``.
    """
    if verdict is None:
        return ""
    return {"unclear": "no clear change", "too few": f"too few {unit} to say"}.get(verdict, verdict)


class Scope(NamedTuple):
    """What the words of a page are about."""

    has_words: bool
    """Some differences have a word for other rows of these tasks."""
    has_words_for_others: bool
    """So have some for other tasks like these, beside those."""
    n_tasks: int

    @property
    def these(self) -> str:
        """How sentences call the tasks of the run."""
        return "this task" if self.n_tasks == 1 else "these tasks"


def scope_of_words(findings: Findings) -> Scope:
    """Return what the words of the page can be about; of one task both words are the same."""
    rows = [row for by_metric in findings.verdicts.values() for row in by_metric.values()]
    n_tasks = findings.scope["n_tasks"]
    return Scope(
        has_words=any(row["same_tasks_verdict"] not in (None, "too few") for row in rows),
        has_words_for_others=n_tasks > 1 and any(row["verdict"] not in (None, "too few") for row in rows),
        n_tasks=n_tasks,
    )


def _constant(findings: Findings) -> list[Line]:
    """Return where the answers are nearly all the same without mitigation."""
    rows = [row for row in _without_mitigation(findings, findings.n_demos) if row["n_tasks_constant"]]
    if not rows:
        return []
    if findings.scope["n_tasks"] > 1:
        first, *further = rows
        told = [f"{first['n_tasks_constant']} of {first['n_tasks']} tasks with {demos(first['n_demos'])}"]
        told += [f"{row['n_tasks_constant']} with {row['n_demos']}" for row in further]
        return [
            Line(
                "Nearly always the same answer",
                f"in {join(told)} (more than 95 % of the answers, no {findings.mitigation}).",
            )
        ]
    answers = {row["n_demos"]: row for row in findings.answers}
    places: dict[str, list[int]] = {}
    for row in rows:
        answer = answers[row["n_demos"]]
        predicted, gold = _percent(answer["predicted_share"]), _percent(answer["gold_share"])
        shares = f"“{answer['label']}” is {predicted} of the answers and {gold} of the gold labels"
        places.setdefault(shares, []).append(row["n_demos"])
    told = [f"{shares} with {_numbers(numbers)} {_demonstrations(numbers[-1])}" for shares, numbers in places.items()]
    return [Line("Nearly always the same answer", f"{'; '.join(told)} (no {findings.mitigation}).")]


def _without_mitigation(findings: Findings, n_demos: Iterable[int]) -> list[Row]:
    return [row for row in (findings.mean(number, "none") for number in n_demos) if row is not None]


def _bias(findings: Findings, metric: str) -> list[Line]:
    """Return the bias at the smallest and largest number of demonstrations, beside what rows alone leave."""
    rows = [row for row in _without_mitigation(findings, findings.ends) if row[metric] is not None]
    if not rows:
        return []
    first, *further = rows
    told = [
        f"{first[metric]:.3f} with {demos(first['n_demos'])}{_beside(findings, first, metric, 'the noise of rows')}"
    ]
    told += [f"{row[metric]:.3f} with {row['n_demos']}{_beside(findings, row, metric, 'it')}" for row in further]
    perfect = rows[-1]["bias_score_of_perfect"]
    best = f" A model that is always right has {perfect:.3f}." if metric == "bias_score" and perfect else ""
    return [Line(f"{METRICS[metric]}, no {findings.mitigation}", f"{'; '.join(told)}.{best}")]


def _beside(findings: Findings, row: Row, metric: str, noise: str) -> str:
    """Return a comma, and how a bias of a setting without mitigation compares with the noise of its rows."""
    floor = row[f"{metric}_floor"]
    if floor is None:
        return ", of which the rows cannot tell the noise"
    n_above = row[f"n_tasks_{metric}"]
    if row["n_tasks"] > 1:
        return f", above {noise} ({floor:.3f}) in {n_above} of {row['n_tasks']} tasks"
    [task] = [each for each in findings.by_task if (each["n_demos"], each["method"]) == (row["n_demos"], "none")]
    return f", {'above' if n_above else 'not told from'} {noise} ({floor:.3f}; {p_value(task[f'{metric}_p'])})"


def _certainty(findings: Findings) -> list[Line]:
    """Return what the words are about, how sure they are, and how small a difference the tests see."""
    if not findings.remedies:
        return []
    scope = scope_of_words(findings)
    unit, n_units = findings.remedies[0]["unit"], findings.remedies[0]["n_units"]
    if not scope.has_words:
        return [
            Line(
                "No verdicts",
                f"a test over {n_units} rows cannot reach 5 %, at least {MIN_UNITS} are needed; "
                "the differences are shown without a word.",
            )
        ]
    if scope.n_tasks == 1:
        told = (
            f"“lower” and “higher” are for other rows of this task (tested over {n_units:,}), with a 5 % chance of any "
            "wrong word."
        )
    elif scope.has_words_for_others:
        told = (
            f"the first word of each difference is for other rows of these {scope.n_tasks:,} tasks, “others” (where "
            "not the same) for other tasks like these; of each, the chance of any wrong word is 5 %."
        )
    else:
        told = (
            f"“lower” and “higher” are for other rows of these {scope.n_tasks:,} tasks, with a 5 % chance of any wrong "
            f"word; of other tasks a test over {n_units} says nothing, at least {MIN_UNITS} are needed."
        )
    seen = _seen(findings)
    if scope.n_tasks == 1 or scope.has_words_for_others:
        one = "One" if unit == "rows" else "Of other tasks, one"
        told += f" {one} test alone mostly finds a change of {seen}." if seen else ""
    return [Line("How sure", told)]


def _seen(findings: Findings) -> str:
    """Return the smallest differences that tests of one alone mostly find."""
    seen = []
    for metric in ("rsd", "accuracy"):
        sizes = [
            rows[metric]["smallest_detectable"]
            for rows in findings.verdicts.values()
            if rows.get(metric, {}).get("smallest_detectable")
        ]
        if sizes:
            seen.append(f"{METRICS[metric]} by {_range([f'{size:.3f}' for size in (min(sizes), max(sizes))])}")
    return join(seen) if seen else ""


def _advice(findings: Findings) -> list[Line]:
    """Return the remedies that lower a bias without a loss that tests see, on these tasks and on others like them."""
    lead = "What to do"
    if not findings.remedies:
        return [Line(lead, "no remedy was measured; the spec's key calibration names some.")]
    scope = scope_of_words(findings)
    if not scope.has_words:
        return [Line(lead, f"measure {MIN_UNITS} rows or more; nothing can be recommended from these.")]
    here = [row for row in findings.remedies if row["is_supported_on_these_tasks"]]
    if here:
        told = (
            f"on {scope.these}, RSD or BiasScore is lower, and no loss of accuracy or macro-F1 is seen, with "
            f"{_named(here, findings)}."
        )
    else:
        told = f"on {scope.these}, no remedy is shown to lower RSD or BiasScore without a loss of accuracy or macro-F1."
    return [Line(lead, f"{told}{_advice_for_others(findings, scope, here)}")]


def _advice_for_others(findings: Findings, scope: Scope, here: Sequence[Row]) -> str:
    """Return, with a blank before it, what is shown for other tasks like these, or what that would take."""
    if scope.n_tasks == 1:
        return "" if here else _takes(findings.remedies, findings)
    if not scope.has_words_for_others:
        return f" For other tasks nothing is shown; measure {MIN_UNITS} tasks or more."
    there = [row for row in findings.remedies if row["is_supported"]]
    if not there:
        none = (
            " None of this is shown for other tasks like these." if here else " Nor is one for other tasks like these."
        )
        return none + _takes(here or findings.remedies, findings)
    if there == list(here):
        return " All of this is shown for other tasks like these, too."
    return f" For other tasks like these, it is shown with {_named(there, findings)}."


def _named(remedies: Iterable[Row], findings: Findings) -> str:
    """Return remedies with the numbers of demonstrations of each."""
    places: dict[str, list[int]] = {}
    for row in remedies:
        name = "more demonstrations" if row["method"] == "none" else remedy_name(row, findings)
        places.setdefault(name, []).append(row["n_demos"])
    (first, numbers), *others = places.items()
    named = [f"{first} ({_numbers(numbers)} {_demonstrations(numbers[-1])})"]
    return join([*named, *(f"{name} ({_numbers(numbers)})" for name, numbers in others)])


def _takes(remedies: Iterable[Row], findings: Findings) -> str:
    """Return, with a blank before it, how many units find a change of RSD by one of these that is not told."""
    unclear = [
        row for row in remedies if row["rsd_verdict"] == "unclear" and (row["rsd_n_needed"] or 0) > row["n_units"]
    ]
    if not unclear:
        return ""
    unclear.sort(key=lambda row: row["rsd_n_needed"])
    least, most = unclear[0], unclear[-1]
    takes = f"about {least['rsd_n_needed']:,} {least['unit']} for {remedy_place(least, findings)}"
    if most["rsd_n_needed"] > least["rsd_n_needed"]:
        takes += f" to {most['rsd_n_needed']:,} for {remedy_place(most, findings)}"
    return f" To find a change of RSD by {_SEEN} takes {takes}; this run has {least['n_units']:,}."


def remedy_place(row: Row, findings: Findings) -> str:
    """Return how sentences call a remedy at its number of demonstrations."""
    if row["method"] == "none":
        return f"{remedy_name(row, findings)} demonstrations"
    return f"{remedy_name(row, findings)} with {demos(row['n_demos'])}"


def remedy_name(row: Row, findings: Findings) -> str:
    """Return how the page calls a remedy: a method, or more demonstrations without any."""
    if row["method"] == "none":
        return f"{row['n_demos']} rather than {row['against_n_demos']}"
    return method_name(row["method"], findings.mitigation)


def preferred_label(labels: Sequence[Row]) -> Row:
    """Return the label that is predicted most beyond its share of the gold labels (the first of those, on ties)."""
    return max(labels, key=lambda label: label["predicted_share"] - label["gold_share"])


def p_value(p: float | None) -> str:
    """Return a p-value as text."""
    return "no test" if p is None else "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def signed(value: float | None) -> str:
    """Return a difference with its sign."""
    # Adding 0.0 turns the -0.0 that rounding may leave into 0.0.
    return "" if value is None else f"{round(value, 3) + 0.0:+.3f}".replace("-", "\N{MINUS SIGN}")


def join(words: Iterable[str]) -> str:
    """Return words as a sentence lists them: ``a, b and c``."""
    *first, last = list(words)
    return f"{', '.join(first)} and {last}" if first else last


def _range(ends: Sequence[str]) -> str:
    return ends[0] if ends[0] == ends[-1] else f"{ends[0]} to {ends[-1]}"


def _numbers(numbers: Iterable[int]) -> str:
    return join([str(number) for number in numbers])


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def demos(number: int) -> str:
    """Return a number of demonstrations in words."""
    return f"{number} {_demonstrations(number)}"


def _demonstrations(number: int) -> str:
    return f"demonstration{'' if number == 1 else 's'}"


def counted(number: int, thing: str) -> str:
    """Return a number of things in words."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
