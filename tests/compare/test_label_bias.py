"""Differences of label-bias runs, by task and by row, against NumPy and by hand."""

from __future__ import annotations

import shutil
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from biaseval.analysis import query
from biaseval.analysis.comparing import compare_runs
from biaseval.report.compare_page import render_compare_page
from biaseval.report.compare_tables import test_lines as lines_of_tests
from biaseval.report.compare_words import VERDICTS, caveats, sentences
from tests.compare.runs import GOLDS, HITS, compared_rows, flipped, label_plan, make
from tests.statistics_macros.patterns import step_down

# Label bias, by task


def test_differences_of_tasks_are_tested_by_all_patterns_of_signs(labels: list[str]) -> None:
    by_task = {
        run: {row["task"]: row for row in query([run], "from label_bias_by_task_over_sets").to_pylist()}
        for run in labels
    }
    metrics = ("macro_f1", "accuracy", "rsd", "bias_score", "relative_variance", "squared_preference")
    differences = {
        metric: np.array([by_task[labels[1]][task][metric] - by_task[labels[0]][task][metric] for task in HITS])
        for metric in metrics
    }
    assert differences["accuracy"] == pytest.approx(np.array([2, 3, 1, 4, 2, 2, 1]) / 8)
    signs = np.array(list(product((1, -1), repeat=7)), dtype=float)
    statistics = {metric: flipped(values, signs) for metric, values in differences.items()}
    adjusted = {}
    for family in (metrics[:4], metrics[4:5], metrics[5:]):  # each partner is a family of its own
        matrix = np.column_stack([statistics[metric] for metric in family])
        adjusted |= dict(zip(family, step_down(matrix, matrix[0]), strict=True))
    found = {row["metric"]: row for row in compared_rows(labels, where="run = 'first'")}
    assert found.keys() == set(metrics)
    for metric, values in differences.items():
        row = found[metric]
        assert row["estimate"] == pytest.approx(values.mean(), abs=1e-12)
        assert row["other_value"] - row["value"] == pytest.approx(values.mean(), abs=1e-12)
        assert row["standard_error"] == pytest.approx(values.std(ddof=1) / np.sqrt(7), abs=1e-9)
        assert row["p"] == pytest.approx(np.mean(statistics[metric] >= statistics[metric][0]))
        assert row["p_adjusted"] == pytest.approx(adjusted[metric])
        assert row["smallest_detectable"] == pytest.approx(2.8 * row["standard_error"])
        assert (row["unit"], row["n_units"], row["n_tasks"], row["n_rows"]) == ("task", 7, 7, 56)
    # All seven differences have one sign: two of 128 patterns are as extreme.
    assert found["accuracy"]["p"] == 2 / 128
    assert found["accuracy"]["verdict"] == "higher"
    assert found["bias_score"]["verdict"] == "unclear"  # equal in both, and tasks are few


def test_both_directions_say_the_same(labels: list[str]) -> None:
    own, back = (compared_rows(labels, where=f"run = '{run}'") for run in ("first", "other"))
    assert len(own) == len(back) == 6
    for row, other in zip(own, back, strict=True):
        assert other["estimate"] == -row["estimate"]
        assert (other["low"], other["high"]) == (-row["high"], -row["low"])
        assert (other["simultaneous_low"], other["simultaneous_high"]) == (
            -row["simultaneous_high"],
            -row["simultaneous_low"],
        )
        assert (other["value"], other["other_value"]) == (row["other_value"], row["value"])
        assert (other["p"], other["p_adjusted"]) == (row["p"], row["p_adjusted"])
        opposite = {"higher": "lower", "lower": "higher"}
        assert other["verdict"] == opposite.get(row["verdict"], row["verdict"])


def test_a_run_and_its_copy_are_not_told_apart(labels: list[str], tmp_path: Path) -> None:
    shutil.copytree(labels[0], tmp_path / "copy")
    compared = compare_runs([labels[0], str(tmp_path / "copy")])
    assert {row["verdict"] for row in compared.tests} == {"unclear"}
    assert {(row["estimate"], row["p_adjusted"]) for row in compared.tests} == {(0, 1)}
    assert (compared.wins, compared.disagreements, compared.facts) == ([], [], [])
    assert sentences(compared) == [
        "copy against first, 7 tasks with 56 rows: identical. Not one of 56 predictions differs, and all 4 differences "
        "are 0."
    ]


def test_rows_that_only_one_has_right_are_listed_and_counted(labels: list[str]) -> None:
    compared = compare_runs(labels)
    expected = {
        (task, row): (right == "0")
        for task, hits in HITS.items()
        for row, (right, other) in enumerate(zip(*hits, strict=True))
        if right != other
    }
    found = {(row["task"], row["row"]): row for row in compared.disagreements}
    assert {place: row["is_win"] for place, row in found.items()} == expected
    for (task, number), row in found.items():
        assert row["gold"] == GOLDS[number]
        assert (row["other_prediction"] == row["gold"]) is row["is_win"]
        assert row["prediction"] != row["other_prediction"]
        assert row["input"] == f"Input: {task}-main-{number} Output:"
    [wins] = compared.wins
    assert (wins["n_wins"], wins["n_losses"]) == (sum(expected.values()), len(expected) - sum(expected.values()))
    order = [row["shuffled"] for row in compared.disagreements]
    assert order == sorted(order)


def test_more_methods_and_settings_make_one_family(tmp_path: Path) -> None:
    """The same differences at two numbers of demonstrations add nothing that could be larger."""
    runs = [
        make(label_plan({task: hits[side] for task, hits in HITS.items()}, n_demos=(0, 2)), tmp_path / name)
        for side, name in enumerate(("first", "other"))
    ]
    found = compared_rows(runs, where="run = 'first' and metric = 'accuracy'")
    assert [row["n_demos"] for row in found] == [0, 2]
    assert len({row["p_adjusted"] for row in found}) == 1
    compared = compare_runs(runs)
    assert {row["n_demos"] for row in compared.disagreements} == {2}
    assert [(row["n_demos"], row["n_wins"]) for row in compared.wins] == [(2, 16)]


# Label bias, by row


def test_with_few_tasks_the_units_are_rows_whose_mean_is_that_over_tasks(tmp_path: Path) -> None:
    """Two tasks, one of 8 and one of 24 rows: each counts half."""
    sides = (
        {"small": "11110000", "large": "111100001111000010100000"},
        {"small": "11111110", "large": "111111001111110011111100"},
    )
    runs = [make(label_plan(hits), tmp_path / name) for hits, name in zip(sides, ("first", "other"), strict=True)]
    [row] = compared_rows(runs, where="run = 'first' and metric = 'accuracy'")
    values = []
    for task in ("large", "small"):
        first, other = (np.array([hit == "1" for hit in side[task]], dtype=float) for side in sides)
        values.append((other - first) * 32 / (2 * len(first)))
    units = np.concatenate(values)
    expected = ((7 - 4) / 8 + (18 - 10) / 24) / 2
    assert units.mean() == pytest.approx(expected)
    assert row["estimate"] == pytest.approx(expected, abs=1e-12)
    assert row["other_value"] - row["value"] == pytest.approx(expected, abs=1e-12)
    assert row["standard_error"] == pytest.approx(units.std(ddof=1) / np.sqrt(32), abs=1e-9)
    assert (row["unit"], row["n_units"], row["n_tasks"], row["n_rows"]) == ("row", 32, 2, 32)
    compared = compare_runs(runs)
    assert "the units of the tests are rows" in " ".join(caveats(compared))
    assert " of 4 comparisons told apart on these tasks; " in " ".join(sentences(compared))
    words = {row["metric"]: row["word"] for row in lines_of_tests(compared)}
    assert words["accuracy"] == f"{VERDICTS[row['verdict']]} on these tasks"
    assert f">{words['accuracy']}</span>" in render_compare_page(compared)
    assert {row["metric"] for row in compared_rows(runs)} == {
        "macro_f1",
        "accuracy",
        "rsd",
        "bias_score",
        "relative_variance",
        "squared_preference",
    }


def test_a_task_whose_rows_are_too_few_leaves_its_guard_without_a_test(tmp_path: Path) -> None:
    """Of a label with three rows there is no influence: neither RSD nor relative_variance has a p, and no word."""
    sides = (
        {"few": "11110001", "many": "111100001111000010100000"},
        {"few": "11111111", "many": "111111001111110011111100"},
    )
    runs = []
    for hits, name in zip(sides, ("first", "other"), strict=True):
        plan = label_plan({"many": hits["many"]})
        few = label_plan({"few": hits["few"]}, golds="aaaaabbb")
        for table in ("tasks", "prompts", "contexts", "label_scores", "splits"):
            if hasattr(plan, table):
                getattr(plan, table).extend(getattr(few, table))
        runs.append(make(plan, tmp_path / name))
    for row in compared_rows(runs, where="run = 'first' and metric in ('rsd', 'relative_variance')"):
        assert (row["n_tasks"], row["p"], row["verdict"]) == (2, None, "unclear"), row["metric"]


def test_tasks_without_a_hit_leave_the_guard_of_rsd_to_the_others(tmp_path: Path) -> None:
    """Its estimate is the mean over the tasks in which both are right at least once."""
    many = ("111100001111000010100000", "111111001111110011111100")
    runs = [
        make(label_plan({"never": none, "many": some}), tmp_path / name)
        for none, some, name in zip(("00000000", "11110000"), many, ("first", "other"), strict=True)
    ]
    [row] = compared_rows(runs, where="run = 'first' and metric = 'relative_variance'")
    alone = [make(label_plan({"many": some}), tmp_path / f"alone-{place}") for place, some in enumerate(many)]
    [own] = compared_rows(alone, where="run = 'alone-0' and metric = 'relative_variance'")
    assert row["estimate"] == pytest.approx(own["estimate"], abs=1e-12)
    assert row["n_units"] == own["n_units"] == 24
