"""Figures over the proportions of two, three and four labels."""

from __future__ import annotations

import pytest
from matplotlib.colors import same_color, to_hex
from matplotlib.figure import Figure as Canvas

from biaseval.report.proportions import instruction_figures
from biaseval.report.ternary import plot_ternary, ternary_place
from tests.majority_report.runs import ternary


@pytest.mark.parametrize(
    ("shares", "place"),
    [
        ((1, 0, 0), (0, 0)),
        ((0, 1, 0), (1, 0)),
        ((0, 0, 1), (0.5, 3**0.5 / 2)),
        ((0.5, 0.5, 0), (0.5, 0)),
        ((1 / 3, 1 / 3, 1 / 3), (0.5, 3**0.5 / 6)),
    ],
)
def test_a_setting_of_one_label_alone_stands_in_its_corner(shares: tuple[float, ...], place: tuple[float, ...]) -> None:
    assert ternary_place(shares) == pytest.approx(place)


def test_marks_stand_at_the_label_that_they_hold_and_have_a_ring_inside_the_boundary() -> None:
    settings, rows = ternary()
    axes = Canvas().add_subplot()
    points = [row for row in rows if row["instruction"]]
    plot_ternary(axes, title="a", points=points, settings=settings, limits=(0.4, 0.8))
    texts = {text.get_text(): text.get_position() for text in axes.texts}
    marks = {line.get_xydata()[0].round(9).tobytes(): line for line in axes.lines if line.get_marker() == "o"}  # type: ignore[index, union-attr]
    assert len(marks) == len(points) == 15
    corners = {"against": (0.0, 0.0), "favor": (1.0, 0.0), r"none \$x\$": (0.5, 3**0.5 / 2)}
    for label, corner in corners.items():
        x, y = texts[label]
        assert min(corners.values(), key=lambda other: (other[0] - x) ** 2 + (other[1] - y) ** 2) == corner
    rings = {to_hex(line.get_markeredgecolor()) for line in marks.values()}
    assert rings == {"#d1490c", "#ffffff"}
    ringed = [line for line in marks.values() if same_color(line.get_markeredgecolor(), "#d1490c")]
    # 0.4 + 0.4 * share of the first label is within 0.1 of 0.8 at shares of 3/4 (two settings) and 1.
    assert sorted(round(float(line.get_xdata()[0]), 3) for line in ringed) == [0, 0.125, 0.25]  # type: ignore[index]
    assert {".80", ".70", ".40"} <= texts.keys()
    assert {"25%", "50%", "75%"} <= texts.keys()


def test_a_fine_grid_has_smaller_marks_that_do_not_overlap() -> None:
    settings, rows = ternary(step=20)
    axes = Canvas().add_subplot()
    points = [row for row in rows if row["instruction"]]
    plot_ternary(axes, title="a", points=points, settings=settings, limits=(0.4, 0.8))
    sizes = {line.get_markersize() for line in axes.lines if line.get_marker() == "o"}
    assert max(sizes) < 150 / 20
    assert ".80" not in {text.get_text() for text in axes.texts}


def test_three_labels_have_a_triangle_with_and_one_without_instruction() -> None:
    settings, rows = ternary()
    figures = instruction_figures("f1", "label likelihood", rows, settings)
    without, with_ = figures
    assert [figure.name for figure in figures] == ["f1_without", "f1_with"]
    again = instruction_figures("f1", "label likelihood", rows, settings)
    assert [figure.svg for figure in figures] == [figure.svg for figure in again]
    assert "Weighted F1 by % of against, favor, none $x$, label likelihood, with instruction" in with_.text
    assert "0.800 at 100%/0%/0%" in with_.text
    assert "(3 of 15 inside the boundary)" in with_.text
    assert "(15 of 15 inside the boundary)" in without.text


@pytest.mark.parametrize("n_labels", [2, 4])
def test_two_labels_have_lines_and_four_a_strip_in_one_figure(n_labels: int) -> None:
    labels = ["A", "B", "C", "D"][:n_labels]
    settings = [
        {"setting": name, "number": number, "labels": labels, "shares": [share, 1 - share] + [0.0] * (n_labels - 2)}
        for number, (name, share) in enumerate((("0", 0.0), ("50", 0.5), ("100", 1.0)))
    ]
    rows = [
        {"setting": row["setting"], "instruction": instruction, "weighted_f1": 0.5}
        | {"weighted_f1_low": None, "weighted_f1_high": None, "boundary": 0.4, "is_marked": True}
        for row in settings
        for instruction in (True, False)
    ]
    [figure] = instruction_figures("f1", "label likelihood", rows, settings)
    assert (figure.name, b"</svg>" in figure.svg) == ("f1", True)
