"""The page of a run with adapters."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from biaseval.analysis import query
from biaseval.report import write_comparison
from biaseval.report.findings import Row
from biaseval.report.majority import f1_figures
from biaseval.report.majority_findings import read_majority_findings
from biaseval.report.proportions import instruction_figures
from biaseval.store import Run
from tests.majority_report.runs import table, ternary
from tests.pages import Page


def test_the_boundary_stands_with_and_without_lora(adapted_run: str) -> None:
    source = Run.open(adapted_run).read_text("report.html")
    ways = ["label likelihood", "label likelihood, LOOC", "label likelihood, LoRA", "label likelihood, LoRA + LOOC"]
    ways += ["free generation", "free generation, LoRA"]
    shown = table(source, "as Table 1")[1:]
    assert [row[:2] for row in shown] == [[way, instruction] for way in ways for instruction in ("without", "with")]
    marts = {
        (row["predict"], row["method"], row["instruction"]): row
        for row in query([adapted_run], "from majority_by_model").to_pylist()
    }
    assert float(shown[5][2].split()[0]) == pytest.approx(marts["likelihood", "lora", True]["rb_at_10"], abs=6e-4)
    # With instruction 0/100, 50/50 and 100/0 have 23/30, 1 and (9/14 + 1)/2; 1, 1 and 9/14 with adapters.
    assert [shown[place][2].split()[0] for place in (1, 5)] == ["0.333", "0.667"]
    inside = (
        "1 of 3 settings are within 10 points of the best setting, for these draws of demonstrations (RB@10 0.333),"
    )
    assert f"Robustness boundary, label likelihood: {inside} without and with instruction." in Page(source).text


def test_the_page_says_whether_lora_widens_the_boundary(adapted_run: str) -> None:
    source = Run.open(adapted_run).read_text("report.html")
    text = Page(source).text
    assert "What calibration or LoRA changes: mean weighted F1 no clear change; " in text
    head, _, *lines = table(source, "LoRA and both against neither")
    assert head[:3] == ["Prediction", "Method", "Instruction"]
    assert [tuple(line[:3]) for line in lines] == [
        *[
            ("label likelihood", method, instruction)
            for method in ("LOOC", "LoRA", "LoRA + LOOC")
            for instruction in ("without", "with")
        ],
        ("free generation", "LoRA", "without"),
        ("free generation", "LoRA", "with"),
    ]
    assert lines[3][3:5] == ["0.333", "0.667"]
    assert lines[3][5] == "+0.333 too few seeds to say"


def test_costs_of_mitigation_stand_by_way_and_method(adapted_run: str) -> None:
    source = Run.open(adapted_run).read_text("report.html")
    _, *lines = table(source, "Beyond scoring the rows")
    places = [line[0] for line in lines if len(line) == 7]  # over the methods of each
    place = ""
    ways = ("label likelihood", "free generation")
    assert places == [f"{way}, {given} instruction" for way in ways for given in ("without", "with")]
    cells: dict[tuple[str, str], list[str]] = {}
    for line in lines:
        place = line.pop(0) if len(line) == 7 else place
        cells[place, line[0]] = line[1:]
    # 3 settings and 2 seeds; the run does not say how long scoring took.
    assert cells["label likelihood, with instruction", "LoRA"] == ["0", "480", "6", "512", "6.0"]
    assert cells["free generation, with instruction", "LoRA"] == ["0", "480", "6", "512", "6.0"]
    # Each demonstration is left out of a context of its own, of 10 tokens, and has 5 more and two labels of 2.
    assert cells["label likelihood, with instruction", "LOOC"][:2] == ["12", f"{12 * (10 + 5 + 4)}"]
    assert cells["label likelihood, with instruction", "LoRA + LOOC"][-1] == "–"
    assert [line[:5] for line in table(source, "Loss in nats a target token")[1:]] == [
        ["without", "6", "2", "2.0000", "1.0000"],
        ["with", "6", "2", "2.0000", "1.0000"],
    ]


def test_figures_with_and_without_lora_stand_beside_each_other(adapted_run: str) -> None:
    findings = read_majority_findings(Run.open(adapted_run))
    assert [(figure.name, figure.line) for figure in f1_figures(findings)] == [
        ("f1_likelihood", 0),
        ("f1_likelihood_lora", 0),
        ("f1_likelihood_looc", 1),
        ("f1_likelihood_lora_looc", 1),
        ("f1_generate", 2),
        ("f1_generate_lora", 2),
    ]
    source = Run.open(adapted_run).read_text("report.html")
    assert source.count('<div class="figures">') == 1 + 3 + 1
    assert (Path(adapted_run) / "figures" / "training_loss.svg").exists()
    assert table(source, "Weighted F1, means over seeds")[0][1:] == [
        "label likelihood",
        "label likelihood, LOOC",
        "free generation",
    ]
    assert table(source, "Weighted F1 with LoRA")[0][1:] == [
        "label likelihood, LoRA",
        "label likelihood, LoRA + LOOC",
        "free generation, LoRA",
    ]


def test_triangles_with_and_without_lora_stand_beside_each_other_in_the_same_colours(adapted_run: str) -> None:
    settings, rows = ternary()
    ways: list[Row] = [{"predict": "likelihood", "method": method} for method in ("none", "lora")]
    # With LoRA each setting is better by 0.15, so that the scale of both goes beyond that of either.
    plain, better = (
        [{**row, **way, "weighted_f1": row["weighted_f1"] + 0.15 * number} for row in rows]
        for number, way in enumerate(ways)
    )
    findings = read_majority_findings(Run.open(adapted_run))
    by_model = [{**way, "instruction": given, "constant_f1": 0.5} for way in ways for given in (False, True)]
    figures = f1_figures(replace(findings, by_model=by_model, by_setting=[*plain, *better], settings=settings))
    assert [(figure.name, figure.line) for figure in figures] == [
        (f"f1_likelihood{lora}_{given}", 0) for lora in ("", "_lora") for given in ("without", "with")
    ]
    drawn = ("f1_likelihood", "label likelihood", plain, settings)
    panels = [figure.svg for figure in figures[:2]]
    assert panels == [figure.svg for figure in instruction_figures(*drawn, compared=better)]
    assert panels != [figure.svg for figure in instruction_figures(*drawn)]


def test_outputs_of_free_generation_are_counted_without_and_with_lora(adapted_run: str) -> None:
    findings = read_majority_findings(Run.open(adapted_run))
    for is_adapted in (False, True):
        shares = [row["share"] for row in findings.outputs if row["is_adapted"] is is_adapted]
        assert sum(shares) == pytest.approx(1)
    head, *lines = table(Run.open(adapted_run).read_text("report.html"), "most frequent outputs")
    assert head[1] == "Model"
    assert {line[1] for line in lines} == {"without LoRA", "LoRA"}


def test_the_page_of_a_run_with_adapters_is_whole(adapted_run: str) -> None:
    source = Run.open(adapted_run).read_text("report.html")
    page = Page(source)
    assert page.open_tags == []
    assert all(link.removeprefix("#") in page.values("id") for link in page.values("href"))
    assert source.count("<caption>") == source.count("<table")
    assert not re.search(r">\s*(None|nan)\s*<", source)


def test_runs_with_and_without_adapters_have_one_page(adapted_run: str, runs: list[str], tmp_path: Path) -> None:
    write_comparison([runs[1], adapted_run], str(tmp_path / "page.html"))
    source = (tmp_path / "page.html").read_text()
    page = Page(source)
    assert page.open_tags == []
    for predict, name in (("likelihood", "Label likelihood, LoRA"), ("generate", "Free generation, LoRA")):
        found = query(
            [runs[1], adapted_run],
            f"from majority_verdicts where predict = '{predict}' and method = 'lora' and metric = 'mean_f1'",
        ).to_pylist()
        words = Counter(row["verdict"] for row in found if row["instruction"] is row["against_instruction"])
        told = f"higher in {words['higher']} and lower in {words['lower']} of {words.total()}"
        assert f"{name}, against no mitigation: RB@10 is higher in 0 and lower in 0 of 2, and 2 cannot" in page.text
        assert f"mean weighted F1 is {told}" in page.text
    assert "Label likelihood, LOOC, against no calibration: RB@10" in page.text
    assert "By label likelihood, LoRA + LOOC" in page.text
    [lora] = re.findall(r'<h2 id="way-\d+">By label likelihood, LoRA</h2>.*?</section>', source, re.S)
    head, _, *lines = table(lora, "layout of Table 1")
    assert [cell.split(" ")[0] for cell in head] == ["Data", "boolq-small", "adapted"]
    assert lines[0][-4:-2] == ["–", "–"]
    assert lines[0][-1].startswith("0.667")
