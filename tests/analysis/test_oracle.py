"""Metrics of label bias against NumPy and scikit-learn, which share nothing with the SQL."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from biaseval.analysis import query
from biaseval.store import Run
from tests.labelplans import Plan, _counts_of_draws, _reach, rows, two_tasks
from tests.measuring import measure
from tests.relationnames import names_of


def _oracle(plan: Plan) -> dict[tuple[str, int, int, str], dict[str, float]]:
    probs = {}
    for prompt in plan.prompts:
        scores = {row["label"]: row for row in plan.label_scores if row["prompt_id"] == prompt["prompt_id"]}
        weights = np.exp([np.mean(np.float32(scores[label]["token_logprobs"])) for label in prompt["labels"]])
        probs[prompt["prompt_id"]] = weights / weights.sum()
    metrics = {}
    for context in plan.contexts:
        chosen = [row for row in plan.prompts if row["context_id"] == context["context_id"]]
        by_purpose = {
            purpose: (
                [row["gold"] for row in chosen if row["purpose"] == purpose],
                np.array([probs[row["prompt_id"]] for row in chosen if row["purpose"] == purpose]),
            )
            for purpose in ("main", "bias_score", "cc", "dc", "looc")
        }
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


def test_metrics_equal_numpy_and_scikit_learn(built: str) -> None:
    expected = _oracle(two_tasks())
    found = rows(built, "from label_bias_by_task")
    assert len(found) == len(expected) == 2 * (3 + 4 + 4)
    for row in found:
        for metric, value in expected[row["task"], row["n_demos"], row["demo_set"], row["method"]].items():
            assert row[metric] == pytest.approx(value, abs=1e-6), (row, metric)


def test_model_means_are_over_tasks_then_sets(built: str) -> None:
    expected = _oracle(two_tasks())
    for row in rows(built, "from label_bias_by_model"):
        tasks = ["task001_animals", "task002_letters"] if row["suite"] == "all" else ["task002_letters"]
        sets = range(2 if row["n_demos"] else 1)
        n_settings = len(tasks) * len(sets)
        assert (row["n_tasks"], row["n_demo_sets"]) == (len(tasks), len(sets))
        assert (row["n_rows"], row["n_bias_score_rows"]) == (30 * n_settings, 12 * n_settings)
        for metric in ("macro_f1", "accuracy", "rsd", "bias_score"):
            values = [
                np.mean([expected[task, row["n_demos"], demo_set, row["method"]][metric] for task in tasks])
                for demo_set in sets
            ]
            assert row[metric] == pytest.approx(np.mean(values), abs=1e-6)
    assert {row["suite"] for row in rows(built, "from label_bias_by_model")} == {"all", "semantically_equivalent"}


def test_intervals_are_students_with_the_error_among_the_stored_draws(built: str) -> None:
    n_drawn = _counts_of_draws(built)
    assert (n_drawn.sum(axis=1) == 2).all()
    assert len(np.unique(n_drawn, axis=0)) == 3
    tasks = rows(built, "from label_bias_by_task where n_demos = 0 and method = 'cc' order by task")
    [row] = rows(built, "from label_bias_by_model where n_demos = 0 and method = 'cc' and suite = 'all'")
    for metric, highest in (("macro_f1", 1), ("accuracy", 1), ("rsd", math.inf), ("bias_score", math.inf)):
        means = n_drawn @ np.array([task[metric] for task in tasks]) / 2
        ends = np.clip([row[metric] + side * _reach(means.std(), 2) for side in (-1, 1)], 0, highest)
        assert [row[f"{metric}_low"], row[f"{metric}_high"]] == pytest.approx(ends, abs=1e-6)
        assert row[f"{metric}_low"] < row[metric] < row[f"{metric}_high"]


def test_changes_are_differences_of_model_means_on_the_same_draws(built: str) -> None:
    changes = rows(built, "from label_bias_changes")
    pairs = [(row["n_demos"], row["method"], row["against_n_demos"]) for row in changes if row["suite"] == "all"]
    assert pairs == [(0, "cc", 0), (0, "dc", 0), (2, "cc", 2), (2, "dc", 2), (2, "looc", 2), (2, "none", 0)]
    assert {row["against_method"] for row in changes} == {"none"}
    means = {(row["suite"], row["n_demos"], row["method"]): row for row in rows(built, "from label_bias_by_model")}
    for row in changes:
        after = means[row["suite"], row["n_demos"], row["method"]]
        before = means[row["suite"], row["against_n_demos"], "none"]
        for metric in ("macro_f1", "accuracy", "rsd", "bias_score"):
            assert row[metric] == pytest.approx(after[metric] - before[metric], abs=1e-12)
            if row["suite"] == "semantically_equivalent":  # one task
                same = "n_demos, method, against_n_demos, against_method, metric, low, high"
                [task] = rows(
                    built,
                    f"select {same} from label_bias_changes_by_task where task = 'task002_letters' "
                    f"and ({same.removesuffix(', low, high')}) = ({row['n_demos']}, '{row['method']}', "
                    f"{row['against_n_demos']}, 'none', '{metric}')",
                )
                assert (row[f"{metric}_low"], row[f"{metric}_high"]) == (task["low"], task["high"])
            assert row["unit"] == ("tasks" if row["suite"] == "all" else "rows")
    n_drawn = _counts_of_draws(built)
    oracle = _oracle(two_tasks())
    differences = [
        np.mean(
            [oracle[task, 2, demo_set, "dc"]["rsd"] - oracle[task, 2, demo_set, "none"]["rsd"] for demo_set in (0, 1)]
        )
        for task in ("task001_animals", "task002_letters")
    ]
    [row] = [row for row in changes if (row["suite"], row["n_demos"], row["method"]) == ("all", 2, "dc")]
    reach = _reach((n_drawn @ np.array(differences) / 2).std(), 2)
    assert [row["rsd_low"], row["rsd_high"]] == pytest.approx([row["rsd"] - reach, row["rsd"] + reach], abs=1e-5)
    assert row["n_tasks_lower_rsd"] == sum(difference < 0 for difference in differences)


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


def test_another_seed_moves_the_intervals_only(built: str, tmp_path: Path) -> None:
    plan = two_tasks()
    plan.spec["seed"] = 43
    run = plan.write(tmp_path / "run")
    measure(run)
    draws = [query([folder], "from bootstrap_draws").to_pylist() for folder in (built, run)]
    assert draws[0] != draws[1]
    assert rows(built, "from label_bias_by_task") == rows(run, "from label_bias_by_task")


def test_the_size_of_the_model_is_known_where_the_run_says_it(built: str, tmp_path: Path) -> None:
    assert rows(built, "select n_parameters from run_settings") == [{"n_parameters": None}]
    run = two_tasks().write(tmp_path)
    Run.open(run).write_text("environment.json", json.dumps({"model_facts": {"n_parameters": 7_241_732_096}}))
    measure(run)
    assert rows(run, "select n_parameters from run_settings") == [{"n_parameters": 7_241_732_096}]
