"""What QA prediction bias may be said to show: nulls, intervals and comparisons against data whose truth is known."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from scipy import stats  # type: ignore[import-untyped]

from biaseval.analysis import query
from biaseval.analysis.relations import connect, create, relations
from biaseval.analysis.sign_flips import sign_flips
from biaseval.qa_bias.bias_draws import bias_draws
from biaseval.qa_bias.changes import change_draws
from biaseval.qa_bias.search_null import (
    Variant,
    _of_paper,
    _of_reference,
    closed_form,
    enough_permutations,
    search_nulls,
)
from biaseval.qa_bias.significance import segment_draws
from biaseval.tables import tables_of
from tests.measuring import measure
from tests.qa_bias.test_changes import answers as paired_answers
from tests.qaplans import QaPlan, Rows, _ask, _paper_rule, _reference_rule, rows

Floats = npt.NDArray[np.float64]


# The null of the search


def measured(values: Any, exact_match: Any, article: Any, model: str = "bert", heuristic: str = "ans_len") -> pa.Table:
    n_rows = len(values)
    names = {"model": model, "dataset": "squad", "heuristic": heuristic}
    columns = {"value": np.asarray(values, float), "exact_match": np.asarray(exact_match, float), "article": article}
    texts = {name: pa.array([text] * n_rows, pa.string()) for name, text in names.items()}
    return pa.table({**texts, "question": np.arange(n_rows), **columns})


def thresholds(candidates: Sequence[float], heuristic: str = "ans_len") -> pa.Table:
    names = ["squad"] * len(candidates), [heuristic] * len(candidates)
    return pa.table([*map(pa.array, names), pa.array(candidates, pa.float64())], ["dataset", "heuristic", "threshold"])


def searches(threshold: float | None = None, heuristic: str = "ans_len", **searched_on: str | None) -> pa.Table:
    """Return at which threshold models are measured, and on which of them it was searched."""
    schema = pa.schema([(name, pa.string()) for name in ("model", "dataset", "heuristic", "searched_on")])
    place = {"dataset": "squad", "heuristic": heuristic}
    models = [{"model": model, "searched_on": source, **place} for model, source in searched_on.items()]
    found = pa.Table.from_pylist(models, schema)
    return found.append_column("threshold", pa.array([threshold] * len(models), pa.float64()))


def searched(
    values: Any, exact_match: Any, article: Any, candidates: Sequence[float], **how: Any
) -> npt.NDArray[np.float64]:
    """Return what the search finds, observed and in each permutation."""
    return nulls(measured(values, exact_match, article), candidates, searches(bert="bert"), **how).get(
        "bert", np.empty(0)
    )


def nulls(answers: pa.Table, candidates: Sequence[float], asked: pa.Table, **how: Any) -> dict[str, Floats]:
    """Return what is found in each model, observed and in each permutation."""
    given: dict[str, Any] = {
        "seed": 42,
        "sample": 100,
        "replacement": False,
        "variant": "paper",
        "permutations": 199,
    } | how
    found = search_nulls(answers, thresholds(candidates), asked, **given)
    models = dict.fromkeys(found["model"].to_pylist())
    own = {model: found.filter(pc.field("model") == model) for model in models}
    assert all(rows["draw"].to_pylist() == list(range(1 + given["permutations"])) for rows in own.values())
    return {model: rows["significance"].to_numpy() for model, rows in own.items()}


def p_value(found: Floats) -> float:
    return float(np.mean(found >= found[0] - 1e-9))


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


def alike(
    rng: np.random.Generator, n_rows: int, correlation: float, effect: float = 0.0, n_values: int = 12
) -> tuple[Floats, Floats, Floats]:
    """Return values, and answers of two models to the same questions, by luck of which a share is the same.

    Only the first model has a bias, where there is any.
    """
    values = rng.integers(0, n_values, size=n_rows).astype(float)
    luck = rng.random((2, n_rows))
    luck[1] = np.where(rng.random(n_rows) < correlation, luck[0], luck[1])
    return values, (luck[0] < 0.6 + effect * (values <= 4)).astype(float), (luck[1] < 0.6).astype(float)


def test_models_without_bias_have_none_at_a_threshold_that_another_models_luck_chose() -> None:
    """Right by the same luck: what suits one suits the other, more often than at a threshold that was given."""
    rng = np.random.default_rng(31)
    candidates = [float(one) for one in range(50)]
    article = np.arange(300) // 10
    joint, as_given = [], []
    for number in range(600):
        values, first, second = alike(rng, 300, 0.9, n_values=50)
        both = pa.concat_tables([measured(values, first, article, "a"), measured(values, second, article, "b")])
        # As runs do it: the threshold is that of the first model's answers, if they choose any.
        distances = {
            one: float(closed_form(first[lower].mean(), lower.sum(), first[~lower].mean(), (~lower).sum(), 100, False))
            for one, lower in ((one, values <= one) for one in candidates)
            if 100 <= lower.sum() <= 200
        }
        best = max(distances, key=distances.__getitem__)
        is_found = distances[best] > 0
        asked = searches(best, a="a", b="a") if is_found else searches(a="a", b="b")
        joint.append(p_value(nulls(both, candidates, asked, seed=number)["b"]))
        given = [best] if is_found else candidates
        as_given.append(p_value(searched(values, second, article, given, seed=number)))
    # Monte Carlo error 0.009.
    assert 0.02 <= np.mean(np.array(joint) <= 0.05) <= 0.07
    assert np.mean(np.array(as_given) <= 0.05) > 0.09


def test_the_null_at_another_models_threshold_is_that_of_every_order_of_the_questions() -> None:
    """Seven questions of one article in all 5,040 orders, each with a search by loops."""
    values = np.array([0.0, 0, 1, 1, 2, 2, 3])
    first, second = np.array([1.0, 1, 1, 0, 0, 1, 0]), np.array([1.0, 1, 0, 1, 0, 0, 0])
    candidates = [0.0, 1.0, 2.0]

    def distances(answers: Floats) -> dict[float, float]:
        found = {}
        for one in candidates:
            lower, higher = answers[values <= one], answers[values > one]
            if min(len(lower), len(higher)) >= 2:
                found[one] = float(
                    closed_form(lower.mean(), len(lower), higher.mean(), len(higher), 2, False)  # type: ignore[arg-type]
                )
        return found

    every = []
    for order in itertools.permutations(range(7)):
        own, theirs = distances(second[list(order)]), distances(first[list(order)])
        source = theirs if max(theirs.values()) > 0 else own
        every.append(own[max(source, key=lambda one: (round(source[one], 9), -one))])
    article = np.zeros(7, dtype=int)
    both = pa.concat_tables([measured(values, first, article, "a"), measured(values, second, article, "b")])
    found = nulls(both, candidates, searches(1.0, a="a", b="a"), sample=2, permutations=20_000)["b"]
    assert found[0] == pytest.approx(distances(second)[1.0])
    shares = {round(one, 6): every.count(one) / len(every) for one in set(every)}
    assert len(shares) > 3
    for one, share in shares.items():
        drawn = np.mean(np.abs(found[1:] - one) < 1e-5)
        assert drawn == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / 20_000) + 1e-12)


def test_a_model_without_bias_has_none_where_anothers_bias_chose_the_threshold() -> None:
    rng = np.random.default_rng(33)
    ps = []
    for number in range(300):
        values, first, second = alike(rng, 400, 0.5, effect=0.3)
        article = np.arange(400) // 10
        both = pa.concat_tables([measured(values, first, article, "a"), measured(values, second, article, "b")])
        found = nulls(both, [float(one) for one in range(12)], searches(4.0, a="a", b="a"), sample=50, seed=number)
        ps.append([p_value(found["a"]), p_value(found["b"])])
    of_first, of_second = np.mean(np.array(ps) <= 0.05, axis=0)
    assert of_first > 0.95
    assert of_second <= 0.08


def test_questions_that_a_model_lacks_stay_lacking() -> None:
    """Half of the articles, and a third of the questions of the others: segments keep their sizes."""
    rng = np.random.default_rng(34)
    values, first, second = alike(rng, 600, 0.8)
    article = np.arange(600) // 20
    has_answer = (article % 2 == 0) & (np.arange(600) % 3 > 0)
    of_second = measured(values, second, article, "b").filter(pa.array(has_answer))
    both = pa.concat_tables([measured(values, first, article, "a"), of_second])
    size = int((has_answer & (values <= 5)).sum())
    n_least = min(size, int(has_answer.sum()) - size)
    measurable = nulls(both, [5.0], searches(5.0, a="a", b="a"), sample=n_least)
    assert measurable.keys() == {"a", "b"}
    assert nulls(both, [5.0], searches(5.0, a="a", b="a"), sample=n_least + 1).keys() == {"a"}
    # With a sample that is a whole segment, that segment has no error: its mean alone decides.
    assert len(set(measurable["b"].round(9).tolist())) > 5


def test_segments_smaller_than_the_sample_have_no_null() -> None:
    assert len(searched([1.0] * 150 + [2.0] * 99, [1.0] * 249, np.arange(249), [1.0])) == 0
    assert len(searched([], [], np.array([], dtype=int), [1.0])) == 0
    assert searched([1.0] * 100 + [2.0] * 100, [1.0] * 200, np.zeros(200, int), [1.0]).tolist() == [0.0] * 200


# In SQL


@contextmanager
def opened(plan: QaPlan, names: Sequence[str], fixed: dict[str, float], n_units: int = 64) -> Iterator[Any]:
    """Yield a connection with relations over the rows of a plan, whose thresholds are fixed."""
    bootstrap = plan.spec["bootstrap"]
    datasets = list(dict.fromkeys(row["dataset"] for row in plan.examples))
    models = [model["name"] for model in plan.spec["models"]]
    given: dict[str, Rows] = {
        "qa_examples": plan.examples,
        "qa_attributes": plan.attributes,
        "qa_predictions": plan.predictions,
        "qa_settings": [{"seed": 1, "variant": "paper", "heuristics": plan.spec["heuristics"], **bootstrap}],
        "qa_models": [
            {"number": number, "model": model, "on_missing": "drop", "is_trained": False, "is_people": False}
            for number, model in enumerate(models)
        ],
        "qa_thresholds": [
            {"dataset": dataset, "heuristic": heuristic, "threshold": threshold, "is_fixed": True}
            for dataset in datasets
            for heuristic, threshold in fixed.items()
        ],
    }
    tables = tables_of("qa_bias")
    with closing(connect([])) as connection:
        for name, table in tables.items():
            if name not in ("qa_draws", "sign_flips"):
                connection.from_arrow(table.rows(given.get(name, []))).create(name)
        connection.from_arrow(sign_flips(n_units, 1)).create("sign_flips")
        made = relations("intermediate", "marts", tables=tables)
        first = ["qa_articles", "qa_measured", "qa_model_pairs", "qa_model_pair_answers"]
        for relation in made:
            if relation.name in first:
                create("table", relation.name, relation.sql, connection)
        draws = [
            segment_draws(
                model,
                connection.sql(f"from qa_measured where model = '{model}' order by dataset, row").to_arrow_table(),
                tables["qa_thresholds"].rows(given["qa_thresholds"]),
                seed=1,
                **bootstrap,
            )
            for model in models
        ]
        connection.from_arrow(pa.concat_tables(draws)).create("qa_draws")
        for relation in made:
            if relation.name in names:
                create("table", relation.name, relation.sql, connection)
        yield connection


def read(connection: duckdb.DuckDBPyConnection, sql: str) -> Rows:
    found: Rows = connection.sql(sql).to_arrow_table().to_pylist()
    return found


TITLES = [*"AAABBBCCCDDDEEFFGG", "H", "I"]


def small_plan(models: Sequence[str] = ("bert",), **spec: Any) -> QaPlan:
    """Return a plan of twenty questions about nine articles; the first ten have short answers."""
    plan = QaPlan(models, thresholds={"ans_len": 1.0}, bootstrap={"trials": 20, "sample": 8}, **spec)
    rng = np.random.default_rng(7)
    values = rng.permutation([1.0] * 10 + [3.0] * 10).tolist()
    plan.questions({"ans_len": values})
    for example, title in zip(plan.examples, TITLES, strict=True):
        example["title"] = title
    for number, model in enumerate(models):
        exact = (rng.random(20) < 0.5 + 0.3 * (np.array(values) == 1) * (number == 0)).astype(float)
        plan.answers(exact.tolist(), np.maximum(exact, rng.random(20)).tolist(), model=model)
    return plan


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


def test_the_interval_of_a_difference_is_clustered_by_article(tmp_path: Path) -> None:
    plan = small_plan()
    run = plan.write(tmp_path)
    measure(run)
    [row] = rows(run, "from qa_bias_by_heuristic")
    is_lower = np.array([one["value"] for one in plan.attributes]) <= 1
    for metric, suffix in (("exact_match", ""), ("f1", "_f1")):
        values = np.array([one[metric] for one in plan.predictions])
        difference, half_width = clustered(values, is_lower, np.array(TITLES))
        assert row[f"difference{suffix}"] == pytest.approx(difference)
        assert row[f"difference_low{suffix}"] == pytest.approx(difference - half_width, rel=1e-5)
        assert row[f"difference_high{suffix}"] == pytest.approx(difference + half_width, rel=1e-5)
    assert row["n_articles"] == 9


def test_intervals_of_a_data_set_are_clustered_by_article(tmp_path: Path) -> None:
    plan = small_plan()
    run = plan.write(tmp_path)
    measure(run)
    [row] = rows(run, "from qa_by_dataset")
    titles = np.array(TITLES)
    quantile = stats.t.ppf(0.975, 8)

    def error(values: Floats) -> float:
        sums = [(values[titles == title] - values.mean()).sum() for title in dict.fromkeys(TITLES)]
        return float(np.sqrt(9 / 8 * np.sum(np.square(sums))) / 20)

    f1 = np.array([one["f1"] for one in plan.predictions])
    assert row["f1_low"] == pytest.approx(f1.mean() - quantile * error(f1), rel=1e-5)
    assert row["f1_high"] == pytest.approx(min(1, f1.mean() + quantile * error(f1)), rel=1e-5)
    exact = np.array([one["exact_match"] for one in plan.predictions])
    share = exact.mean()
    # As many independent questions as have this error, and an interval as much wider as Student's.
    n_rows = min(20, share * (1 - share) / error(exact) ** 2 * (1.959963984540054 / quantile) ** 2)
    low, high = _ask("wilson_interval(?, ?)", share, n_rows)
    assert n_rows < 20
    assert row["exact_match_low"] == pytest.approx(low, rel=1e-5)
    assert row["exact_match_high"] == pytest.approx(high, rel=1e-5)
    assert (row["exact_match_error"], row["f1_error"]) == pytest.approx((error(exact), error(f1)))


def test_wilsons_interval_of_dependent_questions() -> None:
    plain = _ask("wilson_interval(0.5, 40)")
    assert _ask("wilson_interval_clustered(0.5, 0.2, 40, 40)") == plain
    independent = np.sqrt(0.25 / 40)
    assert _ask("wilson_interval_clustered(0.5, ?, 40, 20)", independent / 9) == plain  # never narrower
    wider = _ask("wilson_interval_clustered(0.5, ?, 40, 20)", 2 * independent)
    n_rows = 10 * (1.959963984540054 / stats.t.ppf(0.975, 19)) ** 2
    assert wider == pytest.approx(_ask("wilson_interval(0.5, ?)", n_rows), abs=1e-5)
    # All right: as if an article were one question.
    n_rows = 20 * (1.959963984540054 / stats.t.ppf(0.975, 19)) ** 2
    assert _ask("wilson_interval_clustered(1, 0, 40, 20)") == pytest.approx(
        _ask("wilson_interval(1, ?)", n_rows), abs=1e-5
    )
    assert _ask("wilson_interval_clustered(0.5, null, 40, 1)") is None


@pytest.mark.parametrize("n_articles", [12, 40])
def test_intervals_cover_the_truth_where_articles_differ(n_articles: int) -> None:
    """300 models with articles of their own difficulty: their mean, and no difference between the groups."""
    rng = np.random.default_rng(n_articles)
    n_rows, models = 400, [f"m{number}" for number in range(300)]
    article = rng.integers(n_articles, size=n_rows)
    plan = QaPlan(models, bootstrap={"trials": 2, "sample": 20})
    shift = rng.normal(size=n_articles)[article]
    plan.questions({"ans_len": (shift + rng.normal(size=n_rows) > 0.5).astype(float).tolist()})
    for example, own in zip(plan.examples, article, strict=True):
        example["title"] = f"title {own}"
    for model in models:
        share = np.clip(0.5 + 0.2 * rng.normal(size=n_articles), 0, 1)[article]
        plan.answers((rng.random(n_rows) < share).astype(float).tolist(), model=model)
    needed = ("qa_bias_candidates", "qa_bias_by_heuristic", "qa_by_dataset")
    with opened(plan, needed, {"ans_len": 0.0}) as connection:
        differences = read(
            connection, "select difference_low as low, difference_high as high from qa_bias_by_heuristic"
        )
        means = read(connection, "select exact_match_low as low, exact_match_high as high from qa_by_dataset")
        f1 = read(connection, "select f1_low as low, f1_high as high from qa_by_dataset")
    # Monte Carlo error 0.0126.
    for found, truth in ((differences, 0), (means, 0.5), (f1, 0.5)):
        assert len(found) == 300
        assert 0.915 <= np.mean([row["low"] <= truth <= row["high"] for row in found]) <= 0.985


def test_a_bias_is_supported_by_its_p_and_its_interval(tmp_path: Path) -> None:
    """Holm's adjustment and the verdict, redone from the stored draws."""
    rng = np.random.default_rng(8)
    heuristics = ["ans_len", "ans_pos", "sim_word"]
    bootstrap = {"trials": 100, "sample": 60}
    plan = QaPlan(["bert", "other"], heuristics=heuristics, bootstrap=bootstrap, variant="reference")
    values = {name: rng.integers(0, 6, size=400).astype(float).tolist() for name in heuristics}
    plan.questions(values)
    for number, example in enumerate(plan.examples):
        example["title"] = f"title {number % 25}"
    for model in ("bert", "other"):
        share = 0.5 + 0.3 * (np.array(values["ans_len"]) <= 2) * (model == "bert")
        plan.answers((rng.random(400) < share).astype(float).tolist(), model=model)
    run = plan.write(tmp_path)
    measure(run)
    tests = rows(run, "from qa_bias_tests")
    assert len(tests) == 6
    ps = {}
    for model in ("bert", "other"):
        for heuristic in heuristics:
            sql = f"from qa_search_nulls where model = '{model}' and heuristic = '{heuristic}' order by draw"
            draws = np.array([row["significance"] for row in rows(run, sql)])
            assert len(draws) == 1000
            ps[model, heuristic] = float(np.mean(draws >= draws[0] - 1e-9))
            [test] = [row for row in tests if (row["model"], row["heuristic"]) == (model, heuristic)]
            assert (test["p"], test["null_mean"]) == pytest.approx((ps[model, heuristic], draws[1:].mean()))
            assert test["null_high"] == pytest.approx(np.quantile(draws[1:], 0.95))
            assert (test["expected_significance"], test["n_permutations"]) == (pytest.approx(draws[0]), 999)
    largest = 0.0
    for place, (model, heuristic) in enumerate(sorted(ps, key=lambda names: (ps[names], names))):
        largest = max(largest, min(1.0, ps[model, heuristic] * (6 - place)))
        [test] = [row for row in tests if (row["model"], row["heuristic"]) == (model, heuristic)]
        assert test["p_adjusted"] == pytest.approx(largest)
        excludes = test["difference_low"] is not None and not test["difference_low"] <= 0 <= test["difference_high"]
        assert test["is_supported"] == (test["bias_significance"] > 0 and largest <= 0.05 and excludes)
    assert [(row["model"], row["heuristic"]) for row in tests if row["is_supported"]] == [("bert", "ans_len")]
    averages = rows(run, "select model, n_significant, bias_significance_null as noise from qa_by_model order by model")
    assert [row["n_significant"] for row in averages] == [1, 0]
    for row in averages:
        own = [test["null_mean"] for test in tests if test["model"] == row["model"]]
        assert row["noise"] == pytest.approx(np.mean(own))


def test_a_page_of_many_tests_has_permutations_enough_for_one_to_be_significant() -> None:
    assert [enough_permutations(n_tests) for n_tests in (7, 20, 21)] == [999, 999, 1049]
    for n_tests in (1, 14, 50, 51, 300):
        assert n_tests / (1 + enough_permutations(n_tests)) <= 0.02


def test_many_models_on_one_page_leave_a_strong_bias_supported(tmp_path: Path) -> None:
    """With 999 permutations, the smallest p of 54 tests would be 0.054."""
    rng = np.random.default_rng(21)
    models, heuristics = [f"m{number}" for number in range(18)], ["ans_len", "ans_pos", "sim_word"]
    plan = QaPlan(models, heuristics=heuristics, bootstrap={"trials": 20, "sample": 60})
    values = {name: rng.integers(0, 3, size=300).astype(float) for name in heuristics}
    plan.questions({name: own.tolist() for name, own in values.items()})
    for model in models:
        share = 0.4 + 0.5 * (values["ans_len"] <= 1) * (model == "m0")
        plan.answers((rng.random(300) < share).astype(float).tolist(), model=model)
    run = plan.write(tmp_path)
    measure(run)
    [test] = rows(run, "from qa_bias_tests where model = 'm0' and heuristic = 'ans_len'")
    assert (test["n_permutations"], test["is_supported"]) == (50 * 54 - 1, True)
    assert test["p_adjusted"] <= 0.05


def test_another_models_threshold_is_tested_at_that_threshold(tmp_path: Path) -> None:
    """In the paper's variant bert's threshold is kept for all."""
    rng = np.random.default_rng(9)
    plan = QaPlan(["bert", "other"], bootstrap={"trials": 100, "sample": 60})
    values = rng.integers(0, 6, size=400).astype(float)
    plan.questions({"ans_len": values.tolist()})
    for model in ("bert", "other"):
        plan.answers((rng.random(400) < 0.5 + 0.3 * (values <= 2)).astype(float).tolist(), model=model)
    run = plan.write(tmp_path)
    measure(run)
    [bert, other] = rows(run, "from qa_bias_tests order by model")
    assert (bert["threshold"], other["threshold"]) == (2, 2)
    assert (bert["is_searched"], other["is_searched"]) == (True, False)
    is_lower = values <= 2
    exact = np.array([row["exact_match"] for row in plan.predictions if row["model"] == "other"])
    # A search finds more in noise than one threshold that is given.
    assert other["null_mean"] > searched(values, exact, np.arange(400), [2.0], sample=60, permutations=999)[1:].mean()
    [expected] = closed_form(
        np.array([exact[is_lower].mean()]), np.array([is_lower.sum()]), np.array([exact[~is_lower].mean()]),
        np.array([(~is_lower).sum()]), 60, False,
    )  # fmt: skip
    assert other["expected_significance"] == pytest.approx(expected)


def test_draws_of_averages_hold_whole_articles_and_are_those_of_changes() -> None:
    rng = np.random.default_rng(10)
    given = paired_answers(rng.integers(9, size=200), rng.random(200), rng.random(200) < 0.6)
    changes = change_draws("bert", given, seed=3, draws=200)
    found = bias_draws("bert", given, seed=3, draws=200)
    assert found.num_rows == 200
    for name in ("lower", "higher"):
        assert found[name].to_numpy() == pytest.approx(changes[name].to_numpy())


def test_the_interval_of_an_average_is_of_its_draws(tmp_path: Path) -> None:
    plan = small_plan()
    run = plan.write(tmp_path)
    measure(run)
    [row] = rows(run, "from qa_by_model")
    draws = rows(run, "from qa_bias_draws")
    sizes = rows(run, "select n_lower, n_higher from qa_bias_by_heuristic")[0]
    whole = [one for one in draws if one["lower"] is not None and one["higher"] is not None]
    found = closed_form(
        np.array([one["lower"] for one in whole]), np.full(len(whole), sizes["n_lower"]),
        np.array([one["higher"] for one in whole]), np.full(len(whole), sizes["n_higher"]), 8, False,
    )  # fmt: skip
    bounds = np.quantile(found, [0.025, 0.975])
    assert [row["bias_significance_low"], row["bias_significance_high"]] == pytest.approx(bounds.tolist())
    assert row["n_draws"] == len(whole)


# Models against each other


def test_a_pair_of_models_by_hand(tmp_path: Path) -> None:
    plan = small_plan(["bert", "other"])
    plan.spec["models"][1] |= {"path": None, "predictions": {"squad": "p.json"}, "on_missing": "drop"}
    plan.predictions = [row for row in plan.predictions if (row["model"], row["example_id"]) != ("other", "q0")]
    run = plan.write(tmp_path)
    measure(run)
    found = {(row["model"], row["metric"], row["heuristic"]): row for row in rows(run, "from qa_model_comparisons")}
    assert len(found) == 2 * 4
    titles = np.array(TITLES)[1:]
    names = list(dict.fromkeys(titles))
    is_lower = np.array([one["value"] for one in plan.attributes])[1:] <= 1
    first, second = (
        {
            name: np.array([row[name] for row in plan.predictions if row["model"] == model])[-19:]
            for name in ("exact_match", "f1")
        }
        for model in ("bert", "other")
    )
    flipped = {}
    # All patterns of signs of nine articles.
    patterns = 1 - 2 * ((np.arange(512)[:, None] >> np.arange(9)) & 1)

    def statistics(parts: Floats) -> Floats:
        found: Floats = np.abs(patterns @ parts) / np.sqrt(np.sum(np.square(parts)))
        return found

    def jackknife(statistic: Callable[[npt.NDArray[np.bool_]], float]) -> float:
        left_out = np.array([statistic(titles != name) for name in names])
        whole = statistic(np.ones(19, dtype=bool))
        return float(np.sqrt(8 / 9 * np.sum(np.square(left_out - whole))))

    for metric in ("exact_match", "f1"):
        difference = second[metric] - first[metric]
        row = found["bert", metric, None]
        error = jackknife(lambda is_kept, difference=difference: float(difference[is_kept].mean()))  # type: ignore[misc]
        assert row["estimate"] == pytest.approx(difference.mean(), abs=1e-12)
        assert row["standard_error"] == pytest.approx(error)
        assert row["high"] == pytest.approx(difference.mean() + stats.t.ppf(0.975, 8) * error, rel=1e-5)
        assert row["smallest_detectable"] == pytest.approx(2.8 * error)
        assert (row["n_units"], row["n_articles"], row["n_rows"], row["n_lacking"]) == (9, 9, 19, 1)
        flipped[metric] = statistics(np.array([difference[titles == name].sum() for name in names]))
        assert row["p"] == pytest.approx(np.mean(flipped[metric] >= flipped[metric][0] - 1e-9))

    def gap(one: dict[str, Floats], is_kept: npt.NDArray[np.bool_]) -> float:
        exact = one["exact_match"]
        return float(exact[is_lower & is_kept].mean() - exact[~is_lower & is_kept].mean())

    everything = np.ones(19, dtype=bool)
    gaps = [gap(one, everything) for one in (first, second)]
    sides = np.sign(gaps)
    error = jackknife(lambda is_kept: float(sides[1] * gap(second, is_kept) - sides[0] * gap(first, is_kept)))
    # How much better a model is in both segments alike is no difference of gaps.
    moved = sides[1] * second["exact_match"] - sides[0] * first["exact_match"]
    moved = (moved - moved.mean()) * np.where(is_lower, 1 / is_lower.sum(), -1 / (~is_lower).sum())
    parts = np.array([moved[titles == name].sum() for name in names])
    row = found["bert", "gap", "ans_len"]
    assert (row["value"], row["other_value"]) == pytest.approx((abs(gaps[0]), abs(gaps[1])))
    assert row["estimate"] == pytest.approx(abs(gaps[1]) - abs(gaps[0]))
    assert row["standard_error"] == pytest.approx(error)
    assert found["bert", "gap", "mean"]["estimate"] == pytest.approx(row["estimate"])
    # One family: the largest statistic of both metrics, the gap and its mean, which is the same.
    flipped["gap"] = statistics(parts)
    assert row["p"] == pytest.approx(np.mean(flipped["gap"] >= flipped["gap"][0] - 1e-9))
    largest = np.max(list(flipped.values()), axis=0)
    for metric, heuristic in (("exact_match", None), ("f1", None), ("gap", "ans_len"), ("gap", "mean")):
        p_adjusted = np.mean(largest >= flipped[metric][0] - 1e-9)
        assert found["bert", metric, heuristic]["p_adjusted"] == pytest.approx(p_adjusted)
    mirrored = found["other", "gap", "ans_len"]
    assert [mirrored[name] for name in ("estimate", "low", "high", "value", "p")] == pytest.approx(
        [-row["estimate"], -row["high"], -row["low"], row["other_value"], row["p"]]
    )


def many_sets(n_sets: int, n_rows: int, gain: float, bias: float, seed: int) -> QaPlan:
    """Return a plan of two models that answer many sets of 16 articles; the second has more exact match, and a bias."""
    rng = np.random.default_rng(seed)
    datasets = {f"d{number:03}": "d.json" for number in range(n_sets)}
    plan = QaPlan(["first", "second"], datasets={"in_distribution": datasets}, bootstrap={"trials": 2, "sample": 20})
    for dataset in datasets:
        article, values = rng.integers(16, size=n_rows), rng.integers(2, size=n_rows).astype(float)
        base = 0.5 + 0.15 * rng.normal(size=16)[article] + 0.1 * (values == 0)
        plan.questions({"ans_len": values.tolist()}, dataset=dataset)
        for example, own in zip(plan.examples[-n_rows:], article, strict=True):
            example["title"] = f"title {own}"
        own = 0.1 * rng.normal(size=(2, 16))[:, article]
        for place, model in enumerate(("first", "second")):
            share = base + own[place] + place * (gain + bias * (values == 0))
            plan.answers((rng.random(n_rows) < share).astype(float).tolist(), model=model, dataset=dataset)
    return plan


COMPARED = ("qa_bias_candidates", "qa_bias_by_heuristic", "qa_bias_tests", "qa_by_dataset", "qa_model_comparisons")
TESTS = "select metric, heuristic, estimate, p, verdict, low, high from qa_model_comparisons where model = 'first'"


def test_models_that_are_alike_are_told_apart_in_five_percent_of_sets() -> None:
    with opened(many_sets(250, 200, 0, 0, 0), COMPARED, {"ans_len": 0.0}) as connection:
        found = read(connection, TESTS)
    for metric, heuristic in (("exact_match", None), ("f1", None), ("gap", "ans_len"), ("gap", "mean")):
        own = [row for row in found if (row["metric"], row["heuristic"]) == (metric, heuristic)]
        assert len(own) == 250
        assert np.mean([row["p"] <= 0.05 for row in own]) <= 0.09  # Monte Carlo error 0.014
        assert 0.9 <= np.mean([row["low"] <= 0 <= row["high"] for row in own]) <= 0.99
    # The sets are one family: by themselves, some fifty tests of the thousand would be significant.
    assert sum(row["verdict"] in ("higher", "lower") for row in found) <= 3


def test_models_that_differ_are_told_apart() -> None:
    with opened(many_sets(40, 400, 0.2, 0, 1), COMPARED, {"ans_len": 0.0}) as connection:
        better = read(connection, TESTS)
    with opened(many_sets(40, 400, 0, 0.3, 2), COMPARED, {"ans_len": 0.0}) as connection:
        biased = read(connection, TESTS)
    for found, metric in ((better, "exact_match"), (biased, "gap")):
        own = [row for row in found if row["metric"] == metric]
        assert sum(row["p"] <= 0.05 and row["estimate"] > 0 for row in own) > 0.8 * len(own)
        assert "higher" in [row["verdict"] for row in own]
        assert "lower" not in [row["verdict"] for row in own]


def unequal(rng: np.random.Generator, n_tests: int, n_articles: int, gap: float = 0.0) -> pa.Table:
    """Return the sums by article of pairs of models, whose articles are very unequal and differ by themselves."""
    sizes = np.sort(rng.lognormal(4, 1.5, size=(n_tests, n_articles)).round() + 4, axis=1)
    n_lower = rng.binomial(sizes.astype(int), 0.4)
    level, of_article = rng.normal(0.05, 0.1, size=(2, n_tests, n_articles))
    noise = rng.normal(size=(2, n_tests, n_articles))
    lower = n_lower * (level + of_article / 2 + gap) + 0.5 * np.sqrt(n_lower) * noise[0]
    higher = (sizes - n_lower) * (level - of_article / 2 + 0.05) + 0.5 * np.sqrt(sizes - n_lower) * noise[1]
    names = np.indices((n_tests, n_articles)).reshape(2, -1)
    return pa.table(
        [names[0], names[0], names[1], n_lower.ravel(), (sizes - n_lower).ravel(), lower.ravel(), higher.ravel()],
        ["family", "test", "unit", "n_lower", "n_higher", "lower", "higher"],
    )


@pytest.mark.parametrize("n_articles", [12, 30])
def test_gaps_that_are_alike_are_told_apart_in_five_percent_where_articles_are_very_unequal(n_articles: int) -> None:
    rng = np.random.default_rng(n_articles)
    sql = "with parts as (from two_model_parts('sums')) from two_model_tests('parts', 'sign_flips') order by family"
    with closing(connect([])) as connection:
        connection.from_arrow(sign_flips(64, 1)).create("sign_flips")
        connection.from_arrow(unequal(rng, 600, n_articles)).create("sums")
        found = connection.sql(sql).to_arrow_table()
    assert len(found) == 600
    # Monte Carlo error 0.009; by influences, in which large articles count less, 0.09 and more.
    assert np.mean(found["p"].to_numpy() <= 0.05) <= 0.075
    assert np.mean((found["low"].to_numpy() <= 0) & (found["high"].to_numpy() >= 0)) >= 0.92


def test_what_cannot_be_compared_says_why(tmp_path: Path) -> None:
    sql = "select heuristic, reason, heuristics from qa_model_comparisons where model = 'bert' and metric = 'gap'"
    rng = np.random.default_rng(12)

    def reasons(folder: str, plan: QaPlan) -> dict[str, str | None]:
        run = plan.write(tmp_path / folder)
        measure(run)
        return {row["heuristic"]: row["reason"] for row in query([run], sql).to_pylist()}

    def random(sample: int = 20, **spec: Any) -> QaPlan:
        plan = QaPlan(["bert", "other"], bootstrap={"trials": 20, "sample": sample}, **spec)
        plan.questions({"ans_len": [0.0] * 25 + [1.0] * 25 + [2.0] * 25})
        plan.answers([1] * 25 + [0] * 50, model="bert")
        plan.answers([1] * 50 + [0] * 25, model="other")
        return plan

    assert reasons("same", random()) == {"ans_len": None, "mean": None}
    assert reasons("own", random(10, variant="reference")) == dict.fromkeys(("ans_len", "mean"), "other thresholds")
    nothing = random()
    for row in nothing.predictions:
        row["exact_match"] = 1.0
    assert reasons("none", nothing) == dict.fromkeys(("ans_len", "mean"), "no threshold")
    few = random()
    few.spec["models"][1] |= {"path": None, "predictions": {"squad": "p.json"}, "on_missing": "drop"}
    few.predictions = [row for row in few.predictions if row["model"] == "bert" or int(row["example_id"][1:]) >= 20]
    assert reasons("few", few) == dict.fromkeys(("ans_len", "mean"), "not measured for both")
    one = random(thresholds={"ans_len": 0.0})
    for example in one.examples:
        example["title"] = "Rome"
    assert reasons("one", one) == dict.fromkeys(("ans_len", "mean"), "one article")
    luck = QaPlan(["bert", "other"], bootstrap={"trials": 20, "sample": 36})
    luck.questions({"ans_len": [0.0] * 40 + [1.0] * 40})
    luck.answers([1] * 24 + [0] * 16 + [1] * 20 + [0] * 20, model="bert")
    luck.answers(rng.integers(2, size=80).tolist(), model="other")
    assert reasons("luck", luck) == dict.fromkeys(("ans_len", "mean"), "threshold by chance")
