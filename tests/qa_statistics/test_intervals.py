"""Intervals clustered by article, by loops and against a truth that is known."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats  # type: ignore[import-untyped]

from biaseval.qa_bias.bias_draws import bias_draws
from biaseval.qa_bias.changes import change_draws
from biaseval.qa_bias.search_null import closed_form
from tests.handmade import ask
from tests.qa_bias.test_changes import answers as paired_answers
from tests.qa_debiasing.study import Study
from tests.qa_statistics.nulls import TITLES, Floats, small_plan
from tests.relation import Relations


def clustered(metric: Floats, is_lower: npt.NDArray[np.bool_], titles: Any) -> tuple[float, float]:
    """Return the difference of two means with its half width, by loops over articles."""
    difference, variance, n_with = 0.0, 0.0, []
    parts: dict[str, float] = dict.fromkeys(titles, 0.0)
    for sign, is_segment in ((1, is_lower), (-1, ~is_lower)):
        mean = metric[is_segment].mean()
        difference += sign * mean
        own = set(titles[is_segment])
        n_with.append(len(own))
        for title in own:
            residual = (metric[is_segment & (titles == title)] - mean).sum() / is_segment.sum()
            parts[title] += sign * residual * np.sqrt(len(own) / (len(own) - 1))
    variance = sum(part**2 for part in parts.values())
    return 100 * difference, 100 * float(stats.t.ppf(0.975, min(n_with) - 1) * np.sqrt(variance))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Relations:
    return small_plan().relations(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def metrics() -> dict[str, Floats]:
    return {name: np.array([row[name] for row in small_plan().predictions]) for name in ("exact_match", "f1")}


def test_the_interval_of_a_difference_is_clustered_by_article(small: Relations, metrics: dict[str, Floats]) -> None:
    [row] = small.rows("from qa_bias_by_heuristic")
    is_lower = np.array([one["value"] for one in small_plan().attributes]) <= 1
    for metric, suffix in (("exact_match", ""), ("f1", "_f1")):
        difference, half_width = clustered(metrics[metric], is_lower, np.array(TITLES))
        found = [row[f"difference{end}{suffix}"] for end in ("", "_low", "_high")]
        assert found == pytest.approx([difference, difference - half_width, difference + half_width], rel=1e-5)
    assert row["n_articles"] == 9


def test_intervals_of_a_data_set_are_clustered_by_article(small: Relations, metrics: dict[str, Floats]) -> None:
    [row] = small.rows("from qa_by_dataset")
    titles = np.array(TITLES)
    quantile = stats.t.ppf(0.975, 8)

    def error(values: Floats) -> float:
        sums = [(values[titles == title] - values.mean()).sum() for title in dict.fromkeys(TITLES)]
        return float(np.sqrt(9 / 8 * np.sum(np.square(sums))) / 20)

    exact, f1 = metrics["exact_match"], metrics["f1"]
    bounds = [f1.mean() - quantile * error(f1), min(1, f1.mean() + quantile * error(f1))]
    assert [row["f1_low"], row["f1_high"]] == pytest.approx(bounds, rel=1e-5)
    share = exact.mean()
    # As many independent questions as have this error, and an interval as much wider as Student's.
    n_rows = min(20, share * (1 - share) / error(exact) ** 2 * (1.959963984540054 / quantile) ** 2)
    assert n_rows < 20
    bounds = ask("wilson_interval(?, ?)", share, n_rows)
    assert [row["exact_match_low"], row["exact_match_high"]] == pytest.approx(bounds, rel=1e-5)
    assert (row["exact_match_error"], row["f1_error"]) == pytest.approx((error(exact), error(f1)))


def test_wilsons_interval_of_dependent_questions() -> None:
    plain = ask("wilson_interval(0.5, 40)")
    assert ask("wilson_interval_clustered(0.5, 0.2, 40, 40)") == plain
    independent = np.sqrt(0.25 / 40)
    assert ask("wilson_interval_clustered(0.5, ?, 40, 20)", independent / 9) == plain  # never narrower
    wider = ask("wilson_interval_clustered(0.5, ?, 40, 20)", 2 * independent)
    n_rows = 10 * (1.959963984540054 / stats.t.ppf(0.975, 19)) ** 2
    assert wider == pytest.approx(ask("wilson_interval(0.5, ?)", n_rows), abs=1e-5)
    # All right: as if an article were one question.
    n_rows = 20 * (1.959963984540054 / stats.t.ppf(0.975, 19)) ** 2
    assert ask("wilson_interval_clustered(1, 0, 40, 20)") == pytest.approx(
        ask("wilson_interval(1, ?)", n_rows), abs=1e-5
    )
    assert ask("wilson_interval_clustered(0.5, null, 40, 1)") is None


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


def test_draws_of_averages_hold_whole_articles_and_are_those_of_changes() -> None:
    rng = np.random.default_rng(10)
    given = paired_answers(rng.integers(9, size=200), rng.random(200), rng.random(200) < 0.6)
    changes = change_draws("bert", given, seed=3, draws=200)
    found = bias_draws("bert", given, seed=3, draws=200)
    assert found.num_rows == 200
    for name in ("lower", "higher"):
        assert found[name].to_numpy() == pytest.approx(changes[name].to_numpy())


def test_the_interval_of_an_average_is_of_its_draws(small: Relations) -> None:
    [row] = small.rows("from qa_by_model")
    whole = small.rows("from qa_bias_draws where lower is not null and higher is not null")
    [sizes] = small.rows("select n_lower, n_higher from qa_bias_by_heuristic")
    sides = (np.array([one[side] for one in whole]) for side in ("lower", "higher"))
    lower, higher = ((side, np.full(len(whole), n)) for side, n in zip(sides, sizes.values(), strict=True))
    bounds = np.quantile(closed_form(*lower, *higher, 8, False), [0.025, 0.975])
    assert row["bias_significance_high"] == pytest.approx(bounds[1])
    assert (row["is_above_null"], row["bias_significance_low"], row["n_draws"]) == (False, 0, len(whole))
    assert bounds[0] > 0  # which the search alone explains
