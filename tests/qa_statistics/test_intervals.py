"""Intervals clustered by article, by loops and against a truth that is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats  # type: ignore[import-untyped]

from biaseval.qa_bias.bias_draws import bias_draws
from biaseval.qa_bias.changes import change_draws
from biaseval.qa_bias.search_null import closed_form
from tests.measuring import measure
from tests.qa_bias.test_changes import answers as paired_answers
from tests.qa_statistics.nulls import Floats
from tests.qa_statistics.plans import TITLES, opened, read, small_plan
from tests.qaplans import QaPlan, _ask, rows


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


def test_the_interval_of_a_difference_is_clustered_by_article(tmp_path: Path) -> None:
    plan = small_plan()
    run = plan.write(tmp_path)
    measure(run)
    [row] = rows(run, "from qa_bias_by_heuristic")
    is_lower = np.array([one["value"] for one in plan.attributes]) <= 1
    for metric, suffix in (("exact_match", ""), ("f1", "_f1")):
        values = np.array([one[metric] for one in plan.predictions])
        difference, half_width = clustered(values, is_lower, np.array(TITLES))
        assert row[f"difference{suffix}"] == pytest.approx(difference)
        assert row[f"difference_low{suffix}"] == pytest.approx(difference - half_width, rel=1e-5)
        assert row[f"difference_high{suffix}"] == pytest.approx(difference + half_width, rel=1e-5)
    assert row["n_articles"] == 9


def test_intervals_of_a_data_set_are_clustered_by_article(tmp_path: Path) -> None:
    plan = small_plan()
    run = plan.write(tmp_path)
    measure(run)
    [row] = rows(run, "from qa_by_dataset")
    titles = np.array(TITLES)
    quantile = stats.t.ppf(0.975, 8)

    def error(values: Floats) -> float:
        sums = [(values[titles == title] - values.mean()).sum() for title in dict.fromkeys(TITLES)]
        return float(np.sqrt(9 / 8 * np.sum(np.square(sums))) / 20)

    f1 = np.array([one["f1"] for one in plan.predictions])
    assert row["f1_low"] == pytest.approx(f1.mean() - quantile * error(f1), rel=1e-5)
    assert row["f1_high"] == pytest.approx(min(1, f1.mean() + quantile * error(f1)), rel=1e-5)
    exact = np.array([one["exact_match"] for one in plan.predictions])
    share = exact.mean()
    # As many independent questions as have this error, and an interval as much wider as Student's.
    n_rows = min(20, share * (1 - share) / error(exact) ** 2 * (1.959963984540054 / quantile) ** 2)
    low, high = _ask("wilson_interval(?, ?)", share, n_rows)
    assert n_rows < 20
    assert row["exact_match_low"] == pytest.approx(low, rel=1e-5)
    assert row["exact_match_high"] == pytest.approx(high, rel=1e-5)
    assert (row["exact_match_error"], row["f1_error"]) == pytest.approx((error(exact), error(f1)))


def test_wilsons_interval_of_dependent_questions() -> None:
    plain = _ask("wilson_interval(0.5, 40)")
    assert _ask("wilson_interval_clustered(0.5, 0.2, 40, 40)") == plain
    independent = np.sqrt(0.25 / 40)
    assert _ask("wilson_interval_clustered(0.5, ?, 40, 20)", independent / 9) == plain  # never narrower
    wider = _ask("wilson_interval_clustered(0.5, ?, 40, 20)", 2 * independent)
    n_rows = 10 * (1.959963984540054 / stats.t.ppf(0.975, 19)) ** 2
    assert wider == pytest.approx(_ask("wilson_interval(0.5, ?)", n_rows), abs=1e-5)
    # All right: as if an article were one question.
    n_rows = 20 * (1.959963984540054 / stats.t.ppf(0.975, 19)) ** 2
    assert _ask("wilson_interval_clustered(1, 0, 40, 20)") == pytest.approx(
        _ask("wilson_interval(1, ?)", n_rows), abs=1e-5
    )
    assert _ask("wilson_interval_clustered(0.5, null, 40, 1)") is None


@pytest.mark.parametrize("n_articles", [12, 40])
def test_intervals_cover_the_truth_where_articles_differ(n_articles: int) -> None:
    """300 models with articles of their own difficulty: their mean, and no difference between the groups."""
    rng = np.random.default_rng(n_articles)
    n_rows, models = 400, [f"m{number}" for number in range(300)]
    article = rng.integers(n_articles, size=n_rows)
    plan = QaPlan(models, bootstrap={"trials": 2, "sample": 20})
    shift = rng.normal(size=n_articles)[article]
    plan.questions({"ans_len": (shift + rng.normal(size=n_rows) > 0.5).astype(float).tolist()})
    for example, own in zip(plan.examples, article, strict=True):
        example["title"] = f"title {own}"
    for model in models:
        share = np.clip(0.5 + 0.2 * rng.normal(size=n_articles), 0, 1)[article]
        plan.answers((rng.random(n_rows) < share).astype(float).tolist(), model=model)
    needed = ("qa_bias_candidates", "qa_bias_by_heuristic", "qa_by_dataset")
    with opened(plan, needed, {"ans_len": 0.0}) as connection:
        differences = read(
            connection, "select difference_low as low, difference_high as high from qa_bias_by_heuristic"
        )
        means = read(connection, "select exact_match_low as low, exact_match_high as high from qa_by_dataset")
        f1 = read(connection, "select f1_low as low, f1_high as high from qa_by_dataset")
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


def test_the_interval_of_an_average_is_of_its_draws(tmp_path: Path) -> None:
    plan = small_plan()
    run = plan.write(tmp_path)
    measure(run)
    [row] = rows(run, "from qa_by_model")
    draws = rows(run, "from qa_bias_draws")
    sizes = rows(run, "select n_lower, n_higher from qa_bias_by_heuristic")[0]
    whole = [one for one in draws if one["lower"] is not None and one["higher"] is not None]
    found = closed_form(
        np.array([one["lower"] for one in whole]), np.full(len(whole), sizes["n_lower"]),
        np.array([one["higher"] for one in whole]), np.full(len(whole), sizes["n_higher"]), 8, False,
    )  # fmt: skip
    bounds = np.quantile(found, [0.025, 0.975])
    assert row["bias_significance_high"] == pytest.approx(bounds[1])
    assert (row["is_above_null"], row["bias_significance_low"]) == (False, 0)
    assert bounds[0] > 0  # which the search alone explains
    assert row["n_draws"] == len(whole)
