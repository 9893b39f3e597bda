"""RSD and BiasScore beside their partners, which rows alone do not raise, and the words that need both."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from biaseval.analysis.sql_files import connect
from tests.label_bias_statistics.answers import Analysed, Answers, Array, answers_of, right_with, rows, verdicts
from tests.label_bias_statistics.influences import weighted_squared_preference


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
    connection = Analysed(answers)
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
        found = rows(Analysed(answers), "from label_bias_by_task order by task")
        assert len(found) == 32
        squares = [(row["relative_variance"] or 0) * row["accuracy"] ** 2 for row in found]
        mean = np.dot(chances, squares)
        naive = np.dot(chances, [(row["rsd"] * row["accuracy"]) ** 2 for row in found])
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


def test_rsd_is_said_to_be_lower_where_recalls_come_together_and_not_where_only_accuracy_rises() -> None:
    made = Analysed(accuracy_only(30))
    rsd, variance = (verdicts(made, metric)["cc"] for metric in ("rsd", "relative_variance"))
    assert rsd["estimate"] < -0.03
    assert rsd["p_adjusted"] <= 0.05 < variance["p_adjusted"]  # as its floor falls
    assert rsd["word_p_adjusted"] == variance["word_p_adjusted"] > 0.05
    assert (rsd["verdict"], rsd["same_tasks_verdict"]) == ("unclear", "unclear")
    assert min(rsd["same_tasks_word_p_adjusted"], variance["same_tasks_word_p_adjusted"]) > 0.05
    assert verdicts(made, "accuracy")["cc"]["verdict"] == "higher"
    made = Analysed(accuracy_only(30, tilt=0.3, left=0.1))
    rsd, variance = (verdicts(made, metric)["cc"] for metric in ("rsd", "relative_variance"))
    assert (rsd["verdict"], variance["verdict"], rsd["same_tasks_verdict"]) == ("lower", "lower", "lower")
    largest = max(rsd["p_adjusted"], variance["p_adjusted"] / 2)  # the second test is one-sided
    assert rsd["word_p_adjusted"] == variance["word_p_adjusted"] == largest
    assert (rsd["least_effect"], variance["least_effect"]) == (0.01, 0.002)
    # Tasks that show it on their own show both.
    assert 0 < rsd["n_tasks_lower"] <= 30


@pytest.mark.parametrize(("tests", "p"), [
    ([(-1, 0.01)], 0.01), ([(0, 1)], 1), ([(-1, 0.01), (-0.2, 0.04)], 0.02), ([(-1, 0.03), (-0.2, 0.04)], 0.03),
    ([(-1, 0.01), (0.2, 0.02)], 1), ([(-1, 0.01), (0, 0.02)], 1), ([(-1, 0.01), (-1, None)], None),
    ([(None, None)], None),
])  # fmt: skip
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
    words = {row["metric"]: row for row in rows(Analysed(answers), "from label_bias_verdicts")}
    assert words["rsd"]["estimate"] > 0.9
    assert (words["rsd"]["verdict"], words["rsd"]["same_tasks_verdict"]) == ("unclear", "unclear")
    assert words["relative_variance"]["estimate"] is None
    assert words["accuracy"]["same_tasks_verdict"] == "higher"


def of_odds(log_odds: Array, gold: str, method: str = "none", task: str = "t", demo_set: int = 0) -> Answers:
    """Return answers on rows of BiasScore with these log odds of a against b."""
    share = 1 / (1 + np.exp(-log_odds))
    place: dict[str, Any] = {"method": method, "demo_set": demo_set, "purpose": "bias_score"}
    return Answers(task, "ab", list(gold), np.column_stack([share, 1 - share]), **place)


def measured(*bias_score: Answers, n_main: int = 40) -> list[Answers]:
    """Return these answers, and main rows of which half are right in every setting."""
    places = dict.fromkeys((each.task, each.method, each.demo_set) for each in bias_score)
    gold = list("ab" * (n_main // 2))
    right = right_with(list("aabb" * (n_main // 4)), "ab")
    main = [Answers(task, "ab", gold, right, method=method, demo_set=number) for task, method, number in places]
    return [*bias_score, *main]


GOLD = "ab" * 16


def lucky(luck: float, seed: int = 0) -> Array:
    """Return the log odds of 32 rows of a model that knows the labels, and leans to a by so much."""
    drawn = np.random.default_rng(seed).normal(1.5, 1, size=16)
    return luck + np.column_stack([drawn, -drawn]).ravel()


def test_squared_preference_is_the_squared_distance_less_what_rows_add() -> None:
    rng = np.random.default_rng(2)
    of_three = [rng.dirichlet([3, 2, 1], 11) for _ in range(2)]
    three = [Answers("three", "abc", list("aaaaabbbbcc"), each, demo_set=number, purpose="bias_score")
             for number, each in enumerate(of_three)]  # fmt: skip
    single = Answers("single", "ab", list("ab"), rng.dirichlet([2, 1], 2), purpose="bias_score")
    rare = Answers("rare", "ab", list("aaaab"), rng.dirichlet([2, 1], 5), purpose="bias_score")
    main = [Answers(each.task, each.labels, list("ab"), right_with("ab", each.labels)) for each in (single, rare)]
    main += [Answers("three", "abc", list("abc"), right_with("abc", "abc"), demo_set=number) for number in (0, 1)]
    connection = Analysed([*three, single, rare, *main])
    found = rows(connection, "from label_bias_by_task where task = 'three' order by demo_set")
    expected = [weighted_squared_preference(each, np.ones(11)) for each in three]
    assert [row["squared_preference"] for row in found] == pytest.approx(expected, abs=1e-12)
    over_sets = {row["task"]: row for row in rows(connection, "from label_bias_by_task_over_sets")}
    assert over_sets["three"]["squared_preference"] == pytest.approx(np.mean(expected), abs=1e-12)
    assert over_sets["single"]["squared_preference"] is None
    # The row of its own label has the variance of the others.
    share = rare.probabilities[:, 0]
    mean = (share[:4].mean() + share[4]) / 2
    noise = (share[:4].var(ddof=1) / 4 + share[:4].var(ddof=1)) / 4
    assert over_sets["rare"]["squared_preference"] == pytest.approx(2 * ((mean - 0.5) ** 2 - noise), abs=1e-12)


def test_a_calibration_that_undoes_the_luck_of_rows_has_no_word() -> None:
    """All rows move together, so that the difference has hardly an error: sign flips of it alone reach the least p."""
    odds = lucky(0.35)
    found = {}
    for metric in ("bias_score", "squared_preference"):
        connection = Analysed(measured(of_odds(odds, GOLD), of_odds(odds - 0.3, GOLD, "cc")))
        found[metric] = verdicts(connection, metric)["cc"]
    assert found["bias_score"]["estimate"] < -0.03
    assert found["bias_score"]["p_adjusted"] < 0.001
    assert found["bias_score"]["noise_p"] > 0.05
    for row in found.values():
        assert row["word_p_adjusted"] >= row["noise_p"]
        assert (row["verdict"], row["same_tasks_verdict"]) == ("unclear", "unclear")


def test_the_noise_of_a_suite_is_that_of_its_least_p() -> None:
    """Of eight tasks one is above noise: the smaller p of its two sides, times two, times the tasks."""
    luck = [1.2, *np.linspace(-0.2, 0.2, 7)]
    answers = []
    for number, own in enumerate(luck):
        odds = lucky(own, seed=number)
        answers += [of_odds(odds, GOLD, task=f"t{number}"), of_odds(odds - own, GOLD, "cc", task=f"t{number}")]
    connection = Analysed(measured(*answers))
    found = verdicts(connection, "bias_score")["cc"]
    least = min(row["bias_score_p"] for row in rows(connection, "from label_bias_by_task_over_sets"))
    assert found["noise_p"] == pytest.approx(min(1, 16 * least))
    assert {row["noise_p"] for row in rows(connection, "from label_bias_verdicts where metric = 'rsd'")} == {None}


@pytest.mark.parametrize(("tests", "noise_p", "p"), [
    ([(-1, 0.01), (-0.2, 0.04)], 0.001, 0.02), ([(-1, 0.01), (-0.2, 0.04)], 0.3, 0.3),
    ([(-1, 0.01), (0.2, 0.04)], 0.001, 1), ([(-1, 0.01), (-0.2, None)], 0.001, None),
    ([(-1, 0.01), (-0.2, 0.04)], None, None),
])  # fmt: skip
def test_a_word_about_bias_score_needs_a_side_above_noise(
    tests: list[Any], noise_p: float | None, p: float | None
) -> None:
    told = [
        {"metric": metric, "estimate": estimate, "p": of_one, "noise_p": noise_p}
        for metric, (estimate, of_one) in zip(("bias_score", "squared_preference"), tests, strict=True)
    ]
    typed = "struct(metric varchar, estimate double, p double, noise_p double)[]"
    assert connect([]).execute(f"select word_p($1::{typed})", [told]).fetchall() == [(p,)]


@pytest.mark.parametrize(("metric", "bands", "band"), [
    ("bias_score", [(-0.001, 0.002), (-0.001, 0.001)], [-0.005, 0.005]),
    ("bias_score", [(-0.02, 0.002), (-0.001, 0.001)], [-0.02, 0.005]),
    ("squared_preference", [(-0.02, 0.002), (-0.001, 0.001)], [-0.004, 0.001]),
    ("bias_score", [(-0.001, 0.002), (None, None)], None), ("rsd", [(-0.001, 0.002), (-0.1, 0.1)], [-0.001, 0.002]),
    ("accuracy", [(-0.001, 0.002)], [-0.001, 0.002]),
])  # fmt: skip
def test_bias_score_is_negligible_by_the_wider_band_in_least_effects(
    metric: str, bands: list[Any], band: list[float] | None
) -> None:
    names = {"rsd": ("rsd", "relative_variance"), "accuracy": ("accuracy",)}
    told = [
        {"metric": name, "low": low, "high": high}
        for name, (low, high) in zip(names.get(metric, ("bias_score", "squared_preference")), bands, strict=True)
    ]
    [own] = [test for test in told if test["metric"] == metric]
    typed = "struct(metric varchar, low double, high double)[]"
    asked = f"select word_band($1, $2::double, $3::double, $4::{typed})"
    [(found,)] = connect([]).execute(asked, [metric, own["low"], own["high"], told]).fetchall()
    assert found == (None if band is None else pytest.approx(band))


def test_bias_score_is_tested_where_each_label_has_five_rows() -> None:
    """A strong preference, with 30 rows of one label and two, four or five of the other."""
    answers = []
    for n_rare in (0, 2, 4, 5):
        gold = "a" * 30 + "b" * n_rare
        odds = np.random.default_rng(n_rare).normal(2.5, 0.1, size=len(gold))
        sides = (("none", 0), ("cc", 2.4))
        answers += [of_odds(odds - part, gold, method, task=f"t{n_rare}") for method, part in sides]
    connection = Analysed(measured(*answers))
    found = rows(connection, "from label_bias_by_task_over_sets where method = 'none' order by n_bias_score_rows")
    assert [row["n_fewest_bias_score_rows"] for row in found] == [0, 2, 4, 5]
    assert {row["fewest_bias_score_label"] for row in found} == {"b"}
    assert [row["bias_score_p"] is None for row in found] == [True, True, True, False]
    assert found[3]["bias_score_p"] < 0.001
    # Where it cannot be tested, 0 is inside, and a change has no word.
    assert [row["bias_score_low"] for row in found[:3]] == [None, 0, 0]
    assert found[3]["bias_score_low"] > 0.3
    by_task = rows(connection, "from label_bias_changes_by_task where metric = 'bias_score' order by task")
    assert [row["noise_p"] is None for row in by_task] == [True, True, True, False]
    [model] = rows(connection, "from label_bias_by_model where method = 'none'")
    assert (model["n_tasks_bias_score"], model["n_tasks_bias_score_tested"]) == (1, 1)
    of_label = rows(connection, "from label_bias_by_label where task = 't4' and method = 'none' order by label")
    assert [row["n_bias_score_rows_of_label"] for row in of_label] == [30, 4]


def test_a_model_whose_probabilities_never_change_is_above_noise_for_sure() -> None:
    constant = of_odds(np.full(32, 1.5), GOLD, task="constant")
    equal = of_odds(np.zeros(32), GOLD, task="equal")
    sure = Answers("sure", "ab", list(GOLD), np.eye(2)[[0, 1] * 16], purpose="bias_score")
    found = {row["task"]: row for row in rows(Analysed(measured(constant, equal, sure)), "from label_bias_by_task")}
    assert {task: row["bias_score_p"] for task, row in found.items()} == {"constant": 0, "equal": 1, "sure": 1}
    assert found["constant"]["squared_preference"] == pytest.approx(2 * found["constant"]["bias_score"] ** 2)
