"""Verdicts, and what predictions follow."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats  # type: ignore[import-untyped]

from biaseval.analysis.sign_flips import sign_flips
from tests.handmade import made
from tests.majority_statistics.tables import PLACE
from tests.majorityplans import MajorityPlan


def _verdicts(
    changes: Sequence[float],
    rows_interval: tuple[float, float] = (0.05, 0.5),
    model: dict[str, bool] | None = None,
    n_seeds: int = 8,
) -> dict[str, dict[str, Any]]:
    """Return the verdicts on looc against none by metric, where RB@10 changes by so much of ten settings in each seed.

    Changes are by seed; the interval is of the difference over resamples of the rows, ``model`` has what differs of
    looc in ``majority_by_model``, and ``n_seeds`` tell what draws of demonstrations change of the mean.
    """
    by_setting, row_values, draws = [], [], []
    for method in ("none", "looc"):
        of, is_after = {**PLACE, "method": method}, method == "looc"
        for seed, change in enumerate(changes):
            n_inside = 5 + (round(10 * change) if is_after else 0)
            place = {"model": "m", **of, "seed": seed}
            f1s = [0.9 if number < n_inside else 0.795 for number in range(10)]
            by_setting += [{**place, "setting": f"{n}", "number": n, "weighted_f1": f1} for n, f1 in enumerate(f1s)]
        values = [0.5 + (row % 2) + 0.01 * is_after * (row % 3) for row in range(50)]
        row_values += [{**of, "metric": "mean_f1", "row": row, "value": value} for row, value in enumerate(values)]
        of_draws = [float(np.mean(changes)), *np.linspace(*rows_interval, 201)]
        boundaries = [0.3 + value * is_after for value in of_draws]
        draws += [{"model": "m", **of, "draw": draw, "rb_at_10": rb} for draw, rb in enumerate(boundaries)]
    pair = {**PLACE, "against_instruction": True, "method": "looc", "against_method": "none"}
    plain = {"model": "m", **PLACE, "method": "none", "has_enough_rows": True, "n_rows": 1000}
    plain |= {"is_any_setting_above_constant": True}
    found = made(
        "majority_verdicts",
        majority_seed_boundaries=made("majority_seed_boundaries", majority_by_setting=by_setting),
        majority_row_values=row_values,
        majority_draws_by_model=draws,
        majority_by_model=[plain, plain | {"method": "looc"} | (model or {})],
        sign_flips=sign_flips(50, 0),
        run_settings=[{"model": "m"}],
        majority_pairs=[pair | {"metric": metric} for metric in ("mean_f1", "rb_at_10")],
        majority_draw_errors=[pair | {"metric": "mean_f1", "error_draws": 0.01, "draws_df": 7.0, "n_seeds": n_seeds}],
    )
    return {row["metric"]: row for row in found}


WIDER = [0.2, 0.3, 0.2, 0.2, 0.1, 0.3, 0.2, 0.2]


def test_the_boundary_is_judged_by_seeds_and_by_rows() -> None:
    row = _verdicts(WIDER)["rb_at_10"]
    assert (row["verdict"], row["reason"], row["unit"], row["n_units"]) == ("higher", None, "seed", 8)
    assert (row["estimate"], row["p"], row["n_rows"]) == (pytest.approx(np.mean(WIDER)), pytest.approx(2 / 2**8), 1000)


TOO_FEW_ROWS, CONSTANT = {"has_enough_rows": False}, {"is_any_setting_above_constant": False}


@pytest.mark.parametrize(("changes", "rows_interval", "model", "verdict", "reason"), [
    ([-change for change in WIDER], (-0.5, -0.05), {}, "lower", None),
    (WIDER, (-0.1, 0.5), {}, "unclear", None),  # of the seeds alone it is clear, of the rows it is not
    ([0.0] * 8, (0.05, 0.5), {}, "unclear", None),
    ([0.3, -0.2, 0.3, -0.1, 0.2, 0.3, -0.2, 0.3], (0.05, 0.5), {}, "unclear", None),
    ([0.2] * 5, (0.05, 0.5), {}, "too few", "too few seeds"),
    ([0.2] * 8, (0.05, 0.5), TOO_FEW_ROWS, "too few", "too few rows"),
    ([0.2] * 8, (0.05, 0.5), CONSTANT, "unclear", "constant answer"),
    ([0.2] * 8, (0.05, 0.5), CONSTANT | TOO_FEW_ROWS, "unclear", "constant answer"),
])  # fmt: skip
def test_a_boundary_has_its_verdict_and_what_cannot_be_judged_its_reason(
    changes: list[float], rows_interval: tuple[float, float], model: dict[str, bool], verdict: str, reason: str | None
) -> None:
    row = _verdicts(changes, rows_interval, model)["rb_at_10"]
    assert (row["verdict"], row["reason"]) == (verdict, reason)


def test_a_change_in_one_draw_of_demonstrations_is_not_said_of_others(tmp_path: Path) -> None:
    """By leave-one-out FFFF of 0/100, seed 3, becomes TTTT; with instruction nothing changes."""
    run = MajorityPlan(("likelihood",), ("looc",), n_repeats=50).relations(tmp_path)
    sql = "from majority_verdicts where instruction = against_instruction"
    found = {(row["instruction"], row["metric"]): row for row in run.rows(sql)}
    assert set(found) == {(given, metric) for given in (False, True) for metric in ("mean_f1", "sd_f1", "rb_at_10")}
    changed, same = found[False, "mean_f1"], found[True, "mean_f1"]
    assert changed["estimate"] == pytest.approx((9 / 14 - 0.1) / 2 / 3)
    assert (changed["n_units"], changed["p"] <= changed["p_adjusted"] < 0.01) == (200, True)
    # Of rows it is clear; but it comes from one of six draws of demonstrations, so that another draw may lack it: the
    # standard error over draws is the change itself.
    assert changed["error_draws"] == pytest.approx(changed["estimate"])
    assert (changed["verdict"], changed["reason"]) == ("unclear", None)
    assert [same[name] for name in ("verdict", "estimate", "p", "low", "high")] == ["unclear", 0, 1, 0, 0]
    gains = {row["instruction"]: row for row in run.rows("from majority_calibration_gain")}
    assert (gains[False]["mean_f1_sign"], gains[True]["mean_f1_sign"]) == (None, 0)
    # The t interval and the percentiles over resamples are of about the same width.
    width = gains[False]["mean_f1_high"] - gains[False]["mean_f1_low"]
    assert changed["high"] - changed["low"] == pytest.approx(width, rel=0.15)


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
