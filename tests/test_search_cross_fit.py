"""Cross-fitting: each half of the data chooses for the other, done by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.searches import Search

T_OF_TWO = 12.706205
"""The 97.5 % quantile of t with one degree of freedom: two groups are left out in turn."""


def _cross_fit(search: Search) -> dict[str, Any]:
    [row] = search.rows("from search_cross_fit")
    return row


def _search(**settings: Any) -> Search:
    search = Search({"rsd": False}, **{"algorithm": "grid", **settings})
    for number, (choice, evaluation) in enumerate([(0.5, 0.2), (0.3, 0.4), (0.4, 0.1)]):
        search.trial({"prompt.demo_sets": number + 1}, [choice], [evaluation])
    return search


def test_each_half_chooses_for_the_other() -> None:
    """Trial 1 is lowest on the first half and 0.4 on the second; trial 2 the other way round, 0.4 on the first."""
    row = _cross_fit(_search())
    assert (row["trial"], row["swapped_trial"]) == (1, 2)
    assert (row["evaluation"], row["swapped_evaluation"], row["cross_fitted"]) == (0.4, 0.4, 0.4)
    # Lower is better. On the second half 0.4 is above the mean of 0.2, 0.4 and 0.1; on the first it is the mean.
    assert row["gain"] == pytest.approx((-(0.4 - 0.7 / 3) + 0) / 2)


def test_its_interval_has_the_errors_of_both_halves() -> None:
    search = _search()
    search.value(1, "rsd", "evaluation", 0.4, [0.3, 0.5])  # an error of 0.1, as sqrt(1 / 2 * 0.02)
    search.value(2, "rsd", "choice", 0.4, [0.2, 0.6])  # and of 0.2
    row = _cross_fit(search)
    reach = T_OF_TWO * (0.1**2 + 0.2**2) ** 0.5 / 2
    assert row["cross_fitted_high"] - row["cross_fitted"] == pytest.approx(reach)
    assert row["cross_fitted"] - row["cross_fitted_low"] == pytest.approx(reach)


def test_of_equals_the_first_is_chosen() -> None:
    search = Search({"f1": True}, algorithm="grid")
    for value in (0.4, 0.6, 0.6):
        search.trial({"seed": len(search.trials)}, [value], [value])
    row = _cross_fit(search)
    assert (row["trial"], row["swapped_trial"]) == (1, 1)


@pytest.mark.parametrize("other", [{"choose_on": "published"}, {"choose_on": "held_out"}, {"algorithm": "optuna"}])
def test_there_is_none_where_the_halves_are_not_alike(other: dict[str, str]) -> None:
    assert not _search(**other).rows("from search_cross_fit")


def test_there_is_none_of_several_objectives() -> None:
    search = Search({"f1": True, "cost": False}, algorithm="grid")
    search.trial({"seed": 1}, [0.5, 1], [0.5, 1])
    assert not search.rows("from search_cross_fit")
