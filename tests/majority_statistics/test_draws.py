"""Verdicts on weighted F1 that hold for other draws of demonstrations."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.majority_report.runs import make_run
from tests.majorityplans import ANSWERS, rows


def test_a_change_in_one_draw_of_demonstrations_is_not_said_of_others(tmp_path: Path) -> None:
    """By leave-one-out FFFF of 0/100, seed 3, becomes TTTT; with instruction nothing changes."""
    run = make_run(tmp_path / "run", 7_000, calibration=("looc",))
    found = {
        (row["instruction"], row["metric"]): row
        for row in rows(run, "from majority_verdicts where instruction = against_instruction")
    }
    assert set(found) == {(given, metric) for given in (False, True) for metric in ("mean_f1", "sd_f1", "rb_at_10")}
    changed = found[False, "mean_f1"]
    assert changed["estimate"] == pytest.approx((9 / 14 - 0.1) / 2 / 3)
    assert (changed["n_units"], changed["p_adjusted"] < 0.01) == (200, True)
    # Of rows it is clear; but it comes from one of six draws of demonstrations, so that another draw may lack it: the
    # standard error over draws is the change itself.
    assert changed["error_draws"] == pytest.approx(changed["estimate"])
    assert (changed["verdict"], changed["reason"]) == ("unclear", None)
    same = found[True, "mean_f1"]
    assert (same["verdict"], same["estimate"], same["p"], same["low"], same["high"]) == ("unclear", 0, 1, 0, 0)
    assert changed["p"] <= changed["p_adjusted"]
    gains = {row["instruction"]: row for row in rows(run, "from majority_calibration_gain")}
    assert (gains[False]["mean_f1_sign"], gains[True]["mean_f1_sign"]) == (None, 0)
    # The t interval and the percentiles over resamples are of about the same width.
    width = gains[False]["mean_f1_high"] - gains[False]["mean_f1_low"]
    assert changed["high"] - changed["low"] == pytest.approx(width, rel=0.15)


def test_a_change_in_every_draw_of_demonstrations_is_clear(tmp_path: Path) -> None:
    """With adapters all is right; without, the answers of a setting are the same with both seeds."""
    answers = {place: (given[0], given[0]) for place, given in ANSWERS.items()}
    run = make_run(tmp_path / "run", 7_000, answers, adapted=dict.fromkeys(ANSWERS, ("TTTF", "TTTF")))
    [row] = rows(run, "from majority_verdicts where metric = 'mean_f1' and not instruction")
    assert row["estimate"] == pytest.approx(1 - (0.1 + 23 / 30 + 9 / 14) / 3)
    assert row["error_draws"] == pytest.approx(0, abs=1e-9)
    assert (row["verdict"], row["p_both"] <= row["p_both_adjusted"] < 0.001) == ("higher", True)
    [gain] = rows(run, "from majority_calibration_gain where not instruction")
    assert gain["mean_f1_sign"] == 1


def test_settings_that_are_all_alike_have_no_verdict_on_their_spread(tmp_path: Path) -> None:
    right = dict.fromkeys(ANSWERS, ("TTTF", "TTTF"))
    run = make_run(tmp_path / "run", 7_000, right, calibration=("looc",))
    [row] = rows(run, "from majority_verdicts where metric = 'sd_f1' and instruction")
    assert (row["estimate"], row["verdict"], row["reason"]) == (None, None, "no spread")
