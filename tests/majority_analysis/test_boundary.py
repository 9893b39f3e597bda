"""When the robustness boundary says something, and of how many rows."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.majorityplans import ANSWERS, DEMOS, GOLD, MajorityPlan, Rows
from tests.relation import Relations


def _answered(folder: Path, predictions: Mapping[str, str], n_repeats: int = 1, golds: str = GOLD) -> Rows:
    """Return the settings and then the model of a run that gives these outputs with instruction, by setting."""
    answers = {(setting, True): (given, given) for setting, given in predictions.items()}
    found = MajorityPlan(("generate",), answers=answers, n_repeats=n_repeats, golds=golds).relations(folder)
    return [*found.rows("from majority_over_seeds order by number"), *found.rows("from majority_by_model")]


@pytest.mark.parametrize("outputs", ["FF-T", "T---", "--TF"])
def test_the_boundary_says_nothing_where_no_answer_is_right_or_most_outputs_are_no_label(
    tmp_path: Path, outputs: str
) -> None:
    """One output of 0/100 is no label in every plan. T--- has 3 of 4 without label; --TF half and one more of 24."""
    *settings, model = _answered(tmp_path, dict.fromkeys(DEMOS, outputs))
    assert all(row["is_within"] for row in settings) or outputs == "--TF"
    assert [row["boundary"] for row in (*settings, model)] == [None] * 4
    assert not any(row["is_marked"] for row in settings)
    assert (model["n_marked"], model["has_many_without_label"]) == (0, True)


def test_the_boundary_says_something_where_half_of_the_outputs_are_labels(tmp_path: Path) -> None:
    outputs = {"0/100": "TT--", "50/50": "T---", "100/0": "TTF-"}
    *settings, model = _answered(tmp_path, outputs, 20, golds="TTFF")
    assert model["share_no_label"] == pytest.approx(0.5)
    assert [row["boundary"] for row in (*settings, model)] == pytest.approx([5 / 6 - 0.1] * 4)
    assert [row["is_marked"] for row in settings] == [False, False, True]
    assert model["n_marked"] == 1


@pytest.mark.parametrize(("n_repeats", "has_many"), [(1, True), (2, False)])
def test_many_outputs_without_a_label_are_three_percent(tmp_path: Path, n_repeats: int, has_many: bool) -> None:
    """One output of 24 n is no label: 4.2 % and 2.1 %."""
    *_, model = _answered(tmp_path, dict.fromkeys(DEMOS, "TTTF"), n_repeats)
    assert (model["share_no_label"], model["has_many_without_label"]) == (pytest.approx(1 / 24 / n_repeats), has_many)
    # So few rows do not show that a setting is better than one label.
    assert (model["is_above_constant"], model["is_any_setting_above_constant"]) == (None, None)


def test_a_setting_is_held_against_the_best_constant_answer(tmp_path: Path) -> None:
    """Of 80 rows half are True. TTFF is right, TTTF in three of four, TTTT and FTTT are no better than one label."""
    outputs = {"0/100": "FTTT", "50/50": "TTTT", "100/0": "TTTF"}
    *settings, model = _answered(tmp_path, outputs, 20, golds="TTFF")
    assert [row["is_above_constant"] for row in settings] == [False, False, True]
    assert [row["n_seeds_not_above"] for row in settings] == [2, 2, 0]
    assert (model["n_settings_above"], model["n_settings_not_above"]) == (1, 2)
    assert model["is_any_setting_above_constant"] is True
    assert (model["majority_accuracy"], model["constant_f1"]) == (0.5, pytest.approx(1 / 3))


@pytest.mark.parametrize("outputs", ["TTTT", "FTTT"])
def test_settings_that_are_all_alike_are_not_robust_where_one_label_would_do_as_well(
    tmp_path: Path, outputs: str
) -> None:
    *settings, model = _answered(tmp_path, dict.fromkeys(DEMOS, outputs), 20)
    assert (model["rb_at_10"], model["boundary"], model["n_marked"]) == (1, None, 0)
    assert (model["is_above_constant"], model["is_any_setting_above_constant"]) == (False, False)
    assert {(row["is_within"], row["is_marked"]) for row in settings} == {(True, False)}


def test_a_constant_answer_follows_the_majority_of_one_labels_settings(tmp_path: Path) -> None:
    """Of three settings with a majority two have that of False."""
    plan = MajorityPlan(("likelihood",))
    plan.settings[1] |= {"shares": [0.0, 1.0], "counts": [0, 2], "counts_asked": [0, 2]}
    for row in plan.contexts:
        if row["setting"] == "50/50":
            row["demo_labels"] = ["False", "False"]
    found = plan.relations(tmp_path).rows("from majority_by_model")
    assert {row["share_majority_of_constant"] for row in found} == {2 / 3}


@pytest.mark.parametrize(("n_repeats", "has_enough"), [(1, False), (50, True)])
def test_test_rows_are_enough_where_half_the_settings_intervals_are_within_the_boundarys_distance(
    tmp_path: Path, n_repeats: int, has_enough: bool
) -> None:
    """A setting with every answer right has an interval without width, which says nothing of the number of rows."""
    *settings, model = _answered(tmp_path, {"0/100": "TTFF", "50/50": "TTTF", "100/0": "TTTT"}, n_repeats)
    widths = [row["weighted_f1_high"] - row["weighted_f1_low"] for row in settings]
    assert widths[1] == pytest.approx(0, abs=1e-12)
    assert model["half_width"] == pytest.approx((widths[0] + widths[2]) / 2 / 2)
    assert model["has_enough_rows"] is (model["half_width"] <= 0.1) is has_enough
    assert model["n_test_rows"] == 4 * n_repeats


def test_where_every_answer_is_right_rows_are_enough_and_every_setting_is_marked(tmp_path: Path) -> None:
    right = dict.fromkeys(ANSWERS, ("TTTF", "TTTF"))
    found = MajorityPlan(("likelihood",), answers=right, n_repeats=20).relations(tmp_path)
    assert {row["is_marked"] for row in found.rows("from majority_over_seeds")} == {True}
    models = found.rows("from majority_by_model")
    assert {(row["half_width"], row["has_enough_rows"]) for row in models} == {(0, True)}


@pytest.mark.parametrize("has_enough", [False, True])
def test_a_gain_can_be_judged_where_both_sides_have_enough_rows(
    opened: Relations, tmp_path: Path, has_enough: bool
) -> None:
    if has_enough:
        opened = MajorityPlan(("likelihood",), ("looc",), n_repeats=50).relations(tmp_path)
    sql = "from majority_verdicts where predict = 'likelihood' and instruction = against_instruction"
    words = {(row["instruction"], row["method"], row["metric"]): row["verdict"] for row in opened.rows(sql)}
    assert {row["has_enough_rows"] for row in opened.rows("from majority_by_model where predict = 'likelihood'")} == {
        has_enough
    }
    for row in opened.rows("from majority_calibration_gain"):
        assert row["has_enough_rows"] is has_enough
        for metric in ("rb_at_10", "mean_f1", "sd_f1"):
            value, low, high = (row[f"{metric}{end}"] for end in ("", "_low", "_high"))
            sign = {"higher": 1, "lower": -1}.get(words[row["instruction"], row["method"], metric])
            assert low <= high
            assert row[f"{metric}_sign"] == (0 if abs(value) < 1e-9 else sign)
            assert sign is None or sign * value > 0
    if has_enough:
        [row] = opened.rows("from majority_calibration_gain where not instruction")
        assert (row["mean_f1_sign"], row["rb_at_10_sign"]) == (None, 0)  # one of six draws moves the mean
