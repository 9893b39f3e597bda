"""The smallest biases that a run would see, and false alarms, by how often simulated runs see them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from biaseval.analysis.sql_files import connect
from tests.label_bias_statistics.answers import METRICS, Analysed, Answers, Rows, right_with, rows

pytestmark = pytest.mark.slow

N_RUNS = 300
"""A power of 80 % has a Monte Carlo error of 2.3 points."""


def smallest(counts: Sequence[int], accuracy: float, n_sets: int = 1) -> float | None:
    n_labels = len(counts)
    n_tests = (1 if n_labels == 2 else n_labels) * n_sets
    call = f"visible_rsd({accuracy}, {min(counts)}, {sum(counts)}, {n_labels}, {n_tests})"
    with connect([]) as connection:
        [(found,)] = connection.execute(f"select {call}").fetchall()
    return None if found is None else float(found)


def runs_that_prefer(counts: Sequence[int], recalls: Sequence[float], seed: int) -> Rows:
    """Return label_bias_by_task of runs of one task each, whose gold labels are right as often as they say."""
    rng = np.random.default_rng(seed)
    labels = "abcdefghij"[: len(counts)]
    gold = [label for label, n in zip(labels, counts, strict=True) for _ in range(n)]
    chances = np.repeat(recalls, counts)
    answers = []
    for number in range(N_RUNS):
        others = [labels[(labels.index(label) + 1) % len(labels)] for label in gold]
        is_right = rng.random(len(gold)) < chances
        predicted = [own if hit else other for own, other, hit in zip(gold, others, is_right, strict=True)]
        answers.append(Answers(f"t{number:03}", labels, gold, right_with(predicted, labels)))
    return rows(Analysed(answers), "from label_bias_by_task")


@pytest.mark.parametrize(
    ("counts", "accuracy", "is_preferred"),
    [([100, 100], 0.7, True), ([30] * 5, 0.52, False), ([96, 37, 17], 0.6, False)],
)
def test_the_smallest_rsd_is_told_in_four_of_five_runs(counts: list[int], accuracy: float, is_preferred: bool) -> None:
    rsd = smallest(counts, accuracy)
    assert rsd is not None
    # RSD is sqrt(labels - 1) / labels times the distance between the recall of the rarest label and that of the others.
    distance = rsd * accuracy * len(counts) / np.sqrt(len(counts) - 1) * (1 if is_preferred else -1)
    share = counts[-1] / sum(counts)
    recalls = [accuracy - distance * share] * (len(counts) - 1) + [accuracy + distance * (1 - share)]
    assert np.std(recalls) / accuracy == pytest.approx(rsd)
    assert np.average(recalls, weights=counts) == pytest.approx(accuracy)
    found = runs_that_prefer(counts, recalls, seed=1)
    assert 0.74 <= np.mean([row["rsd_p"] <= 0.05 for row in found]) <= 0.86
    # The run says the same by its own accuracy.
    assert np.mean([row["rsd_smallest_detectable"] for row in found]) == pytest.approx(rsd, rel=0.03)
    # Half of that is told in far fewer.
    half = [accuracy + (recall - accuracy) / 2 for recall in recalls]
    assert np.mean([row["rsd_p"] <= 0.05 for row in runs_that_prefer(counts, half, seed=2)]) < 0.4


def test_a_file_of_800_rows_tells_these_and_a_small_one_none() -> None:
    """Of 800 rows 704 are measured; models are 40 % of the way from chance to 1."""
    told = [smallest([704 // n] * n, 1 / n + 0.4 * (1 - 1 / n)) for n in (2, 3, 5)]
    assert told == pytest.approx([0.07, 0.10, 0.13], abs=0.005)
    few = smallest([52, 52], 0.7)
    assert few == pytest.approx(0.19, abs=0.005)
    # Of ten rows a label, recalls would have to lie beyond 0 or 1.
    assert smallest([10, 10], 0.7) is None
    assert smallest([100, 100], 0.0) is smallest([100, 100], 1.0) is None
    assert smallest([100], 0.5) is None
    # Beside other sets a bias has to be larger.
    assert (smallest([100, 100], 0.7, 3) or 0) > 1.1 * (smallest([100, 100], 0.7) or 1)


def _shares(rng: np.random.Generator, n_labels: int, bias: float, spread: float) -> np.ndarray:
    """Return probabilities whose first label has on average ``bias`` more than its share: Dirichlet's."""
    means = np.full(n_labels, (1 - 1 / n_labels - bias) / (n_labels - 1))
    means[0] = 1 / n_labels + bias
    drawn: np.ndarray = rng.dirichlet(means * spread, size=32)
    return drawn


@pytest.mark.parametrize("n_labels", [2, 3])
def test_the_smallest_bias_score_is_told_in_four_of_five_runs(n_labels: int) -> None:
    rng = np.random.default_rng(5)
    labels = "abc"[:n_labels]
    gold = list((labels * 32)[:32])

    def runs(bias: float) -> Rows:
        answers = [
            Answers(f"t{number:03}", labels, gold, _shares(rng, n_labels, bias, 5.0), purpose="bias_score")
            for number in range(N_RUNS)
        ]
        main = [Answers(each.task, labels, gold, right_with(gold, labels)) for each in answers]
        return rows(Analysed([*answers, *main]), "from label_bias_by_task")

    bias = 0.1
    for _ in range(2):  # the errors are those of probabilities with that bias
        found = runs(bias)
        bias = float(np.mean([row["bias_score_smallest_detectable"] for row in found]))
    found = runs(bias)
    assert 0.75 <= np.mean([row["bias_score_p"] <= 0.05 for row in found]) <= 0.87
    assert np.mean([row["bias_score_smallest_detectable"] for row in found]) == pytest.approx(bias, rel=0.03)


def without_effect(n_suites: int, n_tasks: int, n_rows: int, shares_of_a: Sequence[float]) -> dict[str, Any]:
    """Return answers that have nothing to do with gold labels, of methods that answer a by these chances."""
    rng = np.random.default_rng([1, n_tasks])
    answers, suites = [], {}
    for suite in range(n_suites):
        suites[f"s{suite}"] = [f"s{suite}t{task}" for task in range(n_tasks)]
        for task in suites[f"s{suite}"]:
            gold = rng.choice(list("ab"), size=n_rows).tolist()
            shift = rng.normal(0, 0.05) if n_tasks > 1 else 0
            for method, share in zip(("none", "cc", "dc"), shares_of_a, strict=True):
                p = rng.random(n_rows) < share + shift
                answers.append(Answers(task, "ab", gold, right_with(np.where(p, "a", "b").tolist(), "ab"), method))
                probabilities = rng.dirichlet([2, 2], size=16)
                answers.append(Answers(task, "ab", list("ab" * 8), probabilities, method, purpose="bias_score"))
    return {"answers": answers, "suites": suites}


def test_words_are_wrong_in_few_suites_without_any_effect() -> None:
    connection = Analysed(**without_effect(300, 6, 30, [0.6, 0.6, 0.6]))
    found = rows(connection, "from label_bias_verdicts")
    assert len(found) == 300 * 2 * len(METRICS)
    wrong = {row["suite"] for row in found if row["verdict"] in ("higher", "lower")}
    assert 0 < len(wrong) / 300 < 0.07


def test_words_on_one_task_are_wrong_in_few_runs_where_methods_prefer_other_labels() -> None:
    """None nearly always answers a, cc b: neither knows anything, and they are biased alike."""
    connection = Analysed(**without_effect(150, 1, 60, [0.9, 0.1, 0.9]))
    found = rows(connection, "from label_bias_verdicts")
    assert len(found) == 150 * 2 * len(METRICS)
    for metric in METRICS:
        wrong = {row["suite"] for row in found if row["verdict"] in ("higher", "lower") and row["metric"] == metric}
        assert len(wrong) / 150 < 0.05, metric
    intervals = rows(connection, "from label_bias_by_task_over_sets")
    covered = [row["accuracy_low"] <= 0.5 <= row["accuracy_high"] for row in intervals]
    assert 0.93 < np.mean(covered) < 0.98
