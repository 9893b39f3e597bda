"""Simulated answers of known truth: how often floors, formats, constant answers and gates of label bias err."""

from collections.abc import Callable

import numpy as np
import pytest

from biaseval.analysis.gates import PRESETS
from tests.label_bias_statistics.answers import Analysed, Answers, Rows, answers_of, preferring, right_with, rows
from tests.label_bias_statistics.test_constant_answers import _answers
from tests.label_bias_statistics.test_formats import FORMATS, LABELS

pytestmark = pytest.mark.slow


def of_runs(answers_of_run: Callable[[str], list[Answers]], n_runs: int, sql: str) -> Rows:
    """Return the rows of a query over so many runs of one task, which are the suites of one."""
    runs = {f"s{run}": [f"t{run}"] for run in range(n_runs)}
    return rows(Analysed([own for [task] in runs.values() for own in answers_of_run(task)], runs), sql)


def test_an_unbiased_model_on_twenty_rows_seldom_fails_a_ready_made_gate() -> None:
    """Accuracy .7, two labels, numbers of demonstrations as in the README: at most 5 % of runs fail."""
    rng = np.random.default_rng(7)

    def run(task: str) -> list[Answers]:
        gold, answers = [str(label) for label in rng.choice(["a", "b"], 20)], []
        for n_demos in (0, 2, 4):
            predicted = [label if rng.random() < 0.7 else "ba"["ab".index(label)] for label in gold]
            answers += [
                Answers(task, "ab", gold, right_with(predicted, "ab"), n_demos=n_demos),
                preferring(rng, task, "ab", list("ab" * 10), [0, 0], n_demos=n_demos),
            ]
        return answers

    condition, selection, _ = PRESETS["label_bias"]["unbiased"]
    selection = str(selection).replace("suite = 'all'", "suite <> 'all'")
    asked = f"select bool_and({condition}) as holds from label_bias_by_model where {selection} group by suite"
    found = [row["holds"] for row in of_runs(run, 120, asked)]
    assert (len(found), found.count(False) <= 6) == (120, True)


def test_answers_that_are_nearly_constant_by_chance_are_seldom_shown_to_be_better() -> None:
    """The majority class but for three rows of a hundred, anywhere: one in twenty pages at most says better."""
    rng = np.random.default_rng(3)

    def run(task: str) -> list[Answers]:
        gold = [str(label) for label in rng.choice(list("abc"), 100, p=[0.68, 0.22, 0.1])]
        predicted = ["a"] * 100
        for place in rng.choice(100, 3, replace=False):
            predicted[place] = str(rng.choice(["b", "c"]))
        return [own._replace(task=task) for own in _answers(gold, predicted)]

    found = [row["is_above_constant"] for row in of_runs(run, 100, "from label_bias_by_model where suite <> 'all'")]
    assert (len(found), found.count(True) <= 5) == (100, True)


def test_sets_that_differ_by_luck_alone_have_no_part_in_the_variance() -> None:
    """40 tasks of one accuracy, six sets each, of which every one answers for itself."""
    rng = np.random.default_rng(2)
    gold = list("ab" * 50)
    answers = [
        answers_of(rng, f"t{number:02d}", "ab", gold, 0.7, n_demos=4, demo_set=demo_set)
        for number in range(40)
        for demo_set in range(6)
    ]
    [found] = rows(Analysed(answers), "from label_bias_components where metric = 'accuracy'")
    expected = 0.7 * 0.3 / 100 / 6
    assert found["from_rows"] == pytest.approx(expected, rel=0.1)
    assert found["variance"] == pytest.approx(expected, rel=0.7)
    assert found["from_sets"] < 0.2 * expected  # the variance between sets is as large as that of rows
    assert found["from_tasks"] + found["from_sets"] < 0.7 * expected


@pytest.mark.parametrize(("counts", "recall"), [([150, 30, 20], 0.7), ([10] * 10, 0.4), ([60, 5, 3], 0.9)])
def test_the_floor_of_rsd_is_that_of_shuffled_hits(counts: list[int], recall: float) -> None:
    labels = "abcdefghij"[: len(counts)]
    gold = [label for label, n in zip(labels, counts, strict=True) for _ in range(n)]
    answers = answers_of(np.random.default_rng(0), "t", labels, gold, recall)
    [row] = rows(Analysed([answers]), "from label_bias_by_task")
    n_hits, places = round(row["accuracy"] * len(gold)), np.array(gold)
    hits = np.random.default_rng(1).permuted(np.tile(np.arange(len(gold)) < n_hits, (2000, 1)), axis=1)
    shuffled = np.stack([hits[:, places == label].mean(axis=1) for label in labels], axis=1).var(axis=1)
    assert row["rsd_floor"] == pytest.approx(np.sqrt(shuffled.mean()) / row["accuracy"], rel=0.04)
    # The mean RSD itself is a little below its root mean square.
    assert np.sqrt(shuffled).mean() / row["accuracy"] <= row["rsd_floor"] * 1.02
    excess = np.sqrt(max(0, row["rsd"] ** 2 - row["rsd_floor"] ** 2))
    assert row["rsd_excess"] == pytest.approx(excess, abs=1e-9)


def test_the_floor_of_bias_score_is_what_rows_leave_of_a_model_without_preference() -> None:
    """The mean over 300 tasks of the score and of its floor agree, and 5 % of them have a p below .05."""
    rng = np.random.default_rng(0)
    gold = list("abc" * 12)
    answers = []
    for number in range(300):
        probabilities = rng.dirichlet(np.ones(3), size=len(gold))
        answers.append(Answers(f"t{number:03d}", "abc", gold, probabilities, purpose="bias_score"))
        answers.append(Answers(f"t{number:03d}", "abc", gold, right_with(gold, "abc")))
    found = rows(Analysed(answers), "from label_bias_by_task")
    scores, floors = (np.mean([row[name] for row in found]) for name in ("bias_score", "bias_score_floor"))
    assert scores == pytest.approx(floors, rel=0.06)
    assert np.mean([row["bias_score_p"] <= 0.05 for row in found]) < 0.08


def test_wordings_that_make_no_difference_are_rarely_said_to() -> None:
    rng = np.random.default_rng(11)
    n_runs, n_rows = 80, 60
    answers = []
    for run in range(n_runs):
        gold = [LABELS[row % 2] for row in range(n_rows)]
        luck = rng.random(n_rows)
        for form in FORMATS:
            own = np.where(rng.random(n_rows) < 0.6, luck, rng.random(n_rows)) < 0.7
            predicted = [label if hit else LABELS[label == "a"] for label, hit in zip(gold, own, strict=True)]
            answers.append(Answers(f"t{run}", LABELS, gold, right_with(predicted, LABELS), format=form))
    suites = {f"s{run}": [f"t{run}"] for run in range(n_runs)}
    found = rows(
        Analysed(answers, suites),
        "select count(distinct suite) filter (verdict in ('higher', 'lower')) as n, count(distinct suite) as n_all, "
        "count(*) filter (p <= 0.05 and metric = 'accuracy') / count(*) filter (metric = 'accuracy') as share "
        "from label_bias_format_changes",
    )
    # 5 % of 80 are 4; more than 9 have a chance of 1 %.
    assert found[0]["n_all"] == n_runs
    assert found[0]["n"] <= 9
    assert 0.01 < found[0]["share"] < 0.12
