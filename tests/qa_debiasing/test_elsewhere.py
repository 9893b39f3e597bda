"""What debiasing changes of answers on every data set, and means over biases and sets."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.qa_debiasing.studies import ARTICLES, DEBIASED, large_study, two_readers
from tests.qa_debiasing.study import (
    MARTS,
    Floats,
    Study,
    cluster_error,
    made,
    problems,
    quantile,
    rows,
    segment_influence,
)
from tests.qaplans import RIGHT, VALUES, Rows

# Answers elsewhere


def test_answers_on_every_data_set_by_hand() -> None:
    study = two_readers(datasets={"in_distribution": {"squad": "a.json"}, "out_of_distribution": {"natural": "b.json"}})
    study.questions({"ans_len": [1] * 6}, dataset="natural")
    study.titles(["P", "P", "Q", "Q", "Q", "R"], dataset="natural")
    [f1, standard_f1] = [0.5, 0.25, 1.0, 0.0, 0.5, 1.0], [0.0, 0.5, 1.0, 0.5, 0.5, 0.25]
    [exact, standard_exact] = [0, 0, 1, 0, 0, 1], [0, 0, 1, 0, 1, 0]
    study.answers(exact, f1, model="careful", dataset="natural")
    study.answers(standard_exact, standard_f1, model="base", dataset="natural")
    with study.opened("qa_out_of_distribution") as connection:
        found = rows("from qa_out_of_distribution order by model, dataset", connection)
    assert [(row["model"], row["dataset"], row["role"]) for row in found] == [
        ("base", "natural", "out_of_distribution"),
        ("base", "squad", "in_distribution"),
        ("careful", "natural", "out_of_distribution"),
        ("careful", "squad", "in_distribution"),
    ]
    # Differences of F1 are 0.5 - 0.25, -0.5 and 0.75 by article, 0.5 / 6 on average, of 2, 3 and 1 questions.
    by_article = [0.25 - 2 * 0.5 / 6, -0.5 - 3 * 0.5 / 6, 0.75 - 0.5 / 6]
    half_width = quantile(3) * np.sqrt(3 / 2 * np.sum(np.square(by_article))) / 6
    # Of exact match 0, -1 and 1, 0 on average.
    half_width_exact = quantile(3) * np.sqrt(3 / 2 * 2) / 6
    natural = {
        "model": "careful",
        "base": "bert",
        "data": "squad",
        "method": "learned_mixin",
        "bias": "ans_len",
        "seed": 42,
        "dataset": "natural",
        "role": "out_of_distribution",
        "f1": pytest.approx(3.25 / 6),
        "exact_match": pytest.approx(2 / 6),
        "standard_f1": pytest.approx(2.75 / 6),
        "standard_exact_match": pytest.approx(2 / 6),
        "f1_change": pytest.approx(0.5 / 6),
        "f1_change_low": pytest.approx(0.5 / 6 - half_width),
        "f1_change_high": pytest.approx(0.5 / 6 + half_width),
        "exact_match_change": pytest.approx(0, abs=1e-12),
        "exact_match_change_low": pytest.approx(-half_width_exact),
        "exact_match_change_high": pytest.approx(half_width_exact),
        "n_rows": 6,
        "n_articles": 3,
        # Of the eight patterns of signs of 0.25, -0.5 and 0.75 less their mean, and of 0, -1 and 1.
        "f1_p": flipped([2 * 0.5 / 6 + by_article[0], 3 * 0.5 / 6 + by_article[1], 0.5 / 6 + by_article[2]]),
        "f1_p_adjusted": 1,
        "f1_verdict": "too few",
        "exact_match_p": flipped([0, -1, 1]),
        "exact_match_p_adjusted": 1,
        "exact_match_verdict": "too few",
    }
    assert found[2] == natural
    assert list(found[2]) == list(natural)
    assert found[0] == {
        **natural,
        **dict.fromkeys(name for name in natural if "_change" in name or name.startswith("standard_")),
        **dict.fromkeys(name for name in natural if name.endswith(("_p", "_p_adjusted", "_verdict"))),
        "model": "base",
        "method": "standard",
        "bias": None,
        "f1": pytest.approx(2.75 / 6),
    }


def flipped(by_article: Sequence[float]) -> float:
    """Return the share of patterns of signs whose sum is as far from 0."""
    sums = [abs(np.dot(signs, by_article)) for signs in itertools.product([-1, 1], repeat=len(by_article))]
    return float(np.mean(np.array(sums) >= abs(sum(by_article)) - 1e-9))


def test_the_error_of_answers_equals_that_of_a_loop() -> None:
    study, columns = large_study()
    with study.opened("qa_out_of_distribution") as connection:
        found = {row["model"]: row for row in rows("from qa_out_of_distribution", connection)}
    for model in ("mixin", "again"):
        for metric, suffix in (("exact_match", ""), ("f1", " f1")):
            differences = columns[f"{model}{suffix}"] - columns[f"base{suffix}"]
            half_width = quantile(12) * cluster_error((differences - differences.mean()) / 500, columns["article"])
            wanted = [differences.mean(), differences.mean() - half_width, differences.mean() + half_width]
            assert [found[model][f"{metric}_change{end}"] for end in ("", "_low", "_high")] == pytest.approx(
                wanted, rel=1e-4
            )


def test_questions_that_only_one_reader_answered_change_nothing() -> None:
    study = two_readers()
    study.predictions = [
        row for row in study.predictions if (row["model"], row["example_id"]) not in {("base", "q0"), ("careful", "q1")}
    ]
    study.spec["bootstrap"]["sample"] = 9
    with study.opened("qa_debiasing", "qa_out_of_distribution") as connection:
        [found] = rows("from qa_debiasing where model = 'careful'", connection)
        [outcome] = rows("from qa_out_of_distribution where model = 'careful'", connection)
    assert (found["n_rows"], outcome["n_rows"]) == (18, 19)
    paired = np.arange(20) >= 2
    change, influence = segment_influence(
        (np.array(DEBIASED) - np.array(RIGHT, dtype=float))[paired], np.array(VALUES)[paired] == 1
    )
    assert found["gap_change"] == pytest.approx(100 * change)
    half_width = 100 * quantile(4) * cluster_error(influence, np.array(ARTICLES)[paired])
    assert found["gap_change_high"] == pytest.approx(100 * change + half_width)
    assert outcome["exact_match_change"] == pytest.approx((sum(DEBIASED[2:]) - sum(RIGHT[2:]) - 1) / 19)


# Means over biases and over sets

PUBLISHED = {
    # Protocol 11.3: ans_len, word_dist, cos_sim, sim_ents, sim_word, subj_pos; significance and worse EM.
    "standard": [(12.51, 69.01), (8.62, 70.69), (2.63, 75.44), (2.48, 78.57), (1.04, 77.5), (1.01, 79.19)],
    "resample": [(6.87, 69.75), (6.70, 69.25), (1.99, 73.57), (1.62, 79.45), (0.23, 76.94), (0, 77.44)],
    "learned_mixin": [(6.36, 18.52), (0, 38.38), (0, 21.88), (2.87, 30.76), (0.68, 20.88), (4.41, 24.26)],
}
BIASES = ("ans_len", "word_dist", "cos_sim", "sim_ents", "sim_word", "subj_pos")


def changes_of_bias(method: str, seed: int = 42, dataset: str = "squad") -> Rows:
    """Return the published rows of ``qa_debiasing`` of a method's readers on what each addresses."""
    pairs = zip(BIASES, PUBLISHED[method], PUBLISHED["standard"], strict=True)
    return [
        {
            "base": "bert", "data": "squad", "method": method, "seed": seed, "dataset": dataset, "heuristic": heuristic,
            "is_addressed": True, "bias_significance": value, "standard_significance": standard,
            "significance_change": value - standard, "worse_high": worse, "standard_worse_high": standard_worse,
            "worse_high_change": worse - standard_worse, "is_nearly_broken": worse < 2 / 3 * standard_worse,
        }
        for heuristic, (value, worse), (standard, standard_worse) in pairs
    ]  # fmt: skip


ROLES: Rows = [
    {"dataset": "squad", "role": "in_distribution"},
    {"dataset": "squad", "role": "in_distribution"},
    {"dataset": "natural", "role": "out_of_distribution"},
]
WORDS_OF_METHOD = (
    "base", "data", "method", "seed", "dataset", "bias_significance", "standard_significance", "significance_change",
    "worse_high", "standard_worse_high", "n_heuristics", "n_nearly_broken",
)  # fmt: skip


def test_means_over_what_a_method_addresses_are_the_published_ones() -> None:
    """The published means of the significance are over seven, a 0 of ans_pos with them, of EM over six."""
    given = [*changes_of_bias("learned_mixin"), *changes_of_bias("resample")]
    given += [row | {"is_addressed": False, "heuristic": "ans_pos", "bias_significance": 50.0} for row in given]
    given += [row | {"dataset": "natural"} for row in given]
    mixin, resampled = made("qa_debiasing_by_method", qa_debiasing=given, qa_out_of_distribution=ROLES)
    for found, method, significance, worse, n_broken in (
        (mixin, "learned_mixin", 2.05, 25.78, 6), (resampled, "resample", 2.49, 74.4, 0),
    ):  # fmt: skip
        assert tuple(found) == WORDS_OF_METHOD
        assert [found[name] for name in WORDS_OF_METHOD[:5]] == ["bert", "squad", method, 42, "squad"]
        assert 6 / 7 * found["bias_significance"] == pytest.approx(significance, abs=0.0051)
        assert 6 / 7 * found["standard_significance"] == pytest.approx(4.04, abs=0.0051)
        assert found["significance_change"] == pytest.approx(
            found["bias_significance"] - found["standard_significance"]
        )
        assert found["worse_high"] == pytest.approx(worse, abs=0.0051)
        # Of seven the mean is 76.08, with 82.19 of ans_pos.
        assert (6 * found["standard_worse_high"] + 82.19) / 7 == pytest.approx(76.08, abs=0.0051)
        assert (found["n_heuristics"], found["n_nearly_broken"]) == (6, n_broken)


def test_means_over_biases_leave_out_what_is_not_measured_and_pair_what_has_a_threshold() -> None:
    given = changes_of_bias("resample")[:3] + changes_of_bias("resample", seed=1)[:2]
    # The first was not measured; the second has no significant threshold, its standard reader has one.
    given[0] |= {"significance_change": None, "bias_significance": None, "worse_high": None, "worse_high_change": None}
    given[1] |= {"bias_significance": 0.0, "significance_change": -8.62, "worse_high": None, "worse_high_change": None}
    given[1] |= {"is_nearly_broken": None}
    other, found = made("qa_debiasing_by_method", qa_debiasing=given, qa_out_of_distribution=ROLES)
    assert [found[name] for name in WORDS_OF_METHOD[3:]] == [
        42, "squad", pytest.approx(1.99 / 2), pytest.approx((8.62 + 2.63) / 2), pytest.approx((-8.62 - 0.64) / 2),
        73.57, 75.44, 2, 0,
    ]  # fmt: skip
    assert [other[name] for name in WORDS_OF_METHOD[3:]] == [
        1, "squad", pytest.approx((6.87 + 6.7) / 2), pytest.approx((12.51 + 8.62) / 2),
        pytest.approx((-5.64 - 1.92) / 2), pytest.approx(69.5), pytest.approx(69.85), 2, 0,
    ]  # fmt: skip


def elsewhere_study() -> tuple[Study, dict[str, dict[str, Floats]]]:
    """Return a study of three readers on a set in distribution and two others of unlike sizes, and its columns by set.

    Of columns named after readers: F1; followed by ``exact``: exact match.
    """
    rng = np.random.default_rng(5)
    study = Study(
        {"ans_len": [1]},
        datasets={
            "in_distribution": {"squad": "a.json"},
            "out_of_distribution": {"natural": "b.json", "trivia": "c.json"},
        },
        bootstrap={"trials": 5, "sample": 10},
    )
    study.reader("base")
    study.reader("careful", "learned_mixin", "ans_len")
    study.reader("again", "learned_mixin", "cos_sim")
    columns: dict[str, dict[str, Floats]] = {}
    for dataset, n_rows, n_articles in (("squad", 60, 6), ("natural", 150, 10), ("trivia", 80, 4)):
        own = columns[dataset] = {"article": rng.permutation(np.arange(n_rows) % n_articles)}
        study.questions({"ans_len": (1 + np.arange(n_rows) % 2).tolist()}, dataset)
        study.titles([f"title {one}" for one in own["article"]], dataset)
        for model in ("base", "careful", "again"):
            own[f"{model} exact"] = (rng.random(n_rows) < 0.4).astype(float)
            own[model] = np.maximum(own[f"{model} exact"], rng.random(n_rows) / 2)
            study.answers(own[f"{model} exact"].tolist(), own[model].tolist(), model, dataset)
    return study, columns


def test_the_mean_over_sets_has_the_error_of_means_of_other_questions() -> None:
    study, columns = elsewhere_study()
    with study.opened() as connection:
        found = {row["model"]: row for row in rows("from qa_out_of_distribution_by_model", connection)}
        assert problems("qa_changes_have_their_draws", connection) == []
    assert list(found) == ["again", "base", "careful"]
    for model in ("careful", "again"):
        row = found[model]
        for metric, suffix in (("f1", ""), ("exact_match", " exact")):
            means, squares = [], []
            for dataset in ("natural", "trivia"):
                own = columns[dataset]
                change = own[f"{model}{suffix}"] - own[f"base{suffix}"]
                means.append(change.mean())
                error = cluster_error((change - change.mean()) / len(change), own["article"])
                squares.append((quantile(len(set(own["article"].tolist()))) * error) ** 2)
            half_width = np.sqrt(squares[0] / 4 + squares[1] / 4)
            wanted = [np.mean(means), np.mean(means) - half_width, np.mean(means) + half_width]
            assert [row[f"{metric}_change{end}"] for end in ("", "_low", "_high")] == pytest.approx(wanted, rel=1e-4)
            for name, reader in ((metric, model), (f"standard_{metric}", "base")):
                each = [columns[dataset][f"{reader}{suffix}"].mean() for dataset in ("natural", "trivia")]
                assert row[name] == pytest.approx(np.mean(each))
        assert (row["n_datasets"], row["n_rows"]) == (2, 230)
    assert list(found["base"]) == [
        "model", "base", "data", "method", "bias", "seed", "f1", "exact_match", "standard_f1", "standard_exact_match",
        "f1_change", "f1_change_low", "f1_change_high", "exact_match_change", "exact_match_change_low",
        "exact_match_change_high", "n_datasets", "n_rows", "f1_p", "f1_p_adjusted", "f1_verdict", "exact_match_p",
        "exact_match_p_adjusted", "exact_match_verdict",
    ]  # fmt: skip
    assert found["base"]["f1"] == pytest.approx(found["again"]["standard_f1"])
    compared = [value for name, value in found["base"].items() if "_change" in name or name.startswith("standard_")]
    assert compared == [None] * 8


def test_a_mean_over_sets_needs_them_all() -> None:
    """A change of 0.1 -/+ 0.03 and one of -0.2 -/+ 0.04: -0.05 -/+ 0.025."""
    place = {"model": "careful", "base": "bert", "data": "squad", "method": "resample", "bias": "ans_len", "seed": 42}
    pairs = {"natural": (0.1, 0.03, 0.5), "trivia": (-0.2, 0.04, 0.9), "squad": (0.7, 0.01, 0.9)}
    sets: Rows = [
        place
        | {
            "dataset": dataset, "f1": f1, "exact_match": f1, "standard_f1": f1 - change,
            "role": "in_distribution" if dataset == "squad" else "out_of_distribution",
            "standard_exact_match": f1 - change, "n_rows": 10,
        }
        | {
            f"{metric}_change{end}": change + sign * half
            for metric in ("f1", "exact_match")
            for end, sign in (("", 0), ("_low", -1), ("_high", 1))
        }
        for dataset, (change, half, f1) in pairs.items()
    ]  # fmt: skip

    of_mean = {"model": "careful", "dataset": "mean", "metric": "f1", "p": 0.01, "p_adjusted": 0.04, "verdict": "lower"}

    def mean(**first: None) -> dict[str, Any]:
        given = [row | (first if row["dataset"] == "natural" else {}) for row in sets]
        [found] = made("qa_out_of_distribution_by_model", qa_out_of_distribution=given, qa_answer_changes=[of_mean])
        return found

    whole = mean()
    ends = ("f1_change", "f1_change_low", "f1_change_high")
    assert [whole[name] for name in ends] == pytest.approx([-0.05, -0.075, -0.025])
    assert [whole[name] for name in ("f1_p", "f1_p_adjusted", "f1_verdict")] == [0.01, 0.04, "lower"]
    assert (whole["f1"], whole["standard_f1"]) == (pytest.approx(0.7), pytest.approx(0.75))
    bounds = [f"{metric}_change_{end}" for metric in ("f1", "exact_match") for end in ("low", "high")]
    single = mean(**dict.fromkeys(bounds))
    assert single == whole | dict.fromkeys(bounds)
    compared = [name for name in whole if "_change" in name or name.startswith("standard_")]
    assert mean(**dict.fromkeys(compared)) == whole | dict.fromkeys(compared)


def test_the_mean_over_biases_is_of_readers_of_one_method_and_seed() -> None:
    study, columns = elsewhere_study()
    study.reader("other seed", "learned_mixin", "ans_len", seed=43)
    study.reader("given up", "learned_mixin", "word_dist", problem="its loss is not finite")
    study.reader("hypothesis", "bias_model", "ans_len")
    for dataset, own in columns.items():
        study.answers([1.0] * len(own["base"]), model="other seed", dataset=dataset)
    with study.opened(*MARTS[:5]) as connection:
        found = rows("from qa_out_of_distribution_by_method order by seed, dataset", connection)
    assert [(row["method"], row["seed"], row["dataset"], row["n_biases"]) for row in found] == [
        ("learned_mixin", seed, dataset, n)
        for seed, n in ((42, 2), (43, 1))
        for dataset in ("mean", "natural", "squad", "trivia")
    ]
    assert list(found[0]) == [
        "base", "data", "method", "seed", "dataset", "f1_change", "exact_match_change", "n_biases",
    ]  # fmt: skip
    for metric, suffix in (("f1", ""), ("exact_match", " exact")):
        changes = {
            dataset: [float(np.mean(own[f"{model}{suffix}"] - own[f"base{suffix}"])) for model in ("careful", "again")]
            for dataset, own in columns.items()
        }
        wanted = [np.mean([changes["natural"], changes["trivia"]])]
        wanted += [np.mean(changes[dataset]) for dataset in ("natural", "squad", "trivia")]
        assert [row[f"{metric}_change"] for row in found[:4]] == pytest.approx(wanted)
    right = 1 - columns["squad"]["base exact"].mean()
    assert (found[6]["dataset"], found[6]["exact_match_change"]) == ("squad", pytest.approx(right))
