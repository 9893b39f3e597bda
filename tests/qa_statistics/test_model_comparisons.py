"""Models against each other: by hand, alike, different, and not to be compared."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from scipy import stats  # type: ignore[import-untyped]

from biaseval.analysis.sign_flips import sign_flips
from tests.handmade import found_by
from tests.qa_debiasing.study import Study
from tests.qa_statistics.nulls import TITLES, Floats, small_plan
from tests.qaplans import QaPlan, Rows
from tests.statistics_macros.patterns import step_down


def test_a_pair_of_models_by_hand(tmp_path: Path) -> None:
    plan = small_plan(["bert", "other"])
    plan.spec["models"][1] |= {"path": None, "predictions": {"squad": "p.json"}, "on_missing": "drop"}
    plan.predictions = [row for row in plan.predictions if (row["model"], row["example_id"]) != ("other", "q0")]
    rows = plan.relations(tmp_path).rows("from qa_model_comparisons")
    found = {(row["model"], row["metric"], row["heuristic"]): row for row in rows}
    assert len(found) == 2 * 4
    titles = np.array(TITLES)[1:]
    names = list(dict.fromkeys(titles))
    is_lower = np.array([one["value"] for one in plan.attributes])[1:] <= 1
    metrics = ("exact_match", "f1")
    answers = ([row for row in plan.predictions if row["model"] == model][-19:] for model in ("bert", "other"))
    first, second = ({name: np.array([row[name] for row in own]) for name in metrics} for own in answers)
    everything, flipped = np.ones(19, dtype=bool), {}
    # All patterns of signs of nine articles.
    patterns = 1 - 2 * ((np.arange(512)[:, None] >> np.arange(9)) & 1)

    def p_of(metric: str, moved: Floats) -> float:
        parts = np.array([moved[titles == name].sum() for name in names])
        own = flipped[metric] = np.abs(patterns @ parts) / np.sqrt(np.sum(np.square(parts)))
        return float(np.mean(own >= own[0] - 1e-9))

    def jackknife(statistic: Callable[[npt.NDArray[np.bool_]], float]) -> float:
        left_out = np.array([statistic(titles != name) for name in names])
        return float(np.sqrt(8 / 9 * np.sum(np.square(left_out - statistic(everything)))))

    for metric in metrics:
        difference = second[metric] - first[metric]
        row = found["bert", metric, None]
        error = jackknife(lambda is_kept, of=difference: float(of[is_kept].mean()))  # type: ignore[misc]
        high = difference.mean() + stats.t.ppf(0.975, 8) * error
        numbers = [row[name] for name in ("estimate", "standard_error", "high", "smallest_detectable", "p")]
        wanted = [difference.mean(), error, high, 2.8 * error, p_of(metric, difference)]
        assert numbers == pytest.approx(wanted, rel=1e-5, abs=1e-12)
        assert (row["n_units"], row["n_articles"], row["n_rows"], row["n_lacking"]) == (9, 9, 19, 1)

    def gap(one: dict[str, Floats], is_kept: npt.NDArray[np.bool_]) -> float:
        exact = one["exact_match"]
        return float(exact[is_lower & is_kept].mean() - exact[~is_lower & is_kept].mean())

    gaps = [gap(one, everything) for one in (first, second)]
    sides = np.sign(gaps)
    error = jackknife(lambda is_kept: float(sides[1] * gap(second, is_kept) - sides[0] * gap(first, is_kept)))
    # How much better a model is in both segments alike is no difference of gaps.
    moved = sides[1] * second["exact_match"] - sides[0] * first["exact_match"]
    moved = (moved - moved.mean()) * np.where(is_lower, 1 / is_lower.sum(), -1 / (~is_lower).sum())
    row, mirrored = found["bert", "gap", "ans_len"], found["other", "gap", "ans_len"]
    wanted = [abs(gaps[0]), abs(gaps[1]), abs(gaps[1]) - abs(gaps[0]), error, p_of("gap", moved)]
    numbers = [row[name] for name in ("value", "other_value", "estimate", "standard_error", "p")]
    assert numbers == pytest.approx(wanted)
    back = [mirrored[name] for name in ("estimate", "low", "high", "value", "p")]
    assert back == pytest.approx([-row["estimate"], -row["high"], -row["low"], row["other_value"], row["p"]])
    # One family: both metrics, the gap and its mean, which is the same.
    matrix = np.column_stack(list(flipped.values()))
    adjusted = dict(zip(flipped, step_down(matrix, matrix[0]), strict=True))
    for metric, heuristic in (("exact_match", None), ("f1", None), ("gap", "ans_len"), ("gap", "mean")):
        assert found["bert", metric, heuristic]["p_adjusted"] == pytest.approx(adjusted[metric])


def many_sets(n_sets: int, n_rows: int, gain: float, bias: float, seed: int) -> Rows:
    """Return the tests of two models that answer many sets of 16 articles; the second gains exact match, and a bias."""
    rng = np.random.default_rng(seed)
    datasets = {f"d{number:03}": "d.json" for number in range(n_sets)}
    how = {"datasets": {"in_distribution": datasets}, "bootstrap": {"trials": 2, "sample": 20}}
    study = Study({"ans_len": [0.0]}, models=("first", "second"), **how)
    for dataset in datasets:
        article, values = rng.integers(16, size=n_rows), rng.integers(2, size=n_rows).astype(float)
        base = 0.5 + 0.15 * rng.normal(size=16)[article] + 0.1 * (values == 0)
        study.questions({"ans_len": values.tolist()}, dataset=dataset)
        for example, own in zip(study.examples[-n_rows:], article, strict=True):
            example["title"] = f"title {own}"
        own = 0.1 * rng.normal(size=(2, 16))[:, article]
        for place, model in enumerate(("first", "second")):
            share = base + own[place] + place * (gain + bias * (values == 0))
            study.answers((rng.random(n_rows) < share).astype(float).tolist(), model=model, dataset=dataset)
    [found] = study.asked(
        "select metric, heuristic, estimate, p, verdict, low, high from qa_model_comparisons where model = 'first'"
    )
    return found


def test_models_that_are_alike_are_told_apart_in_five_percent_of_sets() -> None:
    found = many_sets(250, 200, 0, 0, 0)
    for metric, heuristic in (("exact_match", None), ("f1", None), ("gap", "ans_len"), ("gap", "mean")):
        own = [row for row in found if (row["metric"], row["heuristic"]) == (metric, heuristic)]
        assert len(own) == 250
        assert np.mean([row["p"] <= 0.05 for row in own]) <= 0.09  # Monte Carlo error 0.014
        assert 0.9 <= np.mean([row["low"] <= 0 <= row["high"] for row in own]) <= 0.99
    # The sets are one family: by themselves, some fifty tests of the thousand would be significant.
    assert sum(row["verdict"] in ("higher", "lower") for row in found) <= 3


@pytest.mark.parametrize(("gain", "bias", "seed", "metric"), [(0.2, 0, 1, "exact_match"), (0, 0.3, 2, "gap")])
def test_models_that_differ_are_told_apart(gain: float, bias: float, seed: int, metric: str) -> None:
    own = [row for row in many_sets(40, 400, gain, bias, seed) if row["metric"] == metric]
    assert sum(row["p"] <= 0.05 and row["estimate"] > 0 for row in own) > 0.8 * len(own)
    assert {row["verdict"] for row in own} & {"higher", "lower"} == {"higher"}


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
    tables = {"sign_flips": sign_flips(64, 1), "sums": unequal(rng, 600, n_articles)}
    found = pa.Table.from_pylist(found_by(sql, **tables))
    assert len(found) == 600
    # Monte Carlo error 0.009; by influences, in which large articles count less, 0.09 and more.
    assert np.mean(found["p"].to_numpy() <= 0.05) <= 0.075
    assert np.mean((found["low"].to_numpy() <= 0) & (found["high"].to_numpy() >= 0)) >= 0.92


def random(sample: int = 20, **spec: Any) -> QaPlan:
    plan = QaPlan(["bert", "other"], bootstrap={"trials": 20, "sample": sample}, **spec)
    plan.questions({"ans_len": [0.0] * 25 + [1.0] * 25 + [2.0] * 25})
    plan.answers([1] * 25 + [0] * 50, model="bert")
    plan.answers([1] * 50 + [0] * 25, model="other")
    return plan


def without_errors() -> QaPlan:
    plan = random()
    for row in plan.predictions:
        row["exact_match"] = 1.0
    return plan


def with_few_answers() -> QaPlan:
    plan = random()
    plan.spec["models"][1] |= {"path": None, "predictions": {"squad": "p.json"}, "on_missing": "drop"}
    plan.predictions = [row for row in plan.predictions if row["model"] == "bert" or int(row["example_id"][1:]) >= 20]
    return plan


def about_one_article() -> QaPlan:
    plan = random(thresholds={"ans_len": 0.0})
    plan.titles(["Rome"] * 75)
    return plan


def with_luck() -> QaPlan:
    plan = QaPlan(["bert", "other"], bootstrap={"trials": 20, "sample": 36})
    plan.questions({"ans_len": [0.0] * 40 + [1.0] * 40})
    plan.answers([1] * 24 + [0] * 16 + [1] * 20 + [0] * 20, model="bert")
    plan.answers(np.random.default_rng(12).integers(2, size=80).tolist(), model="other")
    return plan


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (random, None),
        (lambda: random(10, variant="reference"), "other thresholds"),
        (without_errors, "no threshold"),
        (with_few_answers, "not measured for both"),
        (about_one_article, "one article"),
        (with_luck, "threshold by chance"),
    ],
)
def test_what_cannot_be_compared_says_why(plan: Callable[[], QaPlan], reason: str | None, tmp_path: Path) -> None:
    sql = "select heuristic, reason from qa_model_comparisons where model = 'bert' and metric = 'gap'"
    found = plan().relations(tmp_path).rows(sql)
    assert {row["heuristic"]: row["reason"] for row in found} == {"ans_len": reason, "mean": reason}
