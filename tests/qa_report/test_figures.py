"""The figures of the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from matplotlib.figure import Figure as Canvas

from biaseval.report.drawing import Drawing
from biaseval.report.qa_curves import threshold_place
from biaseval.report.qa_figures import prediction_bias_figures
from biaseval.report.qa_findings import QaFindings, read_qa_findings
from biaseval.report.qa_styles import plain_names, short_names
from biaseval.store import Run
from tests.pages import page_of
from tests.qa_report.runs import make_run, right


def test_the_figure_marks_what_is_more_than_chance_by_its_shape(run: Run, findings: QaFindings) -> None:
    exact, f1 = prediction_bias_figures(findings)[:2]
    n_supported = 0
    for (model, dataset, heuristic), test in findings.tests.items():
        if dataset == "squad" and test["bias_significance"] is not None:
            n_supported += test["is_supported"]
            value = f"{heuristic} {test['bias_significance']:.2f}"
            [own] = [one for one in exact.text.split("; ") if re.search(rf"(^|: ){model} ", one)]
            assert (f"{value} (more than chance)" in own) == test["is_supported"], (model, heuristic)
    assert 0 < n_supported < len(findings.heuristics) * 2
    assert exact.text.count("(more than chance)") == n_supported
    assert "(more than chance)" not in f1.text
    # A hollow mark is white inside.
    n_hollow = len(findings.heuristics) * 2 - n_supported
    assert len(re.findall(r"<use [^>]*fill: #ffffff", exact.svg.decode())) == n_hollow
    assert b"<use" in f1.svg
    assert not re.findall(r"<use [^>]*fill: #ffffff", f1.svg.decode())


def test_a_threshold_stands_between_the_bins_it_separates() -> None:
    bins = [(0.0, 0.0), (1.0, 1.0), (2.0, 4.0), (7.0, 30.0)]
    assert [threshold_place(bins, threshold) for threshold in (-1, 0, 0.5, 1, 4, 5, 99)] == [
        -0.5, 0.5, 0.5, 1.5, 2.5, 2.5, 3.5,
    ]  # fmt: skip
    assert threshold_place(bins, 3) == pytest.approx(2)  # inside a bin, where its value lies


def test_functions_go_without_their_modules_where_only_one_is_called_so() -> None:
    assert plain_names(["ans_len", "my.module:n_commas"]) == ["ans_len", "n_commas"]
    assert plain_names(["ans_len", "mine:ans_len", "a:n", "b:n"]) == ["ans_len", "mine:ans_len", "a:n", "b:n"]


def test_titles_and_labels_lie_inside_their_figure(tmp_path: Path) -> None:
    name = f"shortcuts:{'very_' * 6}long_share"
    one = read_qa_findings(make_run(tmp_path, models={"only": right(0.9, 0.5)}, heuristics=["ans_len", name]))
    for figure in prediction_bias_figures(one):
        assert _overhang(figure.drawing) <= 0, figure.name


def _overhang(drawing: Drawing) -> float:
    """Return by how many pixels a title or a label of a panel lies outside it."""
    canvas = Canvas(figsize=drawing.size, layout="constrained")
    axes = canvas.add_subplot()
    drawing.plot(axes)
    canvas.draw_without_rendering()
    texts = [canvas._suptitle, axes.title, axes.xaxis.label, *axes.get_yticklabels()]  # type: ignore[attr-defined]
    boxes = [text.get_window_extent() for text in texts if text is not None and text.get_text()]
    return max(max(-box.x0, box.x1 - canvas.bbox.x1) for box in boxes)


def test_f1_says_that_there_is_no_threshold_where_exact_match_found_none(findings: QaFindings) -> None:
    exact, f1 = prediction_bias_figures(findings)[:2]
    without = [key for key, row in findings.by_heuristic.items() if row["status"] == "not significant"]
    n_without = sum(dataset == "squad" for _, dataset, _ in without)
    assert n_without
    assert (exact.text.count("no threshold"), f1.text.count("no threshold")) == (0, n_without)


def test_short_names_differ() -> None:
    assert short_names(["bert", "roberta"]) == {"bert": "bert", "roberta": "roberta"}
    long = [f"{'a' * 30}{middle}{'z' * 30}" for middle in "xyx"[:2]]
    shown = list(short_names(long, 11).values())
    assert shown == ["aaaaa…zzzzz", "aaaaa…zzzzz (2)"]


@pytest.mark.filterwarnings("error")
def test_the_smallest_and_long_names_leave_room_for_the_plot(tmp_path: Path) -> None:
    one = read_qa_findings(make_run(tmp_path / "one", models={"only": right(0.9, 0.5)}, heuristics=["sim_word"]))
    assert all(b"</svg>" in figure.svg for figure in prediction_bias_figures(one))
    names = [f"{'long-' * 18}{number}" for number in range(9)]
    heuristics = ["ans_len", f"{'package.' * 12}module:function"]
    many = make_run(tmp_path / "many", models={name: right(0.9, 0.5) for name in names}, heuristics=heuristics)
    assert all(b"</svg>" in figure.svg for figure in prediction_bias_figures(read_qa_findings(many)))


def test_the_plot_of_few_lines_takes_a_third_of_its_figure(findings: QaFindings) -> None:
    for figure in prediction_bias_figures(findings)[:4]:
        [whole] = re.findall(r'viewBox="0 0 \S+ (\S+)"', figure.svg.decode())
        [path] = re.findall(r'<g id="patch_2">\s*<path d="([^"]*)"', figure.svg.decode())
        heights = [float(y) for y in re.findall(r"[ML] \S+ (\S+)", path)]
        assert max(heights) - min(heights) > float(whole) / 3, figure.name


def test_figures_tell_their_numbers_in_words(run: Run, findings: QaFindings) -> None:
    alternatives = page_of(run).values("alt")
    significance = findings.by_heuristic["strong", "squad", "ans_len"]["bias_significance"]
    assert any(
        text.startswith("Bias significance, exact match") and f"ans_len {significance:.2f}" in text
        for text in alternatives
    )
    [curve] = [text for text in alternatives if text.startswith("Exact match by ans_len on squad")]
    for row in findings.curves["squad", "ans_len"]:
        assert f"{100 * row['exact_match']:.1f} at {row['value_low']:g}" in curve
