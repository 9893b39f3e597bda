"""Which keys of a search are important, by SQL, done by hand."""

from __future__ import annotations

import pytest

from tests.searches import Search
from tests.test_search_sql import sets


def grid_of_two_keys() -> Search:
    """Return a search in which the objective goes with one key, and not with the other."""
    search = Search({"f1": True}, keys=["a.x", "b"])
    for (x, b), value in {(0.5, "p"): 1.0, (0.5, "q"): 2.0, (2.0, "p"): 4.0, (2.0, "q"): 5.0}.items():
        search.trial({"a.x": x, "b": b}, [value], [value])
    search.trial({"a.x": 9.0, "b": "p"})  # failed: in no bin
    return search


def test_importance_is_epsilon_squared_by_hand() -> None:
    # Total 4 + 1 + 1 + 4 = 10. By a.x: within 0.5 + 0.5 = 1 with 4 - 2 degrees of freedom, so (10 - 1 - 0.5) / 10.
    # By b: within 4.5 + 4.5 = 9, so (10 - 9 - 4.5) / 10 < 0.
    found = grid_of_two_keys().rows("select key, share, n_bins, n_trials from search_importance")
    assert found == [
        {"key": "a.x", "share": pytest.approx(0.85), "n_bins": 2, "n_trials": 4},
        {"key": "b", "share": 0.0, "n_bins": 2, "n_trials": 4},
    ]


def test_importance_is_not_known_where_each_bin_has_one_trial_or_nothing_differs() -> None:
    found = sets(0.1, 0.2, 0.3).rows("select share, n_bins from search_importance")
    assert found == [{"share": None, "n_bins": 3}]
    search = Search({"f1": True})
    for b in "ppq":
        search.trial({"b": b}, [0.5], [0.5])
    assert search.rows("select share, n_bins from search_importance") == [{"share": None, "n_bins": 2}]


def test_many_numbers_are_cut_into_quarters_and_many_texts_are_not() -> None:
    search = Search({"f1": True})
    for number in (3, 1, 4, 8, 5, 7, 2, 6):
        search.trial({"n": number, "t": f"text {number}"}, [float(number)], [0.0])
    quarters = search.rows("select bin, list_sort(list(number)) as of from search_bins where key = 'n' group by bin")
    assert sorted(tuple(row.values()) for row in quarters) == [
        ("1", [1, 2]),
        ("2", [3, 4]),
        ("3", [5, 6]),
        ("4", [7, 8]),
    ]
    texts = search.rows("select distinct bin from search_bins where key = 't' order by bin")
    assert texts == [{"bin": f"text {number}"} for number in range(1, 9)]


def test_values_of_any_sort_have_bins_of_their_own() -> None:
    search = Search({"f1": True})
    for value in (None, True, ["a", "b"], 3, None):
        search.trial({"train.patience": value}, [1.0], [1.0])
    found = search.rows("select bin, any_value(number) as number, count(*) as n from search_bins group by bin")
    assert sorted(((row["bin"] or ""), row["number"], row["n"]) for row in found) == [
        ("", None, 2), ("3", 3.0, 1), ('["a","b"]', None, 1), ("true", None, 1)
    ]  # fmt: skip
