"""The error of a jackknife, and quantiles of Student's t, by hand and against tables."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tests.qa_debiasing.study import ask


def test_the_error_of_a_jackknife_by_hand() -> None:
    # Two groups: 0.4 and 0.6 lie 0.1 from their mean; sqrt(1/2 * (0.01 + 0.01)).
    assert ask("jackknife_error([0.4, 0.6])") == pytest.approx(0.1, abs=1e-12)
    # Three: sqrt(2/3 * (1 + 0 + 1)).
    assert ask("jackknife_error([1, 2, 3])") == pytest.approx((4 / 3) ** 0.5, abs=1e-12)
    assert ask("jackknife_error([0.5, 0.5, 0.5])") == 0


def test_there_is_no_error_of_one_group_or_where_a_group_has_no_value() -> None:
    assert ask("jackknife_error([0.5])") is None
    assert ask("jackknife_error([]::double[])") is None
    assert ask("jackknife_error(null::double[])") is None
    assert ask("jackknife_error([0.4, null, 0.6])") is None


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-100, 100), min_size=10, max_size=40))
def test_the_jackknife_of_a_mean_has_its_standard_error(values: list[float]) -> None:
    n = len(values)
    left_out = [(sum(values) - one) / (n - 1) for one in values]
    mean = sum(values) / n
    expected = (sum((one - mean) ** 2 for one in values) / (n - 1) / n) ** 0.5
    assert ask("jackknife_error(?::double[])", left_out) == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_the_quantiles_of_t_are_those_of_the_tables() -> None:
    found = [ask(f"t_quantile({df})::double") for df in range(1, 10)]
    assert found == pytest.approx([float(stats.t.ppf(0.975, df)) for df in range(1, 10)], abs=1e-6)
    assert ask("t_quantile(0)") is None
