"""When the robustness boundary says something, and of how many rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import duckdb
import pytest

from tests.majorityplans import ANSWERS, DEMOS, GOLD, MajorityPlan, Rows, rows
from tests.measuring import measure


def test_the_settings_inside_the_boundary_are_those_that_it_counts(opened: duckdb.DuckDBPyConnection) -> None:
    found = rows(
        opened,
        "select instruction, predict, method, rb_at_10, avg(is_within::int) as share, "
        "list(setting order by number) filter (is_within) as inside "
        "from majority_over_seeds inner join majority_by_model "
        "using (model, task, n_demos, instruction, predict, method) group by all",
    )
    assert len(found) == 8
    assert all(row["share"] == pytest.approx(row["rb_at_10"]) for row in found)
    assert {tuple(row["inside"]) for row in found} == {("50/50",)}


def _answered(folder: Path, predictions: Mapping[str, str], n_repeats: int = 1, golds: str = GOLD) -> Rows:
    """Return the settings and then the model of a run that gives these outputs with instruction, by setting."""
    answers = {(setting, True): (given, given) for setting, given in predictions.items()}
    run = MajorityPlan(("generate",), answers=answers, n_repeats=n_repeats, golds=golds).write(folder)
    measure(run)
    return [*rows(run, "from majority_over_seeds order by number"), *rows(run, "from majority_by_model")]


def test_the_boundary_says_nothing_where_no_answer_is_right_or_most_outputs_are_no_label(tmp_path: Path) -> None:
    """One output of 0/100 is no label in every plan. T--- has 3 of 4 without label; --TF half and one more of 24."""
    for number, outputs in enumerate(("FF-T", "T---", "--TF")):
        *settings, model = _answered(tmp_path / str(number), dict.fromkeys(DEMOS, outputs))
        assert all(row["is_within"] for row in settings) or outputs == "--TF"
        for row in (*settings, model):
            assert row["boundary"] is None
        assert not any(row["is_marked"] for row in settings)
        assert (model["n_marked"], model["has_many_without_label"]) == (0, True)
    # Exactly half without a label, the right ones among the others: the boundary still says something.
    outputs = {"0/100": "TT--", "50/50": "T---", "100/0": "TTF-"}
    *settings, model = _answered(tmp_path / "half", outputs, 20, golds="TTFF")
    assert model["share_no_label"] == pytest.approx(0.5)
    assert [row["boundary"] for row in (*settings, model)] == pytest.approx([5 / 6 - 0.1] * 4)
    assert [row["is_marked"] for row in settings] == [False, False, True]
    assert model["n_marked"] == 1


def test_many_outputs_without_a_label_are_three_percent(tmp_path: Path) -> None:
    """One output of 24 n is no label: 4.2 % and 2.1 %."""
    for n_repeats, expected in ((1, True), (2, False)):
        *_, model = _answered(tmp_path / str(n_repeats), dict.fromkeys(DEMOS, "TTTF"), n_repeats)
        assert model["share_no_label"] == pytest.approx(1 / 24 / n_repeats)
        assert model["has_many_without_label"] is expected


def test_a_setting_is_held_against_the_best_constant_answer(tmp_path: Path) -> None:
    """Of 80 rows half are True. TTFF is right, TTTF in three of four, TTTT and FTTT are no better than one label."""
    outputs = {"0/100": "FTTT", "50/50": "TTTT", "100/0": "TTTF"}
    *settings, model = _answered(tmp_path, outputs, 20, golds="TTFF")
    assert [row["is_above_constant"] for row in settings] == [False, False, True]
    assert [row["n_seeds_not_above"] for row in settings] == [2, 2, 0]
    assert (model["n_settings_above"], model["n_settings_not_above"]) == (1, 2)
    assert model["is_any_setting_above_constant"] is True
    assert (model["majority_accuracy"], model["constant_f1"]) == (0.5, pytest.approx(1 / 3))


@pytest.mark.parametrize("outputs", ["TTTT", "FFFF", "FTTT"])
def test_settings_that_are_all_alike_are_not_robust_where_one_label_would_do_as_well(
    tmp_path: Path, outputs: str
) -> None:
    *settings, model = _answered(tmp_path, dict.fromkeys(DEMOS, outputs), 20)
    assert model["rb_at_10"] == 1
    assert (model["is_above_constant"], model["is_any_setting_above_constant"]) == (False, False)
    assert (model["boundary"], model["n_marked"]) == (None, 0)
    assert not any(row["is_marked"] for row in settings)


def test_few_rows_do_not_show_that_a_setting_is_better_than_one_label(tmp_path: Path) -> None:
    *_, model = _answered(tmp_path, dict.fromkeys(DEMOS, "TTTF"))
    assert (model["is_above_constant"], model["is_any_setting_above_constant"]) == (None, None)


def test_a_constant_answer_follows_the_majority_of_one_labels_settings(tmp_path: Path) -> None:
    """Of three settings with a majority two have that of False; a tie has none."""
    plan = MajorityPlan(("likelihood",))
    plan.settings[1] |= {"shares": [0.0, 1.0], "counts": [0, 2], "counts_asked": [0, 2]}
    for row in plan.contexts:
        if row["setting"] == "50/50":
            row["demo_labels"] = ["False", "False"]
    run = plan.write(tmp_path / "two")
    measure(run)
    assert {row["share_majority_of_constant"] for row in rows(run, "from majority_by_model")} == {2 / 3}
    plan = MajorityPlan(
        ("likelihood",), answers={place: given for place, given in ANSWERS.items() if place[0] == "50/50"}
    )
    plan.settings = [row | {"number": 0} for row in plan.settings if row["setting"] == "50/50"]
    run = plan.write(tmp_path / "tie")
    measure(run)
    for row in rows(run, "from majority_by_model"):
        assert row["share_majority"] is row["share_majority_of_constant"] is None


def test_test_rows_are_enough_where_half_the_settings_intervals_are_within_the_boundarys_distance(
    tmp_path: Path,
) -> None:
    """A setting with every answer right has an interval without width, which says nothing of the number of rows."""
    outputs = {"0/100": "TTFF", "50/50": "TTTF", "100/0": "TTTT"}
    for n_repeats, expected in ((1, False), (50, True)):
        *settings, model = _answered(tmp_path / str(n_repeats), outputs, n_repeats)
        widths = [row["weighted_f1_high"] - row["weighted_f1_low"] for row in settings]
        assert widths[1] == pytest.approx(0, abs=1e-12)
        assert model["half_width"] == pytest.approx((widths[0] + widths[2]) / 2 / 2)
        assert model["has_enough_rows"] is (model["half_width"] <= 0.1) is expected
        assert model["n_test_rows"] == 4 * n_repeats
    # Nothing to tell the rows apart by: each interval is without width.
    right = dict.fromkeys(ANSWERS, ("TTTF", "TTTF"))
    run = MajorityPlan(("likelihood",), answers=right).write(tmp_path / "right")
    measure(run)
    assert {(row["half_width"], row["has_enough_rows"]) for row in rows(run, "from majority_by_model")} == {(0, True)}


def test_a_gain_can_be_judged_where_both_sides_have_enough_rows(built: str, tmp_path: Path) -> None:
    for run, expected in (
        (built, False),
        (MajorityPlan(("likelihood",), ("looc",), n_repeats=50).write(tmp_path), True),
    ):
        if run != built:
            measure(run)
        enough = {
            (row["instruction"], row["method"]): row["has_enough_rows"]
            for row in rows(run, "from majority_by_model where predict = 'likelihood'")
        }
        verdicts = rows(
            run, "from majority_verdicts where predict = 'likelihood' and instruction = against_instruction"
        )
        for row in rows(run, "from majority_calibration_gain"):
            both = [enough[row["instruction"], method] for method in (row["method"], "none")]
            assert row["has_enough_rows"] is all(both)
            for metric in ("rb_at_10", "mean_f1", "sd_f1"):
                value, low, high = (row[f"{metric}{end}"] for end in ("", "_low", "_high"))
                assert low <= high
                [word] = [
                    each["verdict"]
                    for each in verdicts
                    if (each["instruction"], each["method"], each["metric"])
                    == (row["instruction"], row["method"], metric)
                ]
                sign = {"higher": 1, "lower": -1}.get(word)
                assert row[f"{metric}_sign"] == (0 if abs(value) < 1e-9 else sign)
                assert sign is None or sign * value > 0
        assert all(enough.values()) is expected
    [row] = rows(run, "from majority_calibration_gain where not instruction")
    assert (row["mean_f1_sign"], row["rb_at_10_sign"]) == (None, 0)  # one of six draws moves the mean
