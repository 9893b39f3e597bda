"""Macros of QA bias: distances, thresholds and intervals, by hand and as published."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.handmade import ask
from tests.qaplans import Candidate, _paper_rule, _reference_rule


def test_the_distance_of_intervals_equals_the_published_codes(shared: Path) -> None:
    cases = json.loads((shared / "golden/qa/significance_cases.json").read_text())["interval_distance"]
    bounds = [[case[f"{side}_{q}"] for side in ("lower", "higher") for q in ("q025", "q975")] for case in cases]
    sql = "list_transform(?::double[][], lambda x: interval_distance([x[1], x[2]], [x[3], x[4]]))"
    assert len(cases) == 200
    assert ask(sql, bounds) == [case["distance"] for case in cases]


def test_intervals_that_touch_are_not_apart() -> None:
    # 0.1 + 0.2 is 0.30000000000000004 in doubles.
    assert ask("interval_distance([0.1::double, 0.3], [0.1::double + 0.2::double, 0.5])") == 0
    assert ask("interval_distance([0.1, 0.3], [0.31, 0.5])") == pytest.approx(0.01)
    assert ask("interval_distance([0.1, null], [0.31, 0.5])") is None
    assert ask("interval_distance(null::double[], [0.31, 0.5])") is None


def test_bias_significance_of_lists_of_trials() -> None:
    rng = np.random.default_rng(0)
    sql = "bias_significance(?::double[], ?::double[])"
    for shift in (0.0, 0.05, 0.2):
        lower, higher = rng.normal(0.6, 0.02, size=100), rng.normal(0.6 + shift, 0.03, size=100)
        low, high = np.quantile([lower, higher], [0.025, 0.975], axis=1)
        expected = max(0, low[1] - high[0], low[0] - high[1])
        for pair in ([lower.tolist(), higher.tolist()], [higher.tolist(), lower.tolist()]):
            assert ask(sql, *pair) == pytest.approx(expected, abs=1e-12)
    assert expected > 0.05
    assert ask(sql, [1], [3]) == 2
    assert ask(sql, [], [1]) is None


def _choose(rule: str, tables: Sequence[Sequence[Candidate]], sample: int) -> list[float | None]:
    """Return the thresholds that SQL chooses from several tables of candidates."""
    names = ("threshold", "distance", "n_lower", "n_higher")
    given = [[dict(zip(names, candidate, strict=True)) for candidate in table] for table in tables]
    type_ = "struct(threshold double, distance double, n_lower bigint, n_higher bigint)[][]"
    sql = f"list({rule}_threshold(candidates, ?) order by number) from (select unnest(?::{type_}) as candidates, "
    chosen: list[float | None] = ask(f"{sql} generate_subscripts(?, 1) as number)", sample, given, [*range(len(given))])
    return chosen


def test_thresholds_are_chosen_as_by_the_published_code(shared: Path) -> None:
    cases = json.loads((shared / "golden/qa/significance_cases.json").read_text())["best_threshold"]
    assert len(cases) == 300
    assert {case["sample_size"] for case in cases} == {800}
    expected = [None if case["best_threshold"] == -1 else case["best_threshold"] for case in cases]
    tables = [
        [
            (float(threshold), None if values[0] == -1 else float(values[0]), values[2], values[3])
            for threshold, values in zip(case["thresholds"], case["values"], strict=True)
        ]
        for case in cases
    ]
    assert [_reference_rule(table, 800) for table in tables] == expected
    assert _choose("reference", tables, 800) == expected
    chosen = _choose("paper", tables, 800)
    assert chosen == [_paper_rule(table, 800) for table in tables]
    assert sum(ours != theirs for ours, theirs in zip(chosen, expected, strict=True)) == 36


@pytest.mark.parametrize(
    ("candidates", "paper", "reference"),
    [
        ([], None, None),
        ([(0, None, 900, 900)], None, None),
        ([(0, 0, 2000, 2000)], None, None),
        # The first significant one is taken however small, and replaced by a large one that is less significant.
        ([(0, 5, 900, 9000), (1, 2, 2000, 7000)], 1, 1),
        ([(0, 2, 900, 9000), (1, 5, 1000, 9000)], 1, 0),
        # Twice the sample: at least in the text, more in the code.
        ([(0, 2, 900, 9000), (1, 1, 1600, 9000)], 1, 0),
        ([(0, 1, 1600, 9000), (1, 2, 1600, 9000)], 1, 0),
        ([(0, 1, 1600, 9000), (1, 0.5, 1601, 9000)], 0, 0),
        ([(0, 1, 1599, 9000), (1, 0.5, 1601, 9000)], 1, 1),
        # The smallest on ties, also within rounding.
        ([(0, 3, 2000, 2000), (1, 3, 3000, 3000)], 0, 0),
        ([(0, 3, 2000, 2000), (1, 3 + 1e-12, 3000, 3000)], 0, 0),
        ([(0, 3, 2000, 2000), (1, None, 10, 3990), (2, 4, 3000, 3000)], 2, 2),
    ],
)
def test_both_rules_by_hand(candidates: list[Candidate], paper: float | None, reference: float | None) -> None:
    assert _choose("paper", [candidates], 800) == [paper]
    assert _choose("reference", [candidates], 800) == [reference]


def test_wilson_intervals_by_hand() -> None:
    """5 of 10: (0.5 + z²/20 ∓ z sqrt(0.025 + z²/400)) / (1 + z²/10), z² = 3.8415."""
    assert ask("wilson_interval(0.5, 10)") == pytest.approx([0.23659, 0.76341], abs=1e-5)
    assert ask("wilson_interval(0, 10)") == pytest.approx([0, 0.27753], abs=1e-5)
    assert ask("wilson_interval(1, 1)") == pytest.approx([0.20654, 1], abs=1e-5)
    assert ask("wilson_interval(null, 5), wilson_interval(0.5, 0)") == (None, None)
