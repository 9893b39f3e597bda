"""What a remedy of majority-label bias is worth, by hand, and the rows behind what is followed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from biaseval.analysis import sql_files as relations
from tests.majorityplans import ANSWERS, DEMOS, MajorityPlan, Rows, rows
from tests.measuring import measure

PLACE = {"model": "m", "task": "boolq", "n_demos": 10, "instruction": True, "predict": "likelihood"}
VERDICT: dict[str, Any] = {
    **PLACE,
    "against_instruction": True,
    "method": "cc",
    "against_method": "none",
    "estimate": 0.0,
    "low": -0.02,
    "high": 0.02,
    "both_low": -0.02,
    "verdict": "unclear",
    "reason": None,
}
METRICS = ("mean_f1", "sd_f1", "rb_at_10")
LOWER_SD = {"sd_f1": {"verdict": "lower"}}
NOT_JUDGED = {"rb_at_10": {"verdict": "too few", "reason": "too few seeds"}}
NO_LOSS = {"mean_f1": {"both_low": -0.009}}
HIGHER = {"mean_f1": {"verdict": "higher", "both_low": 0.01}}


def remedy(words: Mapping[str, Mapping[str, Any]], *, is_above: bool | None = True) -> dict[str, Any]:
    """Return the row of ``majority_remedies`` of one method, by what ``majority_verdicts`` says of each metric."""
    verdicts = [{**VERDICT, "metric": metric, **words.get(metric, {})} for metric in METRICS]
    counts = {"n_settings": 11, "n_seeds": 5, "n_rows": 5500, "constant_f1": 0.5}
    counts |= {"accuracy": 0.6, "majority_accuracy": 0.7, "is_above_constant": is_above}
    by_model = [
        {**PLACE, **counts, "method": "none", "mean_f1": 0.45, "sd_f1": 0.12, "rb_at_10": 3 / 11},
        {**PLACE, **counts, "method": "cc", "mean_f1": 0.6, "sd_f1": 0.02, "rb_at_10": 10 / 11},
    ]
    types = {"reason": pa.string(), "verdict": pa.string(), "low": pa.float64(), "both_low": pa.float64()}
    names = [*VERDICT, "metric"]
    table = pa.table(
        {name: pa.array([row[name] for row in verdicts], types.get(name)) for name in names}  # None alone has no type
    )
    with closing(relations.connect([])) as connection:
        connection.from_arrow(table).create("majority_verdicts")
        connection.from_arrow(pa.Table.from_pylist(by_model)).create("majority_by_model")
        sql = (relations.ANALYTICS / "marts" / "majority_remedies.sql").read_text()
        [row] = connection.sql(sql).to_arrow_table().to_pylist()
    return dict(row)


@pytest.mark.parametrize(
    ("words", "evidence", "falls_in", "is_supported"),
    [
        (LOWER_SD | NO_LOSS, "bias falls, no loss", "sd_f1", True),
        (LOWER_SD | NO_LOSS | NOT_JUDGED, "bias falls, no loss", "sd_f1", True),
        (LOWER_SD | HIGHER | {"rb_at_10": {"verdict": "higher"}}, "bias falls, F1 rises", "sd_f1 and rb_at_10", True),
        (HIGHER | {"rb_at_10": {"verdict": "higher"}}, "bias falls, F1 rises", "rb_at_10", True),
        (LOWER_SD, "bias falls, loss not ruled out", "sd_f1", False),
        (LOWER_SD | {"mean_f1": {"both_low": None}}, "bias falls, loss not ruled out", "sd_f1", False),
        (LOWER_SD | {"mean_f1": {"both_low": -0.01}}, "bias falls, loss not ruled out", "sd_f1", False),
        (LOWER_SD | {"mean_f1": {"verdict": "lower", "both_low": -0.1}}, "bias falls, F1 falls", "sd_f1", False),
        (HIGHER | NOT_JUDGED, "F1 rises, bias not shown to fall", None, False),
        (HIGHER, "F1 rises, bias not shown to fall", None, False),
        (HIGHER | {"sd_f1": {"verdict": "higher"}}, "bias rises", None, False),
        (HIGHER | {"rb_at_10": {"verdict": "lower"}}, "bias rises", None, False),
        (HIGHER | LOWER_SD | {"rb_at_10": {"verdict": "lower"}}, "mixed", None, False),
        (NO_LOSS, "not shown", None, False),
        ({}, "not shown", None, False),
    ],
)
def test_the_evidence_for_a_remedy_is_graded(
    words: Mapping[str, Mapping[str, Any]], evidence: str, falls_in: str | None, *, is_supported: bool
) -> None:
    row = remedy(words)
    assert (row["evidence"], row["bias_falls_in"], row["is_supported"]) == (evidence, falls_in, is_supported)
    assert row["is_rb_at_10_judged"] is ("reason" not in words.get("rb_at_10", {}))


@pytest.mark.parametrize("is_above", [True, False, None])
def test_a_remedy_is_supported_where_it_is_shown_to_be_better_than_one_label(*, is_above: bool | None) -> None:
    row = remedy(LOWER_SD | HIGHER, is_above=is_above)
    assert (row["evidence"], row["is_above_constant"]) == ("bias falls, F1 rises", is_above)
    assert row["is_supported"] is (is_above is True)


@pytest.mark.parametrize(
    ("of_mean", "wanted"),
    [
        ({"both_low": -0.005}, "no loss"),
        # Of few rows of which none differs, nothing is ruled out; verdict knows how many it takes.
        ({"both_low": 0.0}, "loss not ruled out"),
        ({"both_low": 0.0, "verdict": "negligible"}, "no loss"),
        ({"both_low": -0.005, "verdict": "too few", "reason": "too few rows"}, "loss not ruled out"),
        ({"verdict": None, "both_low": None}, "loss not ruled out"),
    ],
)
def test_a_loss_is_ruled_out_by_the_band_over_rows_and_draws(of_mean: Mapping[str, Any], wanted: str) -> None:
    row = remedy({"mean_f1": of_mean})
    assert row["f1_evidence"] == wanted


def test_differences_stand_with_both_sides_and_the_interval_of_their_test() -> None:
    row = remedy({"rb_at_10": {"estimate": 0.5, "low": 0.3, "high": 0.7}})
    assert (row["mean_f1_before"], row["mean_f1"]) == (0.45, 0.6)
    assert row["mean_f1_difference"] == pytest.approx(0.15)
    assert row["sd_f1_difference"] == pytest.approx(-0.1)
    assert row["rb_at_10_difference"] == pytest.approx(7 / 11)
    assert [row[f"mean_f1_difference_{end}"] for end in ("low", "high")] == [-0.02, 0.02]
    of_seeds = [row[f"rb_at_10_of_seeds{end}"] for end in ("", "_low", "_high")]
    assert of_seeds == [0.5, 0.3, 0.7]


def test_a_remedy_of_a_run_has_the_numbers_of_the_other_marts(opened: duckdb.DuckDBPyConnection) -> None:
    found = rows(opened, "from majority_remedies")
    gains = rows(opened, "from majority_calibration_gain")
    tests = {
        (row["instruction"], row["method"], row["metric"]): row
        for row in rows(opened, "from majority_verdicts where instruction = against_instruction")
    }
    assert len(found) == len(gains) == 4
    for row, gain in zip(found, gains, strict=True):
        place = (row["instruction"], row["method"])
        assert place == (gain["instruction"], gain["method"])
        for metric in METRICS:
            test = tests[*place, metric]
            assert row[f"{metric}_difference"] == pytest.approx(gain[metric], abs=1e-12)
            assert row[f"{metric}_verdict"] == test["verdict"]
            low = "rb_at_10_of_seeds_low" if metric == "rb_at_10" else f"{metric}_difference_low"
            assert row[low] == test["low"]


def _answered(folder: Path, answers: tuple[str, str], n_repeats: int = 1) -> str:
    run = MajorityPlan(("likelihood",), answers=dict.fromkeys(ANSWERS, answers), n_repeats=n_repeats).write(folder)
    measure(run)
    return run


def test_settings_of_a_constant_answer_are_not_marked_inside(tmp_path: Path) -> None:
    run = _answered(tmp_path / "always", ("TTTT", "TTTT"))
    found = rows(run, "from majority_over_seeds")
    assert {(row["is_within"], row["is_marked"], row["boundary"]) for row in found} == {(True, False, None)}
    found = rows(run, "from majority_by_model")
    assert {(row["is_any_setting_above_constant"], row["n_marked"]) for row in found} == {(False, 0)}
    run = _answered(tmp_path / "right", ("TTTF", "TTTF"), n_repeats=20)
    assert {row["is_marked"] for row in rows(run, "from majority_over_seeds")} == {True}


def _changed(folder: Path, answers: dict[tuple[str, bool], tuple[str, str]]) -> Rows:
    run = MajorityPlan(("likelihood",), answers=answers).write(folder)
    measure(run)
    return rows(run, "from majority_changed_rows order by place")


def test_rows_that_change_between_the_most_skewed_settings_by_hand(tmp_path: Path) -> None:
    """Row 0 is always True, row 1 False with one seed of 0/100; rows 2 and 3 turn with the settings."""
    assert list(DEMOS) == ["0/100", "50/50", "100/0"]
    found = _changed(
        tmp_path,
        {("0/100", True): ("TFFT", "TTFT"), ("50/50", True): ("FFFF", "FFFF"), ("100/0", True): ("TTTF", "TTTF")},
    )
    by_row = {row["row"]: row for row in found}
    assert set(by_row) == {1, 2, 3}
    assert {row: by_row[row]["changed"] for row in by_row} == {1: pytest.approx(0.5), 2: 1.0, 3: 1.0}
    assert by_row[1]["predictions"] == ["False 1, True 1", "True 2"]
    assert by_row[2]["predictions"] == ["False 2", "True 2"]
    assert by_row[2]["settings"] == ["0/100", "100/0"]
    assert [row["place"] for row in found] == [1, 2, 3]
    assert found[-1]["row"] == 1
    assert {row["gold"] for row in found if row["row"] < 3} == {"True"}
