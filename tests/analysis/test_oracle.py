"""Metrics of label bias against NumPy and scikit-learn, which share nothing with the SQL."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from biaseval.store import Run
from tests.labelplans import Plan, counts_of_draws, reach, rows, two_tasks
from tests.measuring import measure
from tests.relation import Relations
from tests.relationnames import names_of

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


def test_changes_have_the_unit_and_interval_of_their_suite(built: str) -> None:
    changes = rows(built, "from label_bias_changes")
    pairs = [(row["n_demos"], row["method"], row["against_n_demos"]) for row in changes if row["suite"] == "all"]
    assert pairs == [(0, "cc", 0), (0, "dc", 0), (2, "cc", 2), (2, "dc", 2), (2, "looc", 2), (2, "none", 0)]
    by_task = rows(built, "from label_bias_changes_by_task where task = 'task002_letters'")
    place = ("n_demos", "method", "against_n_demos", "against_method")
    of_task = {(*(row[name] for name in place), row["metric"]): (row["low"], row["high"]) for row in by_task}
    for row in changes:
        assert row["unit"] == ("tasks" if row["suite"] == "all" else "rows")
        if row["suite"] == "semantically_equivalent":  # one task
            own = [of_task[(*(row[name] for name in place), metric)] for metric in METRICS]
            assert [(row[f"{metric}_low"], row[f"{metric}_high"]) for metric in METRICS] == own


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


def test_the_size_of_the_model_is_known_where_the_run_says_it(built: str, tmp_path: Path) -> None:
    assert rows(built, "select n_parameters from run_settings") == [{"n_parameters": None}]
    run = two_tasks().write(tmp_path)
    Run.open(run).write_text("environment.json", json.dumps({"model_facts": {"n_parameters": 7_241_732_096}}))
    assert Relations(run).rows("select n_parameters from run_settings") == [{"n_parameters": 7_241_732_096}]
