"""The rates of simulated runs as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_OF_RATES = ("kind", "quantity", "metric", "rate", "error", "n_runs")
"""Columns of a row; the others say which cell it is of, and are the same in all cells of a kind."""


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return tables for each kind, one for each quantity: a line for each cell, and a column for each metric.

    Rates are in percent, with their Monte Carlo standard errors.

    Args:
        rows: of `biaseval.validation.study.summary`.
    """
    lines = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        own = [row for row in rows if row["kind"] == kind]
        lines.append(f"## {_sentence(kind.replace('_', ' '))}\n")
        for quantity in dict.fromkeys(row["quantity"] for row in own):
            lines += _table(quantity, [row for row in own if row["quantity"] == quantity])
    return "\n".join(lines)


def _table(quantity: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    place = [name for name in rows[0] if name not in _OF_RATES]
    metrics = sorted({row["metric"] for row in rows})
    cells: dict[tuple[Any, ...], dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        cells.setdefault(tuple(row[name] for name in place), {})[row["metric"]] = row
    heads = [*(name.removeprefix("n_").replace("_", " ") for name in place), "runs", *metrics]
    lines = [f"### {_sentence(quantity)}\n", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for cell, found in cells.items():
        # Not every run has every number.
        n_runs = max(row["n_runs"] for row in found.values())
        rates = [_percent(found.get(metric)) for metric in metrics]
        lines.append(f"| {' | '.join([*map(str, cell), f'{n_runs:,}', *rates])} |")
    return [*lines, ""]


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


def _percent(row: Mapping[str, Any] | None) -> str:
    return "–" if row is None or row["rate"] is None else f"{100 * row['rate']:.1f} ± {100 * row['error']:.1f}"
