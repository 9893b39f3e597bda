"""Formats of numbers and names in pages, figures and terminals."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from biaseval.metric_files import METRICS
from biaseval.report.names import OF_MAJORITY, SUITES, WAYS, method_name

MISSING = "–"
N_LETTERS = 300
"""The length at which texts of a run are truncated."""


def rounded(value: float, number_format: str = ".3f") -> str:
    """Return a number with a true minus sign; a number that rounds to 0 has no sign."""
    text = format(value, number_format)
    return text.lstrip("-") if not text.strip("-0.") else text.replace("-", "\N{MINUS SIGN}")


def three_digits(value: float, sign: str = "") -> str:
    """Return a number with three digits; whole numbers and those from 1,000 on have all before the point."""
    return rounded(value, f"{sign},.0f" if abs(value) >= 1000 or value == round(value) else f"{sign}.3g")


def cut(text: str) -> str:
    """Return a text, truncated after `N_LETTERS`."""
    return text if len(text) <= N_LETTERS else f"{text[:N_LETTERS]} …"


def p_value(value: float) -> str:
    """Return a p-value as text."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


FORMATS: Mapping[str, Callable[[Any], str]] = {
    "text": lambda value: cut(str(value)),
    "name": lambda value: cut(str(value)),
    "quote": lambda value: cut(str(value)),
    "marked": "".join,
    "code": str,
    "method": method_name,
    "way": lambda value: WAYS.get(value, value),
    "metric": lambda value: METRICS[value].shown if value in METRICS else OF_MAJORITY.get(value, value),
    "suite": lambda value: SUITES.get(value, value),
    "yes": lambda value: "yes" if value else "no",
    "shown": lambda value: "yes" if value else "no" if value is not None else "not shown",
    "list": lambda values: ", ".join(cut(str(value)) for value in values),
    "count": lambda value: f"{value:,}",
    "number": lambda value: f"{value:g}",
    "any": three_digits,
    "signed": lambda value: three_digits(value, "+"),
    "rate": rounded,
    "change": lambda value: rounded(value, "+.3f"),
    "small": lambda value: rounded(value, ".5f"),
    "percent": lambda value: f"{100 * value:.1f} %",
    "bar": lambda value: f"{100 * value:.1f} %",
    "points": lambda value: rounded(value, ".1f"),
    "seconds": lambda value: f"{value:,.1f}",
    "p": p_value,
}
"""Formats of present values, by name."""

TEXTS = ("text", "name", "quote", "marked", "code", "method", "way", "metric", "suite", "yes", "shown", "list")
"""The formats of texts rather than numbers."""


def is_missing(value: Any, how: str = "rate") -> bool:
    """Return whether a value is missing: null (except for ``shown``, which describes it) or a non-finite number."""
    return (value is None and how != "shown") or (isinstance(value, float) and not math.isfinite(value))


def written(value: Any, how: str = "rate") -> str:
    """Return a value in one of `FORMATS`; a dash if it is missing."""
    return MISSING if is_missing(value, how) else FORMATS[how](value)
