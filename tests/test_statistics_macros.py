"""The macros behind intervals, p-values and verdicts, against SciPy and against every pattern of signs in NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from scipy import stats  # type: ignore[import-untyped]

from biaseval.analysis.relations import connect
from biaseval.analysis.sign_flips import MAX_UNITS, N_EXACT, N_PATTERNS, sign_flips

Array = npt.NDArray[Any]

TESTED = (
    "n_units",
    "estimate",
    "standard_error",
    "low",
    "high",
    "p",
    "p_adjusted",
    "simultaneous_low",
    "simultaneous_high",
    "smallest_detectable",
)
"""Columns of ``sign_flip_tests``."""


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(connect([])) as opened:
        yield opened


def values(connection: duckdb.DuckDBPyConnection, expression: str, **columns: Any) -> Array:
    """Return an expression of columns, row by row; null is NaN."""
    connection.execute("drop table if exists given")
    table = {"place": range(len(next(iter(columns.values())))), **columns}
    connection.from_arrow(pa.table({name: list(column) for name, column in table.items()})).create("given")
    found = connection.sql(f"select {expression} as x from given order by place").fetchall()
    return np.array([np.nan if x is None else x for (x,) in found], dtype=float)


def grid(*axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return the columns of all combinations."""
    return list(zip(*itertools.product(*axes), strict=True))


# Distributions


def test_the_quantile_of_student_is_that_of_scipy(connection: duckdb.DuckDBPyConnection) -> None:
    df = [*range(1, 400), 1000, 5000, 100_000]
    expected = stats.t.ppf(0.975, df)
    assert values(connection, "t_quantile(df)", df=df) == pytest.approx(expected, abs=1e-5)
    # Degrees of freedom that are no whole numbers take those below, which is on the safe side.
    fractions = values(connection, "t_quantile(df)", df=[1.9, 5.5, 9.99, 12.5, 99.5])
    assert (fractions >= stats.t.ppf(0.975, [1.9, 5.5, 9.99, 12.5, 99.5]) - 1e-5).all()
    assert np.isnan(values(connection, "t_quantile(df)", df=[0, -3, None])).all()


def test_the_p_value_of_a_normal_deviate_is_that_of_scipy(connection: duckdb.DuckDBPyConnection) -> None:
    z = [*np.linspace(-9, 9, 361), 15.0, 25.0, 35.0]
    assert values(connection, "normal_p(z)", z=z) == pytest.approx(2 * stats.norm.sf(np.abs(z)), rel=1.2e-7)
    assert values(connection, "normal_p(z)", z=[0.0, None]) == pytest.approx([1, np.nan], nan_ok=True)


def test_the_p_value_of_student_is_near_that_of_scipy_and_never_below_it(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    t, df = (
        np.array(column) for column in grid(np.linspace(-12, 12, 481).tolist(), [1, 2, 3, 6, 8, 12, 30, 168, 1000])
    )
    found, expected = values(connection, "student_p(t, df)", t=t, df=df), 2 * stats.t.sf(np.abs(t), df)
    ratio = found / expected
    assert (ratio > 0.99).all()
    assert (ratio[(df >= 3) & (expected > 0.01)] < 1.1).all()
    assert (ratio[(df >= 6) & (expected > 0.01)] < 1.03).all()
    assert (ratio[(df >= 12) & (expected > 0.01)] < 1.005).all()
    small = ratio[expected <= 0.01]
    assert (small > 1 - 1e-6).all()
    assert (small < 2).any()
    nulls = values(connection, "student_p(t, df)", t=[None, 2.0, 2.0, 2.0], df=[5, None, 0, 0.5])
    assert np.isnan(nulls).all()


def _hypergeometric(k: Array, n: Array, n_hits: Array, n_rows: Array) -> Array:
    chance = stats.hypergeom(n_rows, n_hits, n)
    tails: Array = np.minimum(1, 2 * np.minimum(chance.cdf(k), chance.sf(k - 1)))
    return tails


def test_the_exact_p_of_a_group_is_twice_the_smaller_tail_of_scipy(connection: duckdb.DuckDBPyConnection) -> None:
    cases = [
        (k, n, n_hits, n_rows)
        for n_rows in (2, 3, 8, 13)
        for n in range(1, n_rows)
        for n_hits in range(n_rows + 1)
        for k in range(max(0, n + n_hits - n_rows), min(n, n_hits) + 1)
    ]
    rng = np.random.default_rng(0)
    for n_rows in (100, 1000, 5000):
        for n in (1, n_rows // 45, n_rows // 3, n_rows // 2, n_rows - 1):
            for share in (0.01, 0.3, 0.5, 0.9):
                n_hits = round(share * n_rows)
                lowest, highest = max(0, n + n_hits - n_rows), min(n, n_hits)
                mean, deviation = n * n_hits / n_rows, np.sqrt(n * share * (1 - share))
                drawn = [int(mean), int(mean) + 1, *rng.normal(mean, 3 * deviation, size=6).round().astype(int)]
                cases += [(int(np.clip(k, lowest, highest)), n, n_hits, n_rows) for k in [*drawn, lowest, highest]]
    given = dict(zip("knhm", np.array(cases).T, strict=True))
    found = values(connection, "hypergeometric_p(k, n, h, m)", **given)
    expected = _hypergeometric(given["k"], given["n"], given["h"], given["m"])
    assert found == pytest.approx(expected, rel=1e-7, abs=1e-200)
    assert found[(given["h"] == 0) | (given["h"] == given["m"])] == pytest.approx(1.0)
    assert (found <= 1).all()
    # Two groups have one and the same.
    others = values(connection, "hypergeometric_p(h - k, m - n, h, m)", **given)
    assert others == pytest.approx(found, rel=1e-7, abs=1e-200)


def test_a_group_that_lacks_its_hits_or_rows_has_no_p(connection: duckdb.DuckDBPyConnection) -> None:
    found = values(connection, "hypergeometric_p(k, n, 3, 10)", k=[None, 1, None], n=[4, None, None])
    assert np.isnan(found).all()


# Small ones


def test_the_smallest_of_many_p_is_multiplied_by_their_number(connection: duckdb.DuckDBPyConnection) -> None:
    found = values(connection, "bonferroni_p(p, n)", p=[0.01, 0.4, 0.5, 1.0, None, 0.02], n=[3, 2, 3, 1, 3, None])
    assert found == pytest.approx([0.03, 0.8, 1, 1, np.nan, np.nan], nan_ok=True)


@pytest.mark.parametrize("n", [4, 8, 20, 256])
def test_the_interquartile_mean_of_multiples_of_four_is_that_of_scipy(
    connection: duckdb.DuckDBPyConnection, n: int
) -> None:
    numbers = np.sort(np.random.default_rng(n).normal(size=n))
    [found] = values(connection, "interquartile_mean(x)", x=[numbers.tolist()])
    assert found == pytest.approx(stats.trim_mean(numbers, 0.25))


def test_the_interquartile_mean_of_others_by_hand(connection: duckdb.DuckDBPyConnection) -> None:
    """Of five, 1.25 are cut off at either end: .75 of the second and fourth, and the third, of 2.5. Of six, 1.5."""
    lists = [[7.0], [1.0, 4.0], [1.0, 2.0, 9.0], [0.0, 1.0, 2.0, 7.0, 100.0], [0.0, 1.0, 2.0, 3.0, 8.0, 9.0], [], None]
    expected = [7, 2.5, (0.25 + 2 + 0.25 * 9) / 1.5, (0.75 + 2 + 5.25) / 2.5, (0.5 + 2 + 3 + 4) / 3, np.nan, np.nan]
    assert values(connection, "interquartile_mean(x)", x=lists) == pytest.approx(expected, nan_ok=True)


def test_what_lies_beyond_a_bound_is_the_bound(connection: duckdb.DuckDBPyConnection) -> None:
    x = [-0.5, 0.0, 0.4, 1.5, None]
    assert values(connection, "clipped(x, 0, 1)", x=x) == pytest.approx([0, 0, 0.4, 1, np.nan], nan_ok=True)
    assert values(connection, "clipped(x, 0, null)", x=x) == pytest.approx([0, 0, 0.4, 1.5, np.nan], nan_ok=True)


def test_an_interval_of_resampled_means_reaches_as_far_as_that_of_student(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    """The variance of a mean of n resampled numbers is their variance over n, not over n - 1."""
    numbers = np.random.default_rng(0).normal(size=6)
    [reach] = values(connection, "t_reach(error, 6)", error=[numbers.std() / np.sqrt(6)])
    low, high = stats.t.interval(0.95, 5, loc=numbers.mean(), scale=stats.sem(numbers))
    assert [numbers.mean() - reach, numbers.mean() + reach] == pytest.approx([low, high], abs=1e-6)
    assert np.isnan(values(connection, "t_reach(error, n)", error=[0.1, None], n=[1, 6])).all()


@pytest.mark.parametrize(
    ("word", "case"),
    [
        (None, (None, None, None, None, 8)),
        (None, (None, None, None, None, 3)),
        ("too few", (0.5, 0.01, 0.4, 0.6, 5)),
        ("too few", (0.5, None, None, None, 1)),
        ("higher", (0.2, 0.05, 0.001, 0.4, 6)),
        ("higher", (0.01, 0.04, 0.001, 0.02, 6)),
        ("lower", (-0.2, 0.01, -0.4, -0.1, 6)),
        ("lower", (-0.01, 0.01, -0.02, -0.001, 6)),
        ("unclear", (0.009, 0.01, 0.001, 0.03, 6)),
        ("unclear", (-0.009, 0.01, -0.03, -0.001, 6)),
        ("unclear", (0.0, 1.0, 0.0, 0.0, 300)),
        ("negligible", (0.0, 1.0, 0.0, 0.0, 301)),
        ("negligible", (0.002, 0.4, -0.005, 0.009, 6)),
        ("unclear", (0.002, 0.4, -0.01, 0.009, 6)),
        ("unclear", (0.002, 0.4, -0.009, 0.01, 6)),
        ("unclear", (0.2, 0.0501, -0.01, 0.4, 6)),
        ("unclear", (-0.2, 0.2, -0.5, 0.1, 100)),
        ("unclear", (0.2, 0.2, None, None, 6)),
    ],
)
def test_the_word_that_a_difference_supports(
    connection: duckdb.DuckDBPyConnection, word: str | None, case: tuple[float | None, ...]
) -> None:
    [(found,)] = connection.execute("select verdict(?, ?, ?, ?, ?, 0.01)", case).fetchall()
    assert found == word


# Signs


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
    connection: duckdb.DuckDBPyConnection,
    units: Sequence[tuple[Any, Any, int, float | None]],
    signs: pa.Table,
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


def every_pattern(n: int) -> Array:
    return np.array(list(itertools.product([1, -1], repeat=n)))


def expected_tests(matrix: Array, signs: Array) -> list[dict[str, float]]:
    """Return the tests of the rows of a matrix by the patterns of signs, and their bands by inverting the test."""
    present = ~np.isnan(matrix)
    filled = np.where(present, matrix, 0)
    lengths = np.sqrt((filled**2).sum(axis=1))
    flipped = np.abs(signs @ filled.T) / np.where(lengths > 0, lengths, 1)
    observed = np.abs(filled.sum(axis=1)) / np.where(lengths > 0, lengths, 1)
    largest = flipped.max(axis=1)
    # The smallest statistic below which 95 % of the patterns lie.
    critical = np.sort(largest)[int(np.ceil(0.95 * len(largest))) - 1]
    found = []
    for number, row in enumerate(matrix):
        given = row[present[number]]
        n, error = len(given), stats.sem(given) if len(given) > 1 else np.nan
        interval = stats.t.interval(0.95, n - 1, loc=given.mean(), scale=error) if n > 1 else (np.nan, np.nan)
        # sum / length grows with Student's t: the t of that critical value.
        t = critical * np.sqrt((n - 1) / (n - critical**2)) if n > critical**2 + 1e-6 else np.inf
        reach = t * error if n >= 6 and np.isfinite(t) else np.nan
        found.append(
            {
                "n_units": n,
                "estimate": given.mean(),
                "standard_error": error,
                "low": interval[0],
                "high": interval[1],
                "p": np.mean(flipped[:, number] >= observed[number] - 1e-9) if n > 1 else np.nan,
                "p_adjusted": np.mean(largest >= observed[number] - 1e-9) if n > 1 else np.nan,
                "simultaneous_low": given.mean() - reach,
                "simultaneous_high": given.mean() + reach,
                "smallest_detectable": 2.8 * error,
            }
        )
    return found


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


def test_tests_of_twenty_units_are_near_those_of_every_pattern(connection: duckdb.DuckDBPyConnection) -> None:
    """The chance of an error beyond 4.5 standard errors of 4,096 patterns is 1e-5."""
    rng = np.random.default_rng(3)
    matrix = rng.normal(size=(6, 20)) + np.linspace(0, 0.8, 6)[:, None]
    found = flip_tests(connection, units_of(matrix), sign_flips(20, 42))
    halves = every_pattern(10)
    for number, row in enumerate(matrix):
        sums = np.add.outer(halves @ row[:10], halves @ row[10:])
        exact = np.mean(np.abs(sums) >= abs(row.sum()) - 1e-9)
        assert found["f", number]["p"] == pytest.approx(exact, abs=4.5 * np.sqrt(exact * (1 - exact) / N_PATTERNS))
        assert found["f", number]["p"] >= 1 / N_PATTERNS
        assert found["f", number]["p_adjusted"] >= found["f", number]["p"]
    assert found["f", 5]["p"] < 0.01 < found["f", 0]["p"]


@pytest.mark.parametrize("n", [6, 8, 15, 40])
def test_a_band_excludes_zero_exactly_where_the_adjusted_p_is_at_most_5_percent(
    connection: duckdb.DuckDBPyConnection, n: int
) -> None:
    rng = np.random.default_rng(n)
    units, signs = [], sign_flips(n, 0)
    for family in range(60):
        units += units_of(rng.normal(size=(4, n)) + rng.uniform(-2, 2, size=(4, 1)) * 2 / np.sqrt(n), f"f{family}")
    found = flip_tests(connection, units, signs).values()
    has_band = [row for row in found if row["simultaneous_low"] is not None]
    excluded = [row["simultaneous_low"] > 0 or row["simultaneous_high"] < 0 for row in has_band]
    assert excluded == [row["p_adjusted"] <= 0.05 for row in has_band]
    assert any(excluded)
    assert not all(excluded)
    assert all(row["p_adjusted"] > 0.05 for row in found if row["simultaneous_low"] is None)


def test_below_six_units_no_p_reaches_5_percent_and_there_is_no_band(connection: duckdb.DuckDBPyConnection) -> None:
    found = flip_tests(connection, units_of(np.array([[1.0, 1.1, 1.2, 0.9, 1.3]])), sign_flips(12, 0))["f", 0]
    assert (found["p"], found["p_adjusted"]) == (2 / 32, 2 / 32)
    assert found["simultaneous_low"] is found["simultaneous_high"] is None


def test_the_order_of_the_rows_makes_no_difference(connection: duckdb.DuckDBPyConnection) -> None:
    rng = np.random.default_rng(4)
    units = units_of(rng.normal(0.2, size=(5, 1300)))
    first = flip_tests(connection, units, sign_flips(1300, 0))
    rng.shuffle(units)
    assert flip_tests(connection, units, sign_flips(1300, 0)) == first


def test_false_alarms_in_a_family_stay_below_5_percent(connection: duckdb.DuckDBPyConnection) -> None:
    """2,000 families of five correlated tests without an effect, in skewed but symmetric noise."""
    rng = np.random.default_rng(5)
    noise = rng.standard_t(3, size=(2000, 5, 8)) + rng.standard_t(3, size=(2000, 1, 8))
    units = [unit for number, matrix in enumerate(noise) for unit in units_of(matrix, f"f{number}")]
    found = flip_tests(connection, units, sign_flips(8, 0))
    wrong = {family for (family, _), row in found.items() if row["p_adjusted"] <= 0.05}
    assert 0.02 < len(wrong) / 2000 < 0.065
