"""Marts of QA bias: macros, thresholds and published values."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biaseval.errors import InputError
from tests.handmade import ask
from tests.qaplans import RIGHT, VALUES, Candidate, QaPlan, _paper_rule, _reference_rule, two_models


def test_the_distance_of_intervals_equals_the_published_codes(shared: Path) -> None:
    cases = json.loads((shared / "golden/qa/significance_cases.json").read_text())["interval_distance"]
    bounds = [[case[f"{side}_{q}"] for side in ("lower", "higher") for q in ("q025", "q975")] for case in cases]
    sql = "list_transform(?::double[][], lambda x: interval_distance([x[1], x[2]], [x[3], x[4]]))"
    assert len(cases) == 200
    assert ask(sql, bounds) == [case["distance"] for case in cases]


def test_intervals_that_touch_are_not_apart() -> None:
    # 0.1 + 0.2 is 0.30000000000000004 in doubles.
    assert ask("interval_distance([0.1::double, 0.3], [0.1::double + 0.2::double, 0.5])") == 0
    assert ask("interval_distance([0.1, 0.3], [0.31, 0.5])") == pytest.approx(0.01)
    assert ask("interval_distance([0.1, null], [0.31, 0.5])") is None
    assert ask("interval_distance(null::double[], [0.31, 0.5])") is None


def test_bias_significance_of_lists_of_trials() -> None:
    rng = np.random.default_rng(0)
    sql = "bias_significance(?::double[], ?::double[])"
    for shift in (0.0, 0.05, 0.2):
        lower, higher = rng.normal(0.6, 0.02, size=100), rng.normal(0.6 + shift, 0.03, size=100)
        low, high = np.quantile([lower, higher], [0.025, 0.975], axis=1)
        expected = max(0, low[1] - high[0], low[0] - high[1])
        for pair in ([lower.tolist(), higher.tolist()], [higher.tolist(), lower.tolist()]):
            assert ask(sql, *pair) == pytest.approx(expected, abs=1e-12)
    assert expected > 0.05
    assert ask(sql, [1], [3]) == 2
    assert ask(sql, [], [1]) is None


def _choose(rule: str, tables: Sequence[Sequence[Candidate]], sample: int) -> list[float | None]:
    """Return the thresholds that SQL chooses from several tables of candidates."""
    names = ("threshold", "distance", "n_lower", "n_higher")
    given = [[dict(zip(names, candidate, strict=True)) for candidate in table] for table in tables]
    type_ = "struct(threshold double, distance double, n_lower bigint, n_higher bigint)[][]"
    sql = f"list({rule}_threshold(candidates, ?) order by number) from (select unnest(?::{type_}) as candidates, "
    chosen: list[float | None] = ask(f"{sql} generate_subscripts(?, 1) as number)", sample, given, [*range(len(given))])
    return chosen


def test_thresholds_are_chosen_as_by_the_published_code(shared: Path) -> None:
    cases = json.loads((shared / "golden/qa/significance_cases.json").read_text())["best_threshold"]
    assert len(cases) == 300
    assert {case["sample_size"] for case in cases} == {800}
    expected = [None if case["best_threshold"] == -1 else case["best_threshold"] for case in cases]
    tables = [
        [
            (float(threshold), None if values[0] == -1 else float(values[0]), values[2], values[3])
            for threshold, values in zip(case["thresholds"], case["values"], strict=True)
        ]
        for case in cases
    ]
    assert [_reference_rule(table, 800) for table in tables] == expected
    assert _choose("reference", tables, 800) == expected
    chosen = _choose("paper", tables, 800)
    assert chosen == [_paper_rule(table, 800) for table in tables]
    assert sum(ours != theirs for ours, theirs in zip(chosen, expected, strict=True)) == 36


@pytest.mark.parametrize(("candidates", "paper", "reference"), [
    ([], None, None), ([(0, None, 900, 900)], None, None), ([(0, 0, 2000, 2000)], None, None),
    # The first significant one is taken however small, and replaced by a large one that is less significant.
    ([(0, 5, 900, 9000), (1, 2, 2000, 7000)], 1, 1), ([(0, 2, 900, 9000), (1, 5, 1000, 9000)], 1, 0),
    # Twice the sample: at least in the text, more in the code.
    ([(0, 2, 900, 9000), (1, 1, 1600, 9000)], 1, 0), ([(0, 1, 1600, 9000), (1, 2, 1600, 9000)], 1, 0),
    ([(0, 1, 1600, 9000), (1, 0.5, 1601, 9000)], 0, 0), ([(0, 1, 1599, 9000), (1, 0.5, 1601, 9000)], 1, 1),
    # The smallest on ties, also within rounding.
    ([(0, 3, 2000, 2000), (1, 3, 3000, 3000)], 0, 0), ([(0, 3, 2000, 2000), (1, 3 + 1e-12, 3000, 3000)], 0, 0),
    ([(0, 3, 2000, 2000), (1, None, 10, 3990), (2, 4, 3000, 3000)], 2, 2),
])  # fmt: skip
def test_both_rules_by_hand(candidates: list[Candidate], paper: float | None, reference: float | None) -> None:
    assert _choose("paper", [candidates], 800) == [paper]
    assert _choose("reference", [candidates], 800) == [reference]


def test_wilson_intervals_by_hand() -> None:
    """5 of 10: (0.5 + z²/20 ∓ z sqrt(0.025 + z²/400)) / (1 + z²/10), z² = 3.8415."""
    assert ask("wilson_interval(0.5, 10)") == pytest.approx([0.23659, 0.76341], abs=1e-5)
    assert ask("wilson_interval(0, 10)") == pytest.approx([0, 0.27753], abs=1e-5)
    assert ask("wilson_interval(1, 1)") == pytest.approx([0.20654, 1], abs=1e-5)
    assert ask("wilson_interval(null, 5), wilson_interval(0.5, 0)") == (None, None)


FOUND = "select model, threshold, searched_on, bias_significance as d from qa_bias_by_heuristic order by model"


@pytest.mark.parametrize(("variant", "of_roberta"), [("paper", (0, "bert")), ("reference", (1, "roberta"))])
def test_the_first_models_threshold_is_kept_in_the_paper_and_searched_by_the_code(
    variant: str, of_roberta: tuple[float, str], tmp_path: Path
) -> None:
    run = two_models(variant=variant).relations(tmp_path)
    [bert, roberta] = run.rows(FOUND)
    assert bert == {"model": "bert", "threshold": 0, "searched_on": "bert", "d": pytest.approx(100)}
    assert (roberta["threshold"], roberta["searched_on"]) == of_roberta
    sql = f"from qa_bias_candidates where model = 'roberta' and threshold = {of_roberta[0]}"
    assert [row["bias_significance"] for row in run.rows(sql)] == [roberta["d"]]
    assert 0 < roberta["d"] < 100 or variant == "reference"


def test_fixed_thresholds_are_not_searched(tmp_path: Path) -> None:
    values = {"ans_len": VALUES, "ans_pos": [0] * 10 + [1] * 10}
    chosen = {
        "mikula2024": {"ans_len": (4.0, None), "ans_pos": (0.0, None)},
        "search": {"ans_len": (1.0, "bert"), "ans_pos": (0.0, "bert")},
    }
    for thresholds, expected in [*chosen.items(), ({"ans_len": 1.5}, {**chosen["search"], "ans_len": (1.5, None)})]:
        plan = QaPlan(thresholds=thresholds, heuristics=["ans_len", "ans_pos"])
        plan.questions(values)
        plan.answers(RIGHT)
        run = plan.relations(tmp_path / str(len(str(thresholds))))
        rows = run.rows("select heuristic, threshold, searched_on from qa_bias_by_heuristic")
        assert {row["heuristic"]: (row["threshold"], row["searched_on"]) for row in rows} == expected
        n_fixed = sum(searched_on is None for _, searched_on in expected.values())
        assert run.rows("select count(*) filter (is_fixed) as n from qa_thresholds") == [{"n": n_fixed}]


@pytest.mark.parametrize(("variant", "expected"), [("paper", [2.0, 3.0]), ("reference", [0.0, 1.0, 2.0, 3.0])])
def test_the_code_searches_above_undefined_values_and_the_paper_above_measured_ones(
    variant: str, expected: list[float], tmp_path: Path
) -> None:
    plan = QaPlan(variant=variant, heuristics=["word_dist"])
    plan.questions({"word_dist": [None] + [2] * 10 + [4] * 10})
    plan.answers([1, *RIGHT])
    sql = "select threshold, n_lower, n_higher from qa_bias_candidates order by threshold"
    found = plan.relations(tmp_path).rows(sql)
    assert [row["threshold"] for row in found] == expected
    assert [row["n_lower"] for row in found] == [0] * (len(expected) - 2) + [10, 10]
    assert {row["n_lower"] + row["n_higher"] for row in found} == {20}


def test_a_heuristic_with_too_many_thresholds_is_the_users_mistake(tmp_path: Path) -> None:
    plan = QaPlan(heuristics=["my:length"])
    plan.questions({"my:length": [0, 10**6]})
    plan.answers([1, 1])
    with pytest.raises(InputError, match="my:length: values from 0 to 1e"):
        plan.relations(tmp_path)


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


@pytest.mark.parametrize(("values", "answers", "spec", "status", "threshold", "significance", "sizes"), [
    (VALUES, [1] * 20, {}, "not significant", None, 0, (None, None)),  # a significance of zero, and not unknown
    (VALUES, RIGHT, SMALL, "groups too small", None, None, (None, None)),
    ([2] * 20, [1] * 20, {}, "no threshold to try", None, None, (None, None)),
    (NONE, [1] * 20, {}, "no threshold to try", None, None, (None, None)),
    (VALUES, RIGHT, {"thresholds": {"word_dist": 0}}, "groups too small", 0, None, (0, 20)),
    (NONE, [1] * 20, {"thresholds": "mikula2024"}, "groups too small", 7, None, (0, 0)),
])  # fmt: skip
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


def test_many_values_are_at_most_25_bins(tmp_path: Path) -> None:
    plan = QaPlan(heuristics=["my:length"], thresholds={"my:length": 2500.0})
    plan.questions({"my:length": np.random.default_rng(0).integers(0, 5000, size=2000).tolist()})
    plan.answers([1] * 2000)
    found = plan.relations(tmp_path).rows("from qa_curves order by bin")
    assert 20 <= len(found) <= 25
    assert min(row["n_rows"] for row in found) >= 80
    assert sum(row["n_rows"] for row in found) == 2000
