"""Simulated settings of known truth: how often effects of proportions are found, and intervals hold."""

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from tests.handmade import ask, made
from tests.majority_statistics.test_components import _f1_tables
from tests.majority_statistics.test_verdicts import _followed

pytestmark = pytest.mark.slow


def test_where_settings_do_not_matter_the_p_of_proportions_is_uniform() -> None:
    n_runs = 400
    f1s = np.random.default_rng(2).normal(0.6, 0.08, size=(n_runs, 11, 5))
    found = made("majority_components", **_f1_tables(f1s, n_draws=300))
    p = np.array([row["proportions_p"] for row in found])
    assert len(p) == n_runs
    assert stats.kstest(p, "uniform").pvalue > 0.01
    assert np.mean(p <= 0.05) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / n_runs)
    # sd over settings is that of means of five draws, and the corrected one near 0.
    corrected = np.array([row["sd_f1_corrected"] for row in found])
    assert np.mean(corrected**2) < 0.25 * 0.08**2 / 5 * 2
    assert f1s.mean(axis=2).std(axis=1, ddof=1).mean() == pytest.approx(0.08 / np.sqrt(5), rel=0.1)


@pytest.mark.parametrize(("n_settings", "n_seeds", "n_methods"), [(5, 2, 1), (11, 5, 1), (15, 3, 8), (2, 8, 1)])
def test_the_smallest_effect_of_proportions_is_found_in_four_of_five_runs(
    n_settings: int, n_seeds: int, n_methods: int
) -> None:
    """Each run is a method of one call, so that the tests that a real one has are counted here."""
    n_runs, spread = 400, 0.05
    smallest = ask("visible_settings(?, ?, ?, ?)", spread**2, n_settings, n_seeds, n_methods)
    planted = np.linspace(-1, 1, n_settings)
    planted *= smallest / planted.std(ddof=1)
    rng = np.random.default_rng(6)
    of_seeds = rng.normal(0, 0.1, size=(n_runs, 1, n_seeds))  # moves all settings and hides nothing
    f1s = 0.6 + planted[:, None] + of_seeds + rng.normal(0, spread, size=(n_runs, n_settings, n_seeds))
    found = made("majority_components", **_f1_tables(f1s, n_draws=1000))
    assert 0.70 <= np.mean([row["proportions_p"] * n_methods <= 0.05 for row in found]) <= 0.86
    # The runs say the same by their own variance between draws; all of them are tests of one run here.
    of_all = ask("visible_settings(?, ?, ?, ?)", spread**2, n_settings, n_seeds, n_runs)
    told = [row["sd_f1_smallest_detectable"] for row in found]
    assert of_all is told[0] is None or np.mean(np.square(told)) == pytest.approx(of_all**2, rel=0.05)


def test_intervals_of_what_is_followed_hold_the_planted_effects_in_95_percent() -> None:
    n_runs = 200
    # In the middle, so that no chance is below 0 or above 1.
    found = made("majority_following", **_followed(0.3, 0.15, 0.05, n_runs, n_rows=40, of_rows=0.2))
    bound = 3 * np.sqrt(0.95 * 0.05 / n_runs)
    for name, truth in (("majority_effect", None), ("recency_at_equal_shares", 0.15)):
        # Alone, the slope on proportions has what the last demonstration adds too: its truth is the mean.
        true = np.mean([row[name] for row in found]) if truth is None else truth
        covered = np.mean([row[f"{name}_low"] <= true <= row[f"{name}_high"] for row in found])
        assert 0.95 - bound <= covered <= 0.95 + 0.035 + bound, name
