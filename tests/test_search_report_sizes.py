"""The report of searches of many trials, of one and of none, and of values of any sort."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from biaseval.errors import BiasevalError
from biaseval.report.search_findings import N_DRAWN
from biaseval.runs import write_report
from tests.pages import page_of
from tests.qa_report.runs import table
from tests.searches import Search
from tests.test_search_report import (
    GRID,
    PEAK,
    best_of,
    cautions,
    over_strengths,
    reported,
    strengths,
    told,
)


def test_of_many_trials_the_best_are_listed_and_a_band_is_drawn(tmp_path: Path) -> None:
    grid = [round(0.01 * number_, 2) for number_ in range(140)]
    values = [0.8 - (strength - 0.5) ** 2 for strength in grid]
    run = over_strengths(tmp_path / "run", strengths({"all": (values, values)}, grid))
    source = run.read_text("report.html")
    assert "140 values, from 0 to 1.39" in page_of(run).text
    assert "<summary>140 trials</summary>" in source
    listed = table(source, "The best by accuracy first")
    assert "These are the first 100 of 140; all are in search_trials" in listed.text
    assert len(re.findall(r'<th scope="row">(?:<b>)?\d+', source)) == 100
    row = best_of(run)
    assert f"includes 0 for {row['n_within_noise']} of the 139 other trials (at strength " in told(run)
    assert run.read_text("figures/response_accuracy_strength.svg").count("FillBetweenPolyCollection") == 2


def test_only_the_first_scopes_are_drawn(tmp_path: Path) -> None:
    scopes = [f"task{number_:03}" for number_ in range(N_DRAWN + 2)]
    run = over_strengths(tmp_path / "run", strengths(dict.fromkeys(scopes, PEAK), GRID), ["task"])
    assert len(list(Path(run.root).glob("figures/*.svg"))) == N_DRAWN
    assert run.read_text("report.html").count("<summary>For each task</summary>") == 3
    text = page_of(run).text
    assert f"Drawn are the first {N_DRAWN} of {N_DRAWN + 2}" in text
    assert f"{scopes[-1]} 1 0.5 accuracy 0.8000" in text


def test_nothing_is_chosen_where_no_trial_is_done(tmp_path: Path) -> None:
    search = Search()
    for number_ in (1, 2):
        search.trial({"prompt.demo_sets": number_})
    run = reported(search, tmp_path / "run")
    assert "2 trials of demo_sets, chosen by Optuna’s TPE, 4 at a time: 0 are done and 2 failed." in told(run)
    text = page_of(run).text
    assert "No trial is done, so nothing is chosen." in text
    assert "0, 1 failed it broke" in text
    for absent in ("best.yaml", "Response", "None%", "nan"):
        assert absent not in text


def test_one_trial_has_nothing_to_be_chosen_from(tmp_path: Path) -> None:
    search = Search()
    search.trial({"prompt.demo_sets": 3}, [0.5], [0.6])
    run = reported(search, tmp_path / "run")
    text = told(run)
    assert (
        "1 trial of demo_sets, chosen by Optuna’s TPE, 4 at a time: 1 is done. Chosen is trial 0, at demo_sets 3."
        in text
    )
    assert text.count("No other trial is done: there was nothing to choose from.") == 1
    assert "better than their mean" not in text
    assert not cautions(run)


def test_values_without_an_order_have_a_place_each(tmp_path: Path) -> None:
    search = Search({"f1": True})
    for normalization in ("mean", "sum"):
        for eos in (True, False):
            value = 0.7 + 0.02 * (normalization == "sum")
            search.trial({"scoring.normalization": normalization, "scoring.eos": eos}, [value], [value])
    keys = {"scoring.normalization": ["mean", "sum"], "scoring.eos": [True, False]}
    objective = {"sql": "select avg(macro_f1) as f1 from label_bias_by_task", "maximize": True}
    run = reported(search, tmp_path / "run", search=keys, objective=objective, algorithm="random")
    source = run.read_text("report.html")
    assert "scoring.eos true, false" in table(source, "What was searched").text
    assert "The trial at the spec’s own values" in source
    assert "slice_f1.svg" not in {path.name for path in Path(run.root).glob("figures/*.svg")}


def test_values_without_an_interval_are_said_to_have_none(tmp_path: Path) -> None:
    search = Search()
    for number_ in (1, 2):
        search.trial({"prompt.demo_sets": number_}, [0.1 * number_], [0.1 * number_])
        search.value(number_ - 1, "rsd", "choice", 0.1 * number_, [None, 0.1])
    run = reported(search, tmp_path / "run")
    assert "Some values of rsd have no interval" in cautions(run)
    assert "no difference from another trial has an interval: nothing says which are as good" in told(run)


def test_a_search_without_metrics_has_no_report(tmp_path: Path) -> None:
    search = Search()
    search.trial({"prompt.demo_sets": 1}, [0.1], [0.1])
    with pytest.raises(BiasevalError, match="is missing"):
        write_report(search.write(tmp_path / "run"))
