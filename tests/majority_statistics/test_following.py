"""What predictions follow: majority and recency effects, planted and by least squares."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats  # type: ignore[import-untyped]

from tests.handmade import made
from tests.majority_statistics.tables import PLACE
from tests.majorityplans import MajorityPlan


def _followed(
    effect: float, recency: float, noise: float, n_runs: int, n_seeds: int = 5, n_rows: int = 400, of_rows: float = 0.0
) -> dict[str, Any]:
    """Return predictions of two labels and their shares over eleven settings; the last demonstration is drawn by these.

    ``effect`` is the slope of a label's share of the predictions on its share of the demonstrations, ``recency`` what
    the last demonstration adds; ``noise`` is of a setting and seed, ``of_rows`` of a row's own slope; both are sds.
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
                given = float(says_a.mean())
                shares += [
                    {**place, "label": label, "share_shown": own, "is_last": last, "share_predicted": told}
                    for label, own, last, told in (
                        ("a", shown, is_last, given),
                        ("b", 1 - shown, not is_last, 1 - given),
                    )
                ]
                of_place = {name: pa.array([value] * n_rows) for name, value in place.items()}
                told = pa.array(np.where(says_a, "a", "b"))
                predictions.append(pa.table({**of_place, "row": np.arange(n_rows), "prediction": told}))
    return {"majority_label_shares": shares, "majority_predictions": pa.concat_tables(predictions)}


def test_what_is_followed_is_the_mean_effect_of_the_labels_on_each_row_by_least_squares() -> None:
    """Three labels, and outputs that are none; the errors are those of seeds and of rows."""
    rng = np.random.default_rng(8)
    labels, n_rows, n_seeds, n_settings = ("a", "b", "c"), 12, 3, 6
    shown = rng.dirichlet([1, 1, 1], size=n_settings)
    told = rng.choice(["a", "b", "c", None], size=(n_seeds, n_settings, n_rows), p=[0.4, 0.3, 0.2, 0.1])
    last = rng.choice(labels, size=(n_seeds, n_settings))
    last[:, 0], last[:, 1] = "a", "b"
    last[0][last[0] == "c"] = "a"  # so that c is never last with the first seed, and left out of recency there
    shares, predictions = [], []
    names = ("majority_effect", "recency", "recency_at_equal_shares")
    effects = {name: np.full((n_seeds, 3, n_rows), np.nan) for name in names}
    for seed, number in np.ndindex(n_seeds, n_settings):
        place = {**PLACE, "method": "none", "setting": f"{number}", "number": number, "seed": seed}
        given = told[seed, number]
        predictions += [{**place, "row": row, "prediction": each} for row, each in enumerate(given)]
        for own, label in enumerate(labels):
            of_label = {"share_shown": shown[number, own], "share_predicted": float(np.mean(given == label))}
            shares.append({**place, "label": label, "is_last": bool(last[seed, number] == label), **of_label})
    for seed, own, row in np.ndindex(n_seeds, 3, n_rows):
        says, is_last = (told[seed, :, row] == labels[own]).astype(float), last[seed] == labels[own]
        found = [stats.linregress(shown[:, own], says).slope, np.nan, np.nan]
        if 0 < is_last.sum() < n_settings:
            design = np.column_stack([np.ones(n_settings), shown[:, own], is_last])
            found[1:] = says[is_last].mean() - says[~is_last].mean(), np.linalg.lstsq(design, says, rcond=None)[0][2]
        for name, effect in zip(names, found, strict=True):
            effects[name][seed, own, row] = effect
    assert np.isnan(effects["recency"]).any()
    tables = {"majority_label_shares": shares, "majority_predictions": pa.Table.from_pylist(predictions)}
    [row_of_run] = made("majority_following", **tables)
    for name, values in effects.items():
        of_seed_and_row = np.nanmean(values, axis=1)
        by_seed, by_row = of_seed_and_row.mean(axis=1), of_seed_and_row.mean(axis=0)
        errors = stats.sem(by_seed), stats.sem(by_row)
        error = np.hypot(*errors)
        df = error**4 / (errors[0] ** 4 / (n_seeds - 1) + errors[1] ** 4 / (n_rows - 1))
        # Below 10 the quantile is that of the whole degrees of freedom.
        bounds = stats.t.interval(0.95, np.floor(df) if df < 10 else df, by_row.mean(), error)
        assert row_of_run[name] == pytest.approx(by_row.mean())
        assert (row_of_run[f"{name}_low"], row_of_run[f"{name}_high"]) == pytest.approx(bounds, abs=1e-4), name


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


def test_one_seed_or_one_row_has_effects_without_interval() -> None:
    for sizes in ({"n_seeds": 1}, {"n_seeds": 3, "n_rows": 1}):
        [row] = made("majority_following", **_followed(0.4, 0.2, 0.0, 1, **sizes))
        assert row["majority_effect"] is not None
        assert [row[name] for name in row if name.endswith(("_low", "_high"))] == [None] * 6


def test_recency_of_a_setting_is_over_the_seeds_that_differ_in_the_last_label(tmp_path: Path) -> None:
    """In 50/50 the last demonstration is False with seed 3 and True with seed 5; True has 2/4 and 3/4."""
    sql = "from majority_over_seeds where not instruction"
    found = {row["setting"]: row["recency"] for row in MajorityPlan(("likelihood",)).relations(tmp_path).rows(sql)}
    assert found == {"0/100": None, "50/50": pytest.approx(3 / 4 - 2 / 4), "100/0": None}
