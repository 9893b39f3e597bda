"""Bootstrap samples of whole articles: what they hold, against explicit loops and the theory of clustered errors."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from biaseval.qa_bias import changes
from biaseval.qa_bias.changes import change_draws
from biaseval.tables import QA_CHANGE_DRAWS

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
    table = change_draws("probe", pa.concat_tables(probes), **how)
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


def test_every_reader_and_heuristic_has_the_samples_of_the_data_set_and_the_seed() -> None:
    n_articles = 9
    weights = weights_of(n_articles, seed=42, draws=60)
    tables = {
        heuristic: random_answers(150, n_articles, seed, heuristic=heuristic)
        for seed, heuristic in enumerate(("ans_len", "cos_sim"))
    }
    for model, given in (("first", list(tables.values())), ("second", [tables["cos_sim"]])):
        found = change_draws(model, pa.concat_tables(given), seed=42, draws=60)
        assert set(found["model"].to_pylist()) == {model}
        for heuristic in set(found["heuristic"].to_pylist()):
            means = found.filter(pc.field("heuristic") == heuristic).select(MEANS).to_pylist()
            for ours, theirs in zip(means, by_loop(tables[heuristic], weights), strict=True):
                assert ours == pytest.approx(theirs, abs=1e-12)
    assert not np.array_equal(weights, weights_of(n_articles, seed=43, draws=60))
    assert not np.array_equal(weights, weights_of(n_articles, seed=42, draws=60, dataset="natural"))


def test_each_reader_is_split_at_its_own_threshold_and_an_empty_segment_is_null() -> None:
    """Only article 0 has values above 0.9, which is the standard reader's threshold."""
    weights = weights_of(5, seed=7, draws=200)
    table = answers(
        [0, 0, 1, 2, 3, 4, 4], [0.1, 0.95, 0.2, 0.7, 0.8, 0.3, 0.6], [1, 0, 0, 1, 1, 0, 1], [0, 1, 1, 1, 0, 1, 1],
        threshold=0.5, standard_threshold=0.9,
    )  # fmt: skip
    found = change_draws("reader", table, seed=7, draws=200).to_pylist()
    for ours, theirs in zip(found, by_loop(table, weights), strict=True):
        assert {name: ours[name] for name in MEANS} == pytest.approx(theirs, abs=1e-12)
    is_drawn = weights[:, 0] > 0
    assert [row["standard_higher"] for row in found] == [1 if one else None for one in is_drawn]
    assert 0 < np.count_nonzero(is_drawn) < 200


def test_rows_come_by_data_set_heuristic_and_draw_whatever_the_order_of_the_questions() -> None:
    tables = [
        random_answers(80, 6, 1, heuristic="cos_sim"),
        random_answers(80, 6, 2, heuristic="ans_len"),
        random_answers(80, 8, 3, dataset="natural"),
    ]
    questions = pa.concat_tables(tables)
    found = change_draws("reader", questions, seed=1, draws=20)
    assert found.schema == QA_CHANGE_DRAWS.schema
    places = [tuple(row.values())[:4] for row in found.to_pylist()]
    wanted = [("natural", "ans_len"), ("squad", "ans_len"), ("squad", "cos_sim")]
    assert places == [("reader", *place, draw) for place in wanted for draw in range(20)]
    order = np.random.default_rng(0).permutation(questions.num_rows)
    assert change_draws("reader", questions.take(order), seed=1, draws=20).equals(found)


def test_more_samples_begin_with_the_same_ones_and_are_not_drawn_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    questions = random_answers(300, 20, 1)
    few, many = (change_draws("reader", questions, seed=1, draws=draws) for draws in (20, 50))
    assert many.slice(0, 20).equals(few)
    assert len({tuple(row.values())[4:] for row in many.to_pylist()}) == 50
    monkeypatch.setattr(changes, "_N_DRAWN", 20 * 7)  # seven samples at a time, and one in the end
    assert change_draws("reader", questions, seed=1, draws=50).equals(many)


def test_the_spread_of_the_samples_is_the_clustered_error() -> None:
    """Of a segment's mean, (sum of w_g s_g) / (sum of w_g n_g): sqrt(sum of (s_g - n_g mean)^2) / n to first order."""
    table = random_answers(4000, 50, 5)
    found = change_draws("reader", table, seed=3, draws=4000)
    article, value, exact_match = (table[name].to_numpy() for name in ("article", "value", "exact_match"))
    for name, is_segment in (("lower", value <= 0.5), ("higher", value > 0.5)):
        mean = exact_match[is_segment].mean()
        influence = np.bincount(article, weights=is_segment * (exact_match - mean), minlength=50)
        error = np.sqrt(np.sum(influence**2)) / np.count_nonzero(is_segment)
        assert np.std(found[name].to_numpy()) == pytest.approx(error, rel=0.06)
        naive = exact_match[is_segment].std() / np.sqrt(np.count_nonzero(is_segment))
        assert error > 1.3 * naive  # articles differ, so whole ones vary more than questions would
        assert np.mean(found[name].to_numpy()) == pytest.approx(mean, abs=0.1 * error)


def test_nothing_to_compare_has_no_samples() -> None:
    found = change_draws("reader", random_answers(10, 3, 0).slice(0, 0), seed=0)
    assert found.num_rows == 0
    assert found.schema == QA_CHANGE_DRAWS.schema
