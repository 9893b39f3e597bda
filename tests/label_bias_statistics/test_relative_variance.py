"""RSD beside its relative variance, which rows alone do not raise."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from biaseval.analysis.sql_files import connect
from tests.label_bias_statistics.answers import Answers, analysed, answers_of, right_with, rows, verdicts


def relative_variance(answers: Answers) -> float | None:
    """Return it from hits, label by label; None where there is none."""
    hits = {
        label: [p == g for p, g in zip(answers.predicted, answers.gold, strict=True) if g == label]
        for label in answers.gold
    }
    accuracy = sum(map(sum, hits.values())) / len(answers.gold)
    if not accuracy:
        return None
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
    assert [found[task] for task in ("single", "wrong", "right")] == [0, None, 0]
    assert found["constant"] == pytest.approx(1)  # as its RSD: its recalls have no error
    [model] = rows(connection, "from label_bias_by_model")
    assert model["relative_variance"] == pytest.approx(
        np.mean([value for value in found.values() if value is not None]), abs=1e-12
    )


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
        mean = sum(
            p * (row["relative_variance"] or 0) * row["accuracy"] ** 2 for p, row in zip(chances, found, strict=True)
        )
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
        {"metric": metric, "estimate": estimate, "p": of_one, "noise_p": None}
        for metric, (estimate, of_one) in zip(("rsd", "relative_variance"), tests, strict=False)
    ]
    typed = "struct(metric varchar, estimate double, p double, noise_p double)[]"
    found = connect([]).execute(f"select word_p($1::{typed})", [told]).fetchall()
    assert found == [(p,)]


@pytest.mark.parametrize("n_tasks", [1, 8])
def test_rsd_has_no_word_where_nothing_was_right(n_tasks: int) -> None:
    """It is 0 without a hit by definition: that it rises from there says nothing."""
    gold = list("ab" * 40)
    answers = [
        Answers(f"t{number}", "ab", gold, right_with(predicted, "ab"), method=method)
        for number in range(n_tasks)
        for method, predicted in (("none", list("ba" * 40)), ("cc", list("a" * 78 + "bb")))
    ]
    words = {row["metric"]: row for row in rows(analysed(answers), "from label_bias_verdicts")}
    assert words["rsd"]["estimate"] > 0.9
    assert (words["rsd"]["verdict"], words["rsd"]["same_tasks_verdict"]) == ("unclear", "unclear")
    assert words["relative_variance"]["estimate"] is None
    assert words["accuracy"]["same_tasks_verdict"] == "higher"


def test_a_task_without_a_hit_leaves_the_word_to_the_others() -> None:
    gold = list("ab" * 40)
    answers = [
        Answers(task, "ab", gold, right_with(predicted, "ab"), method=method)
        for number in range(10)
        for task, first in ((f"t{number}", list("ab" * 40) if number else list("ba" * 40)),)
        for method, predicted in (("none", first), ("cc", [*"a" * (70 + number), *"ab" * 40][:80]))
    ]
    words = {row["metric"]: row for row in rows(analysed(answers), "from label_bias_verdicts")}
    assert words["rsd"]["verdict"] == "higher"
    assert words["relative_variance"]["n_units"] == 9
