"""How tables and figures of majority-bias runs name and order what they show, and when its numbers say something."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from biaseval.report.findings import Row
from biaseval.report.methods import method_name, method_order

WAYS = {"likelihood": "label likelihood", "generate": "free generation", "constrained": "constrained generation"}
"""The display names of the ways of predicting, in the order of tables and figures."""

INSTRUCTIONS = {False: "without", True: "with"}
"""The display names of prompts without and with the instruction, in P2's order."""

K = 0.1
"""The distance from the best weighted F1 within which a setting is inside the robustness boundary (P2, RB@10)."""

REGIONS = ("tails", "middle")
"""The regions of settings, in the order of tables."""

_MOST_WITHOUT_LABEL = 0.5
"""Where a larger share of the outputs is no label, weighted F1 measures the format of the outputs, not the answers."""

_TOLERANCE = 1e-9


def way_name(predict: str, method: str) -> str:
    """Return the display name of a way of predicting with its calibration."""
    shown = WAYS.get(predict, predict)
    return shown if method == "none" else f"{shown}, {method_name(method)}"


def row_order(row: Row) -> tuple[tuple[int, tuple[int, str]], int]:
    """Return the sort key of a row's way of predicting, calibration and instruction."""
    return way_order(row), list(INSTRUCTIONS).index(row["instruction"])


def way_order(row: Row) -> tuple[int, tuple[int, str]]:
    """Return the sort key of a row's way of predicting and calibration."""
    ways = list(WAYS)
    return (ways.index(row["predict"]) if row["predict"] in ways else len(ways), method_order(row["method"]))


def ways_of(rows: Iterable[Row]) -> list[tuple[str, str]]:
    """Return each (predict, method) of the rows, in the order of tables."""
    return list(dict.fromkeys((row["predict"], row["method"]) for row in sorted(rows, key=way_order)))


def boundary(points: Sequence[Row]) -> float | None:
    """Return the least weighted F1 that counts as near the best of these settings.

    None where being near it says nothing: the best is 0, or most outputs are no label.

    Args:
        points: rows of ``majority_over_seeds``, of one model, way of predicting, method and instruction.
    """
    best = float(max(row["weighted_f1"] for row in points))
    without_label = sum(row["share_no_label"] for row in points) / len(points)
    return None if best <= 0 or without_label > _MOST_WITHOUT_LABEL else best - K


def within(points: Sequence[Row]) -> list[bool]:
    """Return which settings are to be marked as inside the robustness boundary; none where it says nothing.

    Args:
        points: as for `boundary`.
    """
    says_something = bool(points) and boundary(points) is not None
    return [says_something and row["is_within"] for row in points]


def half_width(points: Sequence[Row]) -> float | None:
    """Return the median half width of the settings' intervals of weighted F1; None without intervals.

    Settings where every answer is right, or every one wrong, are left out unless all are so: whatever the number of
    rows, resampling them gives no width.

    Args:
        points: as for `boundary`.
    """
    if not points or any(row["weighted_f1_low"] is None for row in points):
        return None
    widths = [(row["weighted_f1_high"] - row["weighted_f1_low"]) / 2 for row in points]
    return float(median([width for width in widths if width > _TOLERANCE] or [0.0]))


def has_enough_rows(points: Sequence[Row]) -> bool:
    """Return whether the test rows are enough to say which settings are inside the robustness boundary.

    They are too few where the intervals of weighted F1 are, in the median, wider to a side than the boundary's
    distance from the best setting.

    Args:
        points: as for `boundary`.
    """
    width = half_width(points)
    return width is not None and width <= K


def clear_sign(change: Row, metric: str) -> int | None:
    """Return the sign of a change where it is clear: 1 or -1, 0 for no change at all, None where it is not clear.

    A bootstrap interval may lie to a side of its own estimate (of RB@10 and of sd, which resampling moves). So the
    change is clear only where its interval has its sign and includes it.

    Args:
        change: has the metric with its ``_low`` and ``_high``, which are None without interval.
        metric: a difference.
    """
    value, low, high = (change[f"{metric}{end}"] for end in ("", "_low", "_high"))
    if abs(value) <= _TOLERANCE:
        return 0
    if low is None or not low - _TOLERANCE <= value <= high + _TOLERANCE or low <= 0 <= high:
        return None
    return 1 if value > 0 else -1
