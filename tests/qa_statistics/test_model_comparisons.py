"""Models against each other: by hand, alike, different, and not to be compared."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats  # type: ignore[import-untyped]

from tests.qa_statistics.nulls import TITLES, Floats, small_plan
from tests.qaplans import QaPlan
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


@pytest.mark.parametrize(("plan", "reason"), [
    (random, None), (lambda: random(10, variant="reference"), "other thresholds"), (without_errors, "no threshold"),
    (with_few_answers, "not measured for both"), (about_one_article, "one article"), (with_luck, "threshold by chance"),
])  # fmt: skip
def test_what_cannot_be_compared_says_why(plan: Callable[[], QaPlan], reason: str | None, tmp_path: Path) -> None:
    sql = "select heuristic, reason from qa_model_comparisons where model = 'bert' and metric = 'gap'"
    found = plan().relations(tmp_path).rows(sql)
    assert {row["heuristic"]: row["reason"] for row in found} == {"ans_len": reason, "mean": reason}
