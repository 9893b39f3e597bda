"""Heuristics, data sets and models of QA bias on runs done by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from tests.measuring import measure
from tests.qaplans import OVERLAP, RIGHT, VALUES, QaPlan, _ask, _status, rows, two_segments


def _welch(lower: Sequence[float], higher: Sequence[float]) -> list[float]:
    """Return the difference with its interval by Student's t, with the degrees of freedom of the smaller segment."""
    difference = np.mean(lower) - np.mean(higher)
    error = np.sqrt(np.var(lower, ddof=1) / len(lower) + np.var(higher, ddof=1) / len(higher))
    quantile = stats.t.ppf(0.975, min(len(lower), len(higher)) - 1)
    return [100 * float(difference + t * error) for t in (0, -quantile, quantile)]


def test_a_heuristic_by_hand(built: str) -> None:
    [row] = rows(built, "from qa_bias_by_heuristic")
    exact = dict(zip(("difference", "difference_low", "difference_high"), _welch(RIGHT[:10], RIGHT[10:]), strict=True))
    overlap = _welch(OVERLAP[:10], OVERLAP[10:])
    assert row == {
        "model": "bert",
        "dataset": "squad",
        "heuristic": "ans_len",
        "threshold": 1.0,  # 2 has the same segments: the smaller is kept
        "status": "measured",
        "searched_on": "bert",
        "n_lower": 10,
        "n_higher": 10,
        "n_unmeasured": 3,
        "n_rows": 23,
        "is_large": False,
        "bias_significance": pytest.approx(30),
        "biased_segment": "lower",
        **dict.fromkeys(("lower_low", "lower_high", "lower_mean"), pytest.approx(80)),
        **dict.fromkeys(("higher_low", "higher_high", "higher_mean", "worse_high"), pytest.approx(50)),
        "lower_exact_match": pytest.approx(80),
        "higher_exact_match": pytest.approx(50),
        **{name: pytest.approx(value) for name, value in exact.items()},
        "bias_significance_f1": pytest.approx(15),
        **dict.fromkeys(("lower_low_f1", "lower_high_f1", "lower_mean_f1"), pytest.approx(90)),
        **dict.fromkeys(("higher_low_f1", "higher_high_f1", "higher_mean_f1", "worse_high_f1"), pytest.approx(75)),
        "lower_f1": pytest.approx(90),
        "higher_f1": pytest.approx(75),
        "difference_f1": pytest.approx(overlap[0]),
        "difference_low_f1": pytest.approx(overlap[1]),
        "difference_high_f1": pytest.approx(overlap[2]),
        "n_trials": 20,
        "n_tried": 2,  # 1 and 2
        "n_tried_measured": 2,
        "n_articles": 20,  # of questions with a value; each is its own
    }
    assert exact["difference_low"] < 0 < exact["difference"]  # 20 questions show nothing


def test_a_data_set_by_hand(built: str) -> None:
    [row] = rows(built, "from qa_by_dataset")
    overlap = [*OVERLAP, 1.0, 0.0, 0.0]
    error = np.std(overlap, ddof=1) / np.sqrt(23)
    half_width = stats.t.ppf(0.975, 22) * error
    low, high = _ask("wilson_interval(14 / 23, 23)")
    assert row == {
        "model": "bert",
        "dataset": "squad",
        "role": "in_distribution",
        "exact_match": pytest.approx(14 / 23),
        "exact_match_low": pytest.approx(low),
        "exact_match_high": pytest.approx(high),
        "f1": pytest.approx(17.5 / 23),
        "f1_low": pytest.approx(17.5 / 23 - half_width),
        "f1_high": pytest.approx(17.5 / 23 + half_width),
        "n_rows": 23,
        "n_missing": 0,
        "n_articles": 23,
        "exact_match_error": pytest.approx(np.sqrt(14 / 23 * 9 / 23 / 22)),
        "f1_error": pytest.approx(error),
        "share_most_frequent": pytest.approx(1 / 23),
        "is_constant": False,
    }


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
    run = plan.write(tmp_path)
    measure(run)
    [row] = rows(run, "from qa_by_dataset")
    assert (row["share_most_frequent"], row["is_constant"]) == (pytest.approx(n_same / 20), is_constant)


def test_a_models_average_is_over_the_heuristics_that_can_be_measured(tmp_path: Path) -> None:
    """Exact are 8 and 4 of 10 with short and long answers, 6 of 10 with few and with many words in common."""
    plan = QaPlan(heuristics=["ans_len", "sim_word", "word_dist"])
    values: dict[str, Sequence[float | None]] = {
        "ans_len": VALUES,
        "sim_word": [1] * 6 + [2] * 2 + [1] * 2 + [2] * 4 + [1] * 2 + [2] * 4,
        "word_dist": [None] * 20,
    }
    plan.questions(values)
    exact = [1] * 8 + [0] * 2 + [1] * 4 + [0] * 6
    plan.answers(exact, [(one + 1) / 2 for one in exact])
    run = plan.write(tmp_path)
    measure(run)
    status = {row["heuristic"]: row["status"] for row in rows(run, "from qa_bias_by_heuristic")}
    assert status == {"ans_len": "measured", "sim_word": "not significant", "word_dist": "no threshold to try"}
    [found] = rows(run, "from qa_by_model")
    assert found["bias_significance_low"] == 0  # so few questions have averages as large without any bias
    assert 0 <= found["bias_significance_low"] < 20 < found["bias_significance_high"] <= 50
    [noise] = rows(run, "select avg(significance) as mean from qa_search_nulls where draw > 0")[0].values()
    [high, p] = rows(
        run,
        """
        select quantile_cont(mean, 0.95) filter (draw > 0) as high, avg((mean >= own - 1e-9)::int) as p
        from (
            select *, max(mean) filter (draw = 0) over () as own
            from (select draw, avg(significance) as mean from qa_search_nulls group by draw)
        )
        """,
    )[0].values()
    assert [found] == [
        {
            "model": "bert",
            "dataset": "squad",
            "bias_significance": pytest.approx((40 + 0) / 2),
            "worse_high": pytest.approx(40),
            "bias_significance_f1": pytest.approx(20),  # sim_word has no threshold, at which F1 could be measured
            "worse_high_f1": pytest.approx(70),
            "measurable": ["ans_len", "sim_word"],
            "n_heuristics": 3,
            "n_measurable": 2,
            "n_with_groups": 1,
            "n_significant": 0,  # of twenty questions
            "n_rows": 20,
            "bias_significance_low": found["bias_significance_low"],
            "bias_significance_high": found["bias_significance_high"],
            "bias_significance_null": pytest.approx(noise),
            "n_measurable_f1": 1,
            "n_draws": 1000,
            "bias_significance_null_high": pytest.approx(high),
            "is_above_null": p <= 0.05,
        }
    ]


def test_a_model_without_a_measurable_heuristic_has_no_average(tmp_path: Path) -> None:
    plan = QaPlan()
    plan.questions({"ans_len": [2] * 20})
    plan.answers([1] * 20)
    run = plan.write(tmp_path)
    measure(run)
    [row] = rows(run, "from qa_by_model")
    assert row["bias_significance"] is row["worse_high"] is None
    assert (row["measurable"], row["n_heuristics"], row["n_measurable"], row["n_significant"]) == ([], 1, 0, 0)


def test_data_sets_of_a_role_are_averaged_with_the_error_of_their_questions(tmp_path: Path) -> None:
    """Elsewhere exact match is 3/4 of 4 and 1/4 of 8 questions; in distribution there is one set."""
    elsewhere = {"trivia": [1, 1, 1, 0], "news": [1, 0, 0, 0] * 2}
    plan = QaPlan(
        datasets={"in_distribution": {"squad": "a.json"}, "out_of_distribution": dict.fromkeys(elsewhere, "b.json")}
    )
    plan.questions({"ans_len": VALUES})
    plan.answers(RIGHT, OVERLAP)
    overlap = {name: [min(1, one + 0.5) for one in exact] for name, exact in elsewhere.items()}
    for name, exact in elsewhere.items():
        plan.questions({"ans_len": VALUES[: len(exact)]}, dataset=name)
        plan.answers(exact, overlap[name], dataset=name)
    run = plan.write(tmp_path)
    measure(run)
    [squad, outside] = rows(run, "from qa_over_datasets order by role")
    assert (outside["role"], outside["n_datasets"], outside["n_rows"], outside["n_missing"]) == (
        "out_of_distribution", 2, 12, 0,
    )  # fmt: skip
    for metric, columns in (("exact_match", elsewhere), ("f1", overlap)):
        mean = np.mean([np.mean(column) for column in columns.values()])
        variances = [np.var(column, ddof=1) / len(column) for column in columns.values()]
        sizes = [len(column) for column in columns.values()]
        freedom = sum(variances) ** 2 / sum(one**2 / (n - 1) for one, n in zip(variances, sizes, strict=True))
        # Below ten degrees of freedom, a fraction of one is dropped.
        half_width = stats.t.ppf(0.975, np.floor(freedom)) * np.sqrt(sum(variances)) / 2
        assert freedom < 10
        assert outside[metric] == pytest.approx(mean)
        assert outside[f"{metric}_low"] == pytest.approx(max(0, mean - half_width))
        assert outside[f"{metric}_high"] == pytest.approx(min(1, mean + half_width))
    [dataset] = rows(run, "from qa_by_dataset where dataset = 'squad'")
    assert (squad["role"], squad["n_datasets"], squad["n_rows"]) == ("in_distribution", 1, 20)
    assert [squad[name] for name in ("exact_match", "f1", "f1_low", "f1_high")] == pytest.approx(
        [dataset[name] for name in ("exact_match", "f1", "f1_low", "f1_high")]
    )


def test_where_the_groups_are_equally_good_the_higher_one_is_called_biased(tmp_path: Path) -> None:
    plan = QaPlan(thresholds={"ans_len": 1})
    plan.questions({"ans_len": VALUES})
    plan.answers([1] * 5 + [0] * 5 + [0] * 5 + [1] * 5)
    run = plan.write(tmp_path)
    measure(run)
    [row] = rows(run, "from qa_bias_by_heuristic")
    assert (row["status"], row["bias_significance"], row["biased_segment"]) == ("measured", 0, "higher")
    plan.predictions[0]["exact_match"] = 0.0
    run = plan.write(tmp_path / "worse")
    measure(run)
    [row] = rows(run, "from qa_bias_by_heuristic")
    assert row["bias_significance"] == pytest.approx(10)
    assert (row["biased_segment"], row["worse_high"]) == ("higher", pytest.approx(40))


NOTHING = dict.fromkeys(("threshold", "n_lower", "n_higher", "lower_low", "difference"))


def test_nothing_significant_is_a_significance_of_zero(tmp_path: Path) -> None:
    plan = QaPlan()
    plan.questions({"ans_len": VALUES})
    plan.answers([1] * 20)
    expected = {**NOTHING, "status": "not significant", "bias_significance": 0, "bias_significance_f1": None}
    assert _status(plan, tmp_path) == expected


def test_nothing_measurable_is_no_zero(tmp_path: Path) -> None:
    unknown = {**NOTHING, "bias_significance": None, "bias_significance_f1": None}
    small = two_segments(bootstrap={"trials": 20, "sample": 11})
    assert _status(small, tmp_path / "small") == {**unknown, "status": "groups too small"}
    constant = QaPlan(heuristics=["ans_len", "word_dist"])
    constant.questions({"ans_len": [2] * 20, "word_dist": [None] * 20})
    constant.answers([1] * 20)
    for heuristic in ("ans_len", "word_dist"):
        found = _status(constant, tmp_path / "constant", heuristic=heuristic)
        assert found == {**unknown, "status": "no threshold to try"}


def test_curves_have_bins_of_enough_questions_that_end_at_thresholds(tmp_path: Path) -> None:
    """One bin for each of 0 and 1 (40 and 35 questions), one for 1.5 to 3 (20 + 15), one for the rest (40 + 5)."""
    lengths = [0] * 40 + [1] * 35 + [1.5] * 20 + [3] * 15 + [4] * 40 + [9] * 5
    similarities = np.linspace(0, 0.31, len(lengths)).tolist()
    plan = QaPlan(["bert", "roberta"], heuristics=["ans_len", "cos_sim"])
    plan.questions({"ans_len": lengths, "cos_sim": similarities})
    plan.answers([int(value == 1.5) for value in lengths])
    plan.answers([1] * len(lengths), model="roberta")
    run = plan.write(tmp_path)
    measure(run)
    found = rows(run, "from qa_curves where model = 'bert' and heuristic = 'ans_len' order by bin")
    assert [(row["bin"], row["value_low"], row["value_high"], row["n_rows"]) for row in found] == [
        (0, 0, 0, 40),
        (1, 1, 1, 35),
        (2, 1.5, 3, 35),
        (3, 4, 9, 45),
    ]
    assert [row["exact_match"] for row in found] == pytest.approx([0, 0, 20 / 35, 0])
    assert [row["f1"] for row in found] == pytest.approx([0, 0, 20 / 35, 0])
    assert found[2]["value_mean"] == pytest.approx((20 * 1.5 + 15 * 3) / 35)
    assert [found[2]["exact_match_low"], found[2]["exact_match_high"]] == _ask("wilson_interval(20 / 35, 35)")
    half_width = stats.t.ppf(0.975, 34) * np.std([1] * 20 + [0] * 15, ddof=1) / np.sqrt(35)
    assert [found[2]["f1_low"], found[2]["f1_high"]] == pytest.approx([20 / 35 - half_width, 20 / 35 + half_width])
    similar = rows(run, "from qa_curves where heuristic = 'cos_sim' order by bin, model")
    assert [row["value_low"] for row in similar[::2]] == [row["value_low"] for row in similar[1::2]]
    for low, high in zip(similar[::2], similar[2::2], strict=False):
        between = np.ceil(low["value_high"] * 20) / 20
        assert low["value_high"] <= between < high["value_low"]
    assert min(row["n_rows"] for row in similar) >= 30


def test_many_values_are_at_most_25_bins(tmp_path: Path) -> None:
    plan = QaPlan(heuristics=["my:length"])
    values = np.random.default_rng(0).integers(0, 5000, size=2000).tolist()
    plan.questions({"my:length": values})
    plan.answers([1] * 2000)
    plan.spec["thresholds"] = {"my:length": 2500.0}
    run = plan.write(tmp_path)
    measure(run)
    found = rows(run, "from qa_curves order by bin")
    assert 20 <= len(found) <= 25
    assert min(row["n_rows"] for row in found) >= 80
    assert sum(row["n_rows"] for row in found) == 2000
