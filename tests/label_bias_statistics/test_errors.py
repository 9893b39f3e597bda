"""What rows move: errors of tasks and differences, parts of a variance, floors and p-values, against NumPy, SciPy."""

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from biaseval.analysis.sql_files import connect
from tests.label_bias_statistics import answers as made
from tests.label_bias_statistics.influences import METRIC, influences, resampled
from tests.statistics_macros.patterns import values


def test_influences_are_derivatives_in_the_weight_of_a_row() -> None:
    answers = made.one_task(60)
    assert all("d" in each.predicted and "d" not in each.gold for each in made.side(answers, "rsd"))
    connection = made.Analysed(answers, metrics=made.MORE)
    for metric in (*made.METRICS, *made.MORE):
        found = made.rows(connection, f"from row_influences where metric = '{metric}' order by row")
        expected = influences(made.side(answers, metric), metric)
        if metric in made.OF_BIAS_SCORE_ROWS:  # of means within gold labels, whose error has one row less
            gold = made.side(answers, metric)[0].gold
            expected = expected * np.sqrt([gold.count(label) / (gold.count(label) - 1) for label in gold])
        assert [row["row"] for row in found] == list(range(len(expected)))
        assert [row["influence"] for row in found] == pytest.approx(expected, abs=1e-5), metric
        assert np.abs(expected).max() > 0.1


def test_a_metric_that_rows_cannot_move_has_no_influences() -> None:
    """Nobody is right; and recalls are equal, where a standard deviation has no derivative."""
    wrong = made.Answers("wrong", "ab", list("ab" * 6), made.right_with("ba" * 6, "ab"))
    equal = made.Answers("equal", "ab", list("ab" * 6), made.right_with("abba" * 3, "ab"))
    single = made.Answers("single", "ab", list("a" * 12), made.right_with("aab" * 4, "ab"))
    found = made.rows(made.Analysed([wrong, equal, single]), "from row_influences")
    moved = {(row["metric"], row["task"]): set[float]() for row in found}
    for row in found:
        moved[row["metric"], row["task"]].add(row["influence"])
    assert [moved["rsd", task] for task in ("wrong", "equal", "single")] == [{0}] * 3
    assert (moved["accuracy", "wrong"], moved["accuracy", "equal"]) == ({0}, {0.5, -0.5})


def test_bins_of_ece_count_whatever_their_signs() -> None:
    """Two rows of 0.9, one right, and two right ones of 0.55: gaps of -0.8 and 0.9."""
    answers = made.Answers("t", "ab", list("abaa"), np.array([[0.9, 0.1]] * 2 + [[0.55, 0.45]] * 2))
    found = made.rows(made.Analysed([answers], metrics=["ece"]), "from label_bias_metrics where metric = 'ece'")
    assert [row["value"] for row in found if row["task"]] == [pytest.approx(0.425)]


def test_errors_of_a_task_are_those_of_resampled_rows() -> None:
    answers = made.one_task()
    errors = {row["metric"]: row for row in made.rows(made.Analysed(answers, metrics=made.MORE), "from metric_errors")}
    assert errors.keys() == {*made.METRICS, *made.MORE}
    for metric in errors:
        counted = (40, 36) if metric in made.OF_BIAS_SCORE_ROWS else (200, 197)
        assert (errors[metric]["n_units"], errors[metric]["n_free"]) == counted
        draws = resampled(made.side(answers, metric), metric=metric, rng=np.random.default_rng(1))
        assert errors[metric]["standard_error"] == pytest.approx(draws.std(), rel=0.1), metric


def test_errors_of_a_difference_are_those_of_rows_resampled_on_both_sides() -> None:
    none = made.one_task()
    moderate = {"a": 0.7, "b": 0.65, "c": 0.5}
    other = made.one_task(seed=1, recalls=moderate, method="cc")
    connection = made.Analysed([*none, *other], metrics=made.MORE)
    changes = {row["metric"]: row for row in made.rows(connection, "from label_bias_changes_by_task")}
    assert changes.keys() == {*made.METRICS, *made.MORE}
    for metric, row in changes.items():
        assert (row["method"], row["against_method"]) == ("cc", "none")
        sides = [made.side(both, metric) for both in (other, none)]
        draws = resampled(*sides, metric=metric, rng=np.random.default_rng(1))
        assert row["standard_error"] == pytest.approx(draws.std(), rel=0.1), metric
        weights = np.ones(len(sides[1][0].gold))
        difference = [np.mean([METRIC[metric](each, weights) for each in side]) for side in sides]
        assert row["estimate"] == pytest.approx(difference[0] - difference[1])
        n_free = 36 if metric in made.OF_BIAS_SCORE_ROWS else 197
        t = row["estimate"] / row["standard_error"]
        assert row["p"] == pytest.approx(2 * stats.t.sf(abs(t), n_free), rel=0.02, abs=1e-6)
        interval = stats.t.interval(0.95, n_free, loc=row["estimate"], scale=row["standard_error"])
        assert [row["low"], row["high"]] == pytest.approx(interval, abs=1e-5)


def test_what_no_row_changes_has_no_p() -> None:
    none = made.one_task(60)
    same = [each._replace(method="cc") for each in none]
    for row in made.rows(made.Analysed([*none, *same]), "from label_bias_changes_by_task"):
        assert [row["estimate"], row["standard_error"], row["low"], row["high"], row["p"]] == [0, 0, 0, 0, None]


def test_the_luck_of_which_gold_labels_were_drawn_is_no_difference_between_constant_answers() -> None:
    """Of 52 rows of 100, always a is right; of the others, always b: 52 against 48 is no finding (McNemar: p = .76)."""
    gold = list("a" * 52 + "b" * 48)
    answers = [
        made.Answers("t", "ab", gold, made.right_with("a" * 100, "ab")),
        made.Answers("t", "ab", gold, made.right_with("b" * 100, "ab"), "cc"),
    ]
    connection = made.Analysed(answers)
    change = "from label_bias_changes_by_task where metric = 'accuracy'"
    [row] = made.rows(connection, change)
    assert row["estimate"] == pytest.approx(-0.04)
    assert row["low"] < 0 < row["high"]
    assert row["p"] > 0.5
    [verdict] = made.rows(connection, "from label_bias_verdicts where metric = 'accuracy'")
    assert verdict["p"] == pytest.approx(stats.binomtest(48, 100).pvalue, abs=0.03)
    assert verdict["verdict"] == "unclear"


def test_an_interval_of_a_distance_has_room_above_0() -> None:
    connection = connect([])

    def high(x: made.Array) -> made.Array:
        return values(connection, "norm_interval(x, 0.1, 0.04, 3, 2.0)[2]", x=x)

    below = high(np.array([0.0, 0.05, 0.1]))
    assert below == pytest.approx([below[2]] * 3)
    assert below[2] == pytest.approx(np.sqrt(2 * 0.08**2 + np.sqrt(4 * 0.08**4 + 8 * 0.1**4 / 3)))
    assert (np.diff(high(np.linspace(0.1, 2, 50))) > 0).all()
    lows = values(connection, "norm_interval(x, 0.1, 0.04, 3, 2.0)[1]", x=[0.0, 0.1, 1.0])
    assert lows[:2].tolist() == [0, 0]
    assert 0.8 < lows[2] < 1
    # Without noise to speak of the distance is what is measured.
    sharp = values(connection, "norm_interval(x, 1e-6, 1e-6, 3, 2.0)[2]", x=[0.5])
    assert sharp == pytest.approx([0.5], abs=1e-4)


def test_p_values_of_labels_are_those_of_scipy() -> None:
    answers = made.one_task(80)
    connection = made.Analysed(answers)
    by_label = {(row["demo_set"], row["label"]): row for row in made.rows(connection, "from label_bias_by_label")}
    assert len(by_label) == 8
    for main, bias in zip(made.side(answers, "rsd"), made.side(answers, "bias_score"), strict=True):
        gold, hit = np.array(main.gold), np.array(main.predicted) == np.array(main.gold)
        for place, label in enumerate(made.LABELS):
            row = by_label[main.demo_set, label]
            if label == "d":
                assert (row["n_gold"], row["recall"], row["recall_p"]) == (0, None, None)
            else:
                chance = stats.hypergeom(len(gold), int(hit.sum()), int((gold == label).sum()))
                k = int(hit[gold == label].sum())
                assert row["recall_p"] == pytest.approx(min(1, 2 * min(chance.cdf(k), chance.sf(k - 1))), rel=1e-6)
            # As many rows of each gold label: the error of a mean of means, with the fewest degrees of freedom.
            groups = [bias.probabilities[np.array(bias.gold) == each, place] for each in made.LABELS]
            squares = np.array([group.var(ddof=1) / len(group) for group in groups])
            error = np.sqrt(squares.sum()) / 4
            n_free = min(len(group) - 1 for group in groups)
            assert row["mean_probability"] == pytest.approx(np.mean([group.mean() for group in groups]))
            assert row["standard_error"] == pytest.approx(error)
            expected = 2 * stats.t.sf(abs(row["mean_probability"] - 0.25) / error, n_free)
            assert row["preference_p"] == pytest.approx(expected, rel=0.03, abs=2e-4)
            assert row["preference_p"] >= expected * 0.99


@pytest.mark.parametrize(
    ("gold", "predicted", "accuracy"),
    [("a" * 20, "a" * 12 + "b" * 8, 0.6), ("ab" * 10, "ba" * 10, 0), ("ab" * 10, "ab" * 10, 1)],
)
def test_rsd_has_no_floor_nor_p_where_it_says_nothing(gold: str, predicted: str, accuracy: float) -> None:
    """A single gold label; no answer is right; every one is."""
    connection = made.Analysed([made.Answers("t", "ab", list(gold), made.right_with(predicted, "ab"))])
    [row] = made.rows(connection, "from label_bias_by_task_over_sets")
    assert (row["accuracy"], row["rsd"]) == (accuracy, 0)
    for column in ("rsd_floor", "rsd_excess", "rsd_p", "rsd_low", "rsd_high"):
        assert row[column] is None, column
    [model] = made.rows(connection, "from label_bias_by_model")
    counts = [model[f"n_tasks_{what}"] for what in ("single_gold", "without_hit", "rsd")]
    assert counts == [gold == "a" * 20, accuracy == 0, 0]


def test_pseudo_values_average_to_the_metric() -> None:
    connection = made.Analysed(made.one_task(60), metrics=made.MORE)
    [task] = made.rows(connection, "from label_bias_by_task_over_sets")
    measured = made.rows(connection, "from label_bias_metrics where task is not null")
    assert {name: task[name] for name in made.METRICS} == {
        row["metric"]: row["value"] for row in measured if row["metric"] in made.METRICS
    }
    task |= {row["metric"]: row["value"] for row in measured}
    found = made.rows(connection, "from label_bias_row_values order by metric, row")
    assert {row["n_rows"] for row in found if row["metric"] in made.OF_BIAS_SCORE_ROWS} == {40}
    for metric in (*made.METRICS, *made.MORE):
        own = [row["value"] for row in found if row["metric"] == metric]
        assert len(own) == (40 if metric in made.OF_BIAS_SCORE_ROWS else 60)
        assert np.mean(own) == pytest.approx(task[metric], abs=1e-12)
