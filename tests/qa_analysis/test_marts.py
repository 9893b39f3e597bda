"""Heuristics, data sets and models of QA bias on runs done by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from tests.handmade import ask
from tests.qaplans import OVERLAP, RIGHT, VALUES, QaPlan


@pytest.mark.parametrize(("n_same", "text", "is_constant"), [(19, "p", False), (20, "p", True), (20, "", True)])
def test_a_model_whose_answers_are_the_same_is_constant(
    tmp_path: Path, n_same: int, text: str, is_constant: bool
) -> None:
    """Above 95 % of 20 questions are all of them; an empty answer is one like others."""
    plan = QaPlan()
    plan.questions({"ans_len": VALUES})
    plan.answers(RIGHT)
    for row in plan.predictions[:n_same]:
        row["prediction"] = text
    [row] = plan.relations(tmp_path).rows("from qa_by_dataset")
    assert (row["share_most_frequent"], row["is_constant"]) == (pytest.approx(n_same / 20), is_constant)


def test_a_models_average_is_over_the_heuristics_that_can_be_measured(tmp_path: Path) -> None:
    """Exact are 8 and 4 of 10 with short and long answers, 6 of 10 with few and with many words in common."""
    plan = QaPlan(heuristics=["ans_len", "sim_word", "word_dist"])
    similar = [1] * 6 + [2] * 2 + [1] * 2 + [2] * 4 + [1] * 2 + [2] * 4
    plan.questions({"ans_len": VALUES, "sim_word": similar, "word_dist": [None] * 20})
    exact = [1] * 8 + [0] * 2 + [1] * 4 + [0] * 6
    plan.answers(exact, [(one + 1) / 2 for one in exact])
    run = plan.relations(tmp_path)
    status = {row["heuristic"]: row["status"] for row in run.rows("from qa_bias_by_heuristic")}
    assert status == {"ans_len": "measured", "sim_word": "not significant", "word_dist": "no threshold to try"}
    [found] = run.rows("from qa_by_model")
    [of_draws] = run.rows("select list(mean order by draw) as m from "
                          "(select draw, avg(significance) as mean from qa_search_nulls group by draw)")  # fmt: skip
    own, *nulls = of_draws["m"]
    wanted = {
        "bias_significance": (40 + 0) / 2, "worse_high": 40, "worse_high_f1": 70,
        "bias_significance_f1": 20,  # sim_word has no threshold, at which F1 could be measured
        "n_heuristics": 3, "n_measurable": 2, "n_with_groups": 1, "n_measurable_f1": 1, "n_rows": 20, "n_draws": 1000,
        "n_significant": 0,  # of twenty questions
        "bias_significance_null": np.mean(nulls), "bias_significance_null_high": np.quantile(nulls, 0.95),
        "is_above_null": np.mean(np.array(of_draws["m"]) >= own - 1e-9) <= 0.05,
        "bias_significance_low": 0,  # so few questions have averages as large without any bias
    }  # fmt: skip
    assert {name: found[name] for name in wanted} == pytest.approx(wanted)
    assert found["measurable"] == ["ans_len", "sim_word"]
    assert 20 < found["bias_significance_high"] <= 50


def test_data_sets_of_a_role_are_averaged_with_the_error_of_their_questions(tmp_path: Path) -> None:
    """Elsewhere exact match is 3/4 of 4 and 1/4 of 8 questions; in distribution there is one set."""
    elsewhere = {"trivia": [1, 1, 1, 0], "news": [1, 0, 0, 0] * 2}
    datasets = {"in_distribution": {"squad": "a.json"}, "out_of_distribution": dict.fromkeys(elsewhere, "b.json")}
    plan = QaPlan(datasets=datasets)
    plan.questions({"ans_len": VALUES})
    plan.answers(RIGHT, OVERLAP)
    overlap = {name: [min(1, one + 0.5) for one in exact] for name, exact in elsewhere.items()}
    for name, exact in elsewhere.items():
        plan.questions({"ans_len": VALUES[: len(exact)]}, dataset=name)
        plan.answers(exact, overlap[name], dataset=name)
    run = plan.relations(tmp_path)
    [squad, outside] = run.rows("from qa_over_datasets order by role")
    sizes = ("role", "n_datasets", "n_rows", "n_missing")
    assert [outside[name] for name in sizes] == ["out_of_distribution", 2, 12, 0]
    for metric, columns in (("exact_match", elsewhere), ("f1", overlap)):
        mean = np.mean([np.mean(column) for column in columns.values()])
        variances = [np.var(column, ddof=1) / len(column) for column in columns.values()]
        freedom = sum(variances) ** 2 / sum(one**2 / (n - 1) for one, n in zip(variances, (4, 8), strict=True))
        # Below ten degrees of freedom, a fraction of one is dropped.
        half_width = stats.t.ppf(0.975, np.floor(freedom)) * np.sqrt(sum(variances)) / 2
        assert freedom < 10
        bounds = [mean, max(0, mean - half_width), min(1, mean + half_width)]
        assert [outside[f"{metric}{end}"] for end in ("", "_low", "_high")] == pytest.approx(bounds)
    [dataset] = run.rows("from qa_by_dataset where dataset = 'squad'")
    assert [squad[name] for name in sizes] == ["in_distribution", 1, 20, 0]
    for name in ("exact_match", "f1", "f1_low", "f1_high"):
        assert squad[name] == pytest.approx(dataset[name])


@pytest.mark.parametrize(("n_right", "significance"), [(5, 0), (4, 10), (8, 30)])
def test_the_biased_group_is_the_better_one_or_the_higher_of_equals(
    tmp_path: Path, n_right: int, significance: float
) -> None:
    plan = QaPlan(thresholds={"ans_len": 1})
    plan.questions({"ans_len": VALUES})
    plan.answers([1] * n_right + [0] * (10 - n_right) + [0] * 5 + [1] * 5)
    [row] = plan.relations(tmp_path).rows("from qa_bias_by_heuristic")
    assert (row["status"], row["biased_segment"]) == ("measured", "lower" if n_right > 5 else "higher")
    assert [row["bias_significance"], row["worse_high"]] == pytest.approx([significance, 10 * min(n_right, 5)])


SMALL = {"bootstrap": {"trials": 20, "sample": 11}}
NONE = [None] * 20


@pytest.mark.parametrize(
    ("values", "answers", "spec", "status", "threshold", "significance", "sizes"),
    [
        (VALUES, [1] * 20, {}, "not significant", None, 0, (None, None)),  # a significance of zero, and not unknown
        (VALUES, RIGHT, SMALL, "groups too small", None, None, (None, None)),
        ([2] * 20, [1] * 20, {}, "no threshold to try", None, None, (None, None)),
        (NONE, [1] * 20, {}, "no threshold to try", None, None, (None, None)),
        (VALUES, RIGHT, {"thresholds": {"word_dist": 0}}, "groups too small", 0, None, (0, 20)),
        (NONE, [1] * 20, {"thresholds": "mikula2024"}, "groups too small", 7, None, (0, 0)),
    ],
)
def test_a_heuristic_that_is_not_measured_says_why(
    values: list[float | None], answers: list[float], spec: dict[str, Any], status: str, threshold: float | None,
    significance: float | None, sizes: tuple[int | None, int | None], tmp_path: Path,
) -> None:  # fmt: skip
    plan = QaPlan(heuristics=["word_dist"], **spec)
    plan.questions({"word_dist": values})
    plan.answers(answers)
    run = plan.relations(tmp_path)
    [row] = run.rows("from qa_bias_by_heuristic")
    names = ("status", "threshold", "bias_significance", "n_lower", "n_higher")
    assert [row[name] for name in names] == [status, threshold, significance, *sizes]
    assert [row[name] for name in ("bias_significance_f1", "lower_low", "difference")] == [None] * 3
    if status == "no threshold to try":
        [model] = run.rows("from qa_by_model")
        names = ("bias_significance", "worse_high", "measurable", "n_heuristics", "n_measurable", "n_significant")
        assert [model[name] for name in names] == [None, None, [], 1, 0, 0]


def test_curves_have_bins_of_enough_questions_that_end_at_thresholds(tmp_path: Path) -> None:
    """One bin for each of 0 and 1 (40 and 35 questions), one for 1.5 to 3 (20 + 15), one for the rest (40 + 5)."""
    lengths = [0] * 40 + [1] * 35 + [1.5] * 20 + [3] * 15 + [4] * 40 + [9] * 5
    similarities = np.linspace(0, 0.31, len(lengths)).tolist()
    plan = QaPlan(["bert", "roberta"], heuristics=["ans_len", "cos_sim"])
    plan.questions({"ans_len": lengths, "cos_sim": similarities})
    plan.answers([int(value == 1.5) for value in lengths])
    plan.answers([1] * len(lengths), model="roberta")
    run = plan.relations(tmp_path)
    found = run.rows("from qa_curves where model = 'bert' and heuristic = 'ans_len' order by bin")
    bins = [(0, 0, 0, 40), (1, 1, 1, 35), (2, 1.5, 3, 35), (3, 4, 9, 45)]
    assert [(row["bin"], row["value_low"], row["value_high"], row["n_rows"]) for row in found] == bins
    for metric in ("exact_match", "f1"):
        assert [row[metric] for row in found] == pytest.approx([0, 0, 20 / 35, 0])
    assert found[2]["value_mean"] == pytest.approx((20 * 1.5 + 15 * 3) / 35)
    assert [found[2]["exact_match_low"], found[2]["exact_match_high"]] == ask("wilson_interval(20 / 35, 35)")
    half_width = stats.t.ppf(0.975, 34) * np.std([1] * 20 + [0] * 15, ddof=1) / np.sqrt(35)
    assert [found[2]["f1_low"], found[2]["f1_high"]] == pytest.approx([20 / 35 - half_width, 20 / 35 + half_width])
    similar = run.rows("from qa_curves where heuristic = 'cos_sim' order by bin, model")
    assert [row["value_low"] for row in similar[::2]] == [row["value_low"] for row in similar[1::2]]
    for low, high in zip(similar[::2], similar[2::2], strict=False):
        between = np.ceil(low["value_high"] * 20) / 20
        assert low["value_high"] <= between < high["value_low"]
    assert min(row["n_rows"] for row in similar) >= 30


def test_many_values_are_at_most_25_bins(tmp_path: Path) -> None:
    plan = QaPlan(heuristics=["my:length"], thresholds={"my:length": 2500.0})
    plan.questions({"my:length": np.random.default_rng(0).integers(0, 5000, size=2000).tolist()})
    plan.answers([1] * 2000)
    found = plan.relations(tmp_path).rows("from qa_curves order by bin")
    assert 20 <= len(found) <= 25
    assert min(row["n_rows"] for row in found) >= 80
    assert sum(row["n_rows"] for row in found) == 2000
