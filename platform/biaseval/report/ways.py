"""What tables and figures of majority-bias runs call the ways of predicting, and the order that they stand in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from biaseval.report.findings import METHODS, Row, method_order

WAYS = {"likelihood": "label likelihood", "generate": "free generation", "constrained": "constrained generation"}
"""The display names of the ways of predicting, in the order of tables and figures."""

INSTRUCTIONS = {False: "without", True: "with"}
"""The display names of prompts without and with the instruction, in P2's order."""

K = 0.1
"""The distance from the best weighted F1 within which a setting is inside the robustness boundary (P2, RB@10)."""

_TOLERANCE = 1e-9


def way_name(predict: str, method: str) -> str:
    """Return the display name of a way of predicting with its calibration."""
    shown = WAYS.get(predict, predict)
    return shown if method == "none" else f"{shown}, {METHODS.get(method, method)}"


def way_order(row: Row) -> tuple[int, tuple[int, str]]:
    """Return the sort key of a row's way of predicting and calibration."""
    ways = list(WAYS)
    return (ways.index(row["predict"]) if row["predict"] in ways else len(ways), method_order(row["method"]))


def ways_of(rows: Iterable[Row]) -> list[tuple[str, str]]:
    """Return each (predict, method) of the rows, in the order of tables."""
    return list(dict.fromkeys((row["predict"], row["method"]) for row in sorted(rows, key=way_order)))


def boundary(points: Sequence[Row]) -> float:
    """Return the least weighted F1 that counts as near the best of these settings, tolerance included."""
    return float(max(row["weighted_f1"] for row in points)) - K - _TOLERANCE
