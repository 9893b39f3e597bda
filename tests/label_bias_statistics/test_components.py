"""Intervals of a distance, and what rows and sets of demonstrations have to do with a variance."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from biaseval.analysis.sql_files import connect
from tests.label_bias_statistics.answers import METRICS, Array, analysed, answers_of, one_task, rows, side
from tests.label_bias_statistics.influences import influences
from tests.statistics_macros.patterns import values


def test_an_interval_of_a_distance_has_room_above_0() -> None:
    connection = connect([])

    def high(x: Array) -> Array:
        return values(connection, "norm_interval(x, 0.1, 0.04, 3, 2.0)[2]", x=x)

    below = high(np.array([0.0, 0.05, 0.1]))
    assert below == pytest.approx([below[2]] * 3)
    assert below[2] == pytest.approx(np.sqrt(2 * 0.08**2 + np.sqrt(4 * 0.08**4 + 8 * 0.1**4 / 3)))
    assert (np.diff(high(np.linspace(0.1, 2, 50))) > 0).all()
    lows = values(connection, "norm_interval(x, 0.1, 0.04, 3, 2.0)[1]", x=[0.0, 0.1, 1.0])
    assert lows[:2].tolist() == [0, 0]
    assert 0.8 < lows[2] < 1
    # Without noise to speak of the distance is what is measured.
    sharp = values(connection, "norm_interval(x, 1e-6, 1e-6, 3, 2.0)[2]", x=[0.5])
    assert sharp == pytest.approx([0.5], abs=1e-4)


def test_row_noise_of_one_set_alone_is_what_rows_differ_by_between_sets() -> None:
    answers = one_task(120)
    connection = analysed(answers)
    [found] = rows(connection, "from set_errors")
    assert found["n_sets"] == 2
    for metric in METRICS:
        own = side(answers, metric)
        by_set = np.array([influences([each], metric) for each in own])
        between = by_set.var(axis=0, ddof=1) / 2
        gold = own[0].gold
        counts = np.array([Counter(gold)[label] for label in gold])
        factor = counts / (counts - 1) if metric not in ("accuracy", "macro_f1") else len(gold) / (len(gold) - 1)
        expected = np.sum(between * factor) / len(gold) ** 2
        assert found[metric] == pytest.approx(expected, rel=1e-4), metric


def test_sets_that_differ_by_luck_alone_have_no_part_in_the_variance() -> None:
    """40 tasks of one accuracy, six sets each, of which every one answers for itself."""
    rng = np.random.default_rng(2)
    gold = list("ab" * 50)
    answers = [
        answers_of(rng, f"t{number:02d}", "ab", gold, 0.7, n_demos=4, demo_set=demo_set)
        for number in range(40)
        for demo_set in range(6)
    ]
    [found] = rows(analysed(answers), "from label_bias_components where metric = 'accuracy'")
    expected = 0.7 * 0.3 / 100 / 6
    assert found["from_rows"] == pytest.approx(expected, rel=0.1)
    assert found["variance"] == pytest.approx(expected, rel=0.7)
    assert found["from_sets"] < 0.2 * expected  # the variance between sets is as large as that of rows
    assert found["from_tasks"] + found["from_sets"] < 0.7 * expected
