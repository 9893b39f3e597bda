"""What figures of a QA-bias run share: metrics' names, models' colours, titles, and names that fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from biaseval.report.qa_findings import QaFindings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

METRICS = {"exact_match": "exact match", "f1": "F1"}
INK, GRID = "#333333", "#dddddd"
N_CHARACTERS = 22
"""Of a name beside a plot."""


class Style(NamedTuple):
    """A colour, and a mark that tells models apart without it."""

    color: str
    marker: str


# After Okabe & Ito (colour-blind safe), darkened so that names in these colours are readable.
_STYLES = (
    Style("#0063a3", "o"),
    Style("#b84a00", "s"),
    Style("#007a57", "^"),
    Style("#9c4380", "D"),
    Style("#806600", "v"),
    Style("#333333", "P"),
    Style("#555599", "X"),
    Style("#8a1c1c", "p"),
)


def title_of(metric: str) -> str:
    """Return a metric's name at the beginning of a title."""
    return f"{METRICS[metric][0].upper()}{METRICS[metric][1:]}"


def put_title(axes: Axes, title: str) -> None:
    """Write the title from the figure's left edge on, so that wide tick labels leave it all of the width."""
    axes.figure.suptitle(title, x=0.01, ha="left", fontweight="bold")


def style_of(findings: QaFindings, model: str) -> Style:
    """Return how a model is drawn."""
    return _STYLES[findings.models.index(model) % len(_STYLES)]


def plain_names(heuristics: Sequence[str]) -> list[str]:
    """Return the functions' names of ``module:function`` without their modules, where only one is called so."""
    functions = [heuristic.rpartition(":")[2] for heuristic in heuristics]
    return [
        function if functions.count(function) == 1 else heuristic
        for heuristic, function in zip(heuristics, functions, strict=True)
    ]


def short_names(names: Sequence[str], n_characters: int = N_CHARACTERS) -> dict[str, str]:
    """Return each name in about ``n_characters``, cut in the middle; those that would be the same get a number."""
    found: dict[str, str] = {}
    for name in names:
        short = short_name(name, n_characters)
        found[name] = short if short not in found.values() else f"{short} ({len(found) + 1})"
    return found


def short_name(name: str, n_characters: int = N_CHARACTERS) -> str:
    """Return a name in about ``n_characters``, cut in the middle."""
    n_end = (n_characters - 1) // 2
    return name if len(name) <= n_characters else f"{name[: n_characters - 1 - n_end]}…{name[-n_end:]}"
