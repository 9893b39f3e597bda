"""Metrics and calibration of label bias equal the reference code's values."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.labelplans import Plan
from tests.relation import Relations


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
