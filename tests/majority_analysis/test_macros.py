"""Macros, the decision boundary and remedies of majority bias."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import f1_score

from tests.handmade import ask, made
from tests.majorityplans import DEMOS, GOLD, MajorityPlan, Rows


def test_weighted_f1_of_no_label_and_of_no_row() -> None:
    for golds, predictions, expected in (
        (["a", "b"], [None, None], 0.0), (["a", "b"], ["c", "c"], 0.0), (["a"], ["a"], 1.0), ([], [], None),
        (["none", "a"], ["none", None], 0.5),  # a label may itself be called none
    ):  # fmt: skip
        assert ask("weighted_f1(?::varchar[], ?::varchar[])", golds, predictions) == expected


@pytest.mark.parametrize(
    ("golds", "predictions"), [(["a", None], ["a", "a"]), (["a"], ["a", "a"]), (["a", "a"], ["a"])]
)
def test_weighted_f1_refuses_rows_without_gold_or_prediction(golds: list[str], predictions: list[str]) -> None:
    with pytest.raises(duckdb.Error, match="a gold label is null, or the lists differ in length"):
        ask("weighted_f1(?, ?)", golds, predictions)


def test_weighted_f1_equals_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    for n_labels in (2, 3, 5):
        for n_rows in (1, 7, 200):
            golds = rng.choice(n_labels, size=n_rows)
            predictions = np.where(rng.random(n_rows) < 0.5, golds, rng.choice(n_labels + 1, size=n_rows))
            expected = f1_score(golds, predictions, average="weighted", zero_division=0)
            # The label that never occurs in gold is the one that is none.
            given = [None if x == n_labels else str(x) for x in predictions]
            answer = ask("weighted_f1(?::varchar[], ?::varchar[])", [str(x) for x in golds], given)
            assert answer == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("f1s", "k", "absolute", "relative"), [
    ([0.643, 0.636, 0.616, 0.549, 0.533], 10, 4 / 5, 3 / 5),  # protocol: the bar is 0.543; relative 0.5787
    ([0.396, 0.296, 0.2], 10, 2 / 3, 1 / 3),  # on the boundary, below it in binary fractions
    ([0.5, 0.45, 0.4, 0.3], 10, 3 / 4, 2 / 4), ([0.5, 0.45, 0.4, 0.3], 5, 2 / 4, 1 / 4),
    ([0.5, 0.475, 0.4], 2.5, 2 / 3, 1 / 3), ([0.5], 0, 1.0, 1.0), ([0.0, 0.0], 10, 1.0, 1.0),
    ([0.5, None], 10, None, None), ([], 10, None, None),
])  # fmt: skip
def test_rb_at_k_by_hand(f1s: list[float], k: float, absolute: float | None, relative: float | None) -> None:
    assert ask("rb_at_k(?::double[], ?)", f1s, k) == absolute
    assert ask("rb_at_k_relative(?::double[], ?)", f1s, k) == relative


def test_a_change_is_clear_only_where_its_interval_has_its_sign_and_includes_it() -> None:
    for value, low, high, sign in (
        (0.2, 0.1, 0.3, 1), (-0.2, -0.3, -0.2, -1), (0.2, 0.0, 0.3, None), (0.2, -0.1, 0.3, None),
        (0.0, -0.3, -0.1, 0),  # the bootstrap of RB@10 may leave its own estimate out
        (1e-12, -0.3, -0.1, 0), (0.2, 1e-17, 0.3, None), (-0.2, -0.3, -5.6e-17, None), (0.2, -0.3, -0.1, None),
        (0.2, 0.3, 0.4, None), (0.2, None, None, None), (0.0, None, None, 0), (None, None, None, None),
    ):  # fmt: skip
        assert ask("clear_sign(?::double, ?::double, ?::double)", value, low, high) == sign, (value, low, high)


def _published(columns: Rows) -> set[str]:
    """Check P2's columns through the macros in SQL; return the columns whose RB@10 is not the published one."""
    other = set()
    sql = "rb_at_k(list(f1), 10), avg(f1), stddev_samp(f1) from (select unnest(?::double[]) as f1)"
    for column in columns:
        rb, mean, deviation = ask(sql, column["weighted_f1"])
        assert mean == pytest.approx(column["mean_f1"], abs=1e-3)
        assert deviation == pytest.approx(column["sd_f1"], abs=1e-3)
        if rb != pytest.approx(column["rb_at_10"], abs=1e-3):
            assert rb == pytest.approx(1 / 15)
            other.add(column["name"])
    return other


def test_settings_on_the_boundary_count_as_in_the_published_table() -> None:
    """MPT-7B-wo is published as 0, which no share can be that counts the best setting itself: it is 1/15."""
    columns = json.loads((Path(__file__).parents[1] / "golden" / "majority_table.json").read_text())["columns"]
    assert len(columns) == 4
    assert _published(columns) == {"MPT-7B-wo"}


def test_the_published_table_gives_nine_of_ten_published_boundaries(shared: Path) -> None:
    """MPT-7B-wo is published as 0, which no share can be that counts the best setting itself: it is 1/15."""
    tables = json.loads((shared / "golden/majority/tables.json").read_text())
    published = tables["table1"]["Covid-5G"]
    columns = [
        {
            "name": name, "weighted_f1": [row["wt_f1"][name] for row in tables["table2"]["rows"]],
            "rb_at_10": published["rb10"][name], "mean_f1": published["wt_f1"][name], "sd_f1": published["std"][name],
        }
        for name in tables["columns"]
    ]  # fmt: skip
    assert len(columns) == 10
    assert _published(columns) == {"MPT-7B-wo"}
    for column, expected in zip(columns, tables["rb10"]["per_column"], strict=True):
        assert column["name"] == expected["column"]
        relative = ask("rb_at_k_relative(?::double[], 10)", column["weighted_f1"])
        assert relative == pytest.approx(expected["relative_count"] / 15)


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


@pytest.mark.parametrize("outputs", ["TTTT", "FTTT"])
def test_settings_that_are_all_alike_are_not_robust_where_one_label_would_do_as_well(
    tmp_path: Path, outputs: str
) -> None:
    *settings, model = _answered(tmp_path, dict.fromkeys(DEMOS, outputs), 20)
    assert (model["rb_at_10"], model["boundary"], model["n_marked"]) == (1, None, 0)
    assert (model["is_above_constant"], model["is_any_setting_above_constant"]) == (False, False)
    assert {(row["is_within"], row["is_marked"]) for row in settings} == {(True, False)}


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


@pytest.mark.parametrize(("words", "evidence", "falls_in"), [
    (LOWER_SD | NO_LOSS, "bias falls, no loss", "sd_f1"),
    (LOWER_SD | NO_LOSS | NOT_JUDGED, "bias falls, no loss", "sd_f1"),
    (LOWER_SD | HIGHER | RISES, "bias falls, F1 rises", "sd_f1 and rb_at_10"),
    (HIGHER | RISES, "bias falls, F1 rises", "rb_at_10"), (LOWER_SD, NOT_RULED_OUT, "sd_f1"),
    (LOWER_SD | {"mean_f1": {"both_low": None}}, NOT_RULED_OUT, "sd_f1"),
    (LOWER_SD | {"mean_f1": {"both_low": -0.01}}, NOT_RULED_OUT, "sd_f1"),
    (LOWER_SD | {"mean_f1": {"verdict": "lower", "both_low": -0.1}}, "bias falls, F1 falls", "sd_f1"),
    (HIGHER | NOT_JUDGED, NOT_SHOWN, None), (HIGHER, NOT_SHOWN, None),
    (HIGHER | {"sd_f1": {"verdict": "higher"}}, "bias rises", None), (HIGHER | FALLS, "bias rises", None),
    (HIGHER | LOWER_SD | FALLS, "mixed", None), (NO_LOSS, "not shown", None), ({}, "not shown", None),
])  # fmt: skip
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
