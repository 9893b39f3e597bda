"""How tables and figures of majority-bias runs name and order what they show."""

from __future__ import annotations

from collections.abc import Iterable

from biaseval.report.findings import Row
from biaseval.report.methods import Order, method_name, method_order

WAYS = {"likelihood": "label likelihood", "generate": "free generation", "constrained": "constrained generation"}
"""The display names of the ways of predicting, in the order of tables and figures."""

INSTRUCTIONS = {False: "without", True: "with"}
"""The display names of prompts without and with the instruction, in P2's order."""

REGIONS = ("tails", "middle")
"""The regions of settings, in the order of tables."""


def way_name(predict: str, method: str) -> str:
    """Return the display name of a way of predicting with its calibration."""
    shown = WAYS.get(predict, predict)
    return shown if method == "none" else f"{shown}, {method_name(method)}"


def row_order(row: Row) -> tuple[tuple[int, Order], int]:
    """Return the sort key of a row's way of predicting, calibration and instruction."""
    return way_order(row), list(INSTRUCTIONS).index(row["instruction"])


def way_order(row: Row) -> tuple[int, Order]:
    """Return the sort key of a row's way of predicting and calibration."""
    ways = list(WAYS)
    return (ways.index(row["predict"]) if row["predict"] in ways else len(ways), method_order(row["method"]))


def ways_of(rows: Iterable[Row]) -> list[tuple[str, str]]:
    """Return each (predict, method) of the rows, in the order of tables."""
    return list(dict.fromkeys((row["predict"], row["method"]) for row in sorted(rows, key=way_order)))
