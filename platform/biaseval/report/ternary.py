"""Weighted F1 over the settings of three labels: a triangle with a mark where each setting's shares are."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from biaseval.report.findings import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HEIGHT = math.sqrt(3) / 2
_CORNERS = ((0.0, 0.0), (1.0, 0.0), (0.5, _HEIGHT))
_SIDE_POINTS = 150
"""The length of a side in the figure, about, in points."""
_LARGEST_MARK, _LEAST_READABLE = 23.0, 4.5
_LONGEST_NAME = 40
_RING = "#d1490c"
_SOFT = "#777777"


def ternary_place(shares: Sequence[float]) -> tuple[float, float]:
    """Return where a setting stands in an equilateral triangle with sides of 1.

    Args:
        shares: of the three labels, which sum to 1; the corners are the first label's (left), the second's (right) and
            the third's (top).
    """
    x, y = (sum(share * corner[axis] for share, corner in zip(shares, _CORNERS, strict=True)) for axis in (0, 1))
    return x, y


def plot_ternary(
    axes: Axes, *, title: str, points: Sequence[Row], settings: Sequence[Row], limits: tuple[float, float]
) -> None:
    """Draw the settings as marks coloured by weighted F1; those inside the robustness boundary have a ring.

    Args:
        axes: what to draw into.
        title: of the panel.
        points: rows of ``majority_over_seeds``, one per setting.
        settings: the rows of the ``settings`` table, of three labels.
        limits: of the colour bar, the same for all panels that are to be compared.
    """
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    labels = settings[0]["labels"]
    places = {row["setting"]: ternary_place(row["shares"]) for row in settings}
    _draw_frame(axes, labels)
    norm, colors = Normalize(*limits), colormaps["viridis"]
    apart = min(
        (math.dist(a, b) for number, a in enumerate(places.values()) for b in list(places.values())[:number]),
        default=1.0,
    )
    size = min(_LARGEST_MARK, 0.9 * apart * _SIDE_POINTS)
    font = size * 0.36
    for row in points:
        x, y = places[row["setting"]]
        axes.plot(
            [x],
            [y],
            marker="o",
            markersize=size,
            color=colors(norm(row["weighted_f1"])),
            markeredgecolor=_RING if row["is_marked"] else "white",
            markeredgewidth=min(2.4, size / 8) if row["is_marked"] else 0.6,
            clip_on=False,
        )
        if font >= _LEAST_READABLE:
            ink = "black" if norm(row["weighted_f1"]) > 0.55 else "white"
            value = f"{row['weighted_f1']:.2f}".removeprefix("0")
            axes.text(x, y, value, color=ink, fontsize=font, ha="center", va="center_baseline")
    axes.set_title(title.replace("$", r"\$"), loc="left", fontweight="bold", fontsize=9.5)
    axes.figure.colorbar(
        ScalarMappable(norm, colors), ax=axes, label="weighted F1", shrink=0.75, pad=0.04, aspect=18
    ).outline.set_visible(False)


def _draw_frame(axes: Axes, labels: Sequence[str]) -> None:
    """Draw the triangle, its grid of quarters, the names of the corners and the percentages along the edges."""
    axes.set_axis_off()
    axes.set_aspect("equal")
    axes.set_xlim(-0.2, 1.2)
    axes.set_ylim(-0.26, _HEIGHT + 0.2)
    axes.fill(*zip(*_CORNERS, strict=True), facecolor="none", edgecolor="#999999", linewidth=1)
    for quarters in (1, 2, 3):
        share = quarters / 4
        for label in range(3):
            first, second = ((label + 1) % 3, (label + 2) % 3)
            ends = []
            for other in (first, second):
                shares = [0.0, 0.0, 0.0]
                shares[label], shares[other] = share, 1 - share
                ends.append(ternary_place(shares))
            axes.plot(*zip(*ends, strict=True), color="#dddddd", linewidth=0.7, zorder=0)
            # The share of a label stands at the edge that leads to its corner from the label before it.
            x, y = ends[1]
            dx, dy = ((0.0, -0.115), (0.14, 0.06), (-0.14, 0.06))[(label + 2) % 3]
            axes.text(x + dx, y + dy, f"{share:.0%}", color=_SOFT, fontsize=6.5, ha="center", va="center")
    for name, (x, y), va, dy in zip(labels, _CORNERS, ("top", "top", "bottom"), (-0.12, -0.12, 0.12), strict=True):
        shown = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
        wrapped = textwrap.fill(shown, 20).replace("$", r"\$")
        axes.text(x, y + dy, wrapped, fontsize=8.5, ha="center", va=va)
