"""The macros behind intervals, p-values and words, against SciPy and by hand."""

import itertools
from collections.abc import Sequence
from typing import Any

import duckdb
import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from tests.statistics_macros.patterns import values


def grid(*axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return the columns of all combinations."""
    return list(zip(*itertools.product(*axes), strict=True))


def test_the_quantile_of_student_is_that_of_scipy(connection: duckdb.DuckDBPyConnection) -> None:
    df = [*range(1, 400), 1000, 5000, 100_000]
    assert values(connection, "t_quantile(df)", df=df) == pytest.approx(stats.t.ppf(0.975, df), abs=1e-5)
    # Degrees of freedom that are no whole numbers take those below, which is on the safe side.
    fractions = values(connection, "t_quantile(df)", df=[1.9, 5.5, 9.99, 12.5, 99.5])
    assert (fractions >= stats.t.ppf(0.975, [1.9, 5.5, 9.99, 12.5, 99.5]) - 1e-5).all()
    assert np.isnan(values(connection, "t_quantile(df)", df=[0, -3, None])).all()


def test_the_p_value_of_a_normal_deviate_is_that_of_scipy(connection: duckdb.DuckDBPyConnection) -> None:
    z = [*np.linspace(-9, 9, 361), 15.0, 25.0, 35.0]
    assert values(connection, "normal_p(z)", z=z) == pytest.approx(2 * stats.norm.sf(np.abs(z)), rel=1.2e-7)
    assert values(connection, "normal_p(z)", z=[0.0, None]) == pytest.approx([1, np.nan], nan_ok=True)


def test_the_p_value_of_student_is_near_that_of_scipy_and_never_below_it(connection: duckdb.DuckDBPyConnection) -> None:
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
    chance, k = stats.hypergeom(given["m"], given["h"], given["n"]), given["k"]
    expected = np.minimum(1, 2 * np.minimum(chance.cdf(k), chance.sf(k - 1)))
    assert found == pytest.approx(expected, rel=1e-7, abs=1e-200)
    assert found[(given["h"] == 0) | (given["h"] == given["m"])] == pytest.approx(1.0)
    assert (found <= 1).all()
    # Two groups have one and the same.
    others = values(connection, "hypergeometric_p(h - k, m - n, h, m)", **given)
    assert others == pytest.approx(found, rel=1e-7, abs=1e-200)
    nulls = values(connection, "hypergeometric_p(k, n, 3, 10)", k=[None, 1, None], n=[4, None, None])
    assert np.isnan(nulls).all()


def test_the_error_of_a_jackknife_by_hand(connection: duckdb.DuckDBPyConnection) -> None:
    """Of two groups, 0.4 and 0.6 lie 0.1 from their mean: sqrt(1/2 * (0.01 + 0.01)); of three, sqrt(2/3 * (1 + 0 + 1)).

    There is none of one group, or where a group has no value.
    """
    lists = [[0.4, 0.6], [1.0, 2.0, 3.0], [0.5] * 3, [0.5], [], None, [0.4, None, 0.6]]
    expected = [0.1, (4 / 3) ** 0.5, 0, *[np.nan] * 4]
    assert values(connection, "jackknife_error(x)", x=lists) == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_the_smallest_of_many_p_is_multiplied_by_their_number(connection: duckdb.DuckDBPyConnection) -> None:
    found = values(connection, "bonferroni_p(p, n)", p=[0.01, 0.4, 0.5, 1.0, None, 0.02], n=[3, 2, 3, 1, 3, None])
    assert found == pytest.approx([0.03, 0.8, 1, 1, np.nan, np.nan], nan_ok=True)


def test_the_interquartile_mean_is_that_of_scipy_or_by_hand(connection: duckdb.DuckDBPyConnection) -> None:
    """Of five, 1.25 are cut off at either end: .75 of the second and fourth, and the third, of 2.5. Of six, 1.5."""
    fours = [np.sort(np.random.default_rng(n).normal(size=n)).tolist() for n in (4, 8, 20, 256)]
    found = values(connection, "interquartile_mean(x)", x=fours)
    assert found == pytest.approx([stats.trim_mean(numbers, 0.25) for numbers in fours])
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


WORDS: list[tuple[str | None, tuple[float | None, ...]]] = [
    (None, (None, None, None, None, 8)), (None, (None, None, None, None, 3)), ("too few", (0.5, 0.01, 0.4, 0.6, 5)),
    ("too few", (0.5, None, None, None, 1)), ("higher", (0.2, 0.05, 0.001, 0.4, 6)),
    ("higher", (0.01, 0.04, 0.001, 0.02, 6)), ("lower", (-0.2, 0.01, -0.4, -0.1, 6)),
    ("lower", (-0.01, 0.01, -0.02, -0.001, 6)), ("unclear", (0.009, 0.01, 0.001, 0.03, 6)),
    ("unclear", (-0.009, 0.01, -0.03, -0.001, 6)), ("unclear", (0.0, 1.0, 0.0, 0.0, 300)),
    ("negligible", (0.0, 1.0, 0.0, 0.0, 301)), ("negligible", (0.002, 0.4, -0.005, 0.009, 6)),
    ("unclear", (0.002, 0.4, -0.01, 0.009, 6)), ("unclear", (0.002, 0.4, -0.009, 0.01, 6)),
    ("unclear", (0.2, 0.0501, -0.01, 0.4, 6)), ("unclear", (-0.2, 0.2, -0.5, 0.1, 100)),
    ("unclear", (0.2, 0.2, None, None, 6)),
]  # fmt: skip


def test_the_word_that_a_difference_supports(connection: duckdb.DuckDBPyConnection) -> None:
    for word, case in WORDS:
        assert connection.execute("select verdict(?, ?, ?, ?, ?, 0.01)", case).fetchall() == [(word,)], case
