"""Macros of majority-label bias, by hand and against scikit-learn, and P2's tables through them."""

import json
from pathlib import Path

import duckdb
import numpy as np
import pytest
from sklearn.metrics import f1_score

from tests.handmade import ask
from tests.majorityplans import Rows


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


@pytest.mark.parametrize(
    ("f1s", "k", "absolute", "relative"),
    [
        ([0.643, 0.636, 0.616, 0.549, 0.533], 10, 4 / 5, 3 / 5),  # protocol: the bar is 0.543; relative 0.5787
        ([0.396, 0.296, 0.2], 10, 2 / 3, 1 / 3),  # on the boundary, below it in binary fractions
        ([0.5, 0.45, 0.4, 0.3], 10, 3 / 4, 2 / 4),
        ([0.5, 0.45, 0.4, 0.3], 5, 2 / 4, 1 / 4),
        ([0.5, 0.475, 0.4], 2.5, 2 / 3, 1 / 3),
        ([0.5], 0, 1.0, 1.0),
        ([0.0, 0.0], 10, 1.0, 1.0),
        ([0.5, None], 10, None, None),
        ([], 10, None, None),
    ],
)
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
            "name": name,
            "weighted_f1": [row["wt_f1"][name] for row in tables["table2"]["rows"]],
            "rb_at_10": published["rb10"][name],
            "mean_f1": published["wt_f1"][name],
            "sd_f1": published["std"][name],
        }
        for name in tables["columns"]
    ]
    assert len(columns) == 10
    assert _published(columns) == {"MPT-7B-wo"}
    for column, expected in zip(columns, tables["rb10"]["per_column"], strict=True):
        assert column["name"] == expected["column"]
        relative = ask("rb_at_k_relative(?::double[], 10)", column["weighted_f1"])
        assert relative == pytest.approx(expected["relative_count"] / 15)
