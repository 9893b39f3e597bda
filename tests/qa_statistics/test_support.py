"""Which biases of a page are supported, and the null at a threshold that another model's search chose."""

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from biaseval.qa_bias.splits.search_null import enough_permutations
from tests.qa_statistics.nulls import Floats, measured, nulls, searched, searches, significance
from tests.qaplans import QaPlan


def test_a_bias_is_supported_by_its_p_and_its_interval(tmp_path: Path) -> None:
    """Holm's adjustment and the verdict, redone from the stored draws."""
    rng = np.random.default_rng(8)
    heuristics = ["ans_len", "ans_pos", "sim_word"]
    bootstrap = {"trials": 100, "sample": 60}
    plan = QaPlan(["bert", "other"], heuristics=heuristics, bootstrap=bootstrap, variant="reference")
    values = {name: rng.integers(0, 6, size=400).astype(float).tolist() for name in heuristics}
    plan.questions(values)
    plan.titles([f"title {number % 25}" for number in range(400)])
    for model in ("bert", "other"):
        share = 0.5 + 0.3 * (np.array(values["ans_len"]) <= 2) * (model == "bert")
        plan.answers((rng.random(400) < share).astype(float).tolist(), model=model)
    run = plan.relations(tmp_path)
    tests = {(row["model"], row["heuristic"]): row for row in run.rows("from qa_bias_tests")}
    assert len(tests) == 6
    ps = {}
    for (model, heuristic), test in tests.items():
        sql = f"from qa_search_nulls where model = '{model}' and heuristic = '{heuristic}' order by draw"
        draws = np.array([row["significance"] for row in run.rows(sql)])
        ps[model, heuristic] = float(np.mean(draws >= draws[0] - 1e-9))
        numbers = ("p", "null_mean", "null_high", "expected_significance", "n_permutations")
        wanted = [ps[model, heuristic], draws[1:].mean(), np.quantile(draws[1:], 0.95), draws[0], 999]
        assert [test[name] for name in numbers] == pytest.approx(wanted)
    largest = 0.0
    for place, key in enumerate(sorted(ps, key=lambda names: (ps[names], names))):
        test, largest = tests[key], max(largest, min(1.0, ps[key] * (6 - place)))
        assert test["p_adjusted"] == pytest.approx(largest)
        excludes = test["difference_low"] is not None and not test["difference_low"] <= 0 <= test["difference_high"]
        assert test["is_supported"] == (test["bias_significance"] > 0 and largest <= 0.05 and excludes)
    assert [key for key, row in tests.items() if row["is_supported"]] == [("bert", "ans_len")]
    averages = run.rows("select model, n_significant, bias_significance_null as noise from qa_by_model order by model")
    assert [row["n_significant"] for row in averages] == [1, 0]
    for row in averages:
        own = [test["null_mean"] for (model, _), test in tests.items() if model == row["model"]]
        assert row["noise"] == pytest.approx(np.mean(own))


def test_a_page_of_many_tests_has_permutations_enough_for_one_to_be_significant() -> None:
    assert [enough_permutations(n_tests) for n_tests in (7, 20, 21)] == [999, 999, 1049]
    for n_tests in (1, 14, 50, 51, 300):
        assert n_tests / (1 + enough_permutations(n_tests)) <= 0.02


def alike(
    rng: np.random.Generator, n_rows: int, correlation: float, effect: float = 0.0, n_values: int = 12, size: int = 10
) -> tuple[Floats, pa.Table, tuple[Floats, Floats]]:
    """Return values, and answers of two models to the same questions, by luck of which a share is the same.

    Only the first model has a bias, where there is any; articles are of ``size`` questions.
    """
    values = rng.integers(0, n_values, size=n_rows).astype(float)
    luck = rng.random((2, n_rows))
    luck[1] = np.where(rng.random(n_rows) < correlation, luck[0], luck[1])
    answers = (luck[0] < 0.6 + effect * (values <= 4)).astype(float), (luck[1] < 0.6).astype(float)
    return values, of_both(values, *answers, np.arange(n_rows) // size), answers


def of_both(values: Floats, first: Floats, second: Floats, article: Floats) -> pa.Table:
    return pa.concat_tables([measured(values, first, article, "a"), measured(values, second, article, "b")])


def test_the_null_at_another_models_threshold_is_that_of_every_order_of_the_questions() -> None:
    """Seven questions of one article in all 5,040 orders, each with a search by loops."""
    values = np.array([0.0, 0, 1, 1, 2, 2, 3])
    first, second = np.array([1.0, 1, 1, 0, 0, 1, 0]), np.array([1.0, 1, 0, 1, 0, 0, 0])
    candidates = [0.0, 1.0, 2.0]

    def distances(answers: Floats) -> dict[float, float]:
        sides = {one: (answers[values <= one], answers[values > one]) for one in candidates}
        return {one: significance(*own, 2) for one, own in sides.items() if min(map(len, own)) >= 2}

    every = []
    for order in itertools.permutations(range(7)):
        own, theirs = distances(second[list(order)]), distances(first[list(order)])
        source = theirs if max(theirs.values()) > 0 else own
        every.append(own[max(source, key=lambda one: (round(source[one], 9), -one))])
    both = of_both(values, first, second, np.zeros(7, dtype=int))
    found = nulls(both, candidates, searches(1.0, a="a", b="a"), sample=2, permutations=20_000)["b"]
    assert found[0] == pytest.approx(distances(second)[1.0])
    shares = {round(one, 6): every.count(one) / len(every) for one in set(every)}
    assert len(shares) > 3
    for one, share in shares.items():
        drawn = np.mean(np.abs(found[1:] - one) < 1e-5)
        assert drawn == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / 20_000) + 1e-12)


def test_another_models_threshold_is_tested_at_that_threshold(tmp_path: Path) -> None:
    """In the paper's variant bert's threshold is kept for all."""
    rng = np.random.default_rng(9)
    plan = QaPlan(["bert", "other"], bootstrap={"trials": 100, "sample": 60})
    values = rng.integers(0, 6, size=400).astype(float)
    plan.questions({"ans_len": values.tolist()})
    for model in ("bert", "other"):
        plan.answers((rng.random(400) < 0.5 + 0.3 * (values <= 2)).astype(float).tolist(), model=model)
    run = plan.relations(tmp_path)
    [bert, other] = run.rows("from qa_bias_tests order by model")
    assert (bert["threshold"], other["threshold"]) == (2, 2)
    assert (bert["is_searched"], other["is_searched"]) == (True, False)
    is_lower = values <= 2
    exact = np.array([row["exact_match"] for row in plan.predictions if row["model"] == "other"])
    # A search finds more in noise than one threshold that is given.
    assert other["null_mean"] > searched(values, exact, np.arange(400), [2.0], sample=60, permutations=999)[1:].mean()
    expected = significance(exact[is_lower], exact[~is_lower], 60)
    assert other["expected_significance"] == pytest.approx(expected)
