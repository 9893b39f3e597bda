"""Intervals, and the null of the search for a threshold."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from scipy import stats  # type: ignore[import-untyped]

from biaseval.qa_bias.splits.search_null import Variant, _of_paper, _of_reference, closed_form, search_nulls
from tests.handmade import ask
from tests.qa_statistics.nulls import TITLES, Floats, measured, searched, searches, significance, small_plan, thresholds
from tests.qaplans import _paper_rule, _reference_rule
from tests.relation import Relations

CANDIDATES = [float(one) for one in range(13)]


def confounded(rng: np.random.Generator, n_rows: int, effect: float = 0.0) -> tuple[Floats, Floats, Any]:
    """Return values and answers that both depend on the article, and on each other by an effect alone."""
    article = rng.integers(10, size=n_rows)
    article[: n_rows // 5] = 10 + np.arange(n_rows // 5)  # alone in theirs
    shift = np.where(article < 10, article / 10, 0.5)
    values = np.clip(np.round(rng.normal(4 + 4 * shift, 3)), 0, 12)
    exact_match = rng.random(n_rows) < 0.25 + 0.5 * shift + effect * (values <= 6)
    return values, exact_match.astype(float), article


@pytest.mark.parametrize("replacement", [False, True])
def test_the_closed_form_is_that_of_sql(replacement: bool) -> None:
    rng = np.random.default_rng(0)
    shares, sizes = rng.random((2, 300)), rng.integers(100, 900, size=(2, 300))
    given = [column for pair in zip(shares, sizes, strict=True) for column in pair]
    ours = closed_form(*given, 100, replacement)
    call = "expected_significance($1[i], $2[i], $3[i], $4[i], 100, $5)"
    columns = [column.tolist() for column in given]
    theirs = ask(f"list_transform(generate_series(1, 300), lambda i: {call})", *columns, replacement)
    assert ours == pytest.approx(theirs, abs=1e-9)
    assert 50 < np.count_nonzero(ours) < 290


@pytest.mark.parametrize("variant", ["paper", "reference"])
def test_each_draw_chooses_as_sql_does(variant: Variant) -> None:
    rng = np.random.default_rng(1)
    n_thresholds, n_rows, sample = 8, 500, 100
    n_lower = np.sort(rng.integers(sample, n_rows - sample + 1, size=n_thresholds))
    distances = np.maximum(0, np.round(rng.normal(-1, 2, size=(400, n_thresholds)), 1))
    choose, rule = {"paper": (_of_paper, _paper_rule), "reference": (_of_reference, _reference_rule)}[variant]
    found = choose(distances, np.minimum(n_lower, n_rows - n_lower), sample)
    for own, row in zip(found, distances, strict=True):
        of_each = zip(row.tolist(), n_lower.tolist(), strict=True)
        chosen = rule([(place, one, n, n_rows - n) for place, (one, n) in enumerate(of_each)], sample)
        assert own == (-1 if chosen is None else int(chosen))
    assert 0.5 < np.mean(found >= 0) < 1


def test_the_null_is_that_of_permutations_done_one_by_one() -> None:
    """Answers shuffled within each article, and among those that are alone; every threshold measured by a loop."""
    rng = np.random.default_rng(2)
    values, exact_match, article = confounded(rng, 260)
    found = searched(values, exact_match, article, CANDIDATES, permutations=1500)

    def largest(answers: Floats) -> float:
        best = {True: 0.0, False: 0.0}
        for threshold in CANDIDATES:
            sides = (answers[values <= threshold], answers[values > threshold])
            n_least = min(map(len, sides))
            if n_least >= 100:
                found = significance(*sides, 100)
                best[n_least >= 200] = max(best[n_least >= 200], found)
        return best[True] or best[False]

    stratum = np.where(np.bincount(article)[article] == 1, -1, article)
    shuffled = []
    for _ in range(1500):
        answers = exact_match.copy()
        for own in np.unique(stratum):
            answers[stratum == own] = rng.permutation(answers[stratum == own])
        shuffled.append(largest(answers))
    assert found[0] == pytest.approx(largest(exact_match))
    assert np.mean(np.array(shuffled) > 0) > 0.2
    assert stats.ks_2samp(found[1:], shuffled).pvalue > 0.01


def test_permutations_depend_on_nothing_but_the_place() -> None:
    values, exact_match, article = confounded(np.random.default_rng(6), 400)
    table, other = (measured(values, exact_match, article, heuristic=name) for name in ("ans_len", "ans_pos"))
    tried, of_other = (thresholds([3.0, 5.0, 6.0], name) for name in ("ans_len", "ans_pos"))
    asked, more_asked = (searches(heuristic=name, bert="bert") for name in ("ans_len", "ans_pos"))
    given: dict[str, Any] = {"seed": 1, "sample": 100, "replacement": False, "variant": "paper"}
    alone = search_nulls(table, tried, asked, **given)
    pairs = ((other, table), (of_other, tried), (more_asked, asked))
    more = search_nulls(*(pa.concat_tables(pair) for pair in pairs), **given)
    assert len(more) == 2000
    assert more.slice(1000).equals(alone)
    assert more["significance"].slice(0, 1000).equals(alone["significance"])
    assert not alone.equals(search_nulls(table, tried, asked, **given | {"seed": 2}))


def test_segments_smaller_than_the_sample_have_no_null() -> None:
    assert len(searched([1.0] * 150 + [2.0] * 99, [1.0] * 249, np.arange(249), [1.0])) == 0
    assert len(searched([], [], np.array([], dtype=int), [1.0])) == 0
    assert searched([1.0] * 100 + [2.0] * 100, [1.0] * 200, np.zeros(200, int), [1.0]).tolist() == [0.0] * 200


def clustered(metric: Floats, is_lower: npt.NDArray[np.bool_], titles: Any) -> tuple[float, float]:
    """Return the difference of two means with its half width, by loops over articles."""
    difference, variance, n_with = 0.0, 0.0, []
    parts: dict[str, float] = dict.fromkeys(titles, 0.0)
    for sign, is_segment in ((1, is_lower), (-1, ~is_lower)):
        mean = metric[is_segment].mean()
        difference += sign * mean
        own = set(titles[is_segment])
        n_with.append(len(own))
        for title in own:
            residual = (metric[is_segment & (titles == title)] - mean).sum() / is_segment.sum()
            parts[title] += sign * residual * np.sqrt(len(own) / (len(own) - 1))
    variance = sum(part**2 for part in parts.values())
    return 100 * difference, 100 * float(stats.t.ppf(0.975, min(n_with) - 1) * np.sqrt(variance))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Relations:
    return small_plan().relations(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def metrics() -> dict[str, Floats]:
    return {name: np.array([row[name] for row in small_plan().predictions]) for name in ("exact_match", "f1")}


def test_intervals_of_a_data_set_are_clustered_by_article(small: Relations, metrics: dict[str, Floats]) -> None:
    [row] = small.rows("from qa_by_dataset")
    titles = np.array(TITLES)
    quantile = stats.t.ppf(0.975, 8)

    def error(values: Floats) -> float:
        sums = [(values[titles == title] - values.mean()).sum() for title in dict.fromkeys(TITLES)]
        return float(np.sqrt(9 / 8 * np.sum(np.square(sums))) / 20)

    exact, f1 = metrics["exact_match"], metrics["f1"]
    bounds = [f1.mean() - quantile * error(f1), min(1, f1.mean() + quantile * error(f1))]
    assert [row["f1_low"], row["f1_high"]] == pytest.approx(bounds, rel=1e-5)
    share = exact.mean()
    # As many independent questions as have this error, and an interval as much wider as Student's.
    n_rows = min(20, share * (1 - share) / error(exact) ** 2 * (1.959963984540054 / quantile) ** 2)
    assert n_rows < 20
    bounds = ask("wilson_interval(?, ?)", share, n_rows)
    assert [row["exact_match_low"], row["exact_match_high"]] == pytest.approx(bounds, rel=1e-5)
    assert (row["exact_match_error"], row["f1_error"]) == pytest.approx((error(exact), error(f1)))


def test_wilsons_interval_of_dependent_questions() -> None:
    plain = ask("wilson_interval(0.5, 40)")
    assert ask("wilson_interval_clustered(0.5, 0.2, 40, 40)") == plain
    independent = np.sqrt(0.25 / 40)
    assert ask("wilson_interval_clustered(0.5, ?, 40, 20)", independent / 9) == plain  # never narrower
    wider = ask("wilson_interval_clustered(0.5, ?, 40, 20)", 2 * independent)
    n_rows = 10 * (1.959963984540054 / stats.t.ppf(0.975, 19)) ** 2
    assert wider == pytest.approx(ask("wilson_interval(0.5, ?)", n_rows), abs=1e-5)
    # All right: as if an article were one question.
    n_rows = 20 * (1.959963984540054 / stats.t.ppf(0.975, 19)) ** 2
    assert ask("wilson_interval_clustered(1, 0, 40, 20)") == pytest.approx(
        ask("wilson_interval(1, ?)", n_rows), abs=1e-5
    )
    assert ask("wilson_interval_clustered(0.5, null, 40, 1)") is None
