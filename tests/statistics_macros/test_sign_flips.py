"""Sign-flip tests, their families and bands, against every pattern of signs in NumPy."""

from collections.abc import Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from biaseval.analysis.sign_flips import MAX_UNITS, N_EXACT, N_PATTERNS, sign_flips
from tests.statistics_macros.patterns import Array, every_pattern, expected_tests, single_step

TESTED = (
    *("n_units", "estimate", "standard_error", "low", "high", "p", "p_adjusted"),
    *("simultaneous_low", "simultaneous_high", "smallest_detectable"),
)
"""Columns of ``sign_flip_tests``."""


def test_the_first_patterns_are_all_patterns_of_few_units_and_the_rest_are_drawn() -> None:
    signs = np.array(sign_flips(40, 7)["signs"].to_pylist())
    assert signs.shape == (N_PATTERNS, 40)
    assert set(np.unique(signs)) == {-1, 1}
    assert (signs[0] == 1).all()
    for n in range(1, N_EXACT + 1):
        assert len(np.unique(signs[: 2**n, :n], axis=0)) == 2**n
    means = signs[1:].mean(axis=0)
    assert np.abs(means).max() < 5 / np.sqrt(N_PATTERNS)
    correlations = np.corrcoef(signs[1:, N_EXACT:].T)
    assert np.abs(correlations - np.eye(len(correlations))).max() < 5 / np.sqrt(N_PATTERNS)
    assert sign_flips(40, 7).equals(sign_flips(40, 7))
    assert not sign_flips(40, 7).equals(sign_flips(40, 8))
    assert len(sign_flips(10 * MAX_UNITS, 0)["signs"][0]) == MAX_UNITS


def flip_tests(
    connection: duckdb.DuckDBPyConnection, units: Sequence[tuple[Any, Any, int, float | None]], signs: pa.Table
) -> dict[Any, dict[str, Any]]:
    """Return what sign_flip_tests says of units (family, test, unit, value), by family and test."""
    connection.execute("drop table if exists units; drop table if exists signs")
    names = ("family", "test", "unit", "value")
    columns = dict(zip(names, map(list, zip(*units, strict=True)), strict=True))
    connection.from_arrow(pa.table({**columns, "value": pa.array(columns["value"], pa.float64())})).create("units")
    connection.from_arrow(signs).create("signs")
    found = connection.sql("from sign_flip_tests('units', 'signs')").to_arrow_table().to_pylist()
    assert all(set(row) == {"family", "test", *TESTED} for row in found)
    by_test = {(row["family"], row["test"]): row for row in found}
    assert len(by_test) == len(found)
    return by_test


def units_of(matrix: Array, family: str = "f") -> list[tuple[str, int, int, float]]:
    """Return the units of tests (rows of a matrix); NaN is a unit that a test lacks."""
    return [(family, *place, float(value)) for place, value in np.ndenumerate(matrix) if not np.isnan(value)]


def assert_tests_are(found: dict[Any, dict[str, Any]], expected: Sequence[dict[str, float]], family: str = "f") -> None:
    for number, test in enumerate(expected):
        row = found[family, number]
        numbers = {name: np.nan if row[name] is None else row[name] for name in TESTED}
        assert numbers == pytest.approx(test, abs=1e-6, nan_ok=True), (number, row)


@pytest.mark.parametrize("n", range(1, 11))
def test_tests_of_few_units_are_those_of_every_pattern(connection: duckdb.DuckDBPyConnection, n: int) -> None:
    rng = np.random.default_rng(n)
    matrix = rng.normal(size=(5, n)) + np.array([[0], [0], [0.5], [1], [3]])
    found = flip_tests(connection, units_of(matrix), sign_flips(max(n, 4), 0))
    assert len(found) == 5
    assert_tests_are(found, expected_tests(matrix, every_pattern(n)))


def test_families_do_not_know_of_each_other(connection: duckdb.DuckDBPyConnection) -> None:
    rng = np.random.default_rng(0)
    small, large = rng.normal(0.4, size=(2, 7)), rng.normal(0.4, size=(6, 10))
    found = flip_tests(connection, units_of(small, "small") + units_of(large, "large"), sign_flips(10, 0))
    assert len(found) == 8
    assert_tests_are(found, expected_tests(small, every_pattern(7)), "small")
    assert_tests_are(found, expected_tests(large, every_pattern(10)), "large")


def test_a_test_may_lack_units_that_others_have(connection: duckdb.DuckDBPyConnection) -> None:
    rng = np.random.default_rng(1)
    matrix = rng.normal(0.7, size=(4, 9))
    matrix[1, :2] = matrix[2, 7:] = matrix[3, 1:] = np.nan
    found = flip_tests(connection, units_of(matrix), sign_flips(9, 0))
    assert_tests_are(found, expected_tests(matrix, every_pattern(9)))
    alone = flip_tests(connection, units_of(matrix[1:2, 2:]), sign_flips(7, 0))["f", 0]
    assert found["f", 1]["p"] == alone["p"]
    assert (found["f", 3]["n_units"], found["f", 3]["p"], found["f", 3]["p_adjusted"]) == (1, None, None)


def test_a_test_with_a_value_that_is_null_says_nothing_and_leaves_others_alone(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    matrix = np.random.default_rng(2).normal(0.5, size=(2, 8))
    units = [*units_of(matrix), *[("f", 9, unit, None if unit == 3 else 0.5) for unit in range(8)]]
    found = flip_tests(connection, units, sign_flips(8, 0))
    assert_tests_are(found, expected_tests(matrix, every_pattern(8)))
    assert found["f", 9] == {"family": "f", "test": 9, **dict.fromkeys(TESTED), "n_units": 8}


def test_values_that_are_all_zero_or_all_equal(connection: duckdb.DuckDBPyConnection) -> None:
    """All equal are the most extreme of 2^8 patterns, and their opposite: p is 2 / 256, and there is no error."""
    matrix = np.vstack([np.zeros(8), np.full(8, 0.1)])
    found = flip_tests(connection, units_of(matrix), sign_flips(8, 0))
    none, equal = found["f", 0], found["f", 1]
    assert (none["estimate"], none["standard_error"], none["p"], none["p_adjusted"]) == (0, 0, 1, 1)
    assert [none["simultaneous_low"], none["simultaneous_high"]] == [0, 0]
    assert (equal["p"], equal["p_adjusted"]) == (2 / 256, 2 / 256)
    assert [equal["standard_error"], equal["low"], equal["simultaneous_low"], equal["simultaneous_high"]] == (
        pytest.approx([0, 0.1, 0.1, 0.1], abs=1e-7)
    )


def test_differences_of_rounding_are_ties(connection: duckdb.DuckDBPyConnection) -> None:
    """.1 + .2 is not .3 in doubles: patterns that balance the same tenths are as extreme as what was seen."""
    tenths = np.array([1, 2, 3, 3, 4, 5, -6, -3])
    added = np.cumsum(np.full(6, 0.1))[np.abs(tenths) - 1] * np.sign(tenths)
    sums = np.abs(every_pattern(8) @ tenths)
    expected = np.mean(sums >= abs(tenths.sum()))
    assert np.mean(np.abs(every_pattern(8) @ added) >= abs(added.sum())) != expected
    assert flip_tests(connection, units_of(added[None]), sign_flips(8, 0))["f", 0]["p"] == expected


@pytest.mark.parametrize("n_units", [8, 19, 1500])
def test_more_units_than_signs_are_taken_together_in_the_order_of_signs(
    connection: duckdb.DuckDBPyConnection, n_units: int
) -> None:
    rng = np.random.default_rng(n_units)
    matrix, n_signs = rng.normal(0.3, size=(3, n_units)), 8
    sums = np.array([matrix[:, place::n_signs].sum(axis=1) for place in range(n_signs)]).T * n_signs / n_units
    expected = [{**test, "n_units": n_units} for test in expected_tests(sums, every_pattern(n_signs))]
    assert [test["estimate"] for test in expected] == pytest.approx(matrix.mean(axis=1))
    assert_tests_are(flip_tests(connection, units_of(matrix), sign_flips(n_signs, 0)), expected)


@pytest.mark.parametrize("n", [6, 8, 15, 40])
def test_a_band_excludes_zero_exactly_where_the_single_step_p_is_at_most_5_percent(
    connection: duckdb.DuckDBPyConnection, n: int
) -> None:
    """The band holds for all tests at once, so that a test that is found in a later step may have 0 inside."""
    rng = np.random.default_rng(n)
    units, expected, signs = [], {}, sign_flips(n, 0)
    patterns = np.array(signs["signs"].to_pylist())[: 2**n]
    for family in range(60):
        matrix = rng.normal(size=(4, n)) + rng.uniform(-2, 2, size=(4, 1)) * 2 / np.sqrt(n)
        units += units_of(matrix, f"f{family}")
        expected |= {(f"f{family}", test): p for test, p in enumerate(single_step(matrix, patterns))}
    found = flip_tests(connection, units, signs)
    has_band = [place for place, row in found.items() if row["simultaneous_low"] is not None]
    excluded = [found[place]["simultaneous_low"] > 0 or found[place]["simultaneous_high"] < 0 for place in has_band]
    assert excluded == [expected[place] <= 0.05 for place in has_band]
    assert any(excluded)
    assert not all(excluded)
    adjusted = [found[place]["p_adjusted"] <= 0.05 for place in has_band]
    assert all(is_found for is_found, is_excluded in zip(adjusted, excluded, strict=True) if is_excluded)
    # Of six units only equal signs reach 5 %, and of two of 64 patterns each there is no room for a second step.
    assert sum(adjusted) > sum(excluded) or n == 6
    assert all(expected[place] > 0.05 for place in found if found[place]["simultaneous_low"] is None)


def test_a_test_is_adjusted_for_itself_and_the_tests_that_are_no_clearer(connection: duckdb.DuckDBPyConnection) -> None:
    """By hand, of 16 patterns of four signs.

    (1, 1, 1, 1) has a sum of 4 or -4 in two patterns and 2 or -2 in eight, and a statistic of half of that; (3, 1, -1,
    -1) has 2 of it, 2 / sqrt(12) = .58, or more in all but two. The first is compared with both, of which only its own
    two reach 2. The second is compared with itself: 14 of 16; with both, it would be all 16, as the first has 1 where
    the second has 0.
    """
    matrix = np.array([[1.0, 1, 1, 1], [3, 1, -1, -1]])
    found = flip_tests(connection, units_of(matrix), sign_flips(4, 0))
    assert [found["f", test]["p_adjusted"] for test in (0, 1)] == [2 / 16, 14 / 16]
    assert single_step(matrix, every_pattern(4)).tolist() == [2 / 16, 1]


def test_the_order_of_the_rows_makes_no_difference(connection: duckdb.DuckDBPyConnection) -> None:
    rng = np.random.default_rng(4)
    units = units_of(rng.normal(0.2, size=(5, 1300)))
    first = flip_tests(connection, units, sign_flips(1300, 0))
    rng.shuffle(units)
    assert flip_tests(connection, units, sign_flips(1300, 0)) == first
