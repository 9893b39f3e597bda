"""Which biases of a page are supported, when many are tested."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from biaseval.qa_bias.search_null import enough_permutations
from tests.measuring import measure
from tests.qaplans import QaPlan, rows


def test_a_bias_is_supported_by_its_p_and_its_interval(tmp_path: Path) -> None:
    """Holm's adjustment and the verdict, redone from the stored draws."""
    rng = np.random.default_rng(8)
    heuristics = ["ans_len", "ans_pos", "sim_word"]
    bootstrap = {"trials": 100, "sample": 60}
    plan = QaPlan(["bert", "other"], heuristics=heuristics, bootstrap=bootstrap, variant="reference")
    values = {name: rng.integers(0, 6, size=400).astype(float).tolist() for name in heuristics}
    plan.questions(values)
    for number, example in enumerate(plan.examples):
        example["title"] = f"title {number % 25}"
    for model in ("bert", "other"):
        share = 0.5 + 0.3 * (np.array(values["ans_len"]) <= 2) * (model == "bert")
        plan.answers((rng.random(400) < share).astype(float).tolist(), model=model)
    run = plan.write(tmp_path)
    measure(run)
    tests = rows(run, "from qa_bias_tests")
    assert len(tests) == 6
    ps = {}
    for model in ("bert", "other"):
        for heuristic in heuristics:
            sql = f"from qa_search_nulls where model = '{model}' and heuristic = '{heuristic}' order by draw"
            draws = np.array([row["significance"] for row in rows(run, sql)])
            assert len(draws) == 1000
            ps[model, heuristic] = float(np.mean(draws >= draws[0] - 1e-9))
            [test] = [row for row in tests if (row["model"], row["heuristic"]) == (model, heuristic)]
            assert (test["p"], test["null_mean"]) == pytest.approx((ps[model, heuristic], draws[1:].mean()))
            assert test["null_high"] == pytest.approx(np.quantile(draws[1:], 0.95))
            assert (test["expected_significance"], test["n_permutations"]) == (pytest.approx(draws[0]), 999)
    largest = 0.0
    for place, (model, heuristic) in enumerate(sorted(ps, key=lambda names: (ps[names], names))):
        largest = max(largest, min(1.0, ps[model, heuristic] * (6 - place)))
        [test] = [row for row in tests if (row["model"], row["heuristic"]) == (model, heuristic)]
        assert test["p_adjusted"] == pytest.approx(largest)
        excludes = test["difference_low"] is not None and not test["difference_low"] <= 0 <= test["difference_high"]
        assert test["is_supported"] == (test["bias_significance"] > 0 and largest <= 0.05 and excludes)
    assert [(row["model"], row["heuristic"]) for row in tests if row["is_supported"]] == [("bert", "ans_len")]
    averages = rows(run, "select model, n_significant, bias_significance_null as noise from qa_by_model order by model")
    assert [row["n_significant"] for row in averages] == [1, 0]
    for row in averages:
        own = [test["null_mean"] for test in tests if test["model"] == row["model"]]
        assert row["noise"] == pytest.approx(np.mean(own))


def test_a_page_of_many_tests_has_permutations_enough_for_one_to_be_significant() -> None:
    assert [enough_permutations(n_tests) for n_tests in (7, 20, 21)] == [999, 999, 1049]
    for n_tests in (1, 14, 50, 51, 300):
        assert n_tests / (1 + enough_permutations(n_tests)) <= 0.02


def test_many_models_on_one_page_leave_a_strong_bias_supported(tmp_path: Path) -> None:
    """With 999 permutations, the smallest p of 54 tests would be 0.054."""
    rng = np.random.default_rng(21)
    models, heuristics = [f"m{number}" for number in range(18)], ["ans_len", "ans_pos", "sim_word"]
    plan = QaPlan(models, heuristics=heuristics, bootstrap={"trials": 20, "sample": 60})
    values = {name: rng.integers(0, 3, size=300).astype(float) for name in heuristics}
    plan.questions({name: own.tolist() for name, own in values.items()})
    for model in models:
        share = 0.4 + 0.5 * (values["ans_len"] <= 1) * (model == "m0")
        plan.answers((rng.random(300) < share).astype(float).tolist(), model=model)
    run = plan.write(tmp_path)
    measure(run)
    [test] = rows(run, "from qa_bias_tests where model = 'm0' and heuristic = 'ans_len'")
    assert (test["n_permutations"], test["is_supported"]) == (50 * 54 - 1, True)
    assert test["p_adjusted"] <= 0.05


def test_averages_of_models_without_bias_have_intervals_from_0(tmp_path: Path) -> None:
    """A search finds something in noise, which is no bias."""
    rng = np.random.default_rng(4)
    models, heuristics = [f"m{number:02}" for number in range(16)], ["ans_len", "ans_pos", "sim_word"]
    plan = QaPlan([*models, "biased"], heuristics=heuristics, bootstrap={"trials": 20, "sample": 150})
    values = {name: rng.integers(0, 6, size=400).astype(float) for name in heuristics}
    plan.questions({name: own.tolist() for name, own in values.items()})
    for number, example in enumerate(plan.examples):
        example["title"] = f"title {number % 40}"
    for model in (*models, "biased"):
        share = 0.6 + 0.3 * (values["ans_len"] <= 2) * (model == "biased")
        plan.answers((rng.random(400) < share).astype(float).tolist(), model=model)
    run = plan.write(tmp_path)
    measure(run)
    found = {row["model"]: row for row in rows(run, "from qa_by_model")}
    fair = [found[model] for model in models]
    assert sum(row["is_above_null"] for row in fair) <= 3
    assert sum(row["bias_significance"] > 0 for row in fair) > 4
    assert all(row["bias_significance_low"] == 0 for row in fair if not row["is_above_null"])
    assert all(row["bias_significance_null"] < row["bias_significance_null_high"] for row in fair)
    assert found["biased"]["is_above_null"]
    assert found["biased"]["bias_significance_low"] > 0


def test_the_smallest_significance_is_found_in_four_of_five_runs(tmp_path: Path) -> None:
    """At a given threshold that halves 800 questions, by one test: 400 runs with a gap of that significance."""
    rng = np.random.default_rng(3)
    plan = QaPlan(heuristics=["ans_len"], bootstrap={"trials": 20, "sample": 400}, thresholds={"ans_len": 0.0})
    values = np.repeat([0.0, 1.0], 400)
    plan.questions({"ans_len": values.tolist()})
    plan.answers((rng.random(800) < 0.6).astype(float).tolist())
    run = plan.write(tmp_path)
    measure(run)
    [test] = rows(run, "from qa_bias_tests")
    # Samples are whole halves, whose bounds have no reach: the significance is the difference.
    gap = test["smallest_detectable"] / 100
    assert gap == pytest.approx(2.8 * np.sqrt(0.24 * 2 / 400), rel=0.1)
    lower, higher = (rng.binomial(400, 0.6 + side * gap / 2, size=2000) / 400 for side in (1, -1))
    assert 0.75 <= np.mean(100 * np.abs(lower - higher) > test["null_high"]) <= 0.85
