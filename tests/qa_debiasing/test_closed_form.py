"""The closed form of the significance, against the protocol and the golden values; articles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.qa_debiasing.study import Study, ask, expected, rows

# The closed form of the significance


def test_the_closed_form_is_that_of_the_protocol() -> None:
    for replacement in (False, True):
        for lower, n_lower, higher, n_higher in ((0.8, 8000, 0.6, 1700), (0.5, 900, 0.9, 801), (0.7, 900, 0.71, 900)):
            wanted = expected(lower, n_lower, higher, n_higher, 800, replacement=replacement)
            for given in ((lower, n_lower, higher, n_higher), (higher, n_higher, lower, n_lower)):
                found = ask("expected_significance(?, ?, ?, ?, 800, ?)", *given, replacement)
                assert found == pytest.approx(wanted, abs=1e-9)
    assert wanted == 0


def test_the_closed_form_by_hand() -> None:
    """Samples of 100 of 200 and of 400: 0.8 -/+ 1.8777 * 0.4 / 10 * sqrt(100 / 199), 0.5 and 0.5, sqrt(300 / 399)."""
    lower, higher = 187.77 * 0.04 * (100 / 199) ** 0.5, 187.77 * 0.05 * (300 / 399) ** 0.5
    found = ask("expected_significance(0.8, 200, 0.5, 400, 100, false)")
    assert found == pytest.approx(30 - lower - higher)
    assert found == pytest.approx(16.535, abs=1e-3)
    assert ask("expected_significance(0.8, 200, 0.5, 400, 100, true)") == pytest.approx(30 - 187.77 * 0.09)


def test_a_sample_that_is_all_of_a_segment_has_no_spread_without_replacement() -> None:
    assert ask("expected_significance(0.8, 10, 0.5, 10, 10, false)") == pytest.approx(30)
    assert ask("expected_significance(1, 1, 0, 1, 1, false)") == pytest.approx(100)
    assert ask("expected_significance(0, 90, 1, 90, 10, true)") == pytest.approx(100)


@pytest.mark.parametrize(
    "given", ["null, 900, 0.5, 900", "0.5, 900, null, 900", "0.5, 799, 0.9, 900", "0.5, 900, 1, 0"]
)
def test_the_closed_form_has_no_value_where_nothing_was_drawn_or_a_segment_is_too_small(given: str) -> None:
    for replacement in ("false", "true"):
        assert ask(f"expected_significance({given}, 800, {replacement})") is None


@pytest.mark.parametrize(
    ("lower", "n_lower", "higher", "n_higher"),
    [(0.824, 8768, 0.689, 1651), (0.764, 3281, 0.819, 7289), (0.743, 954, 0.808, 9616), (0.81, 3571, 0.796, 6999)],
)
def test_the_closed_form_is_the_mean_of_the_published_100_trials_of_800(
    lower: float, n_lower: int, higher: float, n_higher: int
) -> None:
    """Segments of protocol 11.1: the mean of 2,000 times 100 trials is within 0.05 points where intervals lie apart.

    Where they meet, single values are 0 or above it and their mean exceeds the closed form, by less than 0.35.
    """
    rng = np.random.default_rng(0)
    bounds = []
    for share, size in ((lower, n_lower), (higher, n_higher)):
        right = round(share * size)
        means = rng.hypergeometric(right, size - right, 800, size=(2000, 100)) / 8
        bounds.append(np.quantile(means, [0.025, 0.975], axis=1))
    distance = np.maximum(0, np.maximum(bounds[0][0] - bounds[1][1], bounds[1][0] - bounds[0][1])).mean()
    share_lower, share_higher = round(lower * n_lower) / n_lower, round(higher * n_higher) / n_higher
    found = ask("expected_significance(?, ?, ?, ?, 800, false)", share_lower, n_lower, share_higher, n_higher)
    if found > 1.5:
        assert found == pytest.approx(distance, abs=0.05)
    else:
        assert found - 0.05 <= distance <= found + 0.35


def test_the_closed_form_equals_that_of_the_golden_table(shared: Path) -> None:
    golden = pq.read_table(shared / "golden/qa/significance_expected.parquet").to_pylist()
    valid = [row for row in golden if row["valid"]]
    assert len(valid) > 30
    for row in valid:
        shares = [row[f"analytic_{side}_em_mean"] / 100 for side in ("lower", "higher")]
        given = (shares[0], row["n_lower"], shares[1], row["n_higher"], row["sample_size"])
        # Its quantile is that of 100 trials too, computed and not rounded.
        assert ask("expected_significance(?, ?, ?, ?, ?, false)", *given) == pytest.approx(
            row["analytic_distance_em"], abs=0.002
        )


# Articles


def test_articles_are_titles_else_contexts_numbered_by_data_set() -> None:
    study = Study({"ans_len": [1]})
    study.questions({"ans_len": [1] * 6})
    study.titles(["Normans", "Atoms", "", None, "Atoms", None])
    for example, context in zip(study.examples, ["x", "y", "Beta", "Beta", "z", "Zeta"], strict=True):
        example["context"] = context
    study.questions({"ans_len": [1] * 3}, dataset="natural")
    for example in study.examples[6:]:
        example["context"] = "c"
    study.answers([1] * 6)
    with study.opened() as connection:
        found = rows("from qa_articles order by dataset, row", connection)
    natural, squad = found[:3], found[3:]
    assert [(row["article"], row["n_articles"]) for row in natural] == [(0, 1)] * 3
    assert [row["article"] for row in squad] == [2, 0, 1, 1, 0, 3]  # Atoms, Beta, Normans, Zeta: in their order
    assert {row["n_articles"] for row in squad} == {4}
    assert list(squad[0]) == ["dataset", "example_id", "role", "row", "article", "n_articles"]
