"""Verdicts on weighted F1 and on the boundary that hold for other draws of demonstrations, and what the page says."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biaseval.analysis.sign_flips import sign_flips
from tests.handmade import made
from tests.majority_statistics.tables import PLACE
from tests.majorityplans import ANSWERS, MajorityPlan


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
            f1s = [0.9 if number < n_inside else 0.5 for number in range(10)]
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


def test_one_seed_has_a_band_of_the_rows_and_none_of_the_draws() -> None:
    several, one = (_verdicts([0.2] * 8, n_seeds=n_seeds)["mean_f1"] for n_seeds in (8, 1))
    assert several["both_low"] < several["simultaneous_low"] < several["estimate"] < several["both_high"]
    assert (one["both_low"], one["both_high"]) == (None, None)
    for name in ("estimate", "p", "p_both", "simultaneous_low", "simultaneous_high", "error_draws"):
        assert one[name] == several[name], name


WIDER = [0.2, 0.3, 0.2, 0.2, 0.1, 0.3, 0.2, 0.2]


def test_the_boundary_is_judged_by_seeds_and_by_rows() -> None:
    row = _verdicts(WIDER)["rb_at_10"]
    assert (row["verdict"], row["reason"], row["unit"], row["n_units"]) == ("higher", None, "seed", 8)
    assert (row["estimate"], row["p"], row["n_rows"]) == (pytest.approx(np.mean(WIDER)), pytest.approx(2 / 2**8), 1000)


TOO_FEW_ROWS, CONSTANT = {"has_enough_rows": False}, {"is_any_setting_above_constant": False}


@pytest.mark.parametrize(
    ("changes", "rows_interval", "model", "verdict", "reason"),
    [
        ([-change for change in WIDER], (-0.5, -0.05), {}, "lower", None),
        (WIDER, (-0.1, 0.5), {}, "unclear", None),  # of the seeds alone it is clear, of the rows it is not
        ([0.0] * 8, (0.05, 0.5), {}, "unclear", None),
        ([0.3, -0.2, 0.3, -0.1, 0.2, 0.3, -0.2, 0.3], (0.05, 0.5), {}, "unclear", None),
        ([0.2] * 5, (0.05, 0.5), {}, "too few", "too few seeds"),
        ([0.2] * 8, (0.05, 0.5), TOO_FEW_ROWS, "too few", "too few rows"),
        ([0.2] * 8, (0.05, 0.5), CONSTANT, "unclear", "constant answer"),
        ([0.2] * 8, (0.05, 0.5), CONSTANT | TOO_FEW_ROWS, "unclear", "constant answer"),
    ],
)
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


def test_settings_that_are_all_alike_have_no_verdict_on_their_spread(tmp_path: Path) -> None:
    right = dict.fromkeys(ANSWERS, ("TTTF", "TTTF"))
    run = MajorityPlan(("likelihood",), ("looc",), right, n_repeats=50).relations(tmp_path)
    [row] = run.rows("from majority_verdicts where metric = 'sd_f1' and instruction")
    assert (row["estimate"], row["verdict"], row["reason"]) == (None, None, "no spread")
