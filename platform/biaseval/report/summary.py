"""How sentences of reports name and count things, and what the words of a label-bias report are about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from biaseval.report.findings import Findings, Row
from biaseval.report.methods import method_name

MIN_UNITS = 6
"""Fewer tasks than this, and no test of them can reach 5 %: the word of `verdict` is then ``too few``."""


class Line(NamedTuple):
    """A line of the verdict."""

    lead: str
    text: str


def measured(findings: Findings) -> str:
    """Return what the run measured, in one line."""
    scope = findings.scope
    least, most = scope["n_labels_least"], scope["n_labels_most"]
    n_sets = max(row["n_demo_sets"] for row in findings.by_suite["all"])
    places = f"{numbers(findings.n_demos)} demonstration{'' if findings.n_demos == (1,) else 's'}"
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
    def counted(self) -> str:
        """How many tasks the run has, as sentences call them."""
        return "this task" if self.n_tasks == 1 else f"these {self.n_tasks:,} tasks"

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


def remedy_name(row: Row, findings: Findings) -> str:
    """Return how the page calls a remedy: a method, or more demonstrations without any."""
    if row["method"] == "none":
        return f"{demos(row['n_demos'])}, compared with {row['against_n_demos']}"
    return method_name(row["method"], findings.mitigation)


BESIDE_CONSTANT = {
    True: "better than one label for all",
    False: "no better than one label for all",
    None: "not shown to be better than one label for all",
}
"""The column ``is_above_constant`` in words."""


def beside_constant(row: Row) -> str:
    """Return accuracy and macro-F1 of a setting beside those of the best answer that is always the same.

    Args:
        row: of ``label_bias_by_model`` or ``label_bias_remedies``.
    """
    macro_f1 = "–" if row["macro_f1"] is None else f"{row['macro_f1']:.3f}"
    return (
        f"accuracy {row['accuracy']:.3f} and macro-F1 {macro_f1}, where one label for all has "
        f"{row['majority_accuracy']:.3f} and {row['majority_macro_f1']:.3f}"
    )


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


def numbers(each: Iterable[int]) -> str:
    """Return numbers as a sentence lists them."""
    return join([str(number) for number in each])


def demos(number: int) -> str:
    """Return a number of demonstrations in words."""
    return f"{number} {demonstrations(number)}"


def demonstrations(number: int) -> str:
    """Return the word for so many."""
    return f"demonstration{'' if number == 1 else 's'}"


def counted(number: int, thing: str) -> str:
    """Return a number of things in words."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
