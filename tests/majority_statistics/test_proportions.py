"""Whether proportions matter at all: p-values over exchanged settings, and planted differences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats  # type: ignore[import-untyped]

from tests.majority_statistics.tables import PLACE, Floats, computed
from tests.majorityplans import SEEDS, MajorityPlan, rows
from tests.measuring import measure


def _f1_tables(f1s: Floats, n_draws: int = 2000) -> dict[str, pa.Table]:
    """Return what ``majority_components`` reads, for F1 of [method, setting, seed], with its own permutations."""
    n_methods, n_settings, n_seeds = f1s.shape
    places = [
        {**PLACE, "method": f"m{method}", "number": number, "seed": seed}
        for method in range(n_methods)
        for number in range(n_settings)
        for seed in range(n_seeds)
    ]
    by_setting = [
        {"model": "m", **place, "weighted_f1": float(f1), "n_rows": 100}
        for place, f1 in zip(places, f1s.ravel(), strict=True)
    ]
    patterns = [
        {**place, "gold": "a", "prediction": given, "n_rows": 50, "value": value}
        for place in places
        for given, value in (("a", 1.0), ("b", 0.0))
    ]
    rng = np.random.default_rng(0)
    orders = [
        {"draw": draw, "seed": seed, "numbers": list(range(n_settings)) if draw == 0 else rng.permutation(n_settings)}
        for draw in range(n_draws)
        for seed in range(n_seeds)
    ]
    return {
        "majority_by_setting": pa.Table.from_pylist(by_setting),
        "majority_pattern_values": pa.Table.from_pylist(patterns),
        "setting_permutations": pa.Table.from_pylist(orders),
    }


def test_the_p_of_proportions_is_the_share_of_orders_with_as_large_a_variance() -> None:
    f1s = np.random.default_rng(1).normal(0.6, 0.05, size=(4, 5, 3)) + np.linspace(0, 0.06, 5)[:, None]
    tables = _f1_tables(f1s, n_draws=500)
    orders = np.array(tables["setting_permutations"]["numbers"].to_pylist()).reshape(500, 3, 5)
    found = computed("marts", "majority_components", **tables)
    assert [row["method"] for row in found] == ["m0", "m1", "m2", "m3"]
    for row, of_method in zip(found, f1s, strict=True):
        variances = np.array(
            [np.mean([of_method[order[seed], seed] for seed in range(3)], axis=0).var() for order in orders]
        )
        assert row["proportions_p"] == pytest.approx(np.mean(variances >= variances[0] - 1e-12))
        assert row["proportions_p_adjusted"] == pytest.approx(min(1, 4 * row["proportions_p"]))
        # 100 rows, half of which have the pseudo-value 1 and half 0.
        assert row["var_rows"] == pytest.approx(0.25 / 99)


def test_where_settings_do_not_matter_the_p_of_proportions_is_uniform() -> None:
    n_runs = 400
    f1s = np.random.default_rng(2).normal(0.6, 0.08, size=(n_runs, 11, 5))
    found = computed("marts", "majority_components", **_f1_tables(f1s, n_draws=300))
    p = np.array([row["proportions_p"] for row in found])
    assert len(p) == n_runs
    assert stats.kstest(p, "uniform").pvalue > 0.01
    assert np.mean(p <= 0.05) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / n_runs)
    # sd over settings is that of means of five draws, and the corrected one near 0.
    corrected = np.array([row["sd_f1_corrected"] for row in found])
    assert np.mean(corrected**2) < 0.25 * 0.08**2 / 5 * 2
    assert f1s.mean(axis=2).std(axis=1, ddof=1).mean() == pytest.approx(0.08 / np.sqrt(5), rel=0.1)


def test_planted_differences_of_settings_are_found_with_their_standard_deviation() -> None:
    planted = np.linspace(-0.15, 0.15, 11)
    f1s = np.random.default_rng(4).normal(0.6, 0.05, size=(100, 11, 5)) + planted[:, None]
    found = computed("marts", "majority_components", **_f1_tables(f1s, n_draws=300))
    assert max(row["proportions_p"] for row in found) < 0.05
    assert np.mean([row["var_settings"] for row in found]) == pytest.approx(planted.var(ddof=1), rel=0.05)
    assert np.mean([row["var_seeds"] for row in found]) == pytest.approx(0.05**2, rel=0.05)


def test_one_seed_cannot_tell_proportions_from_the_draw() -> None:
    f1s = np.random.default_rng(5).normal(0.6, 0.05, size=(1, 11, 1))
    [row] = computed("marts", "majority_components", **_f1_tables(f1s, n_draws=100))
    for name in ("proportions_p", "proportions_p_adjusted", "sd_f1_corrected", "var_settings", "var_seeds"):
        assert row[name] is None, name
    assert row["var_rows"] is not None


def test_settings_are_exchanged_within_each_seed_in_stored_orders(tmp_path: Path) -> None:
    run = MajorityPlan(("likelihood",)).write(tmp_path)
    measure(run)
    found = rows(run, "from setting_permutations order by draw, seed")
    assert len(found) == 2000 * 2
    assert [row["numbers"] for row in found[:2]] == [[0, 1, 2]] * 2
    assert {tuple(sorted(row["numbers"])) for row in found} == {(0, 1, 2)}
    assert {row["seed"] for row in found} == set(SEEDS)
    orders = {seed: [tuple(row["numbers"]) for row in found if row["seed"] == seed] for seed in SEEDS}
    counts = {order: orders[3].count(order) for order in set(orders[3])}
    assert len(counts) == 6
    assert max(counts.values()) < 1.2 * 2000 / 6
    assert orders[3] != orders[5]
    # A sign for each of the four test rows.
    assert {len(row["signs"]) for row in rows(run, "from sign_flips")} == {4}
