"""Numbers and changes of trained readers, as tables and sentences have them."""

from __future__ import annotations

from markupsafe import Markup

from biaseval.report.findings import Row

_NOT_MEASURED = "–"

VERDICTS = {"significance_change": "verdict", "f1_change": "f1_verdict"}
"""Change to the column of its row that says what it may be said to show; others have no word."""


def number(value: float | None, digits: int = 2, *, signed: bool = False) -> str:
    """Return a number as tables and sentences have it."""
    if value is None:
        return _NOT_MEASURED
    # Adding 0.0 turns the -0.0 that rounding may leave into 0.0.
    shown = format(round(value, digits) + 0.0, f"{'+' if signed else ''},.{digits}f")
    return shown.replace("-", "\N{MINUS SIGN}")


def estimate(row: Row, column: str, scale: float = 1) -> str:
    """Return a signed change with its interval, if it has one, in words: ``−5.64 [−7.20, −3.90]``."""
    value, low, high = _scaled(row, column, scale)
    shown = number(value, signed=True)
    return (
        shown if low is None or high is None else f"{shown} [{number(low, signed=True)}, {number(high, signed=True)}]"
    )


def change_cell(row: Row | None, column: str, scale: float = 1) -> str:
    """Return a signed change with its interval; bold where its verdict is that it is lower or higher."""
    if row is None or row[column] is None:
        return _NOT_MEASURED
    value, low, high = _scaled(row, column, scale)
    shown = Markup("<b>{}</b>" if row.get(VERDICTS.get(column, "")) in ("lower", "higher") else "{}").format(
        number(value, signed=True)
    )
    if low is None or high is None:
        return shown
    return shown + Markup(' <span class="interval">[{}, {}]</span>').format(
        number(low, signed=True), number(high, signed=True)
    )


def duration(seconds: float | None) -> str:
    """Return a time in the unit that suits it."""
    if seconds is None:
        return _NOT_MEASURED
    for size, unit in ((3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.1f} seconds"


def _scaled(row: Row, column: str, scale: float) -> tuple[float | None, float | None, float | None]:
    value, low, high = (
        None if row.get(name) is None else scale * row[name] for name in (column, f"{column}_low", f"{column}_high")
    )
    return value, low, high
