"""The error of rows and draws of demonstrations together, against a bootstrap that resamples both."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest

from biaseval.analysis.sign_flips import sign_flips
from biaseval.analysis.sql_files import connect

N_ROWS, N_SETTINGS, N_SEEDS = 60, 5, 8


def test_the_error_of_both_is_that_of_rows_and_draws_and_at_most_that_of_the_pigeonhole_bootstrap() -> None:
    """A difference of row i, setting k and seed j is a_i + b_kj + c_ikj, of known variances.

    The pigeonhole bootstrap (Owen 2007), which draws rows and, within settings, seeds anew, counts what belongs to both
    three times; the sum of both errors counts it twice.
    """
    rng = np.random.default_rng(5)
    of_rows, of_draws, of_both = 0.5, 0.3, 1.0
    rows = rng.normal(0, of_rows, N_ROWS)
    draws = rng.normal(0, of_draws, (N_SETTINGS, N_SEEDS))
    x = rows[:, None, None] + draws + rng.normal(0, of_both, (N_ROWS, N_SETTINGS, N_SEEDS))
    test = {"metric": "accuracy"}
    units = [{"family": "f", "test": test, "unit": row, "value": float(x[row].mean())} for row in range(N_ROWS)]
    changes = [
        {"family": "f", "test": test, "number": setting, "seed": seed, "value": 0.0}
        | {"other_value": float(x[:, setting, seed].mean()) / N_SETTINGS / N_SEEDS}
        for setting in range(N_SETTINGS)
        for seed in range(N_SEEDS)
    ]
    with closing(connect([])) as connection:
        connection.from_arrow(pa.Table.from_pylist(units)).create("units")
        connection.from_arrow(pa.Table.from_pylist(changes)).create("changes")
        connection.from_arrow(sign_flips(N_ROWS, 42)).create("signs")
        connection.execute("create table tests as from sign_flip_tests('units', 'signs')").fetchall()
        connection.execute("create table errors as from draw_errors('changes')").fetchall()
        [row] = connection.sql("from over_draws('tests', 'errors')").to_arrow_table().to_pylist()
    assert row["estimate"] == pytest.approx(x.mean())
    error = row["both_smallest_detectable"] / 2.8
    assert error == pytest.approx(np.hypot(row["standard_error"], row["error_draws"]))
    means = np.empty(4000)
    for number in range(len(means)):
        seeds = rng.integers(N_SEEDS, size=(N_SETTINGS, N_SEEDS))
        drawn = np.take_along_axis(x[rng.integers(N_ROWS, size=N_ROWS)], seeds[None], axis=2)
        means[number] = drawn.mean()
    n_draws = N_SETTINGS * N_SEEDS
    interaction = of_both**2 / N_ROWS / n_draws
    assert error**2 == pytest.approx(
        np.var(x.mean(axis=(1, 2)), ddof=1) / N_ROWS + np.var(x.mean(axis=0), axis=1, ddof=1).mean() / n_draws
    )
    assert error**2 > np.var(rows, ddof=1) / N_ROWS + np.var(draws, axis=1, ddof=1).mean() / n_draws
    assert np.var(means) - error**2 == pytest.approx(interaction, abs=interaction)
