"""The rates of simulated runs as tables."""

from collections.abc import Mapping, Sequence
from typing import Any

_OF_RATES = ("kind", "quantity", "metric", "rate", "error", "n_runs")
"""Columns of a row; the others say which cell it is of, and are the same in all cells of a kind."""

_COVERING = ("interval", "simultaneous bands", "bands")
"""Quantities that begin so are intervals, and their rates coverage."""


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return tables for each kind: an overview, then one for each quantity, with a line for each cell.

    Rates are in percent, with their Monte Carlo standard errors.

    Args:
        rows: of `tests.validation.study.summary`.
    """
    lines = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        own = [row for row in rows if row["kind"] == kind]
        lines.append(f"## {_sentence(kind.replace('_', ' '))}\n")
        lines += _overview(own)
        for quantity in dict.fromkeys(row["quantity"] for row in own):
            lines += _table(quantity, [row for row in own if row["quantity"] == quantity])
    return "\n".join(lines)


def _overview(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a table with a line for each size of runs: wrong pages by effect, power, least and greatest coverage."""
    sizes = [name for name in rows[0] if name not in _OF_RATES and name != "effect"]
    by_size: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        by_size.setdefault(tuple(row[name] for name in sizes), []).append(row)
    wrong = dict.fromkeys((row["effect"], row["metric"]) for row in rows if row["quantity"] == "wrong page")
    power = dict.fromkeys((row["effect"], row["metric"]) for row in rows if row["quantity"] == "power")
    held = dict.fromkeys(row["quantity"] for row in rows if row["quantity"].startswith(_COVERING))
    heads = [
        " × ".join(name.removeprefix("n_").replace("_", " ") for name in sizes),
        "runs",
        *(f"wrong page, {effect}{'' if metric == 'all' else f', {metric}'}" for effect, metric in wrong),
        *(f"power, {effect}, {metric}" for effect, metric in power),
        *(f"coverage: {quantity}" for quantity in held),
    ]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for size, own in by_size.items():
        found = {(row["quantity"], row["effect"], row["metric"]): row for row in own}
        cells = [
            " × ".join(f"{number:,}" for number in size),
            f"{max(row['n_runs'] for row in own):,}",
            *(_percent(found.get(("wrong page", *place))) for place in wrong),
            *(_percent(found.get(("power", *place))) for place in power),
            *(_least_and_greatest([row for row in own if row["quantity"] == quantity]) for quantity in held),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


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


def _least_and_greatest(rows: Sequence[Mapping[str, Any]]) -> str:
    rates = [row["rate"] for row in rows if row["rate"] is not None]
    return f"{100 * min(rates):.0f}–{100 * max(rates):.0f}" if rates else "–"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


def _percent(row: Mapping[str, Any] | None) -> str:
    return "–" if row is None or row["rate"] is None else f"{100 * row['rate']:.1f} ± {100 * row['error']:.1f}"
