"""The figures of the page."""

from __future__ import annotations

import pytest

from biaseval.report.figures import _spread, metric_figures
from biaseval.report.findings import Findings


def test_names_of_lines_keep_apart_and_inside_the_figure() -> None:
    assert _spread([0.1, 0.5], 0.1, 1.0) == [0.1, 0.5]
    assert _spread([0.5, 0.5, 0.5], 0.1, 1.0) == pytest.approx([0.5, 0.6, 0.7])
    assert _spread([0.95, 0.99], 0.1, 1.0) == pytest.approx([0.9, 1.0])
    assert _spread([], 0.1, 1.0) == []


def test_an_unknown_method_and_missing_values_are_drawn(findings: Findings) -> None:
    rows = [dict(row) for row in findings.by_suite["all"]]
    for row in rows:
        if row["method"] == "dc":
            row["method"] = "new_method"
        if row["method"] == "cc":
            row["rsd"] = row["rsd_low"] = row["rsd_high"] = None
    figures = metric_figures({"all": rows})
    assert [figure.name for figure in figures] == ["rsd", "accuracy", "macro_f1", "bias_score"]
    assert "new_method" in figures[0].text
    floors = [row["rsd_floor"] for row in rows if row["method"] == "none"]
    assert f"noise of rows {floors[0]:.3f} at 0, {floors[1]:.3f} at 2" in figures[0].text
    assert "majority class" in figures[1].text
    assert all(b"</svg>" in figure.svg for figure in figures)


def test_figures_do_not_depend_on_matplotlib_settings_and_leave_them_alone(findings: Findings) -> None:
    import matplotlib

    before = [figure.svg for figure in metric_figures(findings.by_suite)]
    with matplotlib.rc_context({"font.size": 30, "svg.fonttype": "none"}):
        assert [figure.svg for figure in metric_figures(findings.by_suite)] == before
        assert matplotlib.rcParams["font.size"] == 30
