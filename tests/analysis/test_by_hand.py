"""Metrics, means and changes of label bias on runs done by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.labelplans import Plan, counts_of_draws, reach
from tests.relation import Relations

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
    run = Relations(changing_tasks().write(tmp_path))
    calibrated, more = run.rows("from label_bias_changes order by method")
    place = ("model", "suite", "n_demos", "method", "against_n_demos", "against_method")
    assert [more[name] for name in place] == ["tiny", "all", 2, "none", 0, "none"]
    assert [calibrated[name] for name in place] == ["tiny", "all", 2, "cc", 2, "none"]
    expected = {"macro_f1": 2 / 3, "accuracy": 1 / 2, "rsd": -1.0, "bias_score": -0.3}
    for row, sign in ((more, 1), (calibrated, -1)):
        for metric, change in expected.items():
            assert row[metric] == pytest.approx(sign * change / 4, abs=1e-7)
            error = abs(change) / 4 * counts_of_draws(run)[:, 0].std()
            ends = [sign * change / 4 + side * reach(error, 2) for side in (-1, 1)]
            assert [row[f"{metric}_low"], row[f"{metric}_high"]] == pytest.approx(ends, abs=1e-6)
    counts = ("n_tasks", "n_tasks_lower_rsd", "n_rows", "n_bias_score_rows", "against_n_rows")
    assert [more[name] for name in (*counts, "against_n_bias_score_rows")] == [2, 1, 8, 4, 4, 2]
    assert [calibrated[name] for name in (*counts, "against_n_bias_score_rows")] == [2, 0, 8, 4, 8, 4]


def test_sets_are_averaged_by_task_and_label_by_hand(tmp_path: Path) -> None:
    """With cc, task002 predicts b and b in set 0, and a and b, rightly, in set 1."""
    run, where = Relations(changing_tasks().write(tmp_path)), "where task = 'task002' and method = 'cc'"
    [task] = run.rows(f"from label_bias_by_task_over_sets {where}")
    assert [task[name] for name in ("macro_f1", "accuracy", "rsd")] == pytest.approx([2 / 3, 0.75, 0.5])
    assert (task["n_demo_sets"], task["n_demo_sets_without_hit"], task["n_rows"], task["n_labels"]) == (2, 0, 4, 2)
    shares = "label, n_gold, n_predicted, gold_share, predicted_share, recall"
    labels = run.rows(f"select {shares} from label_bias_by_label_over_sets {where} order by label")
    assert [list(label.values()) for label in labels] == [["a", 2, 1, 0.5, 0.25, 0.5], ["b", 2, 3, 0.5, 0.75, 1.0]]


@pytest.mark.parametrize("missing", ["task002/", "task002/2/1/"])
def test_a_mean_or_change_that_a_task_or_one_of_its_sets_lacks_is_null(missing: str, tmp_path: Path) -> None:
    plan = changing_tasks()
    gone = {row["prompt_id"] for row in plan.prompts if row["prompt_id"].startswith(missing)
            and row["purpose"] == "bias_score"}  # fmt: skip
    plan.prompts = [row for row in plan.prompts if row["prompt_id"] not in gone]
    plan.label_scores = [row for row in plan.label_scores if row["prompt_id"] not in gone]
    run = Relations(plan.write(tmp_path))
    changes, means = run.rows("from label_bias_changes"), run.rows("from label_bias_by_model where n_demos = 2")
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
    [row] = Relations(plan.write(tmp_path)).rows("from calibrated_predictions")
    weights = np.exp(expected)
    assert row["probabilities"] == pytest.approx(list(weights / weights.sum()), abs=1e-6)


def test_on_ties_the_first_label_in_code_point_order_is_predicted(tmp_path: Path) -> None:
    plan = Plan()
    for number, labels in enumerate((["B", "a"], ["Z", "É", "é"], ["z", "\uffff", "\U0001f600"])):
        task = plan.task(f"task{number}", sorted(labels))
        assert plan.tasks[-1]["labels"] == labels
        plan.probabilities(task, "main", labels[0], [0.2] * len(labels))
    found = Relations(plan.write(tmp_path)).rows("from calibrated_predictions order by task")
    assert [row["prediction"] for row in found] == ["B", "Z", "z"]


def test_likelihoods_beyond_the_range_of_a_double_still_calibrate(tmp_path: Path) -> None:
    """exp(-2000) is 0 in a double: only in logarithms does b, at -1500, gain 500 nats over the calibration's -2000."""
    plan = Plan(normalization="sum")
    task = plan.task("task001", ["a", "b"])
    plan.prompt(task, "main", "b", [[0, 0], [-1000, -500]])
    plan.prompt(task, "main", "a", [[0, 0], [-1000, -1500]])
    plan.prompt(task, "cc", None, [[0, 0], [-1000, -1000]])
    found = Relations(plan.write(tmp_path)).rows("from calibrated_predictions order by method, row")
    said = [(row["method"], row["prediction"]) for row in found]
    assert said == [("cc", "b"), ("cc", "a"), ("none", "a"), ("none", "a")]
    assert all(sum(row["probabilities"]) == pytest.approx(1) for row in found)


def test_each_set_has_a_count_of_every_label(tmp_path: Path) -> None:
    plan = Plan()
    plan.task("task1", ["a", "b", "c"])
    shown = {(0, 0): [], (1, 0): ["c"], (3, 0): ["a", "b", "a"], (3, 1): ["b", "b", "b"]}
    for n_demos, demo_set in shown:
        plan.probabilities("task1", "main", "a", [0.6, 0.2, 0.2], n_demos=n_demos, demo_set=demo_set)
    for context in plan.contexts:
        context["demo_labels"] = shown[context["n_demos"], context["demo_set"]]
    # As leave-one-out calibration, or the length limit, has it: the same set, less one.
    plan.contexts.append({**plan.contexts[2], "context_id": "one less", "demo_labels": ["a", "b"]})
    found = Relations(plan.write(tmp_path)).rows(
        "select n_demos, demo_set, list(n_with_label order by label) as counts, any_value(n_demos_used) as n, "
        "any_value(is_single_label) as is_single from demonstration_labels group by all order by all",
    )
    counts = [(1, 0, [0, 0, 1], 1, False), (3, 0, [2, 1, 0], 3, False), (3, 1, [0, 3, 0], 3, True)]
    assert [tuple(row.values()) for row in found] == counts
