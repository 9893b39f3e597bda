"""Verdicts on the robustness boundary, by seeds and by rows, and bands of a single seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from biaseval.analysis.sign_flips import sign_flips
from tests.majority_statistics.tables import PLACE, computed


def _verdicts(
    changes: Sequence[float],
    rows_interval: tuple[float, float] = (0.05, 0.5),
    model: dict[str, bool] | None = None,
    n_seeds: int = 8,
) -> dict[str, dict[str, Any]]:
    """Return the verdicts on looc against none by metric, where RB@10 changes by so much of ten settings in each seed.

    Args:
        changes: by seed, in tenths.
        rows_interval: of the difference over resamples of the rows.
        model: columns of ``majority_by_model`` of looc that differ from those of none.
        n_seeds: that tell what draws of demonstrations change of the mean.
    """
    by_setting, row_values, draws = [], [], []
    for method in ("none", "looc"):
        for seed, change in enumerate(changes):
            n_inside = 5 + (round(10 * change) if method == "looc" else 0)
            by_setting += [
                {"model": "m", **PLACE, "method": method, "setting": f"{number}", "number": number, "seed": seed}
                | {"weighted_f1": 0.9 if number < n_inside else 0.5}
                for number in range(10)
            ]
        row_values += [
            {**PLACE, "method": method, "metric": "mean_f1", "row": row, "value": 0.5 + (row % 2) + change * (row % 3)}
            for change in [0.01 * (method == "looc")]
            for row in range(50)
        ]
        estimate = float(np.mean(changes))
        of_draws = [estimate, *np.linspace(*rows_interval, 201)]
        draws += [
            {"model": "m", **PLACE, "method": method, "draw": draw, "rb_at_10": 0.3 + value * (method == "looc")}
            for draw, value in enumerate(of_draws)
        ]
    pair = {**PLACE, "against_instruction": True, "method": "looc", "against_method": "none"}
    plain = {"model": "m", **PLACE, "method": "none", "has_enough_rows": True, "n_rows": 1000}
    plain |= {"is_any_setting_above_constant": True}
    found = computed(
        "marts",
        "majority_verdicts",
        majority_seed_boundaries=pa.Table.from_pylist(
            computed("intermediate", "majority_seed_boundaries", majority_by_setting=pa.Table.from_pylist(by_setting))
        ),
        majority_row_values=pa.Table.from_pylist(row_values),
        majority_draws_by_model=pa.Table.from_pylist(draws),
        majority_by_model=pa.Table.from_pylist([plain, plain | {"method": "looc"} | (model or {})]),
        sign_flips=sign_flips(50, 0),
        run_settings=pa.table({"model": ["m"]}),
        majority_pairs=pa.Table.from_pylist([pair | {"metric": metric} for metric in ("mean_f1", "rb_at_10")]),
        majority_draw_errors=pa.Table.from_pylist(
            [pair | {"metric": "mean_f1", "error_draws": 0.01, "draws_df": 7.0, "n_seeds": n_seeds}]
        ),
    )
    return {row["metric"]: row for row in found}


def _verdict_of_boundary(
    changes: Sequence[float], rows_interval: tuple[float, float] = (0.05, 0.5), model: dict[str, bool] | None = None
) -> dict[str, Any]:
    return _verdicts(changes, rows_interval, model)["rb_at_10"]


def test_one_seed_has_a_band_of_the_rows_and_none_of_the_draws() -> None:
    several, one = (_verdicts([0.2] * 8, n_seeds=n_seeds)["mean_f1"] for n_seeds in (8, 1))
    assert several["both_low"] < several["simultaneous_low"] < several["estimate"] < several["both_high"]
    assert (one["both_low"], one["both_high"]) == (None, None)
    for name in ("estimate", "p", "p_both", "simultaneous_low", "simultaneous_high", "error_draws"):
        assert one[name] == several[name], name


def test_the_boundary_is_judged_by_seeds_and_by_rows() -> None:
    wider = [0.2, 0.3, 0.2, 0.2, 0.1, 0.3, 0.2, 0.2]
    row = _verdict_of_boundary(wider)
    assert (row["verdict"], row["reason"], row["unit"], row["n_units"]) == ("higher", None, "seed", 8)
    assert row["estimate"] == pytest.approx(np.mean(wider))
    assert row["p"] == pytest.approx(2 / 2**8)
    assert row["n_rows"] == 1000
    narrower = _verdict_of_boundary([-change for change in wider], (-0.5, -0.05))
    assert narrower["verdict"] == "lower"
    # Of the seeds alone it is clear, of the rows it is not.
    assert _verdict_of_boundary(wider, (-0.1, 0.5))["verdict"] == "unclear"
    assert _verdict_of_boundary([0.0] * 8)["verdict"] == "unclear"


def test_opposite_changes_of_the_boundary_over_seeds_are_no_verdict() -> None:
    row = _verdict_of_boundary([0.3, -0.2, 0.3, -0.1, 0.2, 0.3, -0.2, 0.3])
    assert row["p"] > 0.05
    assert (row["verdict"], row["reason"]) == ("unclear", None)


@pytest.mark.parametrize(
    ("changes", "model", "verdict", "reason"),
    [
        ([0.2] * 5, {}, "too few", "too few seeds"),
        ([0.2] * 8, {"has_enough_rows": False}, "too few", "too few rows"),
        ([0.2] * 8, {"is_any_setting_above_constant": False}, "unclear", "constant answer"),
        ([0.2] * 8, {"is_any_setting_above_constant": False, "has_enough_rows": False}, "unclear", "constant answer"),
    ],
)
def test_a_boundary_that_cannot_be_judged_has_its_reason(
    changes: list[float], model: dict[str, bool], verdict: str, reason: str
) -> None:
    row = _verdict_of_boundary(changes, model=model)
    assert (row["verdict"], row["reason"]) == (verdict, reason)
