"""Errors, floors, p-values and verdicts of label bias, against NumPy and SciPy, and their false alarms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from scipy import stats  # type: ignore[import-untyped]

from biaseval.analysis.relations import connect, create, relations
from biaseval.analysis.sign_flips import sign_flips
from biaseval.tables import BOOTSTRAP_DRAWS, RUN_SETTINGS, TASKS
from tests.statistics_macros.patterns import every_pattern, expected_tests

Array = npt.NDArray[Any]
Rows = list[dict[str, Any]]

METRICS = ("macro_f1", "accuracy", "rsd", "bias_score", "relative_variance")


class Answers(NamedTuple):
    """What a model answers to the rows of a task in one setting: gold labels and probabilities of every label."""

    task: str
    labels: Sequence[str]
    gold: Sequence[str]
    probabilities: Array
    method: str = "none"
    n_demos: int = 0
    demo_set: int = 0
    purpose: str = "main"

    @property
    def predicted(self) -> list[str]:
        return [self.labels[place] for place in self.probabilities.argmax(axis=1)]


def analysed(
    answers: Iterable[Answers], suites: Mapping[str, Sequence[str]] | None = None, seed: int = 0
) -> duckdb.DuckDBPyConnection:
    """Return a connection with all relations that follow from calibrated predictions, as tables.

    Args:
        answers: of every task and setting, of both purposes.
        suites: their tasks; otherwise all tasks are one.
        seed: of the signs.
    """
    given = list(answers)
    tasks = {each.task: list(each.labels) for each in given}
    suites = suites or {"all": sorted(tasks)}
    parts = [
        pa.table(
            {
                "task": [each.task] * len(each.gold),
                "purpose": [each.purpose] * len(each.gold),
                "n_demos": [each.n_demos] * len(each.gold),
                "demo_set": [each.demo_set] * len(each.gold),
                "row": range(len(each.gold)),
                "gold": list(each.gold),
                "method": [each.method] * len(each.gold),
                "labels": [list(each.labels)] * len(each.gold),
                "probabilities": each.probabilities.tolist(),
                "prediction": each.predicted,
            }
        )
        for each in given
    ]
    drawn = [
        {"suite": suite, "draw": 0, "task": task, "n_drawn": 1} for suite, members in suites.items() for task in members
    ]
    n_tested = max(1000 if len(members) == 1 else len(members) for members in suites.values())
    made = {
        "calibrated_predictions": pa.concat_tables(parts),
        "tasks": TASKS.rows([{"task": task, "labels": labels, "category": ""} for task, labels in tasks.items()]),
        "run_settings": RUN_SETTINGS.rows([{"model": "tiny"}]),
        "bootstrap_draws": BOOTSTRAP_DRAWS.rows(drawn),
        "sign_flips": sign_flips(n_tested, seed),
    }
    connection = connect([])
    for name, table in made.items():
        connection.from_arrow(table).create(name)
    for relation in relations("intermediate", "marts", tables=made):
        create("table", relation.name, relation.sql, connection)
    return connection


def rows(connection: duckdb.DuckDBPyConnection, sql: str) -> Rows:
    found: Rows = connection.sql(sql).to_arrow_table().to_pylist()
    return found


def right_with(predicted: Sequence[str], labels: Sequence[str]) -> Array:
    """Return probabilities of which the predicted label has the largest."""
    return np.array([[0.9 if label == each else 0.1 / (len(labels) - 1) for label in labels] for each in predicted])


def answers_of(
    rng: np.random.Generator,
    task: str,
    labels: str,
    gold: Sequence[str],
    recalls: Mapping[str, float] | float,
    instead: str | None = None,
    **setting: Any,
) -> Answers:
    """Return answers that are right by the recall of the gold label, and else one of the labels ``instead``."""
    predicted = []
    for label in gold:
        wrong = [each for each in instead or labels if each != label]
        recall = recalls if isinstance(recalls, float) else recalls[label]
        predicted.append(label if rng.random() < recall else str(rng.choice(wrong)))
    return Answers(task, labels, gold, right_with(predicted, labels), **setting)


def preferring(
    rng: np.random.Generator, task: str, labels: str, gold: Sequence[str], leaning: Sequence[float], **setting: Any
) -> Answers:
    """Return answers on rows of BiasScore that lean to the gold label and, in logits, to others."""
    logits = rng.normal(size=(len(gold), len(labels))) + np.array(leaning)
    logits += 1.5 * np.array([[label == each for label in labels] for each in gold])
    weights = np.exp(logits)
    probabilities = weights / weights.sum(axis=1, keepdims=True)
    return Answers(task, labels, gold, probabilities, purpose="bias_score", **setting)


# Metrics of weighted rows, to be moved a little or resampled


def weighted_accuracy(answers: Answers, weights: Array) -> float:
    return float(np.average(np.array(answers.predicted) == np.array(answers.gold), weights=weights))


def weighted_recalls(answers: Answers, weights: Array) -> Array:
    gold, hit = np.array(answers.gold), np.array(answers.predicted) == np.array(answers.gold)
    return np.array([np.average(hit[gold == label], weights=weights[gold == label]) for label in sorted(set(gold))])


def weighted_macro_f1(answers: Answers, weights: Array) -> float:
    gold, predicted = np.array(answers.gold), np.array(answers.predicted)
    f1 = [
        2 * weights[(gold == label) & (predicted == label)].sum()
        / (weights[gold == label].sum() + weights[predicted == label].sum())
        for label in sorted(set(answers.gold))
    ]  # fmt: skip
    return float(np.mean(f1))


def weighted_rsd(answers: Answers, weights: Array) -> float:
    return float(weighted_recalls(answers, weights).std() / weighted_accuracy(answers, weights))


def weighted_bias_score(answers: Answers, weights: Array) -> float:
    gold = np.array(answers.gold)
    means = [
        np.average(answers.probabilities[gold == label], axis=0, weights=weights[gold == label])
        for label in sorted(set(gold))
    ]
    return float(0.5 * np.abs(np.mean(means, axis=0) - 1 / len(answers.labels)).sum())


def weighted_relative_variance(answers: Answers, weights: Array) -> float:
    """Return it for as many rows of each label as there are, whatever they weigh."""
    recalls = weighted_recalls(answers, weights)
    counts = np.array([answers.gold.count(label) for label in sorted(set(answers.gold))])
    noise = (len(counts) - 1) / len(counts) ** 2 * np.sum(recalls * (1 - recalls) / (counts - 1))
    return float((recalls.var() - noise) / weighted_accuracy(answers, weights) ** 2)


METRIC: dict[str, Callable[[Answers, Array], float]] = {
    "macro_f1": weighted_macro_f1,
    "accuracy": weighted_accuracy,
    "rsd": weighted_rsd,
    "bias_score": weighted_bias_score,
    "relative_variance": weighted_relative_variance,
}


def influences(answers: Sequence[Answers], metric: str) -> Array:
    """Return by how much a little more of each row moves a metric, averaged over sets, times the number of rows."""
    n, step = len(answers[0].gold), 1e-6
    moved = np.zeros(n)
    for each in answers:
        for row in range(n):
            up, down = np.ones(n), np.ones(n)
            up[row] += step
            down[row] -= step
            moved[row] += n * (METRIC[metric](each, up) - METRIC[metric](each, down)) / (2 * step) / len(answers)
    return moved


def resampled(*sides: Sequence[Answers], metric: str, rng: np.random.Generator, n_draws: int = 2000) -> Array:
    """Return a metric of the first side, less that of the second, of rows drawn with replacement.

    Draws that lack a gold label are left out.
    """
    n, gold = len(sides[0][0].gold), np.array(sides[0][0].gold)
    found: list[float] = []
    while len(found) < n_draws:
        weights = np.bincount(rng.integers(n, size=n), minlength=n).astype(float)
        if all(weights[gold == label].sum() for label in set(gold)):
            means = [np.mean([METRIC[metric](each, weights) for each in side]) for side in sides]
            found.append(float(means[0] - sum(means[1:])))
    return np.array(found)


LABELS = "abcd"
"""Of which d is never a gold label of the main rows, and is predicted."""


def one_task(
    n_rows: int = 200, seed: int = 0, *, recalls: Mapping[str, float] | None = None, method: str = "none"
) -> list[Answers]:
    """Return two sets of a task with three gold labels of four, of both purposes."""
    gold = [LABELS[place] for place in np.random.default_rng(9).choice(3, size=n_rows, p=[0.5, 0.3, 0.2])]
    bias_gold = list(LABELS * 10)
    rng = np.random.default_rng(seed)
    recalls = recalls or {"a": 0.85, "b": 0.6, "c": 0.35}
    sets = []
    for demo_set in (0, 1):
        place: dict[str, Any] = {"method": method, "n_demos": 4, "demo_set": demo_set}
        sets.append(answers_of(rng, "t", LABELS, gold, recalls, **place))
        sets.append(preferring(rng, "t", LABELS, bias_gold, [0.8, 0.3, -0.6, -0.2], **place))
    return sets


def side(answers: Sequence[Answers], metric: str) -> list[Answers]:
    return [each for each in answers if (each.purpose == "bias_score") == (metric == "bias_score")]


# What a row moves


def test_influences_are_derivatives_in_the_weight_of_a_row() -> None:
    answers = one_task(60)
    assert all("d" in each.predicted and "d" not in each.gold for each in side(answers, "rsd"))
    connection = analysed(answers)
    for metric in METRICS:
        of_metric = f"select row, {metric} as x from row_influences where {metric} is not null order by row"
        found = rows(connection, of_metric)
        expected = influences(side(answers, metric), metric)
        if metric == "bias_score":  # of means within gold labels, whose error has one row less
            gold = side(answers, metric)[0].gold
            expected = expected * np.sqrt([gold.count(label) / (gold.count(label) - 1) for label in gold])
        assert [row["row"] for row in found] == list(range(len(expected)))
        assert [row["x"] for row in found] == pytest.approx(expected, abs=1e-5), metric
        assert np.abs(expected).max() > 0.1


def test_a_metric_that_rows_cannot_move_has_no_influences() -> None:
    """Nobody is right; and recalls are equal, where a standard deviation has no derivative."""
    wrong = Answers("wrong", "ab", list("ab" * 6), right_with("ba" * 6, "ab"))
    equal = Answers("equal", "ab", list("ab" * 6), right_with("abba" * 3, "ab"))
    single = Answers("single", "ab", list("a" * 12), right_with("aab" * 4, "ab"))
    found = rows(analysed([wrong, equal, single]), "from row_influences")
    assert len(found) == 36
    assert {row["rsd"] for row in found} == {0}
    assert {row["accuracy"] for row in found if row["task"] == "wrong"} == {0}
    assert {row["accuracy"] for row in found if row["task"] == "equal"} == {0.5, -0.5}


def test_pseudo_values_average_to_the_metric() -> None:
    connection = analysed(one_task(60))
    [task] = rows(connection, "from label_bias_by_task_over_sets")
    found = rows(connection, "from label_bias_row_values order by metric, row")
    assert {row["n_rows"] for row in found if row["metric"] == "bias_score"} == {40}
    for metric in METRICS:
        values = [row["value"] for row in found if row["metric"] == metric]
        assert len(values) == (40 if metric == "bias_score" else 60)
        assert np.mean(values) == pytest.approx(task[metric], abs=1e-12)


# Errors


def test_errors_of_a_task_are_those_of_resampled_rows() -> None:
    answers = one_task()
    [errors] = rows(analysed(answers), "from task_errors")
    assert (errors["n_main_rows"], errors["n_free"], errors["n_free_bias_score"]) == (200, 197, 36)
    for metric in METRICS:
        draws = resampled(side(answers, metric), metric=metric, rng=np.random.default_rng(1))
        assert errors[metric] == pytest.approx(draws.std(), rel=0.1), metric


def test_errors_of_a_difference_are_those_of_rows_resampled_on_both_sides() -> None:
    none = one_task()
    moderate = {"a": 0.7, "b": 0.65, "c": 0.5}
    other = one_task(seed=1, recalls=moderate, method="cc")
    connection = analysed([*none, *other])
    [errors] = rows(connection, "from paired_errors")
    assert (errors["method"], errors["against_method"], errors["n_free"]) == ("cc", "none", 197)
    changes = {row["metric"]: row for row in rows(connection, "from label_bias_changes_by_task")}
    assert changes.keys() == set(METRICS)
    for metric in METRICS:
        draws = resampled(side(other, metric), side(none, metric), metric=metric, rng=np.random.default_rng(1))
        assert errors[metric] == pytest.approx(draws.std(), rel=0.1), metric
        row = changes[metric]
        weights = np.ones(len(side(none, metric)[0].gold))
        difference = [np.mean([METRIC[metric](each, weights) for each in side(both, metric)]) for both in (other, none)]
        assert row["estimate"] == pytest.approx(difference[0] - difference[1])
        n_free = 36 if metric == "bias_score" else 197
        t = row["estimate"] / errors[metric]
        assert row["p"] == pytest.approx(2 * stats.t.sf(abs(t), n_free), rel=0.02, abs=1e-6)
        interval = stats.t.interval(0.95, n_free, loc=row["estimate"], scale=errors[metric])
        assert [row["low"], row["high"]] == pytest.approx(interval, abs=1e-5)


def test_what_no_row_changes_has_no_p() -> None:
    none = one_task(60)
    same = [each._replace(method="cc") for each in none]
    for row in rows(analysed([*none, *same]), "from label_bias_changes_by_task"):
        assert [row["estimate"], row["standard_error"], row["low"], row["high"], row["p"]] == [0, 0, 0, 0, None]


def test_the_luck_of_which_gold_labels_were_drawn_is_no_difference_between_constant_answers() -> None:
    """Of 52 rows of 100, always a is right; of the others, always b: 52 against 48 is no finding (McNemar: p = .76)."""
    gold = list("a" * 52 + "b" * 48)
    answers = [
        Answers("t", "ab", gold, right_with("a" * 100, "ab")),
        Answers("t", "ab", gold, right_with("b" * 100, "ab"), "cc"),
    ]
    connection = analysed(answers)
    change = "from label_bias_changes_by_task where metric = 'accuracy'"
    [row] = rows(connection, change)
    assert row["estimate"] == pytest.approx(-0.04)
    assert row["low"] < 0 < row["high"]
    assert row["p"] > 0.5
    [verdict] = rows(connection, "from label_bias_verdicts where metric = 'accuracy'")
    assert verdict["p"] == pytest.approx(stats.binomtest(48, 100).pvalue, abs=0.03)
    assert verdict["verdict"] == "unclear"


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


# Over tasks


def holm(p_values: Sequence[float], level: float = 0.05) -> set[int]:
    """Return which of several hypotheses Holm's procedure rejects."""
    rejected: set[int] = set()
    for place in np.argsort(p_values, kind="stable"):
        if p_values[place] * (len(p_values) - len(rejected)) > level:
            break
        rejected.add(int(place))
    return rejected


def test_tasks_with_bias_are_counted_by_holms_procedure() -> None:
    rng = np.random.default_rng(0)
    answers = []
    for number in range(16):
        gap = max(0, number - 8) * 0.055
        place = {"task": f"t{number:02d}", "labels": "ab"}
        gold = list("ab" * 30) if number else list("a" * 60)  # the first has a single gold label, and no p
        answers.append(answers_of(rng, gold=gold, recalls={"a": 0.5 + gap, "b": 0.5 - gap}, **place))
        answers.append(preferring(rng, gold=list("ab" * 16), leaning=[gap * 4, 0], **place))
    connection = analysed(answers)
    tasks = rows(connection, "from label_bias_by_task_over_sets order by task")
    [model] = rows(connection, "from label_bias_by_model")
    by_rsd = [task["rsd_p"] for task in tasks if task["rsd_p"] is not None]
    by_bias_score = [task["bias_score_p"] for task in tasks]
    assert (len(by_rsd), len(by_bias_score)) == (15, 16)
    assert model["n_tasks_rsd"] == len(holm(by_rsd)) > 0
    assert model["n_tasks_bias_score"] == len(holm(by_bias_score)) > 0
    assert len(holm(by_rsd)) < sum(p <= 0.05 for p in by_rsd)
    for metric in METRICS[:4]:
        values = sorted(task[metric] for task in tasks)
        assert model[f"{metric}_median"] == pytest.approx(np.median(values))
        assert model[f"{metric}_interquartile_mean"] == pytest.approx(stats.trim_mean(values, 0.25))
    floors = [task["rsd_floor"] for task in tasks if task["rsd_floor"] is not None]
    assert model["rsd_floor"] == pytest.approx(np.mean(floors))
    assert model["rsd_normalized"] == pytest.approx(np.mean([task["rsd"] for task in tasks[1:]]))  # two labels each


def with_hits(task: str, n_hits: int, n_rows: int = 20, **setting: Any) -> Answers:
    """Return answers to as many rows of gold label a as of b, of which the first are right."""
    gold = "ab" * (n_rows // 2)
    predicted = [gold[row] if row < n_hits else "ba"[row % 2] for row in range(n_rows)]
    return Answers(task, "ab", list(gold), right_with(predicted, "ab"), **setting)


def tasks_that_change(changes: Sequence[int], method: str = "cc") -> list[Answers]:
    """Return tasks in which a method gets so many of 20 rows right more than none, which gets 10 right."""
    answers = []
    for number, change in enumerate(changes):
        answers += [with_hits(f"t{number}", 10), with_hits(f"t{number}", 10 + change, method=method)]
    return answers


def verdicts(connection: duckdb.DuckDBPyConnection, metric: str) -> dict[str, dict[str, Any]]:
    """Return the verdicts of a metric by method, of the one suite."""
    found = rows(connection, f"from label_bias_verdicts where metric = '{metric}'")
    by_method = {row["method"]: row for row in found}
    assert len(by_method) == len(found)
    return by_method


def test_a_verdict_on_six_tasks_by_hand() -> None:
    """Differences .1, .2, .3, .4, .5 and -.1: their sum is 1.4.

    Of 64 patterns, the one of all positive has a sum of 1.6; those with one of the two .1 negative have 1.4: with their
    opposites 6 are at least as far from 0, and p is 6 / 64.
    """
    connection = analysed(tasks_that_change([2, 4, 6, 8, 10, -2]))
    row = verdicts(connection, "accuracy")["cc"]
    numbers = np.array([0.1, 0.2, 0.3, 0.4, 0.5, -0.1])
    counts = ("unit", "n_units", "n_tasks", "n_rows", "against_n_rows")
    assert [row[name] for name in counts] == ["tasks", 6, 6, 120, 120]
    assert (row["p"], row["verdict"]) == (6 / 64, "unclear")
    assert row["p_adjusted"] >= 6 / 64
    assert row["estimate"] == pytest.approx(1.4 / 6)
    assert row["standard_error"] == pytest.approx(stats.sem(numbers))
    interval = stats.t.interval(0.95, 5, loc=numbers.mean(), scale=stats.sem(numbers))
    assert [row["low"], row["high"]] == pytest.approx(interval, abs=1e-6)
    assert row["median"] == pytest.approx(0.25)
    assert row["interquartile_mean"] == pytest.approx((0.5 * 0.1 + 0.2 + 0.3 + 0.5 * 0.4) / 3)
    assert row["standardized"] == pytest.approx(numbers.mean() / numbers.std(ddof=1))
    assert row["smallest_detectable"] == pytest.approx(2.8 * stats.sem(numbers))
    # Of 20 rows each, 10 more are right in the fifth and 8 in the fourth: what each shows on its own, after Holm.
    by_task = rows(connection, "from label_bias_changes_by_task where metric = 'accuracy' order by task")
    rejected = holm([task["p"] for task in by_task])
    assert (row["n_tasks_higher"], row["n_tasks_lower"]) == (len(rejected), 0)
    assert rejected >= {3, 4}


def test_over_rows_a_test_of_bias_score_has_the_error_of_its_task_with_few_rows_a_label() -> None:
    labels = "abcdefghij"
    rng = np.random.default_rng(4)
    answers = []
    for method in ("none", "cc"):
        place: dict[str, Any] = {"method": method, "n_demos": 4}
        answers.append(answers_of(rng, "t", labels, list(labels * 6), dict.fromkeys(labels, 0.6), **place))
        answers.append(preferring(rng, "t", labels, list(labels * 3), [0.8, *[0.0] * 9], **place))
    connection = analysed(answers)
    [of_task] = rows(connection, "from label_bias_changes_by_task where metric = 'bias_score'")
    found = verdicts(connection, "bias_score")["cc"]
    assert (found["unit"], found["n_units"]) == ("rows", 30)
    assert found["standard_error"] == pytest.approx(of_task["standard_error"] * math.sqrt(30 / 29))


def test_six_tasks_of_one_mind_are_just_enough_and_three_too_few() -> None:
    six = verdicts(analysed(tasks_that_change([2, 4, 6, 8, 10, 3])), "accuracy")["cc"]
    assert (six["p"], six["verdict"]) == (2 / 64, "higher")
    assert six["simultaneous_low"] > 0
    lower = verdicts(analysed(tasks_that_change([-2, -4, -6, -8, -9, -3])), "accuracy")["cc"]
    assert (lower["p"], lower["verdict"]) == (2 / 64, "lower")
    three = verdicts(analysed(tasks_that_change([2, 4, 6])), "accuracy")["cc"]
    assert (three["p"], three["verdict"], three["simultaneous_low"]) == (2 / 8, "too few", None)
    same = verdicts(analysed(tasks_that_change([0] * 6)), "accuracy")["cc"]
    assert (same["estimate"], same["p"], same["verdict"]) == (0, 1, "unclear")


def test_all_differences_of_a_suite_are_one_family_but_those_of_the_second_test_of_rsd() -> None:
    rng = np.random.default_rng(0)
    answers = []
    for number in range(9):
        task = f"t{number}"
        for method, recall in (("none", 0.5), ("cc", 0.55), ("dc", 0.75)):
            place = {"method": method}
            answers.append(answers_of(rng, task, "abc", list("abc" * 10), recall, **place))
            answers.append(preferring(rng, task, "abc", list("abc" * 6), rng.normal(size=3).tolist(), **place))
    connection = analysed(answers)
    by_task = rows(connection, "from label_bias_changes_by_task")
    by_task.sort(key=lambda row: str(row["task"]))
    found = {(row["method"], row["metric"]): row for row in rows(connection, "from label_bias_verdicts")}
    families = [[metric for metric in METRICS if metric != "relative_variance"], ["relative_variance"]]
    assert found.keys() == {(method, metric) for method in ("cc", "dc") for metric in METRICS}
    for family in families:
        names = [(method, metric) for method in ("cc", "dc") for metric in family]
        matrix = np.array(
            [[row["estimate"] for row in by_task if (row["method"], row["metric"]) == name] for name in names]
        )
        assert matrix.shape == (len(names), 9)
        for name, expected in zip(names, expected_tests(matrix, every_pattern(9)), strict=True):
            row = {key: np.nan if found[name][key] is None else found[name][key] for key in expected}
            assert row == pytest.approx(expected, abs=1e-6, nan_ok=True), name
    assert found["dc", "accuracy"]["verdict"] == "higher"


def test_a_run_of_one_task_tests_its_rows_as_mcnemar_does() -> None:
    """Of 12 rows cc gets 6 right that none gets wrong, and one wrong: p is that of 1 of 7 coins, and exact.

    The 7 are not alike in their gold labels: of a, 5 are won; of b, one is won and one is lost.
    """
    gold = "a" * 7 + "b" * 5
    none = Answers("t", "ab", list(gold), right_with("bbbbbba" + "babba", "ab"))
    cc = Answers("t", "ab", list(gold), right_with("aaaaaba" + "abbba", "ab"), "cc")
    gains = np.array([a == g for a, g in zip(cc.predicted, gold, strict=True)]) * 1.0
    gains -= np.array([a == g for a, g in zip(none.predicted, gold, strict=True)])
    assert sorted(gains) == [-1] + [0] * 5 + [1] * 6
    connection = analysed([none, cc])
    row = verdicts(connection, "accuracy")["cc"]
    assert (row["unit"], row["n_units"], row["n_tasks"]) == ("rows", 12, 1)
    assert row["p"] == pytest.approx(stats.binomtest(1, 7).pvalue)
    assert row["standard_error"] == pytest.approx(stats.sem(gains))
    assert row["estimate"] == pytest.approx(5 / 12)
    assert row["median"] is row["interquartile_mean"] is row["standardized"] is None
    [change] = rows(connection, "from label_bias_changes")
    [by_task] = rows(connection, "from label_bias_changes_by_task where metric = 'accuracy'")
    assert [change["accuracy_low"], change["accuracy_high"]] == [by_task["low"], by_task["high"]]


def test_a_planted_gain_is_found_and_its_twin_without_one_is_not() -> None:
    """In 30 tasks cc gets .1 more rows right than none, and dc as many."""
    rng = np.random.default_rng(1)
    answers = []
    for number in range(30):
        base = rng.uniform(0.45, 0.65)
        gold = [str(label) for label in rng.choice(list("abc"), size=100)]
        for method, gain in (("none", 0), ("cc", 0.1), ("dc", 0)):
            answers.append(answers_of(rng, f"t{number:02d}", "abc", gold, base + gain, method=method))
    found = verdicts(analysed(answers), "accuracy")
    assert (found["cc"]["verdict"], found["dc"]["verdict"]) == ("higher", "unclear")
    assert found["cc"]["estimate"] == pytest.approx(0.1, abs=0.03)
    assert found["cc"]["simultaneous_low"] > 0.01
    assert found["cc"]["n_tasks_higher"] <= 10  # few tasks show it on their own


# False alarms


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


@pytest.mark.parametrize("n_tasks", [2, 6, 10])
def test_words_are_wrong_in_few_suites_without_any_effect(n_tasks: int) -> None:
    connection = analysed(**without_effect(300, n_tasks, 30, [0.6, 0.6, 0.6]))
    found = rows(connection, "from label_bias_verdicts")
    assert len(found) == 300 * 2 * 5
    wrong = {row["suite"] for row in found if row["verdict"] in ("higher", "lower")}
    assert len(wrong) / 300 < 0.07
    assert wrong if n_tasks > 5 else {row["verdict"] for row in found} == {"too few"}


def test_words_on_one_task_are_wrong_in_few_runs_where_methods_prefer_other_labels() -> None:
    """None nearly always answers a, cc b: neither knows anything, and they are biased alike."""
    connection = analysed(**without_effect(150, 1, 60, [0.9, 0.1, 0.9]))
    found = rows(connection, "from label_bias_verdicts")
    assert len(found) == 150 * 2 * 5
    for metric in METRICS:
        wrong = {row["suite"] for row in found if row["verdict"] in ("higher", "lower") and row["metric"] == metric}
        assert len(wrong) / 150 < 0.05, metric
    intervals = rows(connection, "from label_bias_by_task_over_sets")
    covered = [row["accuracy_low"] <= 0.5 <= row["accuracy_high"] for row in intervals]
    assert 0.93 < np.mean(covered) < 0.98
