"""Models against each other: by hand, alike, different, and not to be compared."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from scipy import stats  # type: ignore[import-untyped]

from biaseval.analysis import query
from biaseval.analysis.sign_flips import sign_flips
from biaseval.analysis.sql_files import connect
from tests.measuring import measure
from tests.qa_statistics.nulls import Floats
from tests.qa_statistics.plans import TITLES, opened, read, small_plan
from tests.qaplans import QaPlan, rows
from tests.statistics_macros.patterns import step_down


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
    # One family: both metrics, the gap and its mean, which is the same.
    flipped["gap"] = statistics(parts)
    assert row["p"] == pytest.approx(np.mean(flipped["gap"] >= flipped["gap"][0] - 1e-9))
    matrix = np.column_stack(list(flipped.values()))
    adjusted = dict(zip(flipped, step_down(matrix, matrix[0]), strict=True))
    for metric, heuristic in (("exact_match", None), ("f1", None), ("gap", "ans_len"), ("gap", "mean")):
        assert found["bert", metric, heuristic]["p_adjusted"] == pytest.approx(adjusted[metric])
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
