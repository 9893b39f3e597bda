"""Which biases of a page are supported, and the null at a threshold that another model's search chose."""

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from biaseval.qa_bias.search_null import enough_permutations
from tests.qa_statistics.nulls import Floats, measured, nulls, p_value, searched, searches, significance
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


def test_of_many_models_on_one_page_a_strong_bias_is_supported_and_averages_of_the_others_are_from_0(
    tmp_path: Path,
) -> None:
    """With 999 permutations, the smallest p of 51 tests would be 0.051; a search finds something in noise."""
    rng = np.random.default_rng(4)
    models, heuristics = [f"m{number:02}" for number in range(16)], ["ans_len", "ans_pos", "sim_word"]
    plan = QaPlan([*models, "biased"], heuristics=heuristics, bootstrap={"trials": 20, "sample": 150})
    values = {name: rng.integers(0, 6, size=400).astype(float) for name in heuristics}
    plan.questions({name: own.tolist() for name, own in values.items()})
    plan.titles([f"title {number % 40}" for number in range(400)])
    for model in (*models, "biased"):
        share = 0.6 + 0.3 * (values["ans_len"] <= 2) * (model == "biased")
        plan.answers((rng.random(400) < share).astype(float).tolist(), model=model)
    run = plan.relations(tmp_path)
    [test] = run.rows("from qa_bias_tests where model = 'biased' and heuristic = 'ans_len'")
    assert (test["n_permutations"], test["is_supported"], test["p_adjusted"] <= 0.05) == (50 * 51 - 1, True, True)
    found = {row["model"]: row for row in run.rows("from qa_by_model")}
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
    run = plan.relations(tmp_path)
    [test] = run.rows("from qa_bias_tests")
    # Samples are whole halves, whose bounds have no reach: the significance is the difference.
    gap = test["smallest_detectable"] / 100
    assert gap == pytest.approx(2.8 * np.sqrt(0.24 * 2 / 400), rel=0.1)
    lower, higher = (rng.binomial(400, 0.6 + side * gap / 2, size=2000) / 400 for side in (1, -1))
    assert 0.75 <= np.mean(100 * np.abs(lower - higher) > test["null_high"]) <= 0.85


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


def test_models_without_bias_have_none_at_a_threshold_that_another_models_luck_chose() -> None:
    """Right by the same luck: what suits one suits the other; as a threshold that was given it gave 9 % and more."""
    rng = np.random.default_rng(31)
    candidates, joint = [float(one) for one in range(50)], []
    for number in range(400):
        values, both, (first, _) = alike(rng, 300, 0.9, n_values=50)
        # As runs do it: the threshold is that of the first model's answers, if they choose any.
        sides = {one: (first[values <= one], first[values > one]) for one in candidates}
        distances = {one: significance(*own, 100) for one, own in sides.items() if min(map(len, own)) >= 100}
        best = max(distances, key=distances.__getitem__)
        asked = searches(best, a="a", b="a") if distances[best] > 0 else searches(a="a", b="b")
        joint.append(p_value(nulls(both, candidates, asked, seed=number)["b"]))
    assert 0.02 <= np.mean(np.array(joint) <= 0.05) <= 0.08  # Monte Carlo error 0.011


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


def test_a_model_without_bias_has_none_where_anothers_bias_chose_the_threshold() -> None:
    rng = np.random.default_rng(33)
    ps = []
    candidates = [float(one) for one in range(12)]
    for number in range(300):
        _, both, _ = alike(rng, 400, 0.5, effect=0.3)
        found = nulls(both, candidates, searches(4.0, a="a", b="a"), sample=50, seed=number)
        ps.append([p_value(found["a"]), p_value(found["b"])])
    of_first, of_second = np.mean(np.array(ps) <= 0.05, axis=0)
    assert of_first > 0.95
    assert of_second <= 0.08


def test_questions_that_a_model_lacks_stay_lacking() -> None:
    """Half of the articles, and a third of the questions of the others: segments keep their sizes."""
    rng = np.random.default_rng(34)
    values, both, _ = alike(rng, 600, 0.8, size=20)
    has_answer = (np.arange(600) // 20 % 2 == 0) & (np.arange(600) % 3 > 0)
    both = both.filter(pa.array([*[True] * 600, *has_answer.tolist()]))
    size = int((has_answer & (values <= 5)).sum())
    n_least = min(size, int(has_answer.sum()) - size)
    measurable = nulls(both, [5.0], searches(5.0, a="a", b="a"), sample=n_least)
    assert measurable.keys() == {"a", "b"}
    assert nulls(both, [5.0], searches(5.0, a="a", b="a"), sample=n_least + 1).keys() == {"a"}
    # With a sample that is a whole segment, that segment has no error: its mean alone decides.
    assert len(set(measurable["b"].round(9).tolist())) > 5


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
