"""What debiasing changes of answers on every data set, and means over biases and sets."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.handmade import made
from tests.qa_debiasing.study import (
    ARTICLES,
    DEBIASED,
    Floats,
    Study,
    cluster_error,
    quantile,
    segment_influence,
    two_readers,
)
from tests.qaplans import RIGHT, VALUES, Rows

OUTSIDE = {"in_distribution": {"squad": "a.json"}, "out_of_distribution": {"natural": "b.json"}}


def flipped(by_article: Sequence[float]) -> float:
    """Return the share of patterns of signs whose sum is as far from 0."""
    sums = [abs(np.dot(signs, by_article)) for signs in itertools.product([-1, 1], repeat=len(by_article))]
    return float(np.mean(np.array(sums) >= abs(sum(by_article)) - 1e-9))


def test_answers_on_every_data_set_by_hand() -> None:
    study = two_readers(datasets=OUTSIDE)
    study.questions({"ans_len": [1] * 6}, dataset="natural")
    study.titles(["P", "P", "Q", "Q", "Q", "R"], dataset="natural")
    study.answers([0, 0, 1, 0, 0, 1], [0.5, 0.25, 1.0, 0.0, 0.5, 1.0], "careful", "natural")
    study.answers([0, 0, 1, 0, 1, 0], [0.0, 0.5, 1.0, 0.5, 0.5, 0.25], "base", "natural")
    [found] = study.asked("from qa_out_of_distribution order by model, dataset")
    roles = [(row["model"], row["dataset"], row["role"]) for row in found]
    assert roles[2:] == [("careful", "natural", "out_of_distribution"), ("careful", "squad", "in_distribution")]
    # Differences of F1 are 0.25, -0.5 and 0.75 by article, 0.5 / 6 on average; of exact match 0, -1 and 1.
    wanted = {"standard_f1": 2.75 / 6, "f1_change": 0.5 / 6, "exact_match_change": 0, "n_rows": 6, "n_articles": 3}
    wanted |= {"f1_p": flipped([0.25, -0.5, 0.75]), "f1_p_adjusted": 1, "exact_match_p": flipped([0, -1, 1])}
    assert {name: found[2][name] for name in wanted} == pytest.approx(wanted)
    assert [found[2][f"{metric}_verdict"] for metric in ("f1", "exact_match")] == ["too few"] * 2
    compared = [name for name in found[0] if "_change" in name or name.endswith(("_p", "_p_adjusted", "_verdict"))]
    assert [found[0][name] for name in (*compared, "standard_f1", "standard_exact_match")] == [None] * 14


def test_questions_that_only_one_reader_answered_change_nothing() -> None:
    study = two_readers()
    lacking = {("base", "q0"), ("careful", "q1")}
    study.predictions = [row for row in study.predictions if (row["model"], row["example_id"]) not in lacking]
    study.spec["bootstrap"]["sample"] = 9
    where = "where model = 'careful'"
    [found], [outcome] = study.asked(f"from qa_debiasing {where}", f"from qa_out_of_distribution {where}")
    assert (found["n_rows"], outcome["n_rows"]) == (18, 19)
    changes = (np.array(DEBIASED) - np.array(RIGHT, dtype=float))[2:]
    change, influence = segment_influence(changes, np.array(VALUES)[2:] == 1)
    half_width = quantile(4) * cluster_error(influence, np.array(ARTICLES)[2:])
    bounds = [found["gap_change"], found["gap_change_high"]]
    assert bounds == pytest.approx([100 * change, 100 * (change + half_width)])
    assert outcome["exact_match_change"] == pytest.approx((sum(DEBIASED[2:]) - sum(RIGHT[2:]) - 1) / 19)


PUBLISHED = {
    # Protocol 11.3: ans_len, word_dist, cos_sim, sim_ents, sim_word, subj_pos; significance and worse EM.
    "standard": [(12.51, 69.01), (8.62, 70.69), (2.63, 75.44), (2.48, 78.57), (1.04, 77.5), (1.01, 79.19)],
    "resample": [(6.87, 69.75), (6.70, 69.25), (1.99, 73.57), (1.62, 79.45), (0.23, 76.94), (0, 77.44)],
    "learned_mixin": [(6.36, 18.52), (0, 38.38), (0, 21.88), (2.87, 30.76), (0.68, 20.88), (4.41, 24.26)],
}
BIASES = ("ans_len", "word_dist", "cos_sim", "sim_ents", "sim_word", "subj_pos")
ROLES: Rows = [
    {"dataset": dataset, "role": f"{role}_distribution"}
    for dataset, role in (("squad", "in"), ("squad", "in"), ("natural", "out_of"))
]
MEANS = (
    "bias_significance", "standard_significance", "significance_change", "worse_high", "standard_worse_high",
    "n_heuristics", "n_nearly_broken",
)  # fmt: skip


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


def test_means_over_what_a_method_addresses_are_the_published_ones() -> None:
    """The published means of the significance are over seven, a 0 of ans_pos with them, of EM over six."""
    given = [*changes_of_bias("learned_mixin"), *changes_of_bias("resample")]
    given += [row | {"is_addressed": False, "heuristic": "ans_pos", "bias_significance": 50.0} for row in given]
    given += [row | {"dataset": "natural"} for row in given]
    found = made("qa_debiasing_by_method", qa_debiasing=given, qa_out_of_distribution=ROLES)
    for row, method, significance, worse, n_broken in zip(
        found, ("learned_mixin", "resample"), (2.05, 2.49), (25.78, 74.4), (6, 0), strict=True
    ):
        place = [row[name] for name in ("base", "data", "method", "seed", "dataset")]
        assert place == ["bert", "squad", method, 42, "squad"]
        means = [6 / 7 * row["bias_significance"], 6 / 7 * row["standard_significance"], row["worse_high"]]
        # Of seven the mean is 76.08, with 82.19 of ans_pos.
        means.append((6 * row["standard_worse_high"] + 82.19) / 7)
        assert means == pytest.approx([significance, 4.04, worse, 76.08], abs=0.0051)
        change = row["bias_significance"] - row["standard_significance"]
        assert row["significance_change"] == pytest.approx(change)
        assert (row["n_heuristics"], row["n_nearly_broken"]) == (6, n_broken)


def test_means_over_biases_leave_out_what_is_not_measured_and_pair_what_has_a_threshold() -> None:
    given = changes_of_bias("resample")[:3] + changes_of_bias("resample", seed=1)[:2]
    # The first was not measured; the second has no significant threshold, its standard reader has one.
    nothing = {"worse_high": None, "worse_high_change": None}
    given[0] |= {"significance_change": None, "bias_significance": None, **nothing}
    given[1] |= {"bias_significance": 0.0, "significance_change": -8.62, **nothing, "is_nearly_broken": None}
    other, found = made("qa_debiasing_by_method", qa_debiasing=given, qa_out_of_distribution=ROLES)
    assert (other["seed"], found["seed"]) == (1, 42)
    assert [found[name] for name in MEANS] == pytest.approx(
        [1.99 / 2, (8.62 + 2.63) / 2, (-8.62 - 0.64) / 2, 73.57, 75.44, 2, 0]
    )
    assert [other[name] for name in MEANS] == pytest.approx(
        [(6.87 + 6.7) / 2, (12.51 + 8.62) / 2, (-5.64 - 1.92) / 2, 69.5, 69.85, 2, 0]
    )


def test_means_over_sets_and_over_readers_are_of_other_questions() -> None:
    """Of two sets of unlike sizes out of distribution, and of the readers of one method and seed."""
    rng = np.random.default_rng(5)
    outside = {"natural": "b.json", "trivia": "c.json"}
    study = Study(
        {"ans_len": [1]},
        datasets={"in_distribution": {"squad": "a.json"}, "out_of_distribution": outside},
        bootstrap={"trials": 5, "sample": 10},
    )
    study.reader("base")
    for model, bias, how in (
        ("careful", "ans_len", {}), ("again", "cos_sim", {}), ("other seed", "ans_len", {"seed": 43}),
        ("given up", "word_dist", {"problem": "its loss is not finite"}),
    ):  # fmt: skip
        study.reader(model, "learned_mixin", bias, **how)
    study.reader("hypothesis", "bias_model", "ans_len")
    columns: dict[str, dict[str, Floats]] = {}
    for dataset, n_rows, n_articles in (("squad", 60, 6), ("natural", 150, 10), ("trivia", 80, 4)):
        own = columns[dataset] = {"article": rng.permutation(np.arange(n_rows) % n_articles)}
        study.questions({"ans_len": (1 + np.arange(n_rows) % 2).tolist()}, dataset)
        study.titles([f"title {one}" for one in own["article"]], dataset)
        for model in ("base", "careful", "again"):
            own[f"{model} exact_match"] = (rng.random(n_rows) < 0.4).astype(float)
            own[f"{model} f1"] = np.maximum(own[f"{model} exact_match"], rng.random(n_rows) / 2)
            study.answers(own[f"{model} exact_match"].tolist(), own[f"{model} f1"].tolist(), model, dataset)
        study.answers([1.0] * n_rows, model="other seed", dataset=dataset)
    with study.opened() as relations:
        found = {row["model"]: row for row in relations.rows("from qa_out_of_distribution_by_model")}
        means = relations.rows("from qa_out_of_distribution_by_method order by seed, dataset")
        assert relations.problems("qa_changes_have_their_draws") == []
    for metric in ("f1", "exact_match"):
        changes: dict[str, list[float]] = {dataset: [] for dataset in columns}
        for model in ("careful", "again"):
            row, squares = found[model], []
            for dataset, own in columns.items():
                change = own[f"{model} {metric}"] - own[f"base {metric}"]
                changes[dataset].append(change.mean())
                error = cluster_error((change - change.mean()) / len(change), own["article"])
                squares.append((quantile(len(set(own["article"].tolist()))) * error) ** 2)
            mean, half_width = np.mean([changes[dataset][-1] for dataset in outside]), np.sqrt(sum(squares[1:]) / 4)
            assert [row[f"{metric}_change{end}"] for end in ("", "_low", "_high")] == pytest.approx(
                [mean, mean - half_width, mean + half_width], rel=1e-4
            )
            for name, reader in ((metric, model), (f"standard_{metric}", "base")):
                wanted = np.mean([columns[dataset][f"{reader} {metric}"].mean() for dataset in outside])
                assert row[name] == pytest.approx(wanted)
            assert (row["n_datasets"], row["n_rows"]) == (2, 230)
        wanted_means = [np.mean([changes[dataset] for dataset in outside])]
        wanted_means += [np.mean(changes[dataset]) for dataset in ("natural", "squad", "trivia")]
        assert [row[f"{metric}_change"] for row in means[:4]] == pytest.approx(wanted_means)
    base = found["base"]
    assert [base[name] for name in base if "_change" in name or name.startswith("standard_")] == [None] * 8
    assert [(row["method"], row["seed"], row["dataset"], row["n_biases"]) for row in means] == [
        ("learned_mixin", seed, dataset, n)
        for seed, n in ((42, 2), (43, 1))
        for dataset in ("mean", "natural", "squad", "trivia")
    ]
    assert means[6]["exact_match_change"] == pytest.approx(1 - columns["squad"]["base exact_match"].mean())


def test_a_mean_over_sets_needs_them_all() -> None:
    """A change of 0.1 -/+ 0.03 and one of -0.2 -/+ 0.04: -0.05 -/+ 0.025."""
    place = {"model": "careful", "base": "bert", "data": "squad", "method": "resample", "bias": "ans_len", "seed": 42}
    sets: Rows = []
    for dataset, change, half, f1 in (
        ("natural", 0.1, 0.03, 0.5),
        ("trivia", -0.2, 0.04, 0.9),
        ("squad", 0.7, 0.01, 0.9),
    ):
        role = "in_distribution" if dataset == "squad" else "out_of_distribution"
        sets.append({**place, "dataset": dataset, "role": role, "n_rows": 10})
        for metric in ("f1", "exact_match"):
            sets[-1] |= {metric: f1, f"standard_{metric}": f1 - change, f"{metric}_change": change}
            sets[-1] |= {f"{metric}_change_low": change - half, f"{metric}_change_high": change + half}
    of_mean = {"model": "careful", "dataset": "mean", "metric": "f1", "p": 0.01, "p_adjusted": 0.04, "verdict": "lower"}

    def mean(**first: None) -> dict[str, Any]:
        given = [row | (first if row["dataset"] == "natural" else {}) for row in sets]
        [found] = made("qa_out_of_distribution_by_model", qa_out_of_distribution=given, qa_answer_changes=[of_mean])
        return found

    whole = mean()
    numbers = ("f1_change", "f1_change_low", "f1_change_high", "f1", "standard_f1", "f1_p", "f1_p_adjusted")
    assert [whole[name] for name in numbers] == pytest.approx([-0.05, -0.075, -0.025, 0.7, 0.75, 0.01, 0.04])
    assert whole["f1_verdict"] == "lower"
    bounds = [f"{metric}_change_{end}" for metric in ("f1", "exact_match") for end in ("low", "high")]
    assert mean(**dict.fromkeys(bounds)) == whole | dict.fromkeys(bounds)
    compared = [name for name in whole if "_change" in name or name.startswith("standard_")]
    assert mean(**dict.fromkeys(compared)) == whole | dict.fromkeys(compared)
