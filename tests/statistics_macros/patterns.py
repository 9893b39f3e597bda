"""Sign-flip tests by every pattern of signs in NumPy, and the values of an SQL expression, row by row."""

import itertools
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy import stats  # type: ignore[import-untyped]

Array = npt.NDArray[Any]


def values(connection: duckdb.DuckDBPyConnection, expression: str, **columns: Any) -> Array:
    """Return an expression of columns, row by row; null is NaN."""
    connection.execute("drop table if exists given")
    table = {"place": range(len(next(iter(columns.values())))), **columns}
    connection.from_arrow(pa.table({name: list(column) for name, column in table.items()})).create("given")
    found = connection.sql(f"select {expression} as x from given order by place").fetchall()
    return np.array([np.nan if x is None else x for (x,) in found], dtype=float)


def step_down(flipped: Array, observed: Array) -> Array:
    """Return Westfall and Young's (1993, algorithm 4.1) p of tests, of statistics by (pattern, test).

    A test against itself and those that are no clearer, and at least the p of each that is clearer.
    """
    steps = [np.mean(flipped[:, observed <= each + 1e-9].max(axis=1) >= each - 1e-9) for each in observed]
    return np.array([np.max(steps, where=observed >= each - 1e-9, initial=0) for each in observed])


def single_step(matrix: Array, signs: Array) -> Array:
    """Return the p of each row of a matrix against the largest statistic of all rows in each pattern."""
    lengths = np.sqrt((matrix**2).sum(axis=1))
    largest = (np.abs(signs @ matrix.T) / lengths).max(axis=1)
    return np.mean(largest[:, None] >= np.abs(matrix.sum(axis=1)) / lengths - 1e-9, axis=0)


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
    adjusted = step_down(flipped, observed)
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
                "n_units": n, "estimate": given.mean(), "standard_error": error, "low": interval[0],
                "high": interval[1], "p": np.mean(flipped[:, number] >= observed[number] - 1e-9) if n > 1 else np.nan,
                "p_adjusted": adjusted[number] if n > 1 else np.nan, "simultaneous_low": given.mean() - reach,
                "simultaneous_high": given.mean() + reach, "smallest_detectable": 2.8 * error,
            }
        )  # fmt: skip
    return found
