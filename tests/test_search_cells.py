"""Numbers, values, names and verdicts of a search in its report."""

from __future__ import annotations

import pytest

from biaseval.report.search_cells import decimals, domain_words, number, parameter, short_keys
from biaseval.report.search_findings import Objective
from biaseval.report.search_words import against


@pytest.mark.parametrize(
    ("value", "digits", "signed", "shown"),
    [
        (0.81234, 4, False, "0.8123"),
        (-0.5, 2, True, "\N{MINUS SIGN}0.50"),
        (0.25, 2, True, "+0.25"),
        (0.00001, 3, False, "1.00e\N{MINUS SIGN}05"),
        (1e-17, 3, False, "0.000"),
        (None, 3, False, "–"),
        (float("nan"), 3, False, "–"),
        (123456.7, 3, False, "123,457"),
    ],
)
def test_numbers_of_an_objective(value: float | None, digits: int, signed: bool, shown: str) -> None:
    assert number(value, digits, signed=signed) == shown


def test_an_objective_has_four_digits_of_its_middle_value() -> None:
    assert [decimals(values) for values in ([0.5, 0.02, None], [81.0, 79.0], [4000.0], [0.0], [1e-9])] == [
        5,
        2,
        0,
        3,
        6,
    ]


def test_values_and_domains_in_words() -> None:
    assert [parameter(value) for value in (0.5, 1.0, -2, 1e-5, None, True, "x", [1])] == [
        "0.5", "1", "-2", "1e\N{MINUS SIGN}05", "null", "true", "x", "[1]"
    ]  # fmt: skip
    assert domain_words("loguniform", [0.001, 10]) == "any number from 0.001 to 10, by its logarithm"
    assert domain_words("grid", list(range(20))) == "20 values, from 0 to 19"


def test_keys_are_named_by_what_tells_them_apart() -> None:
    assert short_keys(["a.b.x", "a.c.x", "a.c.y"]) == {"a.b.x": "b.x", "a.c.x": "c.x", "a.c.y": "y"}


@pytest.mark.parametrize(
    ("verdict", "maximize", "side"),
    [
        ("lower", True, "chosen"),
        ("lower", False, "other"),
        ("higher", True, "other"),
        ("higher", False, "chosen"),
        ("unclear", True, "none"),
        (None, True, ""),
    ],
)
def test_a_difference_is_on_a_side_only_where_its_test_says_so(verdict: str | None, maximize: bool, side: str) -> None:
    objective = Objective("x", maximize, "select 1 as x", 3)
    assert against({"verdict": verdict}, objective) == side
