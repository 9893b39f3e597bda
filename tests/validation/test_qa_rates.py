"""Simulated answers of known truth: how often searches, intervals and comparisons of readers err."""

from pathlib import Path

import numpy as np
import pytest

from biaseval.prompting.power import smallest_gap
from biaseval.qa_bias.splits.search_null import Variant
from tests.qa_debiasing.study import Study
from tests.qa_debiasing.test_arithmetic import page, words
from tests.qa_statistics.nulls import nulls, p_value, searched, searches, significance
from tests.qa_statistics.test_intervals import CANDIDATES, confounded
from tests.qa_statistics.test_support import alike
from tests.qaplans import QaPlan

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("variant", ["paper", "reference"])
def test_where_there_is_no_bias_five_percent_of_searches_are_called_one(variant: Variant) -> None:
    """Values and answers both depend on the article: questions that are taken as independent give 10 % and more."""
    rng = np.random.default_rng(3)
    how = [{"seed": number, "variant": variant} for number in range(400)]
    ps = [p_value(searched(*confounded(rng, 280), CANDIDATES, **one)) for one in how]
    assert 0.02 <= np.mean(np.array(ps) <= 0.05) <= 0.08  # Monte Carlo error 0.011


def test_a_bias_that_was_put_in_is_found() -> None:
    rng = np.random.default_rng(5)
    found = [p_value(searched(*confounded(rng, 800, effect=-0.25), CANDIDATES, seed=number)) for number in range(50)]
    assert np.mean(np.array(found) <= 0.05) > 0.9


@pytest.mark.parametrize("n_articles", [12, 40])
def test_intervals_cover_the_truth_where_articles_differ(n_articles: int) -> None:
    """300 models with articles of their own difficulty: their mean, and no difference between the groups."""
    rng = np.random.default_rng(n_articles)
    n_rows, models = 400, [f"m{number}" for number in range(300)]
    article = rng.integers(n_articles, size=n_rows)
    study = Study({"ans_len": [0.0]}, models=models, bootstrap={"trials": 2, "sample": 20})
    shift = rng.normal(size=n_articles)[article]
    study.questions({"ans_len": (shift + rng.normal(size=n_rows) > 0.5).astype(float).tolist()})
    study.titles([f"title {own}" for own in article])
    for model in models:
        share = np.clip(0.5 + 0.2 * rng.normal(size=n_articles), 0, 1)[article]
        study.answers((rng.random(n_rows) < share).astype(float).tolist(), model=model)
    differences, means, f1 = study.asked(
        "select difference_low as low, difference_high as high from qa_bias_by_heuristic",
        "select exact_match_low as low, exact_match_high as high from qa_by_dataset",
        "select f1_low as low, f1_high as high from qa_by_dataset",
    )
    # Monte Carlo error 0.0126.
    for found, truth in ((differences, 0), (means, 0.5), (f1, 0.5)):
        assert len(found) == 300
        assert 0.915 <= np.mean([row["low"] <= truth <= row["high"] for row in found]) <= 0.985


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


@pytest.mark.parametrize(("n", "sample", "replacement"), [(10_570, 800, False), (3000, 800, True), (1600, 800, False)])
def test_the_smallest_gap_of_halves_is_found_in_four_of_five_runs(n: int, sample: int, replacement: bool) -> None:
    """A bias is found where it is above 0 and above 95 % of those of answers without any."""
    rng = np.random.default_rng(n)
    half = n // 2
    gap = smallest_gap(n, sample, replacement=replacement)
    assert gap is not None

    def significances(distance: float) -> np.ndarray:
        shares = [rng.binomial(half, 0.8 + side * distance / 2, size=20_000) / half for side in (1, -1)]
        shrink = 1 if replacement else np.sqrt((half - sample) / (half - 1))
        reach = sum(1.8777 * np.sqrt(share * (1 - share) / sample) * shrink for share in shares)
        found: np.ndarray = np.maximum(0, np.abs(shares[0] - shares[1]) - reach)
        return found

    noise = np.quantile(significances(0), 0.95)
    assert 0.75 <= np.mean(significances(gap) > noise) <= 0.85


def test_readers_that_are_alike_are_told_apart_in_few_pages() -> None:
    """All have the same bias, and the same answers on average: any word is wrong."""
    rng = np.random.default_rng(7)
    wrong, single = [], []
    for _ in range(20):
        biases, answers = page(rng, n_draws=100)
        wrong.append([bool(words(biases)), bool(words(answers))])
        single += [row["p"] <= 0.05 for row in biases]
    of_bias, of_answers = np.mean(wrong, axis=0)
    # Monte Carlo errors 0.035 and 0.05; each family has a half of the 5 %.
    assert of_bias <= 0.075
    assert of_answers <= 0.1
    assert np.mean(single) <= 0.08
