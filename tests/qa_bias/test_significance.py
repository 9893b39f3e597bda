"""Thresholds and draws: the published code's grids, and samples against what sampling theory says of them."""

import json
import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest

from biaseval.errors import InputError
from biaseval.qa_bias import significance
from biaseval.qa_bias.heuristics import HEURISTICS
from biaseval.qa_bias.significance import (
    MAX_THRESHOLDS,
    PUBLISHED_THRESHOLDS,
    biased_questions,
    biased_segment,
    given_thresholds,
    segment_draws,
    threshold_grid,
)
from biaseval.tables import QA_DRAWS


def measured(values: Any, exact_match: Any, *, heuristic: str = "ans_len", dataset: str = "squad") -> pa.Table:
    """Return a model's measured questions; F1 is half of exact match."""
    values, exact_match = np.asarray(values, dtype=float), np.asarray(exact_match, dtype=float)
    names = {"dataset": [dataset] * len(values), "heuristic": [heuristic] * len(values)}
    return pa.table({**names, "value": values, "exact_match": exact_match, "f1": exact_match / 2})


def thresholds(*candidates: float, heuristic: str = "ans_len", dataset: str = "squad") -> pa.Table:
    schema = pa.schema([("dataset", pa.string()), ("heuristic", pa.string()), ("threshold", pa.float64())])
    n = len(candidates)
    return pa.table([[dataset] * n, [heuristic] * n, [*map(float, candidates)]], schema=schema)


def drawn(questions: pa.Table, candidates: pa.Table, model: str = "bert", **how: Any) -> pa.Table:
    settings = {"seed": 42, "trials": 100, "sample": 50, "replacement": False} | how
    return segment_draws(model, questions, candidates, **settings)


def segment(draws: pa.Table, name: str, metric: str = "exact_match") -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([row[metric] for row in draws.to_pylist() if row["segment"] == name])


# The thresholds


def test_reference_grids_equal_the_published_codes(shared: Path) -> None:
    cases = json.loads((shared / "golden/qa/significance_cases.json").read_text())["candidate_grid"]
    assert len(cases) == 11
    for case in cases:
        values = case["values"]
        assert threshold_grid("ans_len", min(values), max(values), variant="reference") == case["grid"]


@pytest.mark.parametrize(
    ("heuristic", "lowest", "highest", "paper", "reference"),
    [
        ("word_dist", 0, 3, [0, 1, 2], [0, 1, 2]),
        # The code never tries the smallest value, and takes tenths where a count is at most 1.
        ("sim_word", 1, 3, [1, 2], [2]),
        ("ans_pos", 0, 1, [0], [0.0, 0.1, 0.2, 0.30000000000000004, 0.4, 0.5, 0.6, 0.7]),
        ("ans_len", 1.5, 3.4, [2, 3], [2, 3]),
        # The code has no threshold for similarities all above 0, and whole ones where a rounded one is above 1.
        ("cos_sim", 0.07, 0.35, [0.1, 0.2, 0.3], []),
        ("cos_sim", 0, 0.35, [0.0, 0.1, 0.2, 0.3], [0.0, 0.1, 0.2, 0.30000000000000004]),
        ("cos_sim", 0, 1 + 2e-16, [number / 10 for number in range(11)], [0, 1]),
        ("my:own", 0.25, 0.5, [0.3, 0.4], []),
        ("my:own", -2, 1.5, [-2, -1, 0, 1], [0, 1]),
        ("my:own", 3, 3, [], []),
    ],
)
def test_the_heuristic_decides_the_step_unless_the_code_is_asked_for(
    heuristic: str, lowest: float, highest: float, paper: list[float], reference: list[float]
) -> None:
    assert threshold_grid(heuristic, lowest, highest, variant="paper") == paper
    assert threshold_grid(heuristic, lowest, highest, variant="reference")[: max(8, len(paper))] == reference


@pytest.mark.parametrize("variant", ["paper", "reference"])
def test_too_many_thresholds_are_refused(variant: Literal["paper", "reference"]) -> None:
    with pytest.raises(InputError, match=r"my:own: values from 0 to 1e\+09 .* name its threshold under thresholds"):
        threshold_grid("my:own", 0, 1e9, variant=variant)
    with pytest.raises(InputError, match="my:own"):
        threshold_grid("my:own", 0, math.inf, variant=variant)
    assert len(threshold_grid("my:own", 0, MAX_THRESHOLDS, variant=variant)) == MAX_THRESHOLDS


def test_given_thresholds_are_the_published_ones_or_those_of_the_spec() -> None:
    assert given_thresholds("search") == {}
    assert given_thresholds({"ans_len": 2.5}) == {"ans_len": 2.5}
    assert given_thresholds("mikula2024") is PUBLISHED_THRESHOLDS
    assert set(PUBLISHED_THRESHOLDS) == set(HEURISTICS)


# The split


def test_splits_equal_the_published_codes(shared: Path) -> None:
    cases = json.loads((shared / "golden/qa/significance_cases.json").read_text())["biased_split"]
    assert len(cases) == 16
    for case in cases:
        values = np.array(case["values"], dtype=float)
        segment = biased_segment(case["lower_q975"], case["higher_q975"])
        found = biased_questions(values, values >= 0, case["threshold"], segment, variant="reference")
        assert np.flatnonzero(found).tolist() == case["biased_ids"]
        assert np.flatnonzero(~found).tolist() == case["non_biased_ids"]


def test_questions_without_a_value_are_not_biased_unless_the_code_is_asked_for() -> None:
    values, is_measured = np.array([-1.0, 0, 1, 2]), np.array([False, True, True, True])
    for bounds, variant, expected in (
        ((80, 70), "paper", [False, True, True, False]),
        ((80, 70), "reference", [True, True, True, False]),
        ((70, 80), "paper", [False, False, False, True]),
        ((70, 80), "reference", [False, False, False, True]),
    ):
        assert biased_questions(values, is_measured, 1, biased_segment(*bounds), variant=variant).tolist() == expected


# The draws


def test_a_segment_of_just_the_sample_has_its_mean_in_every_trial_and_the_threshold_is_in_the_lower_one() -> None:
    questions = measured([0.1] * 50 + [0.2] * 50, [1] * 40 + [0] * 10 + [1] * 25 + [0] * 25)
    draws = drawn(questions, thresholds(0.1))
    assert draws.schema.equals(QA_DRAWS.schema)
    assert draws["trial"].to_pylist() == [*range(100)] * 2
    assert draws["segment"].to_pylist() == ["lower"] * 100 + ["higher"] * 100
    assert set(segment(draws, "lower")) == {0.8}
    assert set(segment(draws, "higher")) == {0.5}
    assert set(segment(draws, "lower", "f1")) == {0.4}


def test_thresholds_with_a_segment_below_the_sample_have_no_draws() -> None:
    questions = measured([1] * 49 + [2] * 100 + [3] * 50, [1] * 199)
    draws = drawn(questions, thresholds(0, 1, 2, 3))
    assert set(draws["threshold"].to_pylist()) == {2}
    assert drawn(questions, thresholds()).equals(QA_DRAWS.empty())


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("n_rows", [60, 400])
def test_the_spread_of_trials_is_that_of_sampling_theory(replacement: bool, n_rows: int) -> None:
    """P3 samples without replacement: the standard error has the finite population's factor, protocol section 4."""
    rng = np.random.default_rng(0)
    exact_match = rng.random(n_rows) < 0.7
    questions = measured([1] * n_rows + [2] * n_rows, [*exact_match, *exact_match])
    draws = drawn(questions, thresholds(1), trials=2000, replacement=replacement)
    expected = exact_match.std() / math.sqrt(50)
    if not replacement:
        expected *= math.sqrt((n_rows - 50) / (n_rows - 1))
    for name in ("lower", "higher"):
        assert segment(draws, name).std() == pytest.approx(expected, rel=0.07)
        assert segment(draws, name).mean() == pytest.approx(exact_match.mean(), abs=5 * expected / math.sqrt(2000))
    correlation = np.corrcoef(segment(draws, "lower"), segment(draws, "higher"))[0, 1]
    assert abs(correlation) < 0.1  # each segment has a generator of its own


def test_models_are_compared_on_the_same_questions() -> None:
    """Where one model is right the other is wrong: on the same sample, the shares sum to 1."""
    rng = np.random.default_rng(1)
    values, exact_match = rng.integers(1, 4, size=400), rng.integers(0, 2, size=400)
    first = drawn(measured(values, exact_match), thresholds(1, 2))
    second = drawn(measured(values, 1 - exact_match), thresholds(1, 2), model="roberta")
    assert len(first) == 400
    sums = first["exact_match"].to_numpy() + second["exact_match"].to_numpy()
    assert sums == pytest.approx(1, abs=1e-12)
    assert set(second["model"].to_pylist()) == {"roberta"}


def test_a_segments_draws_depend_on_nothing_else_of_the_run() -> None:
    rng = np.random.default_rng(2)
    own = measured(rng.integers(1, 4, size=400), rng.integers(0, 2, size=400))
    places: list[dict[str, Any]] = [{"heuristic": "ans_pos"}, {"dataset": "natural"}]
    others = [measured(own["value"], own["exact_match"], **place) for place in places]
    alone, elsewhere = drawn(own, thresholds(2)), [thresholds(2, **place) for place in places]
    everything = drawn(pa.concat_tables([*others, own]), pa.concat_tables([*elsewhere, thresholds(1), thresholds(2)]))
    groups = [everything.slice(start, 200) for start in range(0, 800, 200)]
    assert groups[-1].equals(alone)
    assert len({tuple(group["exact_match"].to_pylist()) for group in groups}) == 4
    assert not drawn(own, thresholds(2), seed=43).equals(alone)


def test_drawing_in_blocks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    questions = measured(rng.integers(1, 3, size=400), rng.random(400))
    whole = drawn(questions, thresholds(1))
    for n_drawn in (1, 350):
        monkeypatch.setattr(significance, "_N_DRAWN", n_drawn)
        assert drawn(questions, thresholds(1)).equals(whole)
