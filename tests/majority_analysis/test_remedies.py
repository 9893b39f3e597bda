"""What a remedy of majority-label bias is worth, by hand, and the rows behind what is followed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.handmade import made
from tests.majorityplans import DEMOS, MajorityPlan

PLACE = {"model": "m", "task": "boolq", "n_demos": 10, "instruction": True, "predict": "likelihood"}
VERDICT: dict[str, Any] = {
    **PLACE, "against_instruction": True, "method": "cc", "against_method": "none", "estimate": 0.0, "low": -0.02,
    "high": 0.02, "both_low": -0.02, "verdict": "unclear", "reason": None,
}  # fmt: skip
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
    # None alone has no type.
    columns = {name: pa.array([row[name] for row in verdicts], types.get(name)) for name in verdicts[0]}
    tables = {"majority_verdicts": pa.table(columns), "majority_by_model": pa.Table.from_pylist(by_model)}
    [row] = made("majority_remedies", **tables)
    return row


RISES, FALLS = {"rb_at_10": {"verdict": "higher"}}, {"rb_at_10": {"verdict": "lower"}}
NOT_RULED_OUT, NOT_SHOWN = "bias falls, loss not ruled out", "F1 rises, bias not shown to fall"


@pytest.mark.parametrize(
    ("words", "evidence", "falls_in"),
    [
        (LOWER_SD | NO_LOSS, "bias falls, no loss", "sd_f1"),
        (LOWER_SD | NO_LOSS | NOT_JUDGED, "bias falls, no loss", "sd_f1"),
        (LOWER_SD | HIGHER | RISES, "bias falls, F1 rises", "sd_f1 and rb_at_10"),
        (HIGHER | RISES, "bias falls, F1 rises", "rb_at_10"),
        (LOWER_SD, NOT_RULED_OUT, "sd_f1"),
        (LOWER_SD | {"mean_f1": {"both_low": None}}, NOT_RULED_OUT, "sd_f1"),
        (LOWER_SD | {"mean_f1": {"both_low": -0.01}}, NOT_RULED_OUT, "sd_f1"),
        (LOWER_SD | {"mean_f1": {"verdict": "lower", "both_low": -0.1}}, "bias falls, F1 falls", "sd_f1"),
        (HIGHER | NOT_JUDGED, NOT_SHOWN, None),
        (HIGHER, NOT_SHOWN, None),
        (HIGHER | {"sd_f1": {"verdict": "higher"}}, "bias rises", None),
        (HIGHER | FALLS, "bias rises", None),
        (HIGHER | LOWER_SD | FALLS, "mixed", None),
        (NO_LOSS, "not shown", None),
        ({}, "not shown", None),
    ],
)
def test_the_evidence_for_a_remedy_is_graded(
    words: Mapping[str, Mapping[str, Any]], evidence: str, falls_in: str | None
) -> None:
    row = remedy(words)
    assert (row["evidence"], row["bias_falls_in"]) == (evidence, falls_in)
    assert row["is_supported"] is (evidence in ("bias falls, no loss", "bias falls, F1 rises"))
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


def test_rows_that_change_between_the_most_skewed_settings_by_hand(tmp_path: Path) -> None:
    """Row 0 is always True, row 1 False with one seed of 0/100; rows 2 and 3 turn with the settings."""
    assert list(DEMOS) == ["0/100", "50/50", "100/0"]
    outputs = (("TFFT", "TTFT"), ("FFFF", "FFFF"), ("TTTF", "TTTF"))
    answers = {(setting, True): own for setting, own in zip(DEMOS, outputs, strict=True)}
    plan = MajorityPlan(("likelihood",), answers=answers)
    found = plan.relations(tmp_path).rows("from majority_changed_rows order by place")
    by_row = {row["row"]: row for row in found}
    assert set(by_row) == {1, 2, 3}
    assert {row: by_row[row]["changed"] for row in by_row} == {1: pytest.approx(0.5), 2: 1.0, 3: 1.0}
    assert by_row[1]["predictions"] == ["False 1, True 1", "True 2"]
    assert by_row[2]["predictions"] == ["False 2", "True 2"]
    assert by_row[2]["settings"] == ["0/100", "100/0"]
    assert [row["place"] for row in found] == [1, 2, 3]
    assert found[-1]["row"] == 1
    assert {row["gold"] for row in found if row["row"] < 3} == {"True"}
