"""Marts of label bias against calculations by hand, NumPy and the published code."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import accuracy_score, f1_score

from tests.labelplans import Plan, counts_of_draws, reach, rows, two_tasks
from tests.measuring import measure
from tests.relation import Relations
from tests.relationnames import names_of

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


@pytest.mark.parametrize(("scoring", "expected"), [
    ({"normalization": "mean", "eos": True}, [(-1 - 1) / 2, (-0.5 - 2.5 - 0.6) / 3]),
    ({"normalization": "mean", "eos": False}, [-1, (-0.5 - 2.5) / 2]),
    ({"normalization": "sum", "eos": True}, [-2, -3.6]), ({"normalization": "sum", "eos": False}, [-1, -3]),
    ({"normalization": "where_unequal", "eos": True}, [(-1 - 1) / 2, (-0.5 - 2.5 - 0.6) / 3]),
    ({"normalization": "where_unequal", "eos": False}, [-1, (-0.5 - 2.5) / 2]),
])  # fmt: skip
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


METRICS = ("macro_f1", "accuracy", "rsd", "bias_score")


def _oracle(plan: Plan) -> dict[tuple[str, int, int, str], dict[str, float]]:
    probs, metrics = {}, {}
    for prompt in plan.prompts:
        scores = {row["label"]: row for row in plan.label_scores if row["prompt_id"] == prompt["prompt_id"]}
        weights = np.exp([np.mean(np.float32(scores[label]["token_logprobs"])) for label in prompt["labels"]])
        probs[prompt["prompt_id"]] = weights / weights.sum()
    for context in plan.contexts:
        chosen = [row for row in plan.prompts if row["context_id"] == context["context_id"]]
        by_purpose = {}
        for purpose in ("main", "bias_score", "cc", "dc", "looc"):
            own = [row for row in chosen if row["purpose"] == purpose]
            by_purpose[purpose] = [row["gold"] for row in own], np.array([probs[row["prompt_id"]] for row in own])
        labels = np.array(chosen[0]["labels"])
        for method in ("none", "cc", "dc", "looc"):
            golds, rows_ = by_purpose.get(method, ([], np.ones((1, len(labels)))))
            if not len(rows_):
                continue
            if method == "looc":
                rows_ = np.array([rows_[np.array(golds) == gold].mean(axis=0) for gold in sorted(set(golds))])
            weight = 1 / rows_.mean(axis=0)
            gold, main = by_purpose["main"]
            predicted = labels[(main * weight).argmax(axis=1)]
            present = sorted(set(gold))
            recalls = [np.mean(predicted[np.array(gold) == label] == label) for label in present]
            bias_gold, bias = by_purpose["bias_score"]
            bias = bias * weight / (bias * weight).sum(axis=1, keepdims=True)
            means = np.array([bias[np.array(bias_gold) == label].mean(axis=0) for label in sorted(set(bias_gold))])
            accuracy = accuracy_score(gold, predicted)
            metrics[context["task"], context["n_demos"], context["demo_set"], method] = {
                "macro_f1": f1_score(gold, predicted, labels=present, average="macro", zero_division=0),
                "accuracy": accuracy,
                "rsd": np.std(recalls) / accuracy if accuracy else 0.0,
                "bias_score": 0.5 * np.abs(means.mean(axis=0) - 1 / len(labels)).sum(),
            }
    return metrics


def test_metrics_and_their_means_over_tasks_and_sets_equal_numpy_and_scikit_learn(built: str) -> None:
    expected = _oracle(two_tasks())
    found = rows(built, "from label_bias_by_task")
    assert len(found) == len(expected) == 2 * (3 + 4 + 4)
    for row in found:
        own = expected[row["task"], row["n_demos"], row["demo_set"], row["method"]]
        assert {metric: row[metric] for metric in METRICS} == pytest.approx(own, abs=1e-6), row
    means = rows(built, "from label_bias_by_model")
    assert {row["suite"] for row in means} == {"all", "semantically_equivalent"}
    for row in means:
        tasks = ["task001_animals", "task002_letters"] if row["suite"] == "all" else ["task002_letters"]
        settings = [(task, row["n_demos"], demo_set, row["method"])
                    for task in tasks for demo_set in range(2 if row["n_demos"] else 1)]  # fmt: skip
        n = len(settings)
        assert (row["n_tasks"], row["n_demo_sets"], row["n_rows"]) == (len(tasks), n // len(tasks), 30 * n)
        assert row["n_bias_score_rows"] == 12 * n
        for metric in METRICS:
            assert row[metric] == pytest.approx(np.mean([expected[each][metric] for each in settings]), abs=1e-6)


def test_intervals_are_students_with_the_error_among_the_stored_draws(built: str, tmp_path: Path) -> None:
    n_drawn = counts_of_draws(Relations(built))
    assert (n_drawn.sum(axis=1) == 2).all()
    assert len(np.unique(n_drawn, axis=0)) == 3
    other = two_tasks()
    other.spec["seed"] = 43
    assert (counts_of_draws(Relations(other.write(tmp_path))) != n_drawn).any()
    tasks = rows(built, "from label_bias_by_task where n_demos = 0 and method = 'cc' order by task")
    [row] = rows(built, "from label_bias_by_model where n_demos = 0 and method = 'cc' and suite = 'all'")
    for metric, highest in zip(METRICS, (1, 1, math.inf, math.inf), strict=True):
        means = n_drawn @ np.array([task[metric] for task in tasks]) / 2
        ends = np.clip([row[metric] + side * reach(means.std(), 2) for side in (-1, 1)], 0, highest)
        assert [row[f"{metric}_low"], row[f"{metric}_high"]] == pytest.approx(ends, abs=1e-6)
        assert row[f"{metric}_low"] < row[metric] < row[f"{metric}_high"]


def test_the_same_scores_in_other_parts_give_the_same_bytes(built: str, tmp_path: Path) -> None:
    plan = two_tasks()
    plan.prompts.reverse()
    plan.label_scores.reverse()
    run = plan.write(tmp_path / "run", n_parts=4)
    measure(run)
    marts = sorted(Path(built, "marts").iterdir())
    assert [mart.name for mart in marts] == sorted(f"{name}.parquet" for name in names_of("label_bias", "marts"))
    for mart in marts:
        assert mart.read_bytes() == Path(run, "marts", mart.name).read_bytes(), mart.name


@pytest.fixture(scope="module")
def golden_run(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Relations:
    plan = Plan()
    for row in pq.read_table(shared / "golden/superni/expected/scores.parquet").to_pylist():
        if row["task"] not in [task["task"] for task in plan.tasks]:
            plan.task(row["task"], row["labels"])
        gold = None if row["eval_type"] in ("cc", "dc") else row["gold"]
        plan.prompt(row["task"], row["eval_type"], gold, row["full_token_logprobs"], n_demos=row["k"])
        plan.prompts[-1]["row"] = row["row"]
    return Relations(plan.write(tmp_path_factory.mktemp("golden"), n_parts=3))


def test_metrics_equal_the_reference_codes(golden_run: Relations, shared: Path) -> None:
    golden = json.loads((shared / "golden/superni/expected/metrics.json").read_text())
    found = golden_run.rows("from label_bias_by_task")
    assert len(found) == 3 * (3 + 4)
    for row in [*found, *golden_run.rows("from label_bias_by_model where suite = 'all'")]:
        prefix = "" if row["method"] == "none" else f"{row['method']}_"
        of_setting = golden[f"k{row['n_demos']}"]
        expected = of_setting["per_task"][row["task"]] if "task" in row else of_setting["mean"]
        for metric in ("macro_f1", "rsd", "bias_score"):
            assert row[metric] == pytest.approx(expected[prefix + metric], abs=1e-6), (row, metric)


def test_calibrated_predictions_equal_the_reference_codes(golden_run: Relations, shared: Path) -> None:
    golden = pq.read_table(shared / "golden/superni/expected/calibrated.parquet").to_pylist()
    found = {
        (f"k{row['n_demos']}", row["method"], row["purpose"], row["task"], row["row"]): row
        for row in golden_run.rows("from calibrated_predictions where method <> 'none'")
    }
    assert len(found) == len(golden)
    for row in golden:
        mine = found[row["config"], row["method"], row["eval_type"], row["task"], row["row"]]
        assert mine["labels"] == row["labels"]
        assert mine["probabilities"] == pytest.approx(row["probs"], abs=1e-6)
        assert mine["prediction"] == row["pred"]


def test_calibration_weights_equal_the_reference_codes(golden_run: Relations, shared: Path) -> None:
    golden = json.loads((shared / "golden/superni/expected/calibration_params.json").read_text())
    found = {
        (f"k{row['n_demos']}", row["method"], row["task"], row["label"]): row
        for row in golden_run.rows("from calibration_parameters")
    }
    assert len(found) == sum(len(row["labels"]) for row in golden)
    for row in golden:
        for label, weight, mean in zip(row["labels"], row["params"], row["mean_probs"], strict=True):
            mine = found[row["config"], row["method"], row["task"], label]
            assert mine["p_hat"] == pytest.approx(mean, abs=1e-6)
            assert mine["weight"] == pytest.approx(weight, rel=1e-6)


def test_unit_cases_of_the_reference_code(tmp_path: Path) -> None:
    cases = json.loads((Path(__file__).parents[1] / "golden" / "metric_cases.json").read_text())
    plan = Plan()
    for case in cases["classification"]:
        task = plan.task(case["name"], sorted({*case["gold"], *case["pred"]}))
        labels = plan.tasks[-1]["labels"]
        for gold, prediction in zip(case["gold"], case["pred"], strict=True):
            plan.probabilities(task, "main", gold, [0.9 if label == prediction else 0.01 for label in labels])
    for case in cases["bias_score"]:
        task = plan.task(case["name"], case["labels"])
        plan.probabilities(task, "main", case["labels"][0], [1 / len(case["labels"])] * len(case["labels"]))
        for gold, probs in zip(case["gold"], case["probs"], strict=True):
            plan.probabilities(task, "bias_score", gold, probs)
    found = {row["task"]: row for row in Relations(plan.write(tmp_path / "metrics")).rows("from label_bias_by_task")}
    for case in cases["classification"]:
        assert found[case["name"]]["macro_f1"] == pytest.approx(case["macro_f1"], abs=1e-9), case
        assert found[case["name"]]["rsd"] == pytest.approx(case["rsd"], abs=1e-9), case
        assert found[case["name"]]["bias_score"] is None
    for case in cases["bias_score"]:
        assert found[case["name"]]["bias_score"] == pytest.approx(case["bias_score"], abs=1e-6), case

    for case in cases["calibration"]:
        plan = Plan()
        task = plan.task(case["name"], case["labels"])
        purpose = "dc" if case["gold"] is None else "looc"
        for gold, probs in zip(case["gold"] or [None] * len(case["probs"]), case["probs"], strict=True):
            plan.probabilities(task, purpose, gold, probs, n_demos=4)
        for probs in case["test_probs"]:
            plan.probabilities(task, "main", case["labels"][0], probs, n_demos=4)
        run = Relations(plan.write(tmp_path / case["name"]))
        weights = [row["weight"] for row in run.rows("from calibration_parameters")]
        assert weights == pytest.approx(case["params"], rel=1e-6)
        calibrated = run.rows(f"from calibrated_predictions where method = '{purpose}' order by row")
        for row, expected in zip(calibrated, case["calibrated"], strict=True):
            assert row["probabilities"] == pytest.approx(expected, abs=1e-6)
