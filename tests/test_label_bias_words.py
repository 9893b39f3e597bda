"""Words about label bias: RSD beside its relative variance, these tasks beside tasks like these, and remedies."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from scipy import stats  # type: ignore[import-untyped]

from biaseval.analysis.relations import connect, create, relations
from biaseval.analysis.sign_flips import sign_flips
from tests.statistics_macros.patterns import every_pattern, expected_tests, values
from tests.test_label_bias_statistics import (
    METRICS,
    Answers,
    Array,
    analysed,
    answers_of,
    influences,
    one_task,
    preferring,
    right_with,
    rows,
    side,
    tasks_that_change,
    verdicts,
)

# Relative variance


def relative_variance(answers: Answers) -> float:
    """Return it from hits, label by label."""
    hits = {
        label: [p == g for p, g in zip(answers.predicted, answers.gold, strict=True) if g == label]
        for label in answers.gold
    }
    accuracy = sum(map(sum, hits.values())) / len(answers.gold)
    if not accuracy:
        return 0.0
    recalls = np.array([np.mean(own) for own in hits.values()])
    errors = [
        r * (1 - r) / (len(own) - 1) if len(own) > 1 else accuracy * (1 - accuracy)
        for r, own in zip(recalls, hits.values(), strict=True)
    ]
    noise = (len(hits) - 1) / len(hits) ** 2 * sum(errors)
    return float((recalls.var() - noise) / accuracy**2)


def test_relative_variance_is_the_variance_of_recalls_less_that_of_rows() -> None:
    rng = np.random.default_rng(3)
    answers = [
        answers_of(rng, "three", "abcd", list("aaaaaaaabbbbbccc"), {"a": 0.9, "b": 0.5, "c": 0.3}),
        answers_of(rng, "rare", "abc", list("aaaaaabbbbc"), 0.6),
        Answers("single", "ab", list("aaaaaa"), right_with("aaabbb", "ab")),
        Answers("wrong", "ab", list("ab" * 4), right_with("ba" * 4, "ab")),
        Answers("right", "ab", list("ab" * 4), right_with("ab" * 4, "ab")),
        Answers("constant", "ab", list("ab" * 4), right_with("a" * 8, "ab")),
    ]
    connection = analysed(answers)
    found = {row["task"]: row["relative_variance"] for row in rows(connection, "from label_bias_by_task")}
    for each in answers:
        assert found[each.task] == pytest.approx(relative_variance(each), abs=1e-12), each.task
    assert found["three"] > 0.01
    assert [found[task] for task in ("single", "wrong", "right")] == [0, 0, 0]
    assert found["constant"] == pytest.approx(1)  # as its RSD: its recalls have no error
    [model] = rows(connection, "from label_bias_by_model")
    assert model["relative_variance"] == pytest.approx(np.mean(list(found.values())), abs=1e-12)


def test_relative_variance_averages_to_that_of_the_labels_whatever_the_accuracy() -> None:
    """Of 2 rows of a and 3 of b, by all hits there may be: RSD's own square is above 0 without any bias."""
    for of_a, of_b in ((0.5, 0.5), (0.9, 0.9), (0.9, 0.3)):
        answers, chances = [], []
        for number, hits in enumerate(product((0, 1), repeat=5)):
            gold = "aabbb"
            predicted = [g if hit else "ba"["ab".index(g)] for g, hit in zip(gold, hits, strict=True)]
            answers.append(Answers(f"t{number:02d}", "ab", list(gold), right_with(predicted, "ab")))
            recalls = [of_a, of_a, of_b, of_b, of_b]
            chances.append(np.prod([p if hit else 1 - p for p, hit in zip(recalls, hits, strict=True)]))
        found = rows(analysed(answers), "from label_bias_by_task order by task")
        assert len(found) == 32
        mean = sum(p * row["relative_variance"] * row["accuracy"] ** 2 for p, row in zip(chances, found, strict=True))
        naive = sum(p * (row["rsd"] * row["accuracy"]) ** 2 for p, row in zip(chances, found, strict=True))
        variance = ((of_a - of_b) / 2) ** 2
        assert mean == pytest.approx(variance, abs=1e-12)
        assert naive > variance + 0.01


def accuracy_only(n_tasks: int, tilt: float = 0.0, left: float = 1.0) -> list[Answers]:
    """Return tasks of none, right in half of the rows, and of cc, right in .85, with so much of the tilt left."""
    rng = np.random.default_rng(5)
    gold = list("ab" * 50)
    return [
        answers_of(rng, f"t{number:02d}", "ab", gold, {"a": mean + part * tilt, "b": mean - part * tilt}, method=method)
        for number in range(n_tasks)
        for method, mean, part in (("none", 0.5, 1), ("cc", 0.85, left))
    ]


def test_rsd_is_not_said_to_be_lower_where_only_accuracy_rises() -> None:
    connection = analysed(accuracy_only(30))
    rsd, variance = (verdicts(connection, metric)["cc"] for metric in ("rsd", "relative_variance"))
    assert rsd["estimate"] < -0.03
    assert rsd["p_adjusted"] <= 0.05  # as its floor falls
    assert variance["p_adjusted"] > 0.05
    assert rsd["word_p_adjusted"] == variance["word_p_adjusted"] > 0.05
    assert (rsd["verdict"], rsd["same_tasks_verdict"]) == ("unclear", "unclear")
    assert min(rsd["same_tasks_word_p_adjusted"], variance["same_tasks_word_p_adjusted"]) > 0.05
    assert verdicts(connection, "accuracy")["cc"]["verdict"] == "higher"


def test_rsd_is_said_to_be_lower_where_recalls_come_together() -> None:
    connection = analysed(accuracy_only(30, tilt=0.3, left=0.1))
    rsd, variance = (verdicts(connection, metric)["cc"] for metric in ("rsd", "relative_variance"))
    assert (rsd["verdict"], variance["verdict"], rsd["same_tasks_verdict"]) == ("lower", "lower", "lower")
    largest = max(rsd["p_adjusted"], variance["p_adjusted"] / 2)  # the second test is one-sided
    assert rsd["word_p_adjusted"] == variance["word_p_adjusted"] == largest
    assert (rsd["least_effect"], variance["least_effect"]) == (0.01, 0.002)
    # Tasks that show it on their own show both.
    assert 0 < rsd["n_tasks_lower"] <= 30


@pytest.mark.parametrize(
    ("tests", "p"),
    [
        ([(-1, 0.01)], 0.01),
        ([(0, 1)], 1),
        ([(-1, 0.01), (-0.2, 0.04)], 0.02),
        ([(-1, 0.03), (-0.2, 0.04)], 0.03),
        ([(-1, 0.01), (0.2, 0.02)], 1),
        ([(-1, 0.01), (0, 0.02)], 1),
        ([(-1, 0.01), (-1, None)], None),
        ([(None, None)], None),
    ],
)
def test_a_word_about_rsd_has_the_larger_p_of_one_sign_the_second_one_sided(tests: list[Any], p: float | None) -> None:
    told = [
        {"metric": metric, "estimate": estimate, "p": of_one}
        for metric, (estimate, of_one) in zip(("rsd", "relative_variance"), tests, strict=False)
    ]
    typed = "struct(metric varchar, estimate double, p double)[]"
    found = connect([]).execute(f"select word_p($1::{typed})", [told]).fetchall()
    assert found == [(p,)]


# These tasks


def test_the_quantile_of_student_gives_back_its_p() -> None:
    p, df = np.meshgrid([0.9, 0.5, 0.05, 0.01, 1e-3, 1e-5], [6.0, 7.5, 12.0, 40.3, 200.0, 5000.0])
    connection = connect([])
    found = values(connection, "student_quantile(p, df)", p=p.ravel(), df=df.ravel())
    assert found == pytest.approx(stats.t.isf(p.ravel() / 2, df.ravel()), rel=0.04)
    back = values(connection, "student_p(t, df)", t=found, df=df.ravel())
    assert back == pytest.approx(p.ravel(), rel=1e-5)
    assert np.isnan(values(connection, "student_quantile(p, df)", p=[0.05, None, 0.05], df=[0.5, 9.0, None])).all()


def holm_adjusted(p: Array) -> Array:
    """Return p-values adjusted by Holm's procedure."""
    order = np.argsort(p)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return adjusted


def test_words_on_these_tasks_are_of_the_tasks_own_errors() -> None:
    rng = np.random.default_rng(8)
    answers = []
    for number, n_rows in enumerate((12, 15, 24, 90)):
        gold = list("abc" * (n_rows // 3))
        for method, recall in (("none", 0.4), ("cc", 0.75), ("dc", 0.45)):
            for demo_set in (0, 1):
                place: dict[str, Any] = {"method": method, "demo_set": demo_set}
                answers.append(answers_of(rng, f"t{number}", "abc", gold, recall, **place))
                answers.append(
                    preferring(rng, f"t{number}", "abc", list("abc" * 5), rng.normal(size=3).tolist(), **place)
                )
    connection = analysed(answers)
    by_task = rows(connection, "from label_bias_changes_by_task order by task")
    assert {row["n_units"] for row in by_task if row["metric"] == "accuracy"} == {12, 15, 24, 90}
    assert {row["n_rows"] for row in by_task if row["metric"] == "accuracy"} == {24, 30, 48, 180}
    found = {(row["method"], row["metric"]): row for row in rows(connection, "from label_bias_verdicts")}
    names = [
        (method, metric)
        for method in ("cc", "dc")
        for metric in METRICS
        if found[method, metric]["same_tasks_error"] is not None  # labels of four rows have none in RSD
    ]
    assert {metric for _, metric in names} == {"accuracy", "bias_score"}
    p = {}
    for name in names:
        own = [row for row in by_task if (row["method"], row["metric"]) == name]
        squares = np.array([row["standard_error"] ** 2 for row in own])
        estimate, error = np.mean([row["estimate"] for row in own]), np.sqrt(squares.sum()) / 4
        n_free = squares.sum() ** 2 / np.sum(squares**2 / np.array([row["n_free"] for row in own]))
        p[name] = 2 * stats.t.sf(abs(estimate) / error, n_free)
        row = found[name]
        assert row["same_tasks_n_free"] == pytest.approx(n_free)
        assert 9 < n_free < 140
        interval = stats.t.interval(0.95, n_free, loc=estimate, scale=error)
        assert [row["same_tasks_low"], row["same_tasks_high"]] == pytest.approx(interval, abs=1e-5)
        assert row["same_tasks_p"] == pytest.approx(p[name], rel=0.05)
        reach = stats.t.isf(0.025 / len(names), n_free) * error
        band = [row["same_tasks_simultaneous_low"], row["same_tasks_simultaneous_high"]]
        assert band == pytest.approx([estimate - reach, estimate + reach], rel=0.01)
    adjusted = holm_adjusted(np.array([found[name]["same_tasks_p"] for name in names]))
    assert [found[name]["same_tasks_p_adjusted"] for name in names] == pytest.approx(adjusted, abs=1e-12)
    assert found["cc", "accuracy"]["same_tasks_verdict"] == "higher"
    assert found["cc", "rsd"]["same_tasks_verdict"] == "unclear"


def test_rows_are_counted_once_where_sets_are_several() -> None:
    """Two tasks of two rows each, behind two sets: four rows, which are too few."""
    answers = [
        Answers(f"t{number}", "ab", list("ab"), right_with(predicted, "ab"), method, 4, demo_set)
        for number in range(2)
        for method, predicted in (("none", "aa"), ("cc", "ab"))
        for demo_set in range(2)
    ]
    found = verdicts(analysed(answers), "accuracy")["cc"]
    assert (found["n_rows"], found["same_tasks_verdict"]) == (8, "too few")


def test_what_no_row_changes_is_negligible_on_these_tasks_where_rows_are_many() -> None:
    answers = tasks_that_change([0] * 6)
    found = verdicts(analysed(answers), "accuracy")["cc"]
    assert (found["same_tasks_low"], found["same_tasks_high"], found["same_tasks_p"]) == (0, 0, None)
    n_rows = sum(len(own.gold) for own in answers if own.method == "none")
    assert found["same_tasks_verdict"] == ("negligible" if 3 / n_rows < 0.01 else "unclear")


def test_of_one_task_with_few_rows_a_label_both_words_are_unclear() -> None:
    answers = [
        Answers("t", "abc", list("aaaaabbbbbcc"), right_with(predicted, "abc"), method)
        for method, predicted in (("none", "aaaaabbbbbbb"), ("cc", "aaaaabbbbbcc"))
    ]
    found = verdicts(analysed(answers), "rsd")["cc"]
    assert found["estimate"] < -0.4
    assert (found["p"], found["verdict"], found["same_tasks_verdict"]) == (None, "unclear", "unclear")


# Intervals and components


def test_an_interval_of_a_distance_has_room_above_0() -> None:
    connection = connect([])

    def high(x: Array) -> Array:
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


def test_row_noise_of_one_set_alone_is_what_rows_differ_by_between_sets() -> None:
    answers = one_task(120)
    connection = analysed(answers)
    [found] = rows(connection, "from set_errors")
    assert found["n_sets"] == 2
    for metric in METRICS:
        own = side(answers, metric)
        by_set = np.array([influences([each], metric) for each in own])
        between = by_set.var(axis=0, ddof=1) / 2
        gold = own[0].gold
        counts = np.array([Counter(gold)[label] for label in gold])
        factor = counts / (counts - 1) if metric not in ("accuracy", "macro_f1") else len(gold) / (len(gold) - 1)
        expected = np.sum(between * factor) / len(gold) ** 2
        assert found[metric] == pytest.approx(expected, rel=1e-4), metric


def test_sets_that_differ_by_luck_alone_have_no_part_in_the_variance() -> None:
    """40 tasks of one accuracy, six sets each, of which every one answers for itself."""
    rng = np.random.default_rng(2)
    gold = list("ab" * 50)
    answers = [
        answers_of(rng, f"t{number:02d}", "ab", gold, 0.7, n_demos=4, demo_set=demo_set)
        for number in range(40)
        for demo_set in range(6)
    ]
    [found] = rows(analysed(answers), "from label_bias_components where metric = 'accuracy'")
    expected = 0.7 * 0.3 / 100 / 6
    assert found["from_rows"] == pytest.approx(expected, rel=0.1)
    assert found["variance"] == pytest.approx(expected, rel=0.7)
    assert found["from_sets"] < 0.2 * expected  # the variance between sets is as large as that of rows
    assert found["from_tasks"] + found["from_sets"] < 0.7 * expected


# Remedies

REMEDIES = "label_bias_remedies"


def graded(**words: Any) -> dict[str, Any]:
    """Return a row of ``label_bias_remedies``, of words for tasks like these and the lower bound of accuracy."""
    given = {
        "rsd": "unclear",
        "bias_score": "unclear",
        "accuracy": "unclear",
        "macro_f1": "unclear",
        "low": -0.02,
    } | words
    place = {"model": "m", "suite": "all", "n_demos": 0}
    tests = [
        {
            **place,
            "method": "cc",
            "against_n_demos": 0,
            "against_method": "none",
            "metric": metric,
            "verdict": given.get(metric),
            "same_tasks_verdict": "unclear",
            "simultaneous_low": given["low"],
            "same_tasks_simultaneous_low": -0.5,
            "least_effect": 0.01,
            "unit": "tasks",
            "n_units": 30,
            "smallest_detectable": 0.1,
        }
        for metric in METRICS
    ]
    means = [
        {
            **place,
            "method": method,
            **dict.fromkeys(METRICS, 0.5),
            "majority_accuracy": given.get("majority", 0.4),
            "n_tasks_constant": given.get("n_constant", 0),
            "n_tasks": 30,
        }
        for method in ("none", "cc")
    ]
    made = {
        "label_bias_verdicts": tests,
        "label_bias_by_model": means,
        "prompts": [{"purpose": "cc", "n_demos": 0}],
        "calibration_variants": [{"purpose": "cc", "method": "cc"}],
        "run_settings": [{"adaptations": ["none"]}],
    }
    connection = connect([])
    for name, table in made.items():
        connection.from_arrow(pa.Table.from_pylist(table)).create(name)
    [remedies] = [relation for relation in relations("marts", tables=made) if relation.name == REMEDIES]
    create("table", REMEDIES, remedies.sql, connection)
    [row] = rows(connection, f"from {REMEDIES}")
    return row


@pytest.mark.parametrize(
    ("words", "evidence", "falls_in", "is_supported"),
    [
        ({"rsd": "lower", "accuracy": "higher"}, "bias falls, accuracy rises", "rsd", True),
        ({"rsd": "lower", "low": -0.009}, "bias falls, no loss", "rsd", True),
        ({"rsd": "lower", "low": 0.0}, "bias falls, loss not ruled out", "rsd", False),
        ({"rsd": "lower", "low": 0.0, "accuracy": "negligible"}, "bias falls, no loss", "rsd", True),
        ({"rsd": "lower", "low": -0.011}, "bias falls, loss not ruled out", "rsd", False),
        ({"rsd": "lower", "low": None}, "bias falls, loss not ruled out", "rsd", False),
        ({"bias_score": "lower", "low": 0.001}, "bias falls, no loss", "bias_score", True),
        ({"bias_score": "lower", "rsd": "lower", "low": 0.001}, "bias falls, no loss", "rsd and bias_score", True),
        ({"rsd": "lower", "accuracy": "lower"}, "bias falls, accuracy falls", "rsd", False),
        ({"rsd": "lower", "macro_f1": "lower", "low": 0.0}, "bias falls, accuracy falls", "rsd", False),
        ({"rsd": "lower", "bias_score": "higher", "accuracy": "higher"}, "mixed", None, False),
        ({"rsd": "higher", "accuracy": "higher"}, "bias rises", None, False),
        ({"accuracy": "higher"}, "not shown", None, False),
        ({"rsd": None, "bias_score": None, "accuracy": None, "macro_f1": None}, "not shown", None, False),
        ({"rsd": "lower", "low": 0.001, "majority": 0.6}, "bias falls, no loss", "rsd", False),
        ({"rsd": "lower", "low": 0.001, "n_constant": 30}, "bias falls, no loss", "rsd", False),
    ],
)
def test_a_remedy_is_supported_where_bias_falls_and_a_loss_is_ruled_out(
    words: dict[str, Any], evidence: str, falls_in: str | None, is_supported: bool
) -> None:
    row = graded(**words)
    assert (row["evidence"], row["bias_falls_in"], row["is_supported"]) == (evidence, falls_in, is_supported)
    assert row["same_tasks_evidence"] == "not shown"
    assert row["accuracy_same_tasks_evidence"] == "loss not ruled out"
    assert row["is_supported_on_these_tasks"] is False


# Comparisons


def compared(runs: dict[str, Array], unit: str = "task") -> duckdb.DuckDBPyConnection:
    """Return a connection with the comparison of runs, of values by task and metric."""
    tasks = [f"t{number:02d}" for number in range(len(next(iter(runs.values()))))]
    by_task = [
        {
            "run": run,
            "task": task,
            "n_demos": 0,
            "demo_set": 0,
            "method": "none",
            **dict(zip(METRICS, own, strict=True)),
        }
        for run, table in runs.items()
        for task, own in zip(tasks, table.tolist(), strict=True)
    ]
    labels = [
        {**{name: row[name] for name in ("run", "task", "n_demos", "method")}, "label": label, "n_predicted": 5}
        for row in by_task
        for label in "ab"
    ]
    pairs = [{"run": run, "other_run": other} for run, other in product(runs, runs) if run != other]
    same = {"n_rows": 10, "has_same_rows": True, "has_same_bias_score_rows": True}
    made = {
        "label_bias_by_task": pa.Table.from_pylist(by_task),
        "label_bias_by_label": pa.Table.from_pylist(labels),
        "label_bias_shared": pa.Table.from_pylist([{**pair, "unit": unit} for pair in pairs]),
        "label_bias_shared_tasks": pa.Table.from_pylist(
            [{**pair, "task": task, **same} for pair in pairs for task in tasks]
        ),
        "label_bias_row_values": pa.table(
            {name: pa.array([], pa.string()) for name in ("run", "task", "method", "metric")}
            | {name: pa.array([], pa.int64()) for name in ("n_demos", "row")}
            | {"value": pa.array([], pa.float64())}
        ),
        "comparison_sign_flips": sign_flips(len(tasks), 0),
    }
    connection = connect([])
    for name, table in made.items():
        connection.from_arrow(table).create(name)
    name = "label_bias_comparison"
    [relation] = [each for each in relations("comparisons", tables=made) if each.name == name]
    create("table", name, relation.sql, connection)
    return connection


def test_all_pairs_of_a_comparison_are_one_family() -> None:
    rng = np.random.default_rng(6)
    runs = {name: rng.normal(0.5, 0.1, size=(9, 5)) for name in "abc"}
    runs["c"][:, METRICS.index("accuracy")] += 0.5
    connection = compared(runs)
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    families = [[0, 1, 2, 3], [4]]  # relative_variance is one apart
    assert METRICS[4] == "relative_variance"
    expected = {}
    for places in families:
        tests = [(run, other, place) for run, other in pairs for place in places]
        matrix = np.array([runs[other][:, place] - runs[run][:, place] for run, other, place in tests])
        expected |= dict(zip(tests, expected_tests(matrix, every_pattern(9)), strict=True))
    found = {
        (row["run"], row["other_run"], row["metric"]): row
        for row in rows(connection, "from label_bias_comparison where run < other_run")
    }
    for (run, other, place), own in expected.items():
        measured = found[run, other, METRICS[place]]
        row = {key: np.nan if measured[key] is None else measured[key] for key in own}
        assert row == pytest.approx(own, abs=1e-6, nan_ok=True), (run, other, place)
    assert {found[*pair, "accuracy"]["verdict"] for pair in pairs[1:]} == {"higher"}
    alone = rows(compared({"a": runs["a"], "b": runs["b"]}), "from label_bias_comparison where run < other_run")
    for row in alone:
        assert row["p"] == found["a", "b", row["metric"]]["p"]
        assert row["p_adjusted"] <= found["a", "b", row["metric"]]["p_adjusted"]


def test_runs_differ_in_rsd_only_where_they_do_without_noise() -> None:
    """RSD is .2 lower in all nine tasks; the relative variance in b, and not in c."""
    first = np.full((9, 5), 0.5) + np.linspace(0, 0.01, 9)[:, None]
    runs = {"a": first, "b": first.copy(), "c": first.copy()}
    rsd, variance = METRICS.index("rsd"), METRICS.index("relative_variance")
    runs["b"][:, [rsd, variance]] -= 0.2
    runs["c"][:, rsd] -= 0.2
    runs["c"][:, variance] += np.linspace(-0.1, 0.1, 9)
    found = {
        (row["other_run"], row["metric"]): row
        for row in rows(compared(runs), "from label_bias_comparison where run = 'a'")
    }
    assert found["b", "rsd"]["verdict"] == found["b", "relative_variance"]["verdict"] == "lower"
    assert found["c", "rsd"]["p_adjusted"] <= 0.05
    assert (found["c", "rsd"]["word_p_adjusted"], found["c", "rsd"]["verdict"]) == (1, "unclear")
    assert (found["b", "accuracy"]["estimate"], found["b", "accuracy"]["verdict"]) == (0, "unclear")
