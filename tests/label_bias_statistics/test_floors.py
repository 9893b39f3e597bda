"""Floors and p-values of RSD and BiasScore, against shuffled hits and SciPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from tests.label_bias_statistics.answers import (
    LABELS,
    Answers,
    Array,
    analysed,
    answers_of,
    one_task,
    right_with,
    rows,
    side,
)

# Floors


def _shuffled_deviations(gold: Sequence[str], n_hits: int, rng: np.random.Generator) -> Array:
    """Return the variance of recalls of hits that lie anywhere, 2,000 times."""
    names, places = np.unique(gold, return_inverse=True)
    hits = rng.permuted(np.tile(np.arange(len(gold)) < n_hits, (2000, 1)), axis=1)
    recalls = np.stack([hits[:, places == label].mean(axis=1) for label in range(len(names))], axis=1)
    variances: Array = recalls.var(axis=1)
    return variances


@pytest.mark.parametrize(
    ("counts", "recall"), [([100, 100], 0.5), ([150, 30, 20], 0.7), ([10] * 10, 0.4), ([60, 5, 3], 0.9)]
)
def test_the_floor_of_rsd_is_that_of_shuffled_hits(counts: list[int], recall: float) -> None:
    labels = "abcdefghij"[: len(counts)]
    gold = [label for label, n in zip(labels, counts, strict=True) for _ in range(n)]
    answers = answers_of(np.random.default_rng(0), "t", labels, gold, recall)
    [row] = rows(analysed([answers]), "from label_bias_by_task")
    n_hits = round(row["accuracy"] * len(gold))
    shuffled = _shuffled_deviations(gold, n_hits, np.random.default_rng(1))
    assert row["rsd_floor"] == pytest.approx(np.sqrt(shuffled.mean()) / row["accuracy"], rel=0.04)
    # The mean RSD itself is a little below its root mean square.
    assert np.sqrt(shuffled).mean() / row["accuracy"] <= row["rsd_floor"] * 1.02
    excess = np.sqrt(max(0, row["rsd"] ** 2 - row["rsd_floor"] ** 2))
    assert row["rsd_excess"] == pytest.approx(excess, abs=1e-9)


@pytest.mark.parametrize("recalls", [{"a": 0.6, "b": 0.6}, {"a": 0.65, "b": 0.5}, {"a": 0.8, "b": 0.35}])
def test_the_p_of_rsd_with_two_labels_is_that_of_shuffled_hits(recalls: dict[str, float]) -> None:
    """Both sides of a permutation test: twice the share of shuffles with a recall of a that is at least as far off."""
    gold = list("a" * 45 + "b" * 35)
    answers = answers_of(np.random.default_rng(3), "t", "ab", gold, recalls)
    [row] = rows(analysed([answers]), "from label_bias_by_task")
    hits = np.array(answers.predicted) == np.array(gold)
    shuffled = np.random.default_rng(0).permuted(np.tile(hits, (20_000, 1)), axis=1)[:, :45].sum(axis=1)
    tail = min((shuffled <= hits[:45].sum()).mean(), (shuffled >= hits[:45].sum()).mean())
    assert row["rsd_p"] == pytest.approx(min(1, 2 * tail), abs=0.015)


@pytest.mark.parametrize(("n_labels", "n_gold"), [(45, 32), (2, 1), (2, 2), (5, 5)])
def test_a_model_that_is_always_right_and_sure_has_the_bias_score_of_perfect(n_labels: int, n_gold: int) -> None:
    labels = [f"l{number:02d}" for number in range(n_labels)]
    gold = [labels[row % n_gold] for row in range(32)]
    sure = np.array([[float(label == each) for label in labels] for each in gold])
    answers = [Answers("t", labels, gold, sure, purpose=purpose) for purpose in ("main", "bias_score")]
    [row] = rows(analysed(answers), "from label_bias_by_task")
    assert row["bias_score"] == pytest.approx(row["bias_score_of_perfect"], abs=1e-12)
    assert row["bias_score_of_perfect"] == pytest.approx(1 - n_gold / n_labels)
    assert row["n_gold_labels"] == n_gold
    if n_gold < n_labels:
        assert row["bias_score_floor"] is row["bias_score_p"] is None


def test_the_floor_of_bias_score_is_what_rows_leave_of_a_model_without_preference() -> None:
    """The mean over 300 tasks of the score and of its floor agree, and 5 % of them have a p below .05."""
    rng = np.random.default_rng(0)
    gold = list("abc" * 12)
    answers = []
    for number in range(300):
        probabilities = rng.dirichlet(np.ones(3), size=len(gold))
        answers.append(Answers(f"t{number:03d}", "abc", gold, probabilities, purpose="bias_score"))
        answers.append(Answers(f"t{number:03d}", "abc", gold, right_with(gold, "abc")))
    found = rows(analysed(answers), "from label_bias_by_task")
    assert np.mean([row["bias_score"] for row in found]) == pytest.approx(
        np.mean([row["bias_score_floor"] for row in found]), rel=0.06
    )
    assert np.mean([row["bias_score_p"] <= 0.05 for row in found]) < 0.08


# By label


def test_p_values_of_labels_are_those_of_scipy() -> None:
    answers = one_task(80)
    connection = analysed(answers)
    by_label = {(row["demo_set"], row["label"]): row for row in rows(connection, "from label_bias_by_label")}
    assert len(by_label) == 8
    for main, bias in zip(side(answers, "rsd"), side(answers, "bias_score"), strict=True):
        gold, hit = np.array(main.gold), np.array(main.predicted) == np.array(main.gold)
        for place, label in enumerate(LABELS):
            row = by_label[main.demo_set, label]
            if label == "d":
                assert (row["n_gold"], row["recall"], row["recall_p"]) == (0, None, None)
            else:
                chance = stats.hypergeom(len(gold), int(hit.sum()), int((gold == label).sum()))
                k = int(hit[gold == label].sum())
                assert row["recall_p"] == pytest.approx(min(1, 2 * min(chance.cdf(k), chance.sf(k - 1))), rel=1e-6)
            # As many rows of each gold label: the error of a mean of means, with the fewest degrees of freedom.
            groups = [bias.probabilities[np.array(bias.gold) == each, place] for each in LABELS]
            squares = np.array([group.var(ddof=1) / len(group) for group in groups])
            error = np.sqrt(squares.sum()) / 4
            n_free = min(len(group) - 1 for group in groups)
            assert row["mean_probability"] == pytest.approx(np.mean([group.mean() for group in groups]))
            assert row["standard_error"] == pytest.approx(error)
            expected = 2 * stats.t.sf(abs(row["mean_probability"] - 0.25) / error, n_free)
            assert row["preference_p"] == pytest.approx(expected, rel=0.03, abs=2e-4)
            assert row["preference_p"] >= expected * 0.99


def test_p_values_of_a_task_are_the_smallest_of_its_labels_times_their_number() -> None:
    connection = analysed(one_task(80))
    found = rows(connection, "from label_bias_by_task order by demo_set")
    for row in found:
        labels = rows(connection, f"from label_bias_by_label where demo_set = {row['demo_set']}")
        recall_p = [label["recall_p"] for label in labels if label["recall_p"] is not None]
        assert row["rsd_p"] == pytest.approx(min(1, 3 * min(recall_p)))
        assert row["bias_score_p"] == pytest.approx(min(1, 4 * min(label["preference_p"] for label in labels)))
    [task] = rows(connection, "from label_bias_by_task_over_sets")
    assert task["rsd_p"] == pytest.approx(min(1, 2 * min(row["rsd_p"] for row in found)))
    assert task["bias_score_p"] == pytest.approx(min(1, 2 * min(row["bias_score_p"] for row in found)))


def test_a_model_that_always_gives_one_answer() -> None:
    """65 of 100 rows are a: recall 1 and 0, RSD .5 / .65, and as good as the majority class, as it is that."""
    gold = list("a" * 65 + "b" * 35)
    connection = analysed([Answers("t", "ab", gold, right_with("a" * 100, "ab"))])
    [row] = rows(connection, "from label_bias_by_task")
    assert (row["accuracy"], row["majority_accuracy"], row["share_most_frequent"]) == (0.65, 0.65, 1)
    assert [row["macro_f1"], row["majority_macro_f1"]] == pytest.approx([0.65 / 1.65] * 2)
    assert row["rsd"] == pytest.approx(0.5 / 0.65)
    # Exactly a's rows are the hits: as unlikely as any one choice of 65 rows, on either side.
    assert row["rsd_p"] == pytest.approx(2 * stats.hypergeom(100, 65, 65).pmf(65), rel=1e-6)
    [over_sets] = rows(connection, "from label_bias_by_task_over_sets")
    assert over_sets["is_constant"]
    interval = [over_sets["accuracy_low"], over_sets["accuracy_high"]]
    wilson = stats.binomtest(65, 100).proportion_ci(method="wilson")
    assert interval == pytest.approx([wilson.low, wilson.high], abs=0.001)
    [model] = rows(connection, "from label_bias_by_model")
    assert (model["n_tasks_constant"], model["rsd_normalized"]) == (1, pytest.approx(0.5 / 0.65))
    assert (model["accuracy_low"], model["unit"]) == (over_sets["accuracy_low"], "rows")


@pytest.mark.parametrize(
    ("gold", "predicted", "accuracy"),
    [("a" * 20, "a" * 12 + "b" * 8, 0.6), ("ab" * 10, "ba" * 10, 0), ("ab" * 10, "ab" * 10, 1)],
)
def test_rsd_has_no_floor_nor_p_where_it_says_nothing(gold: str, predicted: str, accuracy: float) -> None:
    """A single gold label; no answer is right; every one is."""
    connection = analysed([Answers("t", "ab", list(gold), right_with(predicted, "ab"))])
    [row] = rows(connection, "from label_bias_by_task_over_sets")
    assert (row["accuracy"], row["rsd"]) == (accuracy, 0)
    for column in ("rsd_floor", "rsd_excess", "rsd_p", "rsd_low", "rsd_high"):
        assert row[column] is None, column
    [model] = rows(connection, "from label_bias_by_model")
    counts = [model[f"n_tasks_{what}"] for what in ("single_gold", "without_hit", "rsd")]
    assert counts == [gold == "a" * 20, accuracy == 0, 0]
