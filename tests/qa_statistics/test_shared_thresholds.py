"""The null at a threshold that another model's search chose."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from biaseval.qa_bias.search_null import closed_form
from tests.measuring import measure
from tests.qa_statistics.nulls import Floats, measured, nulls, p_value, searched, searches
from tests.qaplans import QaPlan, rows


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
