"""Metrics, means and changes of label bias on runs done by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from tests.labelplans import Plan, _counts_of_draws, _reach, rows
from tests.measuring import measure


def test_one_task_by_hand(tmp_path: Path) -> None:
    """Four main rows: gold a a a b, predictions a a b b.

    Recall: a 2/3, b 1. F1: a 2*2/(3+2) = 0.8, b 2*1/(1+2) = 2/3. RSD: (1/6) / 0.75 = 2/9.
    BiasScore: gold a rows average to (0.8, 0.2), the b row is (0.4, 0.6); their mean is (0.6, 0.4): 0.1.

    Floor of RSD: (1/4) / (3/4) * 4/3 * 1/4 * (1/3 + 1) is 4/27, of which RSD is within. b is a hit with chance 3/4.
    Variance of a's mean: 0.02 / 2, and of b's, a single row, as much as of one of a's: 0.02. So their mean has an error
    of sqrt(0.03) / 2 for either label: too few rows to be tested. Squared preference: 2 * (0.1^2 - 0.03 / 4).
    Always a: 3/4 are right, and the F1 of a is 2 * 3 / (4 + 3).
    Relative variance: (1/36 - 1/4 * (2/3 * 1/3 / 2 + 3/4 * 1/4)) / (9/16) is -1/12; b has a single row.
    """
    plan = Plan()
    task = plan.task("task001", ["a", "b"])
    for gold, p in (("a", 0.9), ("a", 0.6), ("a", 0.3), ("b", 0.2)):
        plan.probabilities(task, "main", gold, [p, 1 - p])
    for gold, p in (("a", 0.9), ("a", 0.7), ("b", 0.4)):
        plan.probabilities(task, "bias_score", gold, [p, 1 - p])
    run = plan.write(tmp_path)
    measure(run)
    [row] = rows(run, "from label_bias_by_task")
    assert row == {
        "model": "tiny",
        "task": "task001",
        "n_demos": 0,
        "demo_set": 0,
        "method": "none",
        "macro_f1": pytest.approx((0.8 + 2 / 3) / 2),
        "accuracy": 0.75,
        "rsd": pytest.approx(2 / 9),
        "bias_score": pytest.approx(0.1, abs=1e-7),
        "n_rows": 4,
        "n_bias_score_rows": 3,
        "n_labels": 2,
        "category": "Question Answering",
        "is_semantically_equivalent": False,
        "rsd_floor": pytest.approx(math.sqrt(4 / 27)),
        "rsd_excess": 0,
        "rsd_p": 1,
        "bias_score_floor": pytest.approx(math.sqrt(0.03) / math.sqrt(2 * math.pi), abs=1e-7),
        "bias_score_p": None,
        "bias_score_of_perfect": 0,
        "n_gold_labels": 2,
        "n_main_gold_labels": 2,
        "majority_accuracy": 0.75,
        "relative_variance": pytest.approx(-1 / 12),
        "majority_macro_f1": pytest.approx(6 / 7 / 2),
        "share_most_frequent": 0.5,
        "constant_p": 1.0,
        "is_above_constant": None,  # an accuracy of 0.75, as one label for all has, and a higher macro-F1
        "squared_preference": pytest.approx(0.005, abs=1e-7),
        "n_fewest_bias_score_rows": 1,
        "fewest_bias_score_label": "b",
        "rsd_smallest_detectable": None,
        "bias_score_smallest_detectable": None,
    }
    by_label = rows(run, "select label, n_gold, n_predicted, recall, mean_probability from label_bias_by_label")
    assert [list(row.values())[:4] for row in by_label] == [["a", 3, 2, pytest.approx(2 / 3)], ["b", 1, 2, 1.0]]
    assert [row["mean_probability"] for row in by_label] == pytest.approx([0.6, 0.4], abs=1e-7)


def _wilson(share: float, n_rows: float) -> list[float]:
    z = stats.norm.ppf(0.975)
    reach = z * math.sqrt(share * (1 - share) / n_rows + z**2 / (4 * n_rows**2))
    return [(share + z**2 / (2 * n_rows) + side * reach) / (1 + z**2 / n_rows) for side in (-1, 1)]


def test_a_single_task_has_an_interval_over_its_rows(tmp_path: Path) -> None:
    """Six rows of a, all right, and six of b, of which three are: an accuracy of 3/4.

    Hits have a sample variance of 12 / 11 * 3/16, so that 11 rows would have the error of the mean.
    Of macro-F1, (12/15 + 6/9) / 2, with a row more that is a and right, b and right or b and wrong, the derivatives are
    (2 - 2 * 12/15) / 15, (2 - 2 * 6/9) / 9, and -6/9 / 9 - 12/15 / 15, each halved.
    """
    plan = Plan()
    task = plan.task("task001", ["a", "b"])
    for gold, p in [("a", 0.9)] * 6 + [("b", 0.1)] * 3 + [("b", 0.8)] * 3:
        plan.probabilities(task, "main", gold, [p, 1 - p])
    run = plan.write(tmp_path)
    measure(run)
    [row] = rows(run, "from label_bias_by_model")
    assert (row["suite"], row["n_tasks"], row["n_demo_sets"], row["n_rows"], row["unit"]) == ("all", 1, 1, 12, "rows")
    assert (row["accuracy"], row["macro_f1"]) == (0.75, pytest.approx(11 / 15))
    assert [row["accuracy_low"], row["accuracy_high"]] == pytest.approx(_wilson(0.75, 11), abs=1e-9)
    moved = [0.4 / 15 / 2] * 6 + [(2 / 3) / 9 / 2] * 3 + [(-2 / 27 - 0.8 / 15) / 2] * 3
    assert sum(moved) == pytest.approx(0, abs=1e-12)
    reach = stats.t.ppf(0.975, 10) * 12 * stats.sem(moved)
    assert row["macro_f1_low"] == pytest.approx(11 / 15 - reach, abs=1e-5)
    assert row["macro_f1_high"] == pytest.approx(min(1, 11 / 15 + reach), abs=1e-5)
    assert 0 <= row["rsd_low"] < row["rsd_high"]
    assert row["bias_score"] is row["bias_score_low"] is row["bias_score_high"] is None


RIGHT, FIRST_ONLY = ([0.9, 0.1], [0.3, 0.7]), ([0.9, 0.1], [0.6, 0.4])
"""Probabilities of the rows with gold a and b: predicted a and b, or a for both."""


def changing_tasks() -> Plan:
    """Return a plan of two tasks with no demonstrations, and with two in two sets; set 0 has the changes.

    There task001 gets right what it got wrong, and loses 0.3 of its BiasScore; cc, uniform, leaves it alone. cc turns
    the right predictions of task002 to b for both rows, and its BiasScore from 0 to 0.3: (0.5, 0.5) / (0.8, 0.2) is
    (0.2, 0.8). All else stays.
    """
    plan = Plan()
    for task, main, bias, p_hat in (
        ("task001", {(2, 0): RIGHT}, {(2, 0): 0.6}, {}),
        ("task002", {(2, 0): ([0.7, 0.3], [0.4, 0.6])}, {}, {(2, 0): 0.8}),
    ):
        plan.task(task, ["a", "b"])
        unchanged, preference = (FIRST_ONLY, 0.9) if task == "task001" else (RIGHT, 0.5)
        for setting in ((0, 0), (2, 0), (2, 1)):
            place = {"n_demos": setting[0], "demo_set": setting[1]}
            for gold, probs in zip("ab", main.get(setting, unchanged), strict=True):
                plan.probabilities(task, "main", gold, probs, **place)
            p = bias.get(setting, preference)
            plan.probabilities(task, "bias_score", "a", [p, 1 - p], **place)
            if setting[0]:
                p = p_hat.get(setting, 0.5)
                plan.probabilities(task, "cc", None, [p, 1 - p], **place)
    return plan


def test_changes_are_means_of_paired_differences_by_hand(tmp_path: Path) -> None:
    """Both rows predicted a: recall 1 and 0, accuracy 1/2, RSD 1, macro-F1 1/3; both right: 1, 0, 1.

    In the mean over two sets a task changes by half of that, in the mean over two tasks by a quarter. A resample of
    two tasks holds the changed one never, once or twice, and changes by none, one or two quarters.
    """
    run = changing_tasks().write(tmp_path)
    measure(run)
    calibrated, more = rows(run, "from label_bias_changes order by method")
    place = ("model", "suite", "n_demos", "method", "against_n_demos", "against_method")
    assert [more[name] for name in place] == ["tiny", "all", 2, "none", 0, "none"]
    assert [calibrated[name] for name in place] == ["tiny", "all", 2, "cc", 2, "none"]
    expected = {"macro_f1": 2 / 3, "accuracy": 1 / 2, "rsd": -1.0, "bias_score": -0.3}
    for row, sign in ((more, 1), (calibrated, -1)):
        for metric, change in expected.items():
            assert row[metric] == pytest.approx(sign * change / 4, abs=1e-7)
            error = abs(change) / 4 * _counts_of_draws(run)[:, 0].std()
            ends = [sign * change / 4 + side * _reach(error, 2) for side in (-1, 1)]
            assert [row[f"{metric}_low"], row[f"{metric}_high"]] == pytest.approx(ends, abs=1e-6)
    counts = ("n_tasks", "n_tasks_lower_rsd", "n_rows", "n_bias_score_rows", "against_n_rows")
    assert [more[name] for name in (*counts, "against_n_bias_score_rows")] == [2, 1, 8, 4, 4, 2]
    assert [calibrated[name] for name in (*counts, "against_n_bias_score_rows")] == [2, 0, 8, 4, 8, 4]


def test_sets_are_averaged_by_task_and_label_by_hand(tmp_path: Path) -> None:
    """With cc, task002 predicts b and b in set 0, and a and b, rightly, in set 1."""
    run = changing_tasks().write(tmp_path)
    measure(run)
    where = "where task = 'task002' and method = 'cc'"
    [task] = rows(run, f"from label_bias_by_task_over_sets {where}")
    assert [task[name] for name in ("macro_f1", "accuracy", "rsd")] == pytest.approx([2 / 3, 0.75, 0.5])
    assert (task["n_demo_sets"], task["n_demo_sets_without_hit"], task["n_rows"], task["n_labels"]) == (2, 0, 4, 2)
    shares = "label, n_gold, n_predicted, gold_share, predicted_share, recall"
    labels = rows(run, f"select {shares} from label_bias_by_label_over_sets {where} order by label")
    assert [list(label.values()) for label in labels] == [["a", 2, 1, 0.5, 0.25, 0.5], ["b", 2, 3, 0.5, 0.75, 1.0]]


@pytest.mark.parametrize("missing", ["task002/", "task002/2/1/"])
def test_a_mean_or_change_that_a_task_or_one_of_its_sets_lacks_is_null(missing: str, tmp_path: Path) -> None:
    plan = changing_tasks()
    gone = {
        row["prompt_id"]
        for row in plan.prompts
        if row["purpose"] == "bias_score" and row["prompt_id"].startswith(missing)
    }
    plan.prompts = [row for row in plan.prompts if row["prompt_id"] not in gone]
    plan.label_scores = [row for row in plan.label_scores if row["prompt_id"] not in gone]
    run = plan.write(tmp_path)
    measure(run)
    changes = rows(run, "from label_bias_changes")
    means = rows(run, "from label_bias_by_model where n_demos = 2")
    assert (len(changes), len(means)) == (2, 2)
    for row in [*changes, *means]:
        assert row["bias_score"] is row["bias_score_low"] is row["bias_score_high"] is None
        assert None not in (row["rsd"], row["rsd_low"], row["rsd_high"])
        assert row["n_bias_score_rows"] == 4 - len([name for name in gone if "/2/" in name])
        assert row["n_tasks"] == 2


@pytest.mark.parametrize(
    ("scoring", "expected"),
    [
        ({"normalization": "mean", "eos": True}, [(-1 - 1) / 2, (-0.5 - 2.5 - 0.6) / 3]),
        ({"normalization": "mean", "eos": False}, [-1, (-0.5 - 2.5) / 2]),
        ({"normalization": "sum", "eos": True}, [-2, -3.6]),
        ({"normalization": "sum", "eos": False}, [-1, -3]),
    ],
)
def test_the_spec_says_how_tokens_become_a_likelihood(
    scoring: dict[str, Any], expected: list[float], tmp_path: Path
) -> None:
    plan = Plan(**scoring)
    task = plan.task("task001", ["a", "b"])
    plan.prompt(task, "main", "a", [[-1, -1], [-0.5, -2.5, -0.6]])
    run = plan.write(tmp_path)
    measure(run)
    [row] = rows(run, "from calibrated_predictions")
    weights = np.exp(expected)
    assert row["probabilities"] == pytest.approx(list(weights / weights.sum()), abs=1e-6)


def test_on_ties_the_first_label_in_code_point_order_is_predicted(tmp_path: Path) -> None:
    plan = Plan()
    for number, labels in enumerate((["B", "a"], ["Z", "É", "é"], ["z", "\uffff", "\U0001f600"])):
        task = plan.task(f"task{number}", sorted(labels))
        assert plan.tasks[-1]["labels"] == labels
        plan.probabilities(task, "main", labels[0], [0.2] * len(labels))
    run = plan.write(tmp_path)
    measure(run)
    assert [row["prediction"] for row in rows(run, "from calibrated_predictions order by task")] == ["B", "Z", "z"]


def test_likelihoods_beyond_the_range_of_a_double_still_calibrate(tmp_path: Path) -> None:
    """exp(-2000) is 0 in a double: only in logarithms does b, at -1500, gain 500 nats over the calibration's -2000."""
    plan = Plan(normalization="sum")
    task = plan.task("task001", ["a", "b"])
    plan.prompt(task, "main", "b", [[0, 0], [-1000, -500]])
    plan.prompt(task, "main", "a", [[0, 0], [-1000, -1500]])
    plan.prompt(task, "cc", None, [[0, 0], [-1000, -1000]])
    run = plan.write(tmp_path)
    measure(run)
    found = rows(run, "from calibrated_predictions order by method, row")
    assert [(row["method"], row["prediction"]) for row in found] == [
        ("cc", "b"),
        ("cc", "a"),
        ("none", "a"),
        ("none", "a"),
    ]
    assert all(sum(row["probabilities"]) == pytest.approx(1) for row in found)
