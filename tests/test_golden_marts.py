"""Every mart and comparison of small runs is what it was when somebody last looked (`golden_marts`)."""

import pyarrow as pa
import pytest

from biaseval.analysis.sql_files import relations
from biaseval.tables import TABLES
from tests.golden_marts import all_differences, computed, differences, golden


@pytest.mark.timeout(600)
def test_marts_and_comparisons_are_those_stored() -> None:
    assert all_differences(computed(), golden()) == []


def test_a_changed_cell_column_or_row_is_a_difference() -> None:
    before = pa.table({"task": ["a", "b"], "rsd": [0.5, None], "pair": [[1.0], [2.0]]})
    assert differences(before, before) == []
    rounded = before.set_column(1, "rsd", [[0.5 + 1e-12, None]])
    assert differences(rounded, before) == []
    other = before.set_column(1, "rsd", [[0.5 + 1e-6, None]]).set_column(2, "pair", [[[1.0], [2.1]]])
    assert differences(other, before) == [
        "rsd: 1 of 2 values differ; in row 0 0.500001, before 0.5",
        "pair: 1 of 2 values differ; in row 1 [2.1], before [2.0]",
    ]
    null = before.set_column(1, "rsd", pa.array([None, None], pa.float64()))
    assert differences(null, before) == ["rsd: 1 of 2 values differ; in row 0 None, before 0.5"]
    assert differences(before.slice(1), before) == ["1 rows, before 2"]
    assert differences(before.rename_columns(["task", "sd", "pair"]), before) == ["no column rsd", "a new column sd"]
    one, two = (before.add_column(0, "golden", [[name] * 2]) for name in ("one", "two"))
    three = ["m of one: is new", "m of two: is gone", "new of one: is new"]
    assert all_differences({"m": one, "new": one}, {"m": two}) == three


WITHOUT_ROWS = {"label_bias_compare_cautions", "qa_bias_models", "search_thresholds", "search_verdicts"}
"""What no small run has: bias models, searched thresholds, and searches with a test."""


def test_every_mart_and_comparison_is_stored_and_has_rows() -> None:
    every = {relation.name for relation in relations("marts", "comparisons", tables=TABLES)}
    stored = golden()
    assert stored.keys() == every
    assert {name for name, rows in stored.items() if not rows.num_rows} == WITHOUT_ROWS
