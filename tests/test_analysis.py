"""Metrics by SQL: golden values of the reference code, cases done by hand, an oracle in NumPy, and every check."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from scipy import stats  # type: ignore[import-untyped]
from sklearn.metrics import accuracy_score, f1_score

from biaseval.analysis import ANALYTICS, open_runs, query, relations
from biaseval.errors import BiasevalError, InputError
from biaseval.pipelines import analyse_run
from biaseval.prompting.calibration import calibration_rows
from biaseval.store import Run
from biaseval.tables import CONTEXTS, LABEL_SCORES, PROMPTS, SPLITS, TABLES, TASKS, tables_of
from tests.measuring import measure
from tests.specs import write_plan, write_spec

Rows = list[dict[str, Any]]

OVER_ADAPTERS = ("training_by_setting", "training_by_step")
"""Views over them."""

OF_ADAPTERS = ("adapted_scores", "training_rows", "training")
"""Tables that a run without adapters has as empty ones."""

OF_RECORDS = ("calibration_methods",)
"""Tables of which there is no file."""


def names_of(kind: str, *layers: str) -> list[str]:
    """Return the names of the relations that runs of a kind have."""
    return [relation.name for relation in relations.relations(*layers, tables=tables_of(kind))]


def views_of(kind: str) -> list[str]:
    """Return the names of all that ``results.duckdb`` holds of a kind of run."""
    return [*tables_of(kind), *names_of(kind, "intermediate", "marts")]


class Plan:
    """The rows of a run in the making: tasks, and prompts with one list of token log-probabilities per label."""

    def __init__(self, **scoring: Any) -> None:
        self.spec = {
            "kind": "label_bias",
            "name": "tiny",
            "seed": 42,
            "scoring": {"normalization": "mean", "eos": True} | scoring,
        }
        self.tasks: Rows = []
        self.contexts: Rows = []
        self.prompts: Rows = []
        self.label_scores: Rows = []

    def task(self, task: str, labels: list[str], is_semantically_equivalent: bool = False) -> str:
        self.tasks.append(
            {
                "task": task,
                "category": "Question Answering",
                "labels": labels,
                "is_semantically_equivalent": is_semantically_equivalent,
            }
        )
        return task

    def prompt(
        self, task: str, purpose: str, gold: str | None, tokens: list[list[float]], n_demos: int = 0, demo_set: int = 0
    ) -> None:
        """Add a prompt and its scores; ``tokens`` are lists of log-probabilities in the order of the task's labels."""
        [labels] = [row["labels"] for row in self.tasks if row["task"] == task]
        setting = {"context_id": f"{task}/{n_demos}/{demo_set}", "task": task, "n_demos": n_demos, "demo_set": demo_set}
        if setting not in self.contexts:
            self.contexts.append(setting)
        group = f"{setting['context_id']}/{purpose}"
        number = sum(row["prompt_id"].startswith(f"{group}/") for row in self.prompts)
        prompt_id = f"{group}/{number}"
        self.prompts.append(
            setting
            | {"prompt_id": prompt_id, "purpose": purpose, "row": number, "labels": labels, "gold": gold}
            | {"instance_id": None if gold is None else f"{task}-{purpose}-{number}"}
        )
        for label, logprobs in zip(labels, tokens, strict=True):
            self.label_scores.append(
                {
                    "prompt_id": prompt_id,
                    "label": label,
                    "token_logprobs": logprobs,
                    "n_label_tokens": len(logprobs) - 1,
                }
            )

    def probabilities(self, task: str, purpose: str, gold: str | None, probs: list[float], **setting: int) -> None:
        """Add a prompt whose mean log-likelihoods over one label token and EOS are the logarithms of ``probs``."""
        self.prompt(task, purpose, gold, [[max(math.log(p), -700.0) if p else -700.0] * 2 for p in probs], **setting)

    def write(self, folder: Path, n_parts: int = 1) -> str:
        run = Run.open(str(folder))
        write_spec(run, self.spec)
        run.write_part("tasks", 0, TASKS.rows(self.tasks))
        run.write_part("splits", 0, SPLITS.empty())
        run.write_part("contexts", 0, CONTEXTS.rows(self.contexts))
        for part in range(n_parts):
            run.write_part("prompts", part, PROMPTS.rows(self.prompts[part::n_parts]))
            run.write_part("label_scores", part, LABEL_SCORES.rows(self.label_scores[part::n_parts]))
        write_plan(run)
        return run.uri


def two_tasks() -> Plan:
    """Return a plan with two tasks, zero and two demonstrations, two sets, every purpose; drawn with seed 0."""
    rng = np.random.default_rng(0)
    plan = Plan()
    plan.task("task001_animals", ["cat", "dog"])
    plan.task("task002_letters", ["A", "B", "C"], is_semantically_equivalent=True)
    for row in list(plan.tasks):
        task, labels = row["task"], row["labels"]
        golds = {purpose: rng.choice(labels, size=n).tolist() for purpose, n in (("main", 30), ("bias_score", 12))}
        for n_demos, demo_set in ((0, 0), (2, 0), (2, 1)):
            rows = [(purpose, gold) for purpose in golds for gold in golds[purpose]]
            rows += [("cc", None)] * 3 + [("dc", None)] * 5 + [("looc", rng.choice(labels)) for _ in range(n_demos)]
            for purpose, gold in rows:
                tokens = [(-rng.exponential(2, size=i + 2)).tolist() for i in range(len(labels))]
                plan.prompt(task, purpose, gold, tokens, n_demos=n_demos, demo_set=demo_set)
    return plan


def rows(run: str, sql: str) -> Rows:
    result: Rows = query([run], sql).to_pylist()
    return result


# The reference code's values


@pytest.fixture(scope="module")
def golden_run(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    plan = Plan()
    for row in pq.read_table(shared / "golden/superni/expected/scores.parquet").to_pylist():
        if row["task"] not in [task["task"] for task in plan.tasks]:
            plan.task(row["task"], row["labels"])
        gold = None if row["eval_type"] in ("cc", "dc") else row["gold"]
        plan.prompt(row["task"], row["eval_type"], gold, row["full_token_logprobs"], n_demos=row["k"])
        plan.prompts[-1]["row"] = row["row"]
    run = plan.write(tmp_path_factory.mktemp("golden"), n_parts=3)
    measure(run)
    return run


def test_metrics_equal_the_reference_codes(golden_run: str, shared: Path) -> None:
    golden = json.loads((shared / "golden/superni/expected/metrics.json").read_text())
    found = rows(golden_run, "from label_bias_by_task")
    assert len(found) == 3 * (3 + 4)
    for row in found:
        prefix = "" if row["method"] == "none" else f"{row['method']}_"
        expected = golden[f"k{row['n_demos']}"]["per_task"][row["task"]]
        for metric in ("macro_f1", "rsd", "bias_score"):
            assert row[metric] == pytest.approx(expected[prefix + metric], abs=1e-6), (row, metric)
    for row in rows(golden_run, "from label_bias_by_model where suite = 'all'"):
        prefix = "" if row["method"] == "none" else f"{row['method']}_"
        expected = golden[f"k{row['n_demos']}"]["mean"]
        for metric in ("macro_f1", "rsd", "bias_score"):
            assert row[metric] == pytest.approx(expected[prefix + metric], abs=1e-6), (row, metric)


def test_calibrated_probabilities_and_predictions_equal_the_reference_codes(golden_run: str, shared: Path) -> None:
    golden = pq.read_table(shared / "golden/superni/expected/calibrated.parquet").to_pylist()
    found = {
        (f"k{row['n_demos']}", row["method"], row["purpose"], row["task"], row["row"]): row
        for row in rows(golden_run, "from calibrated_predictions where method <> 'none'")
    }
    assert len(found) == len(golden)
    for row in golden:
        mine = found[row["config"], row["method"], row["eval_type"], row["task"], row["row"]]
        assert mine["labels"] == row["labels"]
        assert mine["probabilities"] == pytest.approx(row["probs"], abs=1e-6)
        assert mine["prediction"] == row["pred"]


def test_calibration_weights_equal_the_reference_codes(golden_run: str, shared: Path) -> None:
    golden = json.loads((shared / "golden/superni/expected/calibration_params.json").read_text())
    found = {
        (f"k{row['n_demos']}", row["method"], row["task"], row["label"]): row
        for row in rows(golden_run, "from calibration_parameters")
    }
    assert len(found) == sum(len(row["labels"]) for row in golden)
    for row in golden:
        for label, weight, mean in zip(row["labels"], row["params"], row["mean_probs"], strict=True):
            mine = found[row["config"], row["method"], row["task"], label]
            assert mine["p_hat"] == pytest.approx(mean, abs=1e-6)
            assert mine["weight"] == pytest.approx(weight, rel=1e-6)


def test_unit_cases_of_the_reference_code(tmp_path: Path) -> None:
    cases = json.loads((Path(__file__).parent / "golden" / "metric_cases.json").read_text())
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
    run = plan.write(tmp_path / "metrics")
    measure(run)
    found = {row["task"]: row for row in rows(run, "from label_bias_by_task")}
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
        run = plan.write(tmp_path / case["name"])
        measure(run)
        weights = [row["weight"] for row in rows(run, "from calibration_parameters")]
        assert weights == pytest.approx(case["params"], rel=1e-6)
        calibrated = rows(run, f"from calibrated_predictions where method = '{purpose}' order by row")
        for row, expected in zip(calibrated, case["calibrated"], strict=True):
            assert row["probabilities"] == pytest.approx(expected, abs=1e-6)


# Cases done by hand


def test_one_task_by_hand(tmp_path: Path) -> None:
    """Four main rows: gold a a a b, predictions a a b b.

    Recall: a 2/3, b 1. F1: a 2*2/(3+2) = 0.8, b 2*1/(1+2) = 2/3. RSD: (1/6) / 0.75 = 2/9.
    BiasScore: gold a rows average to (0.8, 0.2), the b row is (0.4, 0.6); their mean is (0.6, 0.4): 0.1.

    Floor of RSD: (1/4) / (3/4) * 4/3 * 1/4 * (1/3 + 1) is 4/27, of which RSD is within. b is a hit with chance 3/4.
    Variance of a's mean: 0.02 / 2, and of b's, a single row, as much as of one of a's: 0.02. So their mean has an error
    of sqrt(0.03) / 2 for either label, with one degree of freedom, the fewest.
    Always a: 3/4 are right, and the F1 of a is 2 * 3 / (4 + 3).
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
        "bias_score_p": pytest.approx(2 * stats.t.sf(0.1 / (math.sqrt(0.03) / 2), 1), rel=0.01),
        "bias_score_of_perfect": 0,
        "n_gold_labels": 2,
        "n_main_gold_labels": 2,
        "majority_accuracy": 0.75,
        "majority_macro_f1": pytest.approx(6 / 7 / 2),
        "share_most_frequent": 0.5,
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


def _counts_of_draws(run: str) -> np.ndarray[Any, Any]:
    """Return how often each draw of the suite of all tasks holds each of its two tasks."""
    draws = query([run], "from bootstrap_draws where suite = 'all' and draw > 0 order by draw, task")
    return np.asarray(draws["n_drawn"].to_numpy().reshape(1000, 2))


def _reach(error: float, n_tasks: int) -> float:
    """Return how far Student's interval reaches, of an error among resamples of so many tasks."""
    return float(stats.t.ppf(0.975, n_tasks - 1) * math.sqrt(n_tasks / (n_tasks - 1)) * error)


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


def _priced(folder: Path, *, is_timed: bool = True) -> str:
    """Return a run with an adapter for each of two contexts; a has one token, b has two, each has EOS as another.

    So a prompt's labels have 5 tokens. Tokens of contexts and prompts are set below, and scoring takes 0.1 s a token.
    """
    plan = Plan()
    plan.spec |= {"calibration": ["cc", "looc"], "lora": {"preset": "reif2024"}}
    task = plan.task("task001", ["a", "b"])
    n_tokens = {"task001/0/0": 4, "task001/2/0": 10, "looc/0": 6, "looc/1": 7}
    for purpose, n_demos, tokens in (
        ("main", 0, [6, 6]),
        ("bias_score", 0, [6]),
        ("cc", 0, [5]),
        ("main", 2, [14, 15]),
        ("bias_score", 2, [13]),
        ("cc", 2, [13, 13]),
        ("looc", 2, [9, 11]),
    ):
        for row, n_prompt_tokens in enumerate(tokens):
            gold = None if purpose == "cc" else "ab"[row]
            plan.prompt(task, purpose, gold, [[-1, -1], [-1, -2, -1]], n_demos=n_demos)
            plan.prompts[-1]["n_tokens"] = n_prompt_tokens
            if purpose == "looc":  # each in a context of its own
                plan.prompts[-1]["context_id"] = f"looc/{row}"
                plan.contexts.append({**plan.contexts[-1], "context_id": f"looc/{row}"})
    for context in plan.contexts:
        context |= {"instruction": True, "n_tokens": n_tokens[context["context_id"]], "demo_ids": ["shown"]}
    rows: Rows = []
    steps: Rows = []
    for n_demos, of_rows, losses in ((0, [5, 7], [2.0, 1.0]), (2, [20, 21, 22], [2.0, 1.0, 1.0, 0.5])):
        place = {"adapter": f"task001/k{n_demos}", "task": task, "n_demos": n_demos, "demo_set": 0, "instruction": True}
        rows += [
            {**place, "row": row, "instance_id": f"example{row}", "n_tokens": number}
            for row, number in enumerate(of_rows)
        ]
        steps += [
            {**place, "step": step, "epoch": step * 2 // len(losses), "loss": loss, "seconds": 0.25}
            for step, loss in enumerate(losses)
        ]
    run = Run.open(plan.write(folder))
    for table, content in (("adapted_scores", plan.label_scores), ("training_rows", rows), ("training", steps)):
        run.write_part(table, 0, TABLES[table].rows(content))
    write_plan(run)
    n_scored = 2 * ((7 + 7 + 7 + 6 + 4) + (9 + 10 + 8 + 16 + 10 + 8 + 9 + 6 + 7))  # by the model, and with its adapters
    scorer = {"scorer": {"scoring_s": 0.1 * n_scored}} if is_timed else {}
    run.write_text("environment.json", json.dumps({"trained_parameters": 100, **scorer}))
    measure(run.uri)
    return run.uri


def test_what_mitigation_needs_by_hand(tmp_path: Path) -> None:
    """A calibration input has its own tokens and its labels'; the context counts where the rows do not have it.

    cc at 2: twice 3 + 5 tokens. looc: 3 + 5, 4 + 5, and contexts of 6 and 7. lora at 2: two epochs of 63 tokens.
    """
    costs = "n_demos, method, n_prompts, tokens, n_adapters, trained_parameters, seconds"
    found = rows(_priced(tmp_path), f"select {costs} from mitigation_costs order by n_demos, method")
    assert [list(row.values()) for row in found] == [
        [0, "cc", 1, 6, 0, 0, pytest.approx(0.6)],
        [0, "lora", 0, 24, 1, 100, 0.5],
        [0, "lora+cc", 1, 30, 1, 100, pytest.approx(1.1)],
        [2, "cc", 2, 16, 0, 0, pytest.approx(1.6)],
        [2, "looc", 2, 30, 0, 0, pytest.approx(3.0)],
        [2, "lora", 0, 126, 1, 100, 1.0],
        [2, "lora+cc", 2, 142, 1, 100, pytest.approx(2.6)],
        [2, "lora+looc", 2, 156, 1, 100, pytest.approx(4.0)],
    ]


def test_the_seconds_of_mitigation_are_unknown_where_those_of_scoring_are(tmp_path: Path) -> None:
    found = rows(_priced(tmp_path, is_timed=False), "from mitigation_costs where n_demos = 2")
    assert {row["method"]: row["seconds"] for row in found} == {
        "cc": None,
        "looc": None,
        "lora": 1.0,
        "lora+cc": None,
        "lora+looc": None,
    }


@pytest.mark.parametrize(
    ("instance_id", "problem"),
    [
        ("shown", "adapter task001/k0 is trained on shown, which is a demonstration of its context"),
        ("example1", "adapter task001/k0 has the training example example1 2 times"),
    ],
)
def test_an_adapter_that_saw_its_demonstrations_is_not_measured(tmp_path: Path, instance_id: str, problem: str) -> None:
    run = Run.open(_priced(tmp_path))
    training_rows = run.read_table("training_rows").to_pylist()
    training_rows[0]["instance_id"] = instance_id
    run.write_part("training_rows", 0, TABLES["training_rows"].rows(training_rows))
    with pytest.raises(BiasevalError, match=f"training_rows_are_held_out: 1 problems, first: {problem}"):
        measure(run.uri)


# An oracle that shares nothing with the SQL


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


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> str:
    run = two_tasks().write(tmp_path_factory.mktemp("runs") / "built", n_parts=4)
    analyse_run(run)
    return run


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


# Checks: each has a run that breaks it


def _edit(table: str, change: Callable[[dict[str, Any]], None], **where: Any) -> Callable[[Plan], None]:
    def edit(plan: Plan) -> None:
        row = next(row for row in getattr(plan, table) if all(row[key] == value for key, value in where.items()))
        change(row)

    return edit


def _set(table: str, column: str, value: Any, **where: Any) -> Callable[[Plan], None]:
    return _edit(table, lambda row: row.update({column: value}), **where)


def _drop(table: str, **where: Any) -> Callable[[Plan], None]:
    def drop(plan: Plan) -> None:
        kept = [row for row in getattr(plan, table) if any(row[key] != value for key, value in where.items())]
        assert len(kept) < len(getattr(plan, table))
        setattr(plan, table, kept)

    return drop


def _repeat(table: str, **changes: Any) -> Callable[[Plan], None]:
    return lambda plan: getattr(plan, table).append(getattr(plan, table)[0] | changes)


def _without_calibration(plan: Plan) -> None:
    gone = {row["prompt_id"] for row in plan.prompts if row["purpose"] == "cc" and row["task"] == "task001_animals"}
    plan.prompts = [row for row in plan.prompts if row["prompt_id"] not in gone]
    plan.label_scores = [row for row in plan.label_scores if row["prompt_id"] not in gone]


FIRST = "task001_animals/0/0/main/0"
BROKEN: list[tuple[str, Callable[[Plan], None], str]] = [
    ("tasks_are_well_formed", _set("tasks", "labels", ["dog", "cat"]), "not distinct and in code-point order"),
    ("tasks_are_well_formed", _repeat("tasks"), "task001_animals occurs 2 times"),
    ("prompts_are_unique", _repeat("prompts"), f"prompt {FIRST} occurs 2 times"),
    ("contexts_are_unique", _repeat("contexts"), "context task001_animals/0/0 occurs 2 times"),
    ("prompts_fit_their_context", _set("prompts", "context_id", "nowhere"), "unknown context nowhere"),
    ("prompts_fit_their_context", _set("contexts", "demo_set", 7), "does not fit the task and setting"),
    ("prompts_have_the_labels_of_their_task", _set("prompts", "gold", "cow"), "has gold cow"),
    ("prompts_have_the_labels_of_their_task", _set("prompts", "gold", None), "has gold null"),
    ("prompts_have_the_labels_of_their_task", _set("prompts", "task", "task003"), "unknown task task003"),
    ("prompts_have_the_labels_of_their_task", _set("prompts", "labels", ["cat"]), "has labels [cat], its task"),
    ("prompts_are_scored_once_per_label", _drop("label_scores", prompt_id=FIRST), f"prompt {FIRST} has no score"),
    ("prompts_are_scored_once_per_label", _drop("label_scores", prompt_id=FIRST, label="cat"), "scores for [dog]"),
    ("prompts_are_scored_once_per_label", _repeat("label_scores"), "scores for [cat, cat, dog]"),
    ("prompts_are_scored_once_per_label", _repeat("label_scores", label="cow"), "scores for [cat, cow, dog]"),
    (
        "prompts_are_scored_once_per_label",
        _repeat("label_scores", prompt_id="new"),
        "new is scored and was not planned",
    ),
    ("logprobs_are_whole_and_finite", _set("label_scores", "token_logprobs", [-1.0]), "[-1.0] for 1 label"),
    ("logprobs_are_whole_and_finite", _set("label_scores", "token_logprobs", None), "log-probabilities null for 1"),
    ("logprobs_are_whole_and_finite", _set("label_scores", "token_logprobs", [-1.0, None]), "NULL"),
    ("logprobs_are_whole_and_finite", _set("label_scores", "token_logprobs", [-1.0, math.nan]), "nan"),
    ("logprobs_are_whole_and_finite", _set("label_scores", "token_logprobs", [-1.0, -math.inf]), "-inf"),
    ("logprobs_are_whole_and_finite", _set("label_scores", "token_logprobs", [-1.0, 0.5]), "0.5"),
    (
        "probabilities_sum_to_one",
        _set("label_scores", "token_logprobs", [-1.0, math.nan]),
        f"prompt {FIRST}, method none",
    ),
    (
        "calibration_means_sum_to_one",
        _set("label_scores", "token_logprobs", [-1.0, math.nan], prompt_id="task001_animals/2/1/looc/0", label="cat"),
        "task001_animals, n_demos 2, demo_set 1, looc",
    ),
    ("settings_have_the_same_rows", _set("prompts", "instance_id", "another", n_demos=2), "n_demos 2, demo_set 0"),
    ("tasks_have_the_same_settings", _without_calibration, "task001_animals has no n_demos 0, demo_set 0, cc"),
]


@pytest.mark.parametrize(("check", "break_run", "problem"), BROKEN)
def test_a_broken_run_gives_no_metrics_and_names_the_check(
    check: str, break_run: Callable[[Plan], None], problem: str, tmp_path: Path
) -> None:
    plan = two_tasks()
    break_run(plan)
    run = plan.write(tmp_path)
    with pytest.raises(BiasevalError) as failure:
        measure(run)
    [line] = [line for line in str(failure.value).splitlines() if f"- {check}: " in line]
    assert problem in line
    assert failure.value.exit_code == 1
    assert not Path(run, "marts").exists()
    assert not Path(run, "results.duckdb").exists()


def test_a_mart_that_leaves_its_range_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ANALYTICS, tmp_path / "analytics")
    monkeypatch.setattr(relations, "ANALYTICS", tmp_path / "analytics")
    mart = tmp_path / "analytics/marts/label_bias_by_task.sql"
    text = mart.read_text()
    run = two_tasks().write(tmp_path / "run")
    for right, wrong in (
        ("floors.bias_score,", "2 * floors.bias_score + 1 as bias_score,"),
        ("floors.macro_f1,", "floors.macro_f1 + 1 as macro_f1,"),
        ("floors.accuracy,", "null::double as accuracy,"),
        ("floors.recall_deviation / floors.accuracy", "-floors.recall_deviation"),
        ("floors.rsd_floor,", "null::double as rsd_floor,"),
        ("floors.rsd_floor,", "-floors.rsd_floor as rsd_floor,"),
        (") / floors.accuracy\n    end as rsd_excess", ") / floors.accuracy + 9\n    end as rsd_excess"),
        ("floors.rsd_p)", "1 + floors.rsd_p)"),
        ("floors.deviation_of_noise,", "-1,"),
        ("floors.bias_score_p,", "floors.bias_score_p - 2 as bias_score_p,"),
        ("1 - floors.n_gold_labels", "2 - floors.n_gold_labels"),
        ("floors.n_main_gold_labels,", "0 as n_main_gold_labels,"),
        ("floors.majority_accuracy,", "0.1 as majority_accuracy,"),
        ("2 * floors.majority_accuracy", "9 * floors.majority_accuracy"),
        ("floors.share_most_frequent", "0.01 as share_most_frequent"),
    ):
        assert text.count(right) >= 1, right
        mart.write_text(text.replace(right, wrong))
        with pytest.raises(
            BiasevalError, match=r"metrics_are_in_range: .*task001_animals, n_demos 0, demo_set 0, cc: {"
        ):
            measure(run)
    mart.write_text(text)
    for name, right, wrong, place in (
        ("label_bias_by_task_over_sets", "accuracy_interval[1] as", "accuracy + 0.01 as", "method cc"),
        ("label_bias_by_task_over_sets", "rsd_interval[2] as", "rsd_interval[1] - 0.1 as", "method"),
        ("label_bias_by_model", "    estimates.rsd,\n", "    -estimates.rsd as rsd,\n", "method"),
        ("label_bias_verdicts", "    tests.p_adjusted,\n", "    tests.p / 2 as p_adjusted,\n", "method"),
        ("label_bias_verdicts", "tests.p,", "tests.p + 1 as p,", "method"),
        ("label_bias_verdicts", "tests.low,", "tests.high + 1 as low,", "method"),
    ):
        changed = tmp_path / f"analytics/marts/{name}.sql"
        sql = changed.read_text()
        assert right in sql, right
        changed.write_text(sql.replace(right, wrong))
        with pytest.raises(BiasevalError, match=rf"metrics_are_in_range: .*{name}.*{place}"):
            measure(run)
        changed.write_text(sql)
    assert not Path(run, "marts").exists()
    measure(run)


def test_every_check_has_a_run_that_breaks_it() -> None:
    broken = {check for check, _, _ in BROKEN} | {"metrics_are_in_range", "training_rows_are_held_out"}
    assert broken == set(names_of("label_bias", "checks"))


# The files


def test_every_relation_says_its_grain_and_layers_only_point_down() -> None:
    depth = {"intermediate": 0, "marts": 0, "checks": 1, "comparisons": 1}  # what is tested stands between marts
    files = {path.stem: path for path in ANALYTICS.glob("*/*.sql") if path.parent.name != "macros"}
    assert {path.parent.name for path in files.values()} == depth.keys()
    for path in files.values():
        text = path.read_text(encoding="utf-8")
        assert re.match(r"-- (One row|Rows here)", text), path
        assert "read_parquet" not in text, path
        for word in re.findall(r"(?:from|join) (\w+)", text):
            if word in files:
                assert depth[files[word].parent.name] <= depth[path.parent.name], (path, word)


def test_the_files_run_as_they_are_in_plain_duckdb(built: str) -> None:
    with closing(duckdb.connect()) as connection:
        for macro in sorted(ANALYTICS.glob("macros/*.sql")):  # one may use another that comes before
            connection.execute(macro.read_text()).fetchall()
        connection.from_arrow(pa.Table.from_pylist(calibration_rows())).create(*OF_RECORDS)
        for table in tables_of("label_bias").values():
            if table.name in OF_ADAPTERS:  # the run has none, and so no such folder
                connection.from_arrow(table.empty()).create(table.name)
            else:
                parts = f"read_parquet('{built}/{table.name}/part-*.parquet')"
                connection.execute(f"create view {table.name} as from {parts}").fetchall()
        for relation in relations.relations("intermediate", "marts", tables=tables_of("label_bias")):
            connection.execute(f"create view {relation.name} as {relation.sql}").fetchall()
        found = connection.sql("from label_bias_by_task").to_arrow_table()
    assert found.equals(query([built], "from label_bias_by_task"))


# results.duckdb


def test_results_open_from_any_directory_with_marts_as_tables(
    built: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(duckdb.connect(str(Path(built, "results.duckdb")), read_only=True)) as connection:
        kinds = dict(connection.execute("select table_name, table_type from information_schema.tables").fetchall())
        for name, kind in kinds.items():
            n_rows = connection.execute(f"select count(*) from {name}").fetchall()[0][0]
            assert (n_rows == 0) == (name in ("splits", *OF_ADAPTERS, *OVER_ADAPTERS))
            is_mart = (ANALYTICS / "marts" / f"{name}.sql").exists()
            assert (kind == "BASE TABLE") == (is_mart or name in (*OF_ADAPTERS, *OF_RECORDS))
    assert kinds.keys() == {*OF_RECORDS, *views_of("label_bias")}
    with closing(duckdb.connect()) as connection:
        connection.execute(f"attach '{built}/results.duckdb' as other (read_only)").fetchall()
        assert connection.execute("select count(*) from other.calibrated_predictions").fetchall() == [(2 * 42 * 11,)]


def test_the_duckdb_shell_opens_the_results_and_every_view(built: str, tmp_path: Path) -> None:
    found = str(Path(sys.executable).with_name("duckdb"))  # of duckdb-cli, in the extra dev
    names = views_of("label_bias")
    counts = " union all ".join(f"select '{name}' as name, count(*) as n from {name}" for name in names)
    answer = subprocess.run(
        [found, "-readonly", "-json", str(Path(built, "results.duckdb")), counts],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert {row["name"]: row["n"] for row in json.loads(answer.stdout)} == {
        row["name"]: row["n"] for row in rows(built, counts)
    }


def test_a_run_of_an_older_version_opens_and_is_measured_alike(built: str, tmp_path: Path) -> None:
    old = tmp_path / "old"
    shutil.copytree(built, old)
    for table in tables_of("label_bias").values():
        for part in (old / table.name).glob("*") if table.later else ():
            rows = pq.read_table(part)
            pq.write_table(rows.drop_columns([name for name in table.later if name in rows.column_names]), part)
    assert query([str(old)], "select n_tokens, adaptations from prompts, run_settings limit 1").to_pylist() == [
        {"n_tokens": None, "adaptations": ["none"]}
    ]
    both = query([built, str(old)], "select run, method, n_rows from label_bias_by_task")
    assert both.num_rows == 2 * query([built], "from label_bias_by_task").num_rows
    measure(old)
    for mart in Path(built, "marts").iterdir():
        assert (old / "marts" / mart.name).read_bytes() == mart.read_bytes()


def test_a_run_directory_may_have_any_name(tmp_path: Path) -> None:
    run = two_tasks().write(tmp_path / "it's [a] *run*?")
    analyse_run(run)
    assert len(rows(run, "from label_bias_by_task")) == 22
    with closing(duckdb.connect(str(Path(run, "results.duckdb")), read_only=True)) as connection:
        assert connection.execute("select count(*) from prompts").fetchall() == [(len(two_tasks().prompts),)]


# Questions over one or many runs


def test_likelihoods_of_each_kind_are_a_view(built: str) -> None:
    scores = pa.concat_tables([Run.open(built).read_table("label_scores")]).to_pylist()
    found = {(row["prompt_id"], row["label"]): row for row in rows(built, "from label_logprobs")}
    assert len(found) == len(scores)
    for score in scores:
        row, tokens = found[score["prompt_id"], score["label"]], score["token_logprobs"]
        assert row["logprob_sum"] == pytest.approx(sum(tokens))
        assert row["logprob_mean"] == pytest.approx(np.mean(tokens))
        assert row["logprob_sum_without_eos"] == pytest.approx(sum(tokens[:-1]))
        assert row["logprob_mean_without_eos"] == pytest.approx(np.mean(tokens[:-1]))


def test_several_runs_have_a_column_run_and_all_columns_of_any(built: str, tmp_path: Path) -> None:
    plan = two_tasks()
    plan.spec["name"] = "other"
    other = plan.write(tmp_path / "built")
    for part in Path(other, "tasks").iterdir():
        table = pq.read_table(part)
        pq.write_table(table.append_column("extra", pa.array([1] * len(table))), part)
    measure(other)
    found = query([built, other], "select run, model, count(*) as n from label_bias_by_task group by all order by all")
    parents = [f"{Path(run).parent.name}/built" for run in (other, built)]
    assert sorted(found.to_pylist(), key=lambda row: row["model"]) == [
        {"run": parents[0], "model": "other", "n": 22},
        {"run": parents[1], "model": "tiny", "n": 22},
    ]
    extra = query([built, other], "select run, extra from tasks order by extra")
    assert extra["extra"].to_pylist() == [1, 1, None, None]
    with closing(open_runs([built, other])) as connection:
        assert connection.execute("select count(distinct run) from calibrated_predictions").fetchall() == [(2,)]


def test_the_same_run_twice_is_refused(built: str) -> None:
    with pytest.raises(InputError, match="named twice"):
        open_runs([built, f"{built}/../{Path(built).name}"])


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("selec 1", "syntax error"),
        ("select nope from prompts", "nope"),
        ("from nope", "Table with name nope does not exist"),
        ("select 'x'::int", "Could not convert"),
        ("", "single select"),
        ("select 1; select 2", "single select"),
        ("create table x (a int)", "single select"),
        ("copy prompts to '{folder}/written.csv'", "single select"),
        ("with q as (copy prompts to '{folder}/written.csv') select 1", "COPY"),
        ("attach '{folder}/written.duckdb'", "single select"),
        ("explain analyze copy prompts to '{folder}/written.csv'", "single select"),
    ],
)
def test_a_wrong_or_writing_query_is_the_users_mistake(built: str, sql: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        query([built], sql.format(folder=tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_long_query_draws_nothing_on_standard_output(built: str) -> None:
    assert rows(built, "select current_setting('enable_progress_bar') as is_drawn") == [{"is_drawn": False}]


def test_queries_that_read_may_take_any_form(built: str) -> None:
    assert query([built], "describe label_bias_by_task").num_rows == 25
    assert query([built], "pivot label_bias_by_task on method using avg(rsd) group by task; ").num_rows == 2
    assert query([built], "-- a comment\nselect 1 as x -- another").to_pylist() == [{"x": 1}]
    assert query([built], "select task from tasks order by task desc")["task"].to_pylist() == [
        "task002_letters",
        "task001_animals",
    ]


# Unfinished runs


def test_missing_parts_are_counted(tmp_path: Path) -> None:
    run = two_tasks().write(tmp_path, n_parts=4)
    for part in (1, 3):
        Path(run, "label_scores", f"part-0000{part}.parquet").unlink()
    for ask in (analyse_run, lambda run_dir: query([run_dir], "select 1")):
        with pytest.raises(
            BiasevalError, match=r"2 of 4 parts missing \(first: label_scores/part-00001.parquet\); run the same"
        ):
            ask(run)


def test_a_run_without_marts_is_not_finished(tmp_path: Path) -> None:
    run = two_tasks().write(tmp_path)
    with pytest.raises(BiasevalError, match=r"marts/.*missing; biaseval report .* writes it"):
        query([run], "select 1")


def test_another_directory_is_no_run(tmp_path: Path) -> None:
    for ask in (analyse_run, lambda run_dir: query([run_dir], "select 1")):
        with pytest.raises(InputError, match="is not a run directory"):
            ask(tmp_path)
    with pytest.raises(InputError, match="no run directory is named"):
        query([], "select 1")


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    run = two_tasks().write(tmp_path)
    Path(run, "contexts", "part-00000.parquet").write_bytes(b"half a file, and no more of it")
    with pytest.raises(BiasevalError, match=r"contexts/part-00000\.parquet"):
        measure(run)


# Runs of another kind


@pytest.fixture
def scored_prompts(tmp_path: Path) -> str:
    """Return a directory as scoring any prompts leaves it: one context, prompts and scores, and no metrics."""
    run = Run.open(str(tmp_path / "scored"))
    run.write_text("spec.yaml", "kind: score\nmodel: {path: models/tiny}\nprompts_sha256: '0'\n")
    scores = {"token_logprobs": [-1.0, -2.0], "n_label_tokens": 1}
    run.write_part("contexts", 0, CONTEXTS.rows([{"context_id": "", "text": ""}]))
    run.write_part("prompts", 0, PROMPTS.rows([{"prompt_id": "p", "context_id": "", "labels": ["a", "b"]}]))
    run.write_part("label_scores", 0, LABEL_SCORES.rows([{"prompt_id": "p", "label": x, **scores} for x in "ab"]))
    return run.uri


@pytest.mark.parametrize(
    ("spec", "reason"),
    [(None, "kind score, which has no metrics"), ("", "is no spec"), ("kind: another\n", "'another' is unknown")],
)
def test_metrics_need_a_run_of_a_kind_that_has_some(scored_prompts: str, spec: str | None, reason: str) -> None:
    if spec is not None:
        Path(scored_prompts, "spec.yaml").write_text(spec)
    before = sorted(Path(scored_prompts).rglob("*"))
    with pytest.raises(InputError, match=reason):
        measure(scored_prompts)
    assert sorted(Path(scored_prompts).rglob("*")) == before


def test_scores_of_any_prompts_can_be_queried(scored_prompts: str, built: str) -> None:
    assert rows(scored_prompts, "select prompt_id, labels from prompts") == [{"prompt_id": "p", "labels": ["a", "b"]}]
    assert rows(scored_prompts, "select count(*) as n from label_scores") == [{"n": 2}]
    assert rows(scored_prompts, "select distinct logprob_sum from label_logprobs") == [{"logprob_sum": -3.0}]
    with pytest.raises(InputError, match="label_bias_by_task does not exist"):
        query([scored_prompts], "from label_bias_by_task")
    sql = "select run, count(*) as n from {} group by all order by all"
    n_scores = len(two_tasks().label_scores)
    both = [built, scored_prompts]
    assert query(both, sql.format("label_scores")).to_pylist() == [
        {"run": "built", "n": n_scores},
        {"run": "scored", "n": 2},
    ]
    assert query(both, sql.format("label_bias_by_task")).to_pylist() == [{"run": "built", "n": 22}]


def test_missing_scores_of_any_prompts_are_counted(scored_prompts: str) -> None:
    Path(scored_prompts, "label_scores", "part-00000.parquet").unlink()
    with pytest.raises(BiasevalError, match="1 of 1 parts missing"):
        query([scored_prompts], "select 1")


# Object stores


def test_a_run_on_s3_gives_what_a_local_run_gives(object_store: str, built: str, tmp_path: Path) -> None:
    run = f"{object_store}/some/where"
    store = Run.open(run)
    pafs.copy_files(built, store.root, destination_filesystem=store.fs)
    for name in ("results.duckdb", "marts/label_bias_by_task.parquet"):
        store.fs.delete_file(store.path(name))
    analyse_run(run)
    for mart in Path(built, "marts").iterdir():
        assert store.read_bytes(f"marts/{mart.name}") == mart.read_bytes()
    both = query([run, built], "select run, count(*) as n from calibrated_predictions group by all order by all")
    assert both.to_pylist() == [{"run": "built", "n": 2 * 42 * 11}, {"run": "where", "n": 2 * 42 * 11}]
    (tmp_path / "results.duckdb").write_bytes(store.read_bytes("results.duckdb"))
    with closing(duckdb.connect(str(tmp_path / "results.duckdb"), read_only=True)) as connection:
        [(sql,)] = connection.execute("select sql from duckdb_views() where view_name = 'prompts'").fetchall()
        assert "'s3://bias/some/where/prompts/part-*.parquet'" in sql
        assert connection.execute("select count(*) from label_bias_by_task").fetchall() == [(22,)]
