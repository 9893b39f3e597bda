"""Simulated tests of known truth: how often families of sign flips err."""

import numpy as np
import pytest

from biaseval.analysis.sign_flips import sign_flips
from biaseval.analysis.sql_files import connect
from tests.statistics_macros.test_sign_flips import flip_tests, units_of

pytestmark = pytest.mark.slow


def test_errors_stay_below_5_percent_beside_effects_that_are_found() -> None:
    """1,500 families of six tests of which four have an effect that is always found: the other two share the 5 %."""
    connection = connect([])
    rng = np.random.default_rng(6)
    noise = rng.normal(size=(1500, 6, 10)) + rng.normal(size=(1500, 1, 10))
    noise[:, 2:] += 9
    found = flip_tests(
        connection,
        [unit for number, matrix in enumerate(noise) for unit in units_of(matrix, f"f{number}")],
        sign_flips(10, 0),
    )
    assert all(row["p_adjusted"] <= 0.05 for (_, test), row in found.items() if test >= 2)
    wrong = {family for (family, test), row in found.items() if test < 2 and row["p_adjusted"] <= 0.05}
    assert 0.035 < len(wrong) / 1500 < 0.065
