"""Numbers, parameters and domains of a search, as its tables, sentences and figures have them."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from biaseval.report.findings import Row
from biaseval.report.qa_training_cells import number as plain_number

_N_SIGNIFICANT = 4
"""Digits of an objective's value in the middle."""

_MOST_DECIMALS = 6
_N_LISTED = 12
"""Values of a domain that are listed; of more, how many there are."""

_LARGEST_WHOLE = 1e6

_DOMAINS = {
    "uniform": "any number from {} to {}",
    "loguniform": "any number from {} to {}, by its logarithm",
    "int": "any whole number from {} to {}",
}


def decimals(values: Iterable[float | None]) -> int:
    """Return with how many decimals an objective with these values is shown: four digits of the one in the middle."""
    sizes = [abs(value) for value in values if value]
    if not sizes:
        return _N_SIGNIFICANT - 1
    return min(max(_N_SIGNIFICANT - 1 - _exponent(statistics.median_low(sizes)), 0), _MOST_DECIMALS)


def number(value: float | None, digits: int, *, signed: bool = False) -> str:
    """Return a number of an objective; one that its decimals cannot show has a power of ten."""
    if value is None or not math.isfinite(value):
        return plain_number(None)
    # What is a millionth of the last decimal is what the order of summation left.
    if abs(value) < 10.0 ** (-digits - 6):
        return plain_number(0.0, digits, signed=signed)
    exponent = _exponent(value)
    if abs(value) < 0.5 * 10.0**-digits or exponent >= 9:
        return format(value, f"{'+' if signed else ''}.2e").replace("-", "\N{MINUS SIGN}")
    return plain_number(value, min(digits, max(0, 5 - exponent)), signed=signed)


def estimate(row: Row, column: str, digits: int, *, signed: bool = False) -> str:
    """Return a number with its interval, if it has one, in words: ``0.812 [0.790, 0.834]``."""
    shown = [number(row.get(name), digits, signed=signed) for name in (column, f"{column}_low", f"{column}_high")]
    return shown[0] if row.get(f"{column}_low") is None else f"{shown[0]} [{shown[1]}, {shown[2]}]"


def estimate_cell(row: Row | None, column: str, digits: int, *, signed: bool = False) -> str:
    """Return the same for a cell of a table; a signed one whose interval leaves 0 out is bold."""
    if row is None:
        return plain_number(None)
    value, _, interval = estimate(row, column, digits, signed=signed).partition(" ")
    if signed and interval and row[f"{column}_low"] * row[f"{column}_high"] > 0:
        value = Markup("<b>{}</b>").format(value)
    return Markup('{} <span class="interval">{}</span>').format(value, interval) if interval else value


def parameter(value: Any) -> str:
    """Return a value of a searched key; numbers to four digits."""
    if isinstance(value, float):
        is_whole = value.is_integer() and abs(value) < _LARGEST_WHOLE
        return f"{value:{'.0f' if is_whole else '.4g'}}".replace("-", "\N{MINUS SIGN}")
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def parameters(point: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Return a point in words: ``bias_scale 0.5, entropy_penalty 1.626``; names are those of keys."""
    return ", ".join(f"{names[key]} {parameter(value)}" for key, value in point.items())


def flat_range(row: Row) -> str:
    """Return where the other values lie that nothing tells from the chosen one, of a search's one key of numbers."""
    low, high = row["flat_low"], row["flat_high"]
    if low is None:
        return ""
    return parameter(low) if low == high else f"{parameter(low)}–{parameter(high)}"


def domain_words(domain: str, values: Sequence[Any]) -> str:
    """Return where the values of a key came from."""
    if domain in _DOMAINS:
        return _DOMAINS[domain].format(*map(parameter, values))
    if len(values) > _N_LISTED:
        return f"{len(values):,} values, from {parameter(values[0])} to {parameter(values[-1])}"
    return ", ".join(map(parameter, values))


def short_keys(keys: Sequence[str]) -> dict[str, str]:
    """Return each key's last name, with as many before it as tell the keys apart; of ``thresholds.*`` all of it."""
    shown = {}
    for key in keys:
        parts = key.split(".")
        if parts[-1] == "*":
            shown[key] = key
            continue
        others = [other.split(".") for other in keys if other != key]
        n_parts = next((n for n in range(1, len(parts)) if all(own[-n:] != parts[-n:] for own in others)), len(parts))
        shown[key] = ".".join(parts[-n_parts:])
    return shown


def _exponent(value: float) -> int:
    return math.floor(math.log10(abs(value)))
