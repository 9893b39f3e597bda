"""The null of the search for a threshold, against permutations done one by one and against SQL."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats  # type: ignore[import-untyped]

from biaseval.qa_bias.search_null import Variant, _of_paper, _of_reference, closed_form, search_nulls
from tests.qa_statistics.nulls import Floats, measured, p_value, searched, searches, thresholds
from tests.qaplans import _ask, _paper_rule, _reference_rule


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
    ours = closed_form(shares[0], sizes[0], shares[1], sizes[1], 100, replacement)
    sql = (
        "list_transform(generate_series(1, 300), lambda i: expected_significance($1[i], $2[i], $3[i], $4[i], 100, $5))"
    )
    theirs = _ask(sql, shares[0].tolist(), sizes[0].tolist(), shares[1].tolist(), sizes[1].tolist(), replacement)
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
        sizes = [(int(lower), n_rows - int(lower)) for lower in n_lower]
        chosen = rule(
            [(place, float(one), *size) for place, (one, size) in enumerate(zip(row, sizes, strict=True))], sample
        )
        assert own == (-1 if chosen is None else int(chosen))
    assert 0.5 < np.mean(found >= 0) < 1


def test_the_null_is_that_of_permutations_done_one_by_one() -> None:
    """Answers shuffled within each article, and among those that are alone; every threshold measured by a loop."""
    rng = np.random.default_rng(2)
    values, exact_match, article = confounded(rng, 260)
    candidates = [float(one) for one in range(13)]
    found = searched(values, exact_match, article, candidates, permutations=1500)

    def largest(answers: Floats) -> float:
        best = {True: 0.0, False: 0.0}
        for threshold in candidates:
            lower, higher = answers[values <= threshold], answers[values > threshold]
            if min(len(lower), len(higher)) >= 100:
                [distance] = closed_form(
                    np.array([lower.mean()]), np.array([len(lower)]), np.array([higher.mean()]),
                    np.array([len(higher)]), 100, False,
                )  # fmt: skip
                is_large = min(len(lower), len(higher)) >= 200
                best[is_large] = max(best[is_large], float(distance))
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


@pytest.mark.parametrize("variant", ["paper", "reference"])
def test_where_there_is_no_bias_five_percent_of_searches_are_called_one(variant: Variant) -> None:
    """Values and answers both depend on the article: questions that are taken as independent would deceive."""
    rng = np.random.default_rng(3)
    ps, naive = [], []
    for number in range(400):
        values, exact_match, article = confounded(rng, 280)
        candidates = [float(one) for one in range(13)]
        ps.append(p_value(searched(values, exact_match, article, candidates, seed=number, variant=variant)))
        naive.append(
            p_value(searched(values, exact_match, np.zeros(280, int), candidates, seed=number, variant=variant))
        )
    assert 0.02 <= np.mean(np.array(ps) <= 0.05) <= 0.08  # Monte Carlo error 0.011
    assert np.mean(np.array(naive) <= 0.05) > 0.1


def test_a_null_of_one_threshold_does_not_do_for_a_search() -> None:
    rng = np.random.default_rng(4)
    of_search, of_one = [], []
    for number in range(400):
        values, exact_match = rng.integers(0, 12, size=300).astype(float), (rng.random(300) < 0.6).astype(float)
        candidates = [float(one) for one in range(12)]
        whole = searched(values, exact_match, np.arange(300), candidates, seed=number)
        of_search.append(p_value(whole))
        singles = {one: searched(values, exact_match, np.arange(300), [one], seed=number) for one in candidates}
        best = max((own for own in singles.values() if len(own)), key=lambda own: own[0])
        of_one.append(p_value(best))
    assert 0.02 <= np.mean(np.array(of_search) <= 0.05) <= 0.08
    assert np.mean(np.array(of_one) <= 0.05) > 0.08


def test_a_bias_that_was_put_in_is_found() -> None:
    rng = np.random.default_rng(5)
    found = [
        p_value(searched(*confounded(rng, 800, effect=-0.25), [float(one) for one in range(13)], seed=number))
        for number in range(50)
    ]
    assert np.mean(np.array(found) <= 0.05) > 0.9


def test_permutations_depend_on_nothing_but_the_place() -> None:
    values, exact_match, article = confounded(np.random.default_rng(6), 400)
    table, other = (measured(values, exact_match, article, heuristic=name) for name in ("ans_len", "ans_pos"))
    tried, of_other = (thresholds([3.0, 5.0, 6.0], name) for name in ("ans_len", "ans_pos"))
    asked, more_asked = (searches(heuristic=name, bert="bert") for name in ("ans_len", "ans_pos"))
    given: dict[str, Any] = {"seed": 1, "sample": 100, "replacement": False, "variant": "paper"}
    alone = search_nulls(table, tried, asked, **given)
    more = search_nulls(
        pa.concat_tables([other, table]),
        pa.concat_tables([of_other, tried]),
        pa.concat_tables([more_asked, asked]),
        **given,
    )
    assert len(more) == 2000
    assert more.slice(1000).equals(alone)
    assert more["significance"].slice(0, 1000).equals(alone["significance"])
    assert not alone.equals(search_nulls(table, tried, asked, **given | {"seed": 2}))


def test_segments_smaller_than_the_sample_have_no_null() -> None:
    assert len(searched([1.0] * 150 + [2.0] * 99, [1.0] * 249, np.arange(249), [1.0])) == 0
    assert len(searched([], [], np.array([], dtype=int), [1.0])) == 0
    assert searched([1.0] * 100 + [2.0] * 100, [1.0] * 200, np.zeros(200, int), [1.0]).tolist() == [0.0] * 200
