"""The report of searches that are made by hand; the marts behind it are the real ones."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biaseval.analysis import query
from biaseval.errors import BiasevalError
from biaseval.runs import write_report
from biaseval.search.trials import MADE
from biaseval.store import Run
from tests.measuring import measure
from tests.pages import assert_answered, assert_of_marts, assert_said, assert_whole, mart, page_of
from tests.searches import BASE, Search
from tests.test_search_spec import PENALTY, QA, SCALE

STRENGTH = "calibration.cc.strength"
CALIBRATED = {**BASE, "calibration": ["cc"], "held_out": True}
ACCURACY = {"sql": "select avg(accuracy) as accuracy from label_bias_by_task", "maximize": True}
BY_TASK = {"sql": "select task, avg(accuracy) as accuracy from label_bias_by_task group by task", "maximize": True}
NOISE = (-0.01, 0.0, 0.01)

Values = tuple[Sequence[float], Sequence[float]]


def reported(made: Search, folder: Path, **changes: Any) -> Run:
    """Return a search with its report."""
    run = Run.open(made.write(folder, **changes))
    run.write_json(MADE, {"files": []})
    measure(run.uri, has_checks=False)
    write_report(run.uri)
    return run


def strengths(
    folder: Path,
    accuracies: dict[str, Values],
    grid: Sequence[float] = (0, 0.5, 1, 1.5),
    has_unseen: bool = True,
    is_above: bool | None = True,
    **changes: Any,
) -> Run:
    """Return a search over strengths: scope to accuracies at them, where it is chosen and where not.

    Groups of rows that are left out move all trials alike, but for the noise, which alternates and grows over trials.
    """
    search = Search({"accuracy": True})
    first = next(iter(accuracies.values()))
    for trial, strength in enumerate(grid):
        search.trial({STRENGTH: strength}, [first[0][trial]], [first[1][trial]], run=None)
    search.values.clear()
    for scope, values in accuracies.items():
        for sample, found in zip(("choice", "evaluation")[: 1 + has_unseen], values, strict=False):
            for trial, value in enumerate(found):
                left_out = [value + one * (-1) ** trial * (1 + trial / 10) for one in NOISE]
                search.value(trial, "accuracy", sample, value, left_out, scope, is_above)
    is_of_all = list(accuracies) == ["all"]
    given = {"objective": ACCURACY if is_of_all else BY_TASK, "per": [] if is_of_all else ["task"]}
    searched = {STRENGTH: {"grid": sorted({0.0, *grid})}}
    return reported(search, folder, spec=CALIBRATED, algorithm="random", search=searched, **{**given, **changes})


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a search of readers for F1, of which two trials failed and one was stopped."""
    generator = np.random.default_rng(7)
    search = Search({"f1": True}, keys=[SCALE, PENALTY], searched="qa_bias")
    for trial in range(12):
        scale, penalty = float(generator.uniform()), float(10 ** generator.uniform(-3, 1))
        value = 80 - 20 * (scale - 0.5) ** 2 + generator.normal(0, 0.2)
        unseen = value + generator.normal(0, 0.3)
        search.trial({SCALE: scale, PENALTY: penalty}, [value], [unseen], steps=200)
        for sample, own in (("choice", value), ("evaluation", unseen)):
            search.value(trial, "f1", sample, own, list(own + generator.normal(0, 0.1, 5)))
    for _ in range(2):
        search.trial({SCALE: 0.5, PENALTY: 1.0}, problem="RuntimeError: <b>no memory</b> & $5", steps=0)
    search.trial({SCALE: 0.9, PENALTY: 1.0}, state="stopped", problem="F1 0.31 at step 40", steps=40)
    f1 = {"sql": "select avg(f1) as f1 from qa_by_dataset where dataset <> '<b>'", "maximize": True}
    keys = {SCALE: {"uniform": [0, 1]}, PENALTY: {"loguniform": [0.001, 10]}}
    return reported(search, tmp_path_factory.mktemp("runs") / "study", spec=QA, search=keys, objective=f1)


PEAK = ([0.60, 0.80, 0.79, 0.50], [0.60, 0.70, 0.72, 0.50])
"""Accuracies at strengths 0, 0.5, 1 and 1.5, of which 0.5 is chosen; at 1, they are not told from it."""

FALL = ([0.90, 0.80, 0.50, 0.40], [0.90, 0.80, 0.50, 0.40])
BETTER = {"accuracies": {"all": ([0.5, 0.8], [0.5, 0.8])}, "grid": [0, 0.5]}


@pytest.fixture(scope="module")
def by_task(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return strengths(tmp_path_factory.mktemp("runs") / "strengths", {"<i>a&b</i>": PEAK, "$1": FALL})


def told(run: Run) -> str:
    """Return the conclusions, then the cautions, then the page."""
    rows = (
        query([run.uri], "from search_conclusions").to_pylist() + query([run.uri], "from search_cautions").to_pylist()
    )
    return "\n".join([*(f"{row['lead']} {row['text']}".strip() for row in rows), page_of(run).text])


# The page


@pytest.mark.parametrize("made", ["studied", "by_task"])
def test_the_page_is_whole_and_each_number_is_one_of_the_marts(made: str, request: pytest.FixtureRequest) -> None:
    run = request.getfixturevalue(made)
    source, page = run.read_text("report.html"), page_of(run)
    assert_whole(source)
    assert_answered(source, [run.uri], 5)
    assert_of_marts(source, run)
    for line in told(run).splitlines()[:-1]:
        assert line in page.text
    drawn = [path.relative_to(run.root).as_posix() for path in Path(run.root).glob("figures/*.svg")]
    assert len(page.values("src")) == len(drawn)
    before = {name: run.read_bytes(name) for name in [*drawn, "report.html"]}
    assert sorted(write_report(run.uri)) == sorted(f"{run.uri}/{name}" for name in [*before, "summary.json"])
    assert {name: run.read_bytes(name) for name in before} == before


def four(value: float) -> str:
    return re.escape(f"{value:.3g}".replace("-", "\N{MINUS SIGN}"))


def test_what_was_chosen_its_worth_and_its_cost_are_told(studied: Run) -> None:
    [row] = mart(studied, "search_best")
    words = [
        r"^(Chosen|Best).*bias_scale 0\.\d+, entropy_penalty \S+ \(of 12 trials\)",
        rf"f1 \(higher is better\) is {four(row['value'])} ",
        rf"on the tuning half, and {four(row['evaluation'])} \[.*\] on the evaluation half, which did not choose",
        f"includes 0 for {row['n_within_noise']} of {row['n_compared']} other trials",
        f"find {row['n_told_worse']} worse and {row['n_told_better']} better of 11",
        f"Gain over the mean of all trials: {four(row['evaluation_gain'])} ",
        "15 trials of bias_scale and entropy_penalty, chosen by Optuna, 4 at a time: 12 done, 1 stopped early",
        "2 failed; they took 2,440 optimizer steps", "2 trials failed, so the search did not see their values",
        "where dataset <> '<b>'", "RuntimeError: <b>no memory</b> & \\$5 failed 2 12, 13", "best.yaml",
    ]  # fmt: skip
    assert_said(told(studied), words)
    assert "<b>no" not in studied.read_text("report.html")


NOT_BETTER = "!better than their mean"

RUNS: dict[str, tuple[dict[str, Any], Sequence[str]]] = {
    "better by a test": (BETTER, ["^Best: strength 0.5", "better than their mean", "!Beside one label"]),
    "at the border": ({"accuracies": {"all": FALL}}, [r"At the border: strength 0 \(smallest\) of those tried"]),
    "inside the border": ({"accuracies": {"all": PEAK}}, ["!At the border"]),
    "no better than one label": ({**BETTER, "is_above": False}, ["^The best number",
        "the chosen trial is no better than always answering one label", NOT_BETTER]),
    "not shown to be better": ({**BETTER, "is_above": None}, ["is not shown to be better than always answ", "!^Best",
        NOT_BETTER]),
    "BiasScore": (
        # Noise alone makes it greater than 0: of accuracy, the same numbers are a gain.
        {
            **BETTER,
            "objective": {"sql": "select avg(bias_score) as accuracy from label_bias_by_task", "maximize": True},
        },
        ["without a test nothing is shown", "accuracy: sampling noise alone makes BiasScore greater than 0", "!^Best"],
    ),
    "not shown to be best": ({"accuracies": {"all": PEAK}}, ["^Chosen, but not shown to be the best",
        "strength 1, as published"]),
    "chosen on all": ({"accuracies": {"all": PEAK}, "has_unseen": False, "choose_on": "published"},
        [r"is 0.8 \[[^]]*\] on the data that it was chosen on",
        "choose_on: published. The choice saw all the data that it is measured on",
        "These intervals support no verdict", "!, which did not choose"]),
    "chosen on held-out rows": ({"accuracies": {"all": PEAK}, "choose_on": "held_out"},
        [r"is 0.8 \[[^]]*\] on the held-out rows, and 0.7 .* on the main rows, which", "!on the tuning half"]),
}  # fmt: skip
"""By name, a search, and what its sentences and page say; with !, what they do not say."""


@pytest.mark.parametrize("name", RUNS)
def test_a_search_is_told_what_its_tests_show(name: str, tmp_path: Path) -> None:
    given, words = RUNS[name]
    run = strengths(tmp_path / "run", **given)
    assert_said(told(run), words)
    if name == "BiasScore":
        [best] = mart(run, "search_best")
        assert {row["verdict"] for row in mart(run, "search_trials")} == {best["evaluation_gain_verdict"]} == {None}


# Many trials, one and none, and values of any sort


@pytest.mark.parametrize(("n_done", "left_out", "words"), [
    (0, [], ["^Nothing is chosen. No trial is done", "2 trials of demo_sets, .*: 0 done, 2 failed",
            "it broke failed 2 0, 1", *("!best.yaml", "!None%", "!nan")]),
    (1, [0.1], [r"^Chosen: demo_sets 1 \(of 1 trial\)", "no other trial is done, so there was noth", NOT_BETTER]),
    (2, [None, 0.1], ["Some values of rsd have no interval", "no difference has an interval, so nothing says"]),
])  # fmt: skip
def test_few_trials_and_values_without_an_interval_are_told(
    n_done: int, left_out: list[float | None], words: list[str], tmp_path: Path
) -> None:
    search = Search()
    for trial in range(n_done or 2):
        value = 0.1 * (trial + 1)
        search.trial({"prompt.demo_sets": trial + 1}, *([[value], [value]] if n_done else []))
        if n_done == 2:
            search.value(trial, "rsd", "choice", value, left_out)
    with pytest.raises(BiasevalError, match="is missing"):
        write_report(search.write(tmp_path / "unmeasured"))
    assert_said(told(reported(search, tmp_path / "run")), words)
