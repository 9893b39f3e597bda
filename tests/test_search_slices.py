"""Slices of a search and what is important in it, by SQL, done by hand."""

from __future__ import annotations

import pytest

from tests.searches import Search
from tests.test_search_sql import sets


def grid_of_two_keys() -> Search:
    """Return a search in which the objective goes with one key, and not with the other."""
    search = Search({"f1": True}, keys=["a.x", "b"])
    for (x, b), value in {(0.5, "p"): 1.0, (0.5, "q"): 2.0, (2.0, "p"): 4.0, (2.0, "q"): 5.0}.items():
        search.trial({"a.x": x, "b": b}, [value], [value])
    search.trial({"a.x": 9.0, "b": "p"})  # failed: in no slice
    return search


def test_slices_by_hand() -> None:
    found = grid_of_two_keys().rows("from search_slices")
    names = ("key", "bin", "lowest", "highest", "mean", "smallest", "largest", "n_trials")
    assert [tuple(row[name] for name in names) for row in found] == [
        ("a.x", "0.5", 0.5, 0.5, 1.5, 1.0, 2.0, 2),
        ("a.x", "2.0", 2.0, 2.0, 4.5, 4.0, 5.0, 2),
        ("b", "p", None, None, 2.5, 1.0, 4.0, 2),
        ("b", "q", None, None, 3.5, 2.0, 5.0, 2),
    ]


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
    quarters = search.rows("select bin, lowest, highest, mean, n_trials from search_slices where key = 'n'")
    assert [tuple(row.values()) for row in quarters] == [
        ("1", 1, 2, 1.5, 2), ("2", 3, 4, 3.5, 2), ("3", 5, 6, 5.5, 2), ("4", 7, 8, 7.5, 2)
    ]  # fmt: skip
    texts = search.rows("select bin, n_trials from search_slices where key = 't'")
    assert texts == [{"bin": f"text {number}", "n_trials": 1} for number in range(1, 9)]


def test_values_of_any_sort_have_slices_of_their_own() -> None:
    search = Search({"f1": True})
    for value in (None, True, ["a", "b"], 3, None):
        search.trial({"train.patience": value}, [1.0], [1.0])
    found = search.rows("select bin, lowest, n_trials from search_slices")
    assert sorted(((row["bin"] or ""), row["lowest"], row["n_trials"]) for row in found) == [
        ("", None, 2), ("3", 3.0, 1), ('["a","b"]', None, 1), ("true", None, 1)
    ]  # fmt: skip
