"""What predictions follow: majority and recency effects, planted and by least squares."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats  # type: ignore[import-untyped]

from tests.majority_statistics.tables import PLACE, Floats, computed
from tests.majorityplans import MajorityPlan, rows
from tests.measuring import measure


def _followed(
    effect: float, recency: float, noise: float, n_runs: int, n_seeds: int = 5, n_rows: int = 400, of_rows: float = 0.0
) -> dict[str, pa.Table]:
    """Return predictions of two labels and their shares over eleven settings; the last demonstration is drawn by these.

    Args:
        effect: the slope of a label's share of the predictions on its share of the demonstrations.
        recency: what the last demonstration adds.
        noise: standard deviation of a setting and seed.
        n_runs: as many methods.
        n_seeds: of demonstrations.
        n_rows: test rows.
        of_rows: standard deviation over rows of their own slope, the same with all seeds.
    """
    rng = np.random.default_rng(6)
    shares, predictions = [], []
    for method in range(n_runs):
        slopes = effect + of_rows * rng.standard_normal(n_rows)
        # A row says what it does wherever chances are the same, so that shares of the predictions are near their mean.
        levels = rng.permuted((np.arange(n_rows) + 0.5) / n_rows)
        for seed in range(n_seeds):
            for number, shown in enumerate(np.linspace(0, 1, 11)):
                is_last = bool(rng.random() < shown)
                center = 0.5 + recency * (is_last - 0.5) + rng.normal(0, noise)
                says_a = levels < center + slopes * (shown - 0.5)
                place = {**PLACE, "method": f"m{method}", "setting": f"{number}", "number": number, "seed": seed}
                for label, own, last, given in (
                    ("a", shown, is_last, says_a.mean()),
                    ("b", 1 - shown, not is_last, 1 - says_a.mean()),
                ):
                    shares.append(
                        {**place, "label": label, "share_shown": own, "is_last": last, "share_predicted": float(given)}
                    )
                of_place = {name: pa.array([value] * n_rows) for name, value in place.items()}
                told = pa.array(np.where(says_a, "a", "b"))
                predictions.append(pa.table({**of_place, "row": np.arange(n_rows), "prediction": told}))
    return {
        "majority_label_shares": pa.Table.from_pylist(shares),
        "majority_predictions": pa.concat_tables(predictions),
    }


FOLLOWING = ("majority_effect", "recency", "recency_at_equal_shares")


def test_planted_majority_and_recency_effects_are_recovered() -> None:
    [row] = computed("intermediate", "majority_following", **_followed(0.4, 0.2, 0.0, 1))
    assert row["recency_at_equal_shares"] == pytest.approx(0.2, abs=0.005)
    assert row["recency_at_equal_shares_low"] == pytest.approx(0.2, abs=0.05)
    # The last label goes with the proportions, so either slope alone has some of the other.
    assert row["majority_effect"] > 0.4
    assert row["recency"] > 0.2
    [row] = computed("intermediate", "majority_following", **_followed(0.4, 0.0, 0.0, 1))
    assert row["majority_effect"] == pytest.approx(0.4, abs=0.005)
    assert row["recency_at_equal_shares"] == pytest.approx(0, abs=0.005)


def _least_squares(y: Floats, x: Floats, z: Floats) -> tuple[float, float, float]:
    """Return the slope of y on x, the difference of y by z, and the slope on z with both."""
    both = np.linalg.lstsq(np.column_stack([np.ones(len(x)), x, z]), y, rcond=None)[0]
    return float(stats.linregress(x, y).slope), float(y[z == 1].mean() - y[z == 0].mean()), float(both[2])


def test_majority_and_recency_effects_are_least_squares_of_each_seed_with_the_errors_of_seeds_and_rows() -> None:
    n_rows = 30
    tables = _followed(0.3, 0.1, 0.05, 1, n_seeds=4, n_rows=n_rows, of_rows=0.5)
    [row] = computed("intermediate", "majority_following", **tables)
    of_seeds, of_rows = [], np.zeros((n_rows, 3))
    answers = tables["majority_predictions"].to_pylist()
    for seed in range(4):
        own = [
            each
            for each in tables["majority_label_shares"].to_pylist()
            if each["seed"] == seed and each["label"] == "a"
        ]
        y, x, z = (
            np.array([float(each[name]) for each in own]) for name in ("share_predicted", "share_shown", "is_last")
        )
        of_seeds.append(_least_squares(y, x, z))
        says_a = np.array([each["prediction"] == "a" for each in answers if each["seed"] == seed]).reshape(11, n_rows)
        of_rows += [np.array(_least_squares(given.astype(float), x, z)) / 4 for given in says_a.T]
    for name, by_seed, by_row in zip(FOLLOWING, np.array(of_seeds).T, of_rows.T, strict=True):
        assert row[name] == pytest.approx(by_seed.mean())
        assert row[name] == pytest.approx(by_row.mean())
        errors = stats.sem(by_seed), stats.sem(by_row)
        error = np.hypot(*errors)
        df = error**4 / (errors[0] ** 4 / 3 + errors[1] ** 4 / (n_rows - 1))
        # Below 10 the quantile is that of the whole degrees of freedom.
        low, high = stats.t.interval(0.95, np.floor(df) if df < 10 else df, by_seed.mean(), error)
        assert (row[f"{name}_low"], row[f"{name}_high"]) == pytest.approx((low, high), abs=2e-5), name


def test_three_labels_and_outputs_that_are_no_label_have_the_mean_effect_of_the_labels_on_each_row() -> None:
    rng = np.random.default_rng(8)
    labels, n_rows, n_seeds, n_settings = ("a", "b", "c"), 12, 3, 6
    shown = rng.dirichlet([1, 1, 1], size=n_settings)
    told = rng.choice(["a", "b", "c", None], size=(n_seeds, n_settings, n_rows), p=[0.4, 0.3, 0.2, 0.1])
    last = rng.choice(labels, size=(n_seeds, n_settings))
    last[:, 0], last[:, 1] = "a", "b"
    last[0][last[0] == "c"] = "a"  # so that c is never last with the first seed, and left out of recency there
    shares, predictions = [], []
    slopes = np.full((n_seeds, 3, n_rows), np.nan)
    contrasts = slopes.copy()
    for seed in range(n_seeds):
        for number in range(n_settings):
            place = {**PLACE, "method": "none", "setting": f"{number}", "number": number, "seed": seed}
            given = told[seed, number]
            predictions += [{**place, "row": row, "prediction": each} for row, each in enumerate(given)]
            shares += [
                {
                    **place,
                    "label": label,
                    "share_shown": float(shown[number, place_of_label]),
                    "is_last": bool(last[seed, number] == label),
                    "share_predicted": float(np.mean(given == label)),
                }
                for place_of_label, label in enumerate(labels)
            ]
        for place_of_label, label in enumerate(labels):
            is_last = last[seed] == label
            for row in range(n_rows):
                says = (told[seed, :, row] == label).astype(float)
                slopes[seed, place_of_label, row] = stats.linregress(shown[:, place_of_label], says).slope
                if 0 < is_last.sum() < n_settings:
                    contrasts[seed, place_of_label, row] = says[is_last].mean() - says[~is_last].mean()
    assert np.isnan(contrasts).any()
    [found] = computed(
        "intermediate",
        "majority_following",
        majority_label_shares=pa.Table.from_pylist(shares),
        majority_predictions=pa.Table.from_pylist(predictions),
    )
    for name, values in (("majority_effect", slopes), ("recency", contrasts)):
        of_seed_and_row = np.nanmean(values, axis=1)
        by_seed, by_row = of_seed_and_row.mean(axis=1), of_seed_and_row.mean(axis=0)
        errors = stats.sem(by_seed), stats.sem(by_row)
        error = np.hypot(*errors)
        df = error**4 / (errors[0] ** 4 / (n_seeds - 1) + errors[1] ** 4 / (n_rows - 1))
        quantile = stats.t.ppf(0.975, np.floor(df) if df < 10 else df)
        assert found[name] == pytest.approx(by_row.mean())
        assert found[f"{name}_high"] - found[name] == pytest.approx(quantile * error, abs=1e-4), name


def test_intervals_of_what_is_followed_hold_the_planted_effects_in_95_percent() -> None:
    n_runs = 300
    # In the middle, so that no chance is below 0 or above 1.
    found = computed("intermediate", "majority_following", **_followed(0.3, 0.15, 0.05, n_runs, n_rows=40, of_rows=0.2))
    bound = 3 * np.sqrt(0.95 * 0.05 / n_runs)
    for name, truth in (("majority_effect", None), ("recency_at_equal_shares", 0.15)):
        # Alone, the slope on proportions has what the last demonstration adds too: its truth is the mean.
        true = np.mean([row[name] for row in found]) if truth is None else truth
        covered = np.mean([row[f"{name}_low"] <= true <= row[f"{name}_high"] for row in found])
        assert 0.95 - bound <= covered <= 0.95 + 0.035 + bound, name


def test_one_seed_or_one_row_has_effects_without_interval() -> None:
    for sizes in ({"n_seeds": 1}, {"n_seeds": 3, "n_rows": 1}):
        [row] = computed("intermediate", "majority_following", **_followed(0.4, 0.2, 0.0, 1, **sizes))
        assert row["majority_effect"] is not None
        assert [row[name] for name in row if name.endswith(("_low", "_high"))] == [None] * 6


def test_recency_of_a_setting_is_over_the_seeds_that_differ_in_the_last_label(tmp_path: Path) -> None:
    """In 50/50 the last demonstration is False with seed 3 and True with seed 5; True has 2/4 and 3/4."""
    run = MajorityPlan(("likelihood",)).write(tmp_path)
    measure(run)
    found = {row["setting"]: row["recency"] for row in rows(run, "from majority_over_seeds where not instruction")}
    assert found == {"0/100": None, "50/50": pytest.approx(3 / 4 - 2 / 4), "100/0": None}
