"""Bias significance: resampling, and the changes between readers."""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from biaseval.errors import InputError
from biaseval.qa_bias.splits.article_draws import article_draws
from biaseval.qa_bias.splits.resampling import resampled
from biaseval.qa_bias.splits.significance import biased_questions, segment_draws, threshold_grid
from biaseval.tables import QA_CHANGE_DRAWS, QA_DRAWS

VALUES = [1.0, 9.0, 2.0, None, 3.0, 8.0, 2.5, 2.75, None, 0.0]


def test_every_question_stands_there_once_and_the_smaller_segment_makes_up_for_the_rest() -> None:
    found = resampled(VALUES, 3.0, seed=5)
    assert found[:10].tolist() == list(range(10))
    assert len(found) == 14
    assert set(found[10:].tolist()) <= {1, 5}
    counts = Counter(found.tolist())
    assert sum(counts[row] for row in (0, 2, 4, 6, 7, 9)) == counts[1] + counts[5] == 6
    assert [counts[row] for row in (3, 8)] == [1, 1]


def test_the_seed_decides_what_is_drawn() -> None:
    values = [0.0] * 300 + [1.0] * 100
    one, same, other = (resampled(values, 0.5, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    # 200 draws of 100: with replacement some are drawn several times, and the larger segment never is.
    drawn = Counter(one[400:].tolist())
    assert min(drawn) >= 300
    assert max(drawn.values()) > 2


@pytest.mark.parametrize(("threshold", "side"), [(-1.0, "at or below -1"), (9.0, "above 9")])
def test_a_segment_without_questions_is_refused(threshold: float, side: str) -> None:
    with pytest.raises(InputError, match=f"resample: none of 10 training questions has a value {side}; choose another"):
        resampled(VALUES, threshold, seed=1)


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


@pytest.mark.parametrize(("heuristic", "lowest", "highest", "paper", "reference"), [
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
])  # fmt: skip
def test_the_heuristic_decides_the_step_unless_the_code_is_asked_for(
    heuristic: str, lowest: float, highest: float, paper: list[float], reference: list[float]
) -> None:
    assert threshold_grid(heuristic, lowest, highest, variant="paper") == paper
    assert threshold_grid(heuristic, lowest, highest, variant="reference")[: max(8, len(paper))] == reference


# The split


def test_splits_equal_the_published_codes(shared: Path) -> None:
    cases = json.loads((shared / "golden/qa/significance_cases.json").read_text())["biased_split"]
    assert len(cases) == 16
    for case in cases:
        values = np.array(case["values"], dtype=float)
        segment: Literal["lower", "higher"] = "lower" if case["lower_q975"] > case["higher_q975"] else "higher"
        found = biased_questions(values, values >= 0, case["threshold"], segment, variant="reference")
        assert np.flatnonzero(found).tolist() == case["biased_ids"]
        assert np.flatnonzero(~found).tolist() == case["non_biased_ids"]


def test_questions_without_a_value_are_not_biased_unless_the_code_is_asked_for() -> None:
    values, is_measured = np.array([-1.0, 0, 1, 2]), np.array([False, True, True, True])
    for segment, variant, expected in (
        ("lower", "paper", [False, True, True, False]), ("lower", "reference", [True, True, True, False]),
        ("higher", "paper", [False, False, False, True]), ("higher", "reference", [False, False, False, True]),
    ):  # fmt: skip
        assert biased_questions(values, is_measured, 1, segment, variant=variant).tolist() == expected


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


Floats = npt.NDArray[np.float64]
MEANS = ("lower", "higher", "standard_lower", "standard_higher")


def answers(
    article: Any, value: Any, right: Any, standard: Any = None, *, threshold: float = 0.5,
    standard_threshold: float | None = None, n_articles: int | None = None,
    heuristic: str = "ans_len", dataset: str = "squad",
) -> pa.Table:  # fmt: skip
    """Return the answers of two readers, which are the same where only one's are given."""
    article, right = np.asarray(article, dtype=np.int64), np.asarray(right, dtype=float)
    one = np.ones(len(article))
    columns = {
        "article": article, "value": np.asarray(value, dtype=float), "exact_match": right,
        "n_articles": np.full(len(article), article.max() + 1 if n_articles is None else n_articles),
        "threshold": threshold * one,
        "standard_threshold": (threshold if standard_threshold is None else standard_threshold) * one,
        "standard_exact_match": right if standard is None else np.asarray(standard, dtype=float),
    }  # fmt: skip
    names = {name: pa.repeat(own, len(article)) for name, own in (("dataset", dataset), ("heuristic", heuristic))}
    return pa.table(names | columns)


def weights_of(n_articles: int, **how: Any) -> Floats:
    """Return how often each sample holds each article, ``[draws, n_articles]``.

    Each article has one question, in the lower segment, and each heuristic one article whose question is answered: its
    share of exact matches is that article's share of the sample.
    """
    everything = np.arange(n_articles)
    dataset = how.pop("dataset", "squad")
    probes = [
        answers(everything, np.zeros(n_articles), everything == one, heuristic=f"h{one:04}", dataset=dataset)
        for one in range(n_articles)
    ]
    table = article_draws(QA_CHANGE_DRAWS, "probe", pa.concat_tables(probes), **how)
    return n_articles * table["lower"].to_numpy().reshape(n_articles, -1).T


def random_answers(n_rows: int, n_articles: int, seed: int, **place: Any) -> pa.Table:
    rng = np.random.default_rng(seed)
    article = rng.integers(n_articles, size=n_rows)
    skill = rng.normal(0.6, 0.15, size=n_articles)[article]
    columns = [rng.random(n_rows) < skill for _ in range(2)]
    return answers(article, rng.random(n_rows), *columns, n_articles=n_articles, **place)


def by_loop(table: pa.Table, weights: Floats) -> list[dict[str, float | None]]:
    """Return the means of each sample, question by question."""
    found = []
    rows = table.to_pylist()
    for sample in weights:
        right, asked = dict.fromkeys(MEANS, 0.0), dict.fromkeys(MEANS, 0.0)
        for row in rows:
            for reader in ("", "standard_"):
                segment = f"{reader}{'lower' if row['value'] <= row[f'{reader}threshold'] else 'higher'}"
                right[segment] += sample[row["article"]] * row[f"{reader}exact_match"]
                asked[segment] += sample[row["article"]]
        found.append({name: right[name] / asked[name] if asked[name] else None for name in MEANS})
    return found


def test_samples_have_as_many_articles_as_the_data_set_drawn_with_replacement() -> None:
    """Counts of a multinomial: n draws with a chance of 1 / n each."""
    n_articles, draws = 12, 4000
    weights = weights_of(n_articles, seed=42, draws=draws)
    assert weights == pytest.approx(np.round(weights), abs=1e-9)
    assert weights.sum(axis=1) == pytest.approx(np.full(draws, n_articles))
    assert weights.mean(axis=0) == pytest.approx(np.ones(n_articles), abs=5 * draws**-0.5)
    covariance = np.cov(weights.T)
    expected = np.where(np.eye(n_articles) > 0, 1 - 1 / n_articles, -1 / n_articles)
    assert covariance == pytest.approx(expected, abs=6 * 1.5 * draws**-0.5)


def test_each_reader_is_split_at_its_own_threshold_and_an_empty_segment_is_null() -> None:
    """Only article 0 has values above 0.9, which is the standard reader's threshold."""
    weights = weights_of(5, seed=7, draws=200)
    table = answers(
        [0, 0, 1, 2, 3, 4, 4], [0.1, 0.95, 0.2, 0.7, 0.8, 0.3, 0.6], [1, 0, 0, 1, 1, 0, 1], [0, 1, 1, 1, 0, 1, 1],
        threshold=0.5, standard_threshold=0.9,
    )  # fmt: skip
    found = article_draws(QA_CHANGE_DRAWS, "reader", table, seed=7, draws=200).to_pylist()
    for ours, theirs in zip(found, by_loop(table, weights), strict=True):
        assert {name: ours[name] for name in MEANS} == pytest.approx(theirs, abs=1e-12)
    is_drawn = weights[:, 0] > 0
    assert [row["standard_higher"] for row in found] == [1 if one else None for one in is_drawn]
    assert 0 < np.count_nonzero(is_drawn) < 200


def test_the_spread_of_the_samples_is_the_clustered_error() -> None:
    """Of a segment's mean, (sum of w_g s_g) / (sum of w_g n_g): sqrt(sum of (s_g - n_g mean)^2) / n to first order."""
    table = random_answers(4000, 50, 5)
    found = article_draws(QA_CHANGE_DRAWS, "reader", table, seed=3, draws=4000)
    article, value, exact_match = (table[name].to_numpy() for name in ("article", "value", "exact_match"))
    for name, is_segment in (("lower", value <= 0.5), ("higher", value > 0.5)):
        mean = exact_match[is_segment].mean()
        influence = np.bincount(article, weights=is_segment * (exact_match - mean), minlength=50)
        error = np.sqrt(np.sum(influence**2)) / np.count_nonzero(is_segment)
        assert np.std(found[name].to_numpy()) == pytest.approx(error, rel=0.06)
        naive = exact_match[is_segment].std() / np.sqrt(np.count_nonzero(is_segment))
        assert error > 1.3 * naive  # articles differ, so whole ones vary more than questions would
        assert np.mean(found[name].to_numpy()) == pytest.approx(mean, abs=0.1 * error)
