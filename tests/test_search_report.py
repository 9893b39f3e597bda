"""The report of searches that are made by hand; the marts behind it are the real ones."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biaseval.analysis import query
from biaseval.report.findings import Row
from biaseval.report.search_cells import number, parameter
from biaseval.report.search_findings import read_search_findings
from biaseval.report.search_words import search_caveats, summarize_search
from biaseval.runs import write_report
from biaseval.search.trials import MADE
from biaseval.store import Run
from tests.measuring import measure
from tests.pages import mart, page_of
from tests.qa_report.runs import table
from tests.searches import BASE, Search
from tests.test_search_spec import PENALTY, QA, SCALE

STRENGTH = "calibration.cc.strength"
CALIBRATED = {**BASE, "calibration": ["cc"], "held_out": True}
ACCURACY = {"sql": "select avg(accuracy) as accuracy from label_bias_by_task", "maximize": True}
BY_TASK = {"sql": "select task, avg(accuracy) as accuracy from label_bias_by_task group by task", "maximize": True}
F1 = {"sql": "select avg(f1) as f1 from qa_by_dataset where dataset <> '<b>'", "maximize": True}
MARTS = ("search_best", "search_costs", "search_importance", "search_trials", "search_verdicts")
NOISE = (-0.01, 0.0, 0.01)


def reported(made: Search, folder: Path, **changes: Any) -> Run:
    """Return a search with its report."""
    run = Run.open(made.write(folder, **changes))
    run.write_json(MADE, {"files": []})
    measure(run.uri)
    write_report(run.uri)
    return run


def strengths(
    accuracies: dict[str, tuple[Sequence[float], Sequence[float]]], grid: Sequence[float], has_unseen: bool = True
) -> Search:
    """Return a search over strengths: scope to accuracies at them, where it is chosen and where not.

    Groups of rows that are left out move all trials alike, but for the noise, which alternates and grows over trials.
    """
    search = Search({"accuracy": True})
    for trial, strength in enumerate(grid):
        first = next(iter(accuracies.values()))
        search.trial({STRENGTH: strength}, [first[0][trial]], [first[1][trial]], run=None)
    search.values.clear()
    for scope, values in accuracies.items():
        for sample, found in zip(("choice", "evaluation")[: 1 + has_unseen], values, strict=False):
            for trial, value in enumerate(found):
                left_out = [value + one * (-1) ** trial * (1 + trial / 10) for one in NOISE]
                search.value(trial, "accuracy", sample, value, left_out, scope)
    return search


def over_strengths(folder: Path, search: Search, per: Sequence[str] = (), **changes: Any) -> Run:
    grid = {"grid": sorted({0.0, *(float(row["parameters"].split()[-1][:-1]) for row in search.trials)})}
    objective = BY_TASK if per else ACCURACY
    given = {"spec": CALIBRATED, "objective": objective, "per": list(per), "algorithm": "random", **changes}
    return reported(search, folder, search={STRENGTH: grid}, **given)


def study(n_trials: int = 12) -> Search:
    """Return a search of readers for F1, of which two trials failed and one was stopped."""
    generator = np.random.default_rng(7)
    search = Search({"f1": True}, keys=[SCALE, PENALTY], searched="qa_bias")
    for number_ in range(n_trials):
        scale, penalty = float(generator.uniform()), float(10 ** generator.uniform(-3, 1))
        value = 80 - 20 * (scale - 0.5) ** 2 + generator.normal(0, 0.2)
        unseen = value + generator.normal(0, 0.3)
        search.trial({SCALE: scale, PENALTY: penalty}, [value], [unseen], steps=200)
        for sample, own in (("choice", value), ("evaluation", unseen)):
            search.value(number_, "f1", sample, own, list(own + generator.normal(0, 0.1, 5)))
    for _ in range(2):
        search.trial({SCALE: 0.5, PENALTY: 1.0}, problem="RuntimeError: <b>no memory</b> & $5", steps=0)
    search.trial({SCALE: 0.9, PENALTY: 1.0}, state="stopped", problem="F1 0.31 at step 40", steps=40)
    return search


def of_study(folder: Path, search: Search) -> Run:
    keys = {SCALE: {"uniform": [0, 1]}, PENALTY: {"loguniform": [0.001, 10]}}
    return reported(search, folder, spec=QA, search=keys, objective=F1)


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return of_study(tmp_path_factory.mktemp("runs") / "study", study())


PEAK = ([0.60, 0.80, 0.79, 0.50], [0.60, 0.70, 0.72, 0.50])
"""Accuracies at strengths 0, 0.5, 1 and 1.5, of which 0.5 is chosen; at 1, they are not told from it."""

FALL = ([0.90, 0.80, 0.50, 0.40], [0.90, 0.80, 0.50, 0.40])
GRID = [0, 0.5, 1, 1.5]


@pytest.fixture(scope="module")
def by_task(tmp_path_factory: pytest.TempPathFactory) -> Run:
    search = strengths({"task1": PEAK, "task2": FALL}, GRID)
    return over_strengths(tmp_path_factory.mktemp("runs") / "strengths", search, ["task"])


def told(run: Run) -> str:
    """Return all sentences of the summary."""
    return " ".join(summarize_search(read_search_findings(run)))


def cautions(run: Run) -> str:
    return " ".join(search_caveats(read_search_findings(run)))


def best_of(run: Run) -> Row:
    [row] = mart(run, "search_best")
    return row


def estimate(row: Row, column: str, digits: int, *, signed: bool = False) -> str:
    value, low, high = (number(row[f"{column}{end}"], digits, signed=signed) for end in ("", "_low", "_high"))
    return f"{value} [{low}, {high}]"


# Words beside a constant answer


@pytest.mark.parametrize("is_above", [False, None])
def test_a_chosen_trial_that_may_be_a_constant_answer_is_not_praised(tmp_path: Path, is_above: bool | None) -> None:
    """The second of two trials is better by a test on data that the choice did not see."""
    search = strengths({"all": ([0.5, 0.8], [0.5, 0.8])}, [0, 0.5])
    run = over_strengths(tmp_path / "praised", search)
    assert "it is better than their mean" in told(run)
    assert "one label" not in told(run)
    for row in search.values:
        if row["is_above_constant"] is not None:
            row["is_above_constant"] = is_above
    run = over_strengths(tmp_path / "bare", search)
    words = "is no better than" if is_above is False else "is not shown to be better than"
    assert f"the chosen trial {words} always answering one label." in told(run)
    assert "it is better than their mean" not in told(run)
    assert "the chosen one is better there" not in told(run)
    assert best_of(run)["trial"] == 1


def test_no_test_compares_trials_by_bias_score(tmp_path: Path) -> None:
    """Noise alone makes it greater than 0: of accuracy, the same numbers are a gain."""
    search = strengths({"all": ([0.5, 0.8], [0.5, 0.8])}, [0, 0.5])
    objective = {"sql": "select avg(bias_score) as accuracy from label_bias_by_task", "maximize": True}
    run = over_strengths(tmp_path / "noisy", search, objective=objective)
    assert {row["verdict"] for row in mart(run, "search_trials")} == {None}
    assert best_of(run)["evaluation_gain_verdict"] is None
    assert "without a test nothing is shown" in told(run)
    assert "accuracy: sampling noise alone makes BiasScore greater than 0" in cautions(run)


# The page


def test_the_written_files_are_the_report_and_its_figures(studied: Run) -> None:
    names = ("response_f1_bias_scale", "response_f1_entropy_penalty", "slice_f1")
    drawn = [f"figures/{name}.svg" for name in names]
    assert write_report(studied.uri) == [f"{studied.uri}/{name}" for name in (*drawn, "summary.json", "report.html")]
    for name in drawn:
        assert studied.read_text(name).startswith("<?xml")


def test_the_same_run_gives_the_same_bytes(studied: Run) -> None:
    names = [path.relative_to(studied.root).as_posix() for path in Path(studied.root).glob("figures/*.svg")]
    before = {name: studied.read_bytes(name) for name in [*names, "report.html"]}
    write_report(studied.uri)
    assert {name: studied.read_bytes(name) for name in before} == before


@pytest.mark.parametrize("made", ["studied", "by_task"])
def test_the_page_is_whole_and_leads_nowhere_outside_it(made: str, request: pytest.FixtureRequest) -> None:
    run = request.getfixturevalue(made)
    source, page = run.read_text("report.html"), page_of(run)
    for forbidden in ("http:", "https:", "url(", "<script ", "@import"):
        assert forbidden not in source
    ids = page.values("id")
    assert len(set(ids)) == len(ids)
    assert {link.removeprefix("#") for link in page.values("href")} == set(ids)
    assert all(image.startswith("data:image/svg+xml;base64,") for image in page.values("src"))
    assert len(page.values("src")) == len(page.values("alt")) == len(list(Path(run.root).glob("figures/*.svg")))
    assert source.count("<caption>") == source.count("<table")
    assert len(re.findall(r"<th\b", source)) == len(re.findall(r'<th scope="(?:row|col|rowgroup|colgroup)"', source))


def test_what_the_run_holds_is_escaped(studied: Run, tmp_path: Path) -> None:
    assert "where dataset <> '<b>'" in page_of(studied).text
    assert "<b>no memory</b> & $5" in page_of(studied).text
    run = over_strengths(tmp_path / "run", strengths({"<i>a & b</i>": PEAK, "$1": PEAK}, GRID), ["task"])
    assert "<i>a & b</i>, 4 trials" in page_of(run).text
    for made in (run, studied):
        assert not re.search("<[ib]>[a-z]", made.read_text("report.html"))


@pytest.mark.parametrize("made", ["studied", "by_task"])
def test_each_table_has_the_query_that_shows_it(made: str, request: pytest.FixtureRequest) -> None:
    run = request.getfixturevalue(made)
    source = run.read_text("report.html")
    queries = {html.unescape(code) for code in re.findall(r'class="query">.*?<code>(.*?)</code>', source)}
    assert len(queries) >= 6
    for one in queries:
        assert query([run.uri], one).num_rows > 0, one
    tables = re.findall(r"<table[^>]*>", source[: source.index('id="settings"')])
    assert all("sortable" in one for one in tables)


@pytest.mark.parametrize("made", ["studied", "by_task"])
def test_each_number_is_one_of_the_marts(made: str, request: pytest.FixtureRequest) -> None:
    run = request.getfixturevalue(made)
    shown = set()
    n = read_search_findings(run).objective.digits
    for row in [row for name in MARTS for row in mart(run, name)]:
        values = [value for value in row.values() if isinstance(value, float)]
        shown |= {number(value, n, signed=signed) for value in values for signed in (False, True)}
        shown |= {parameter(value) for value in (*values, *json.loads(row.get("parameters") or "{}").values())}
        shown.add(f"{row.get('share') or 0:.1%}")
    text = page_of(run).text
    text = text[text.index("Summary Response") : text.index("What the terms mean")]
    text = re.sub(r"F1 0\.31|any number from [^A-Z]*? to [\d.]+", "", text)
    found = re.findall(r"(?<![\w.])[+\N{MINUS SIGN}]?\d[\d,]*\.\d+(?:e\S+)?%?", text)
    assert len(found) > 50
    assert not set(found) - shown


# What it says


def test_the_summary_tells_what_was_chosen_its_worth_and_its_cost(studied: Run) -> None:
    text = told(studied)
    assert (
        "15 trials of bias_scale and entropy_penalty, chosen by Optuna’s TPE, 4 at a time: 12 are done, 1 was stopped "
        "early and 2 failed."
    ) in text
    row = best_of(studied)
    assert re.search(rf"Chosen is trial {row['trial']}, at bias_scale 0\.\d+, entropy_penalty [\d.]+\. Its f1", text)
    assert (
        f"Its f1 (higher is better) is {estimate(row, 'value', 2)} on the half that chose, and "
        f"{estimate(row, 'evaluation', 2)} on the other half, which the choice did not see."
    ) in text
    assert (
        "By f1, on the half that chose, the interval of the difference from it, each alone, includes 0 for "
        f"{row['n_within_noise']} of the {row['n_compared']} other trials; on the other half, tests of all "
        "together tell"
    ) in text
    assert f"it gains {estimate(row, 'evaluation_gain', 2, signed=True)} of f1 on the mean of all trials" in text
    assert "The choice took 2,440 optimizer steps of its trials." in text
    assert "2 trials failed, so that the search did not see what their points would have come to" in cautions(studied)


def test_the_chosen_point_stands_beside_its_value_on_data_that_it_did_not_see(studied: Run) -> None:
    source = studied.read_text("report.html")
    row = best_of(studied)
    cells = table(source, "The chosen point").text
    assert "Half that chose Other half Intervals with 0 Worse number" in cells
    assert (
        f"f1 {estimate(row, 'value', 2)} {estimate(row, 'evaluation', 2)} {row['n_within_noise']} of 11 "
        f"{row['n_told_worse']} of 11" in cells
    )
    added = table(source, "The chosen trial where it was chosen (half that chose) and where not (other half)").text
    optimism, gain = (number(row[name], 2, signed=True) for name in ("optimism", "gain"))
    assert (
        f"{number(row['evaluation'], 2)} {optimism} {gain} {estimate(row, 'evaluation_gain', 2, signed=True)}" in added
    )


def test_importance_and_every_trial_have_tables(studied: Run) -> None:
    source = studied.read_text("report.html")
    importance = table(source, "The share of the variance").text
    for row in mart(studied, "search_importance"):
        assert f"{row['share']:.1%} {row['n_bins']} {row['n_trials']}" in importance
    trials = table(source, "The best by f1 first").text
    rows = mart(studied, "search_trials")
    assert all(estimate(row, "value", 2) in trials for row in rows if row["value"] is not None)
    assert f"{best_of(studied)['trial']}, chosen" in trials


def test_trials_that_are_not_done_are_counted_with_their_problems(studied: Run) -> None:
    source = studied.read_text("report.html")
    assert "done 12 200 200 2,400 failed 2 0 0 0 stopped early 1 40 40 40" in table(source, "Trials by how").text
    problems = table(source, "Why trials were not done").text
    assert "12, 13 failed RuntimeError: <b>no memory</b> & $5" in problems
    assert "14 stopped early F1 0.31 at step 40" in problems


def test_a_point_for_each_scope(by_task: Run) -> None:
    text, source = told(by_task), by_task.read_text("report.html")
    assert (
        "4 trials of strength, drawn at random: all done. A point is chosen for each task, of which there are 2."
        in text
    )
    cells = table(source, "The point that is chosen for each task").text
    rows = {row["scope"]: row for row in mart(by_task, "search_best")}
    for scope, strength in (("task1", "0.5"), ("task2", "0")):
        row = rows[scope]
        assert f"{scope} {row['trial']} {strength} accuracy {estimate(row, 'value', 4)}" in cells
    flat = table(source, "Other trials, by whether").text
    assert "task1 accuracy 1 1 2 3 1 0 3 task2 accuracy 1 0.5 2 3 2 0 3" in flat
    assert re.findall(r"<details( open)?>\s*<summary>(\w+)</summary>", source) == [(" open", "task1"), ("", "task2")]
    assert "<summary>task1, 4 trials</summary>" in source


def test_pages_do_not_speak_of_what_there_is_not(by_task: Run, studied: Run) -> None:
    text = page_of(by_task).text
    assert "no model was loaded" in text
    for absent in ("best.yaml", "RUN/trials", "Importance"):
        assert absent not in text
        assert absent in page_of(studied).text


def test_whether_tuning_helps_goes_by_the_published_value_on_unseen_data(by_task: Run) -> None:
    assert (
        "Against strength 1, as published, on the other half: the accuracy of the chosen point is better in 1 of 2, "
        "worse in 0, and not told apart in 1."
    ) in told(by_task)
    cells = table(by_task.read_text("report.html"), "The trial at strength 1, as published, beside the chosen one").text
    rows = [row for row in mart(by_task, "search_trials") if row["trial"] == 2]
    for row in rows:
        assert f"{row['scope']} accuracy higher {estimate(row, 'evaluation', 4)}" in cells
        assert estimate(row, "evaluation_difference", 4, signed=True) in cells


@pytest.mark.parametrize(
    ("accuracies", "words"),
    [
        (FALL, "the chosen one is better there"),
        (([0.6, 0.8, 0.7, 0.5], [0.6, 0.4, 0.9, 0.5]), "the chosen one is worse there"),
        (PEAK, "they are not told apart, so nothing shows that choosing helps"),
    ],
)
def test_the_published_strength_is_judged_by_its_test(
    accuracies: tuple[Sequence[float], Sequence[float]], words: str, tmp_path: Path
) -> None:
    run = over_strengths(tmp_path / "run", strengths({"all": accuracies}, GRID))
    [row] = [row for row in mart(run, "search_trials") if row["trial"] == 2]
    assert (
        "On the other half, the accuracy of trial 2 (strength 1, as published) differs from that of the chosen one by "
        f"{estimate(row, 'evaluation_difference', 4, signed=True)}: {words}."
    ) in told(run)


def test_the_chosen_strength_may_be_the_published_one(tmp_path: Path) -> None:
    rise = ([0.5, 0.6, 0.9, 0.5], [0.5, 0.6, 0.9, 0.5])
    run = over_strengths(tmp_path / "run", strengths({"all": rise}, GRID))
    assert "The chosen point is strength 1, as published." in told(run)


def test_a_choice_on_all_says_that_it_saw_what_it_is_measured_on(tmp_path: Path) -> None:
    search = strengths({"all": PEAK}, GRID, has_unseen=False)
    run = over_strengths(tmp_path / "run", search, choose_on="published")
    row = best_of(run)
    assert f"is {estimate(row, 'value', 4)}, on the data that it was chosen on." in told(run)
    assert "on the data that chose: not what choosing gains elsewhere" in told(run)
    assert "choose_on: published. The choice saw all that it is measured on" in cautions(run)
    text = page_of(run).text
    for absent in ("other half", "Optimism", "optimism:"):
        assert absent not in text.replace("Optimism Cost", "")


def test_held_out_rows_choose_and_main_rows_stand_beside_them(tmp_path: Path) -> None:
    run = over_strengths(tmp_path / "run", strengths({"all": PEAK}, GRID), choose_on="held_out")
    row = best_of(run)
    assert (
        f"is {estimate(row, 'value', 4)} on the held-out rows, and {estimate(row, 'evaluation', 4)} on the main rows, "
        "which the choice did not see."
    ) in told(run)
    text = page_of(run).text
    assert "Held-out rows Main rows Better than one label Intervals with 0 Worse number" in text
    assert "other half" not in text
    assert "half that chose" not in text
