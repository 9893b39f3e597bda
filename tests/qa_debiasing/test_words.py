"""What may be said of debiased readers: pages whose truth is known, through the SQL of real ones."""

from collections.abc import Sequence

import numpy as np
import pytest

from tests.qa_debiasing.study import Study
from tests.qaplans import Rows

N_ARTICLES, N_ROWS = 20, 600

GIVEN, SEARCHED = (3.0,), (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)

WORDS = ("lower", "higher")


def page(
    rng: np.random.Generator,
    thresholds: Sequence[float] = GIVEN,
    bias: float = 0.25,
    debiased: float | None = None,
    gain: float = 0.0,
    n_draws: int = 200,
) -> tuple[Rows, Rows]:
    """Return the changes of bias and of answers of four readers on a set and one elsewhere.

    They are alike in errors and differ by article; all rely on ``ans_len`` up to 3 by the bias, and on ``cos_sim`` not.

    ``bias`` is how much more often an answer up to 3 is right, ``debiased`` that of the first of them, where it is
    another one, and ``gain`` how much more often the first is right.
    """
    study = Study(
        {"ans_len": thresholds, "cos_sim": thresholds},
        datasets={"in_distribution": {"squad": "a.json"}, "out_of_distribution": {"natural": "b.json"}},
        bootstrap={"trials": 100, "sample": 100},
        seed=int(rng.integers(2**31)),
    )
    study.n_draws, study.n_permutations = n_draws, 199 if len(thresholds) > 1 else 0
    study.reader("base")
    readers = {"first": "ans_len", "second": "cos_sim", "third": "ans_len", "fourth": "cos_sim"}
    for model, heuristic in readers.items():
        study.reader(model, "resample", heuristic)
    for dataset, n_rows in (("squad", N_ROWS), ("natural", N_ROWS // 2)):
        values = rng.integers(1, 8, size=(2, n_rows)).astype(float)
        study.questions(dict(zip(("ans_len", "cos_sim"), values.tolist(), strict=True)), dataset)
        article = rng.integers(N_ARTICLES, size=n_rows)
        study.titles([f"title {one}" for one in article], dataset)
        skill, luck = rng.normal(0, 0.1, size=N_ARTICLES), rng.random(n_rows)
        for model in ("base", *readers):
            is_first = model == "first"
            own = bias if debiased is None or not is_first else debiased
            chance = 0.5 + skill[article] + 0.05 * rng.normal(size=N_ARTICLES)[article]
            chance += own * ((values[0] <= 3) - 0.5) + gain * is_first
            mixed = np.where(rng.random(n_rows) < 0.5, luck, rng.random(n_rows))
            right = (mixed < chance).astype(float)
            study.answers(right.tolist(), np.maximum(right, rng.random(n_rows) / 2).tolist(), model, dataset)
    biases, answers = study.asked(
        "from qa_debiasing where method <> 'standard' and dataset = 'squad'", "from qa_answer_changes"
    )
    return biases, answers


def words(found: Rows) -> list[str]:
    return [row["verdict"] for row in found if row["verdict"] in WORDS]


@pytest.mark.slow
def test_readers_that_are_alike_are_told_apart_in_few_pages() -> None:
    """All have the same bias, and the same answers on average: any word is wrong."""
    rng = np.random.default_rng(7)
    wrong, single = [], []
    for _ in range(30):
        biases, answers = page(rng, n_draws=100)
        wrong.append([bool(words(biases)), bool(words(answers))])
        single += [row["p"] <= 0.05 for row in biases]
    of_bias, of_answers = np.mean(wrong, axis=0)
    # Monte Carlo errors 0.03 and 0.04; each family has a half of the 5 %.
    assert of_bias <= 0.075
    assert of_answers <= 0.1
    assert np.mean(single) <= 0.08


@pytest.mark.parametrize("thresholds", [GIVEN, SEARCHED])
def test_a_reader_without_the_bias_is_found(thresholds: Sequence[float]) -> None:
    rng = np.random.default_rng(8)
    found = []
    for _ in range(6):
        biases, _ = page(rng, thresholds, bias=0.5, debiased=0.0, n_draws=100)
        [first] = [row for row in biases if (row["model"], row["heuristic"]) == ("first", "ans_len")]
        found.append(first["verdict"])
        assert "higher" not in words(biases)
        assert first["searched_on"] == ("base" if len(thresholds) > 1 else None)
    assert found.count("lower") >= 5


def test_a_reader_that_answers_worse_is_found() -> None:
    rng = np.random.default_rng(9)
    for _ in range(5):
        _, answers = page(rng, gain=-0.25)
        told = {(row["model"], row["dataset"], row["metric"]) for row in answers if row["verdict"] == "lower"}
        assert {("first", name, "exact_match") for name in ("squad", "natural", "mean")} <= told
        assert {model for model, _, _ in told} == {"first"}


def test_a_bias_that_chance_explains_gives_no_word() -> None:
    """A threshold that the standard reader's luck chose is not where another reader is said to be less biased."""
    study = Study({"ans_len": (1.0, 2.0)}, bootstrap={"trials": 20, "sample": 20})
    study.n_permutations = 199
    study.questions({"ans_len": [1.0] * 20 + [2.0] * 20 + [3.0] * 20})
    study.titles([f"title {row % 12}" for row in range(60)])
    study.reader("base")
    study.reader("again", "resample", "ans_len")
    study.answers([1, 1, 1, 0] * 5 + [1, 0] * 10 + [1, 0] * 10, model="base")
    study.answers([1, 0] * 30, model="again")
    [found], [test] = study.asked("from qa_debiasing where model = 'again'", "from qa_bias_tests where model = 'base'")
    assert (test["is_supported"], found["searched_on"]) == (False, "base")
    assert found["significance_change"] < 0
    assert [found[name] for name in ("p", "verdict", "reason")] == [None, None, "threshold by chance"]
