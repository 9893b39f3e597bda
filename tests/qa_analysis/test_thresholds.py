"""Which thresholds are tried, chosen and kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from biaseval.errors import InputError
from tests.measuring import measure
from tests.qaplans import RIGHT, VALUES, QaPlan, _status, rows, two_models, two_segments


def test_tried_thresholds_are_those_of_the_model_that_was_searched(tmp_path: Path) -> None:
    """Bert's groups reach the sample at both of its thresholds, roberta's, which lacks answers, at one of them."""
    plan = two_models(thresholds={"sim_word": 1}, heuristics=["ans_len", "sim_word"], variant="reference")
    for row in range(75):
        plan.attributes.append(
            {"dataset": "squad", "example_id": f"q{row}", "heuristic": "sim_word", "value": 1.0, "is_measured": True}
        )
    plan.spec["models"][1] |= {"path": None, "predictions": {"squad": "roberta.json"}, "on_missing": "drop"}
    lacking = {("roberta", f"q{row}") for row in range(16)}
    plan.predictions = [row for row in plan.predictions if (row["model"], row["example_id"]) not in lacking]
    run = plan.write(tmp_path)
    measure(run)
    found = rows(run, "select model, heuristic, n_tried, n_tried_measured from qa_bias_by_heuristic order by all")
    assert [tuple(row.values()) for row in found] == [
        ("bert", "ans_len", 2, 2),
        ("bert", "sim_word", None, None),
        ("roberta", "ans_len", 2, 1),
        ("roberta", "sim_word", None, None),
    ]


def test_the_first_models_threshold_is_kept_in_the_paper_and_searched_by_the_code(tmp_path: Path) -> None:
    sql = "select model, threshold, searched_on, bias_significance as d from qa_bias_by_heuristic order by model"
    runs = {}
    for variant in ("paper", "reference"):
        runs[variant] = two_models(variant=variant).write(tmp_path / variant)
        measure(runs[variant])
    [bert, roberta] = rows(runs["reference"], sql)
    assert bert == {"model": "bert", "threshold": 0, "searched_on": "bert", "d": pytest.approx(100)}
    assert roberta == {"model": "roberta", "threshold": 1, "searched_on": "roberta", "d": pytest.approx(100)}
    [bert, roberta] = rows(runs["paper"], sql)
    assert bert == {"model": "bert", "threshold": 0, "searched_on": "bert", "d": pytest.approx(100)}
    [candidate] = rows(
        runs["paper"], "select bias_significance as d from qa_bias_candidates where model = 'roberta' and threshold = 0"
    )
    assert roberta == {"model": "roberta", "threshold": 0, "searched_on": "bert", **candidate}
    assert 0 < candidate["d"] < 100


def test_a_model_without_a_threshold_does_not_hide_the_bias_of_the_others(tmp_path: Path) -> None:
    plan = QaPlan(["random", "biased"])
    plan.questions({"ans_len": [0] * 25 + [1] * 25 + [2] * 25})
    plan.answers([0] * 75, model="random")
    plan.answers([1] * 25 + [0] * 50, model="biased")
    run = plan.write(tmp_path)
    measure(run)
    sql = (
        "select model, threshold, searched_on, status, bias_significance as d from qa_bias_by_heuristic order by model"
    )
    [biased, random] = rows(run, sql)
    assert biased == {
        "model": "biased", "threshold": 0, "searched_on": "biased", "status": "measured", "d": pytest.approx(100)
    }  # fmt: skip
    assert random == {"model": "random", "threshold": 0, "searched_on": "biased", "status": "measured", "d": 0}


def test_the_search_is_on_the_first_model_that_answers_the_data_set(tmp_path: Path) -> None:
    datasets = {"in_distribution": {"squad": "squad.json"}, "out_of_distribution": {"natural": "nq.json"}}
    plan = two_models(datasets=datasets)
    plan.spec["models"][0] |= {"path": None, "predictions": {"squad": "bert.json"}}
    plan.questions({"ans_len": [0] * 25 + [1] * 25 + [2] * 25}, dataset="natural")
    plan.answers([1] * 50 + [0] * 25, model="roberta", dataset="natural")
    run = plan.write(tmp_path)
    measure(run)
    sql = "select dataset, model, threshold, searched_on from qa_bias_by_heuristic order by all"
    assert [tuple(row.values()) for row in rows(run, sql)] == [
        ("natural", "roberta", 1.0, "roberta"),
        ("squad", "bert", 0.0, "bert"),
        ("squad", "roberta", 0.0, "bert"),
    ]
    sizes = rows(run, "select dataset, model, role, n_rows from qa_by_dataset order by all")
    assert [tuple(row.values()) for row in sizes] == [
        ("natural", "roberta", "out_of_distribution", 75),
        ("squad", "bert", "in_distribution", 75),
        ("squad", "roberta", "in_distribution", 75),
    ]


def test_a_fixed_threshold_with_small_groups_has_its_sizes_and_no_significance(tmp_path: Path) -> None:
    sizes = {"threshold": 0, "n_lower": 0, "n_higher": 20}
    unknown = {"bias_significance": None, "bias_significance_f1": None, "lower_low": None, "difference": None}
    found = _status(two_segments(thresholds={"ans_len": 0}), tmp_path)
    assert found == {**sizes, **unknown, "status": "groups too small"}


def test_a_fixed_threshold_stays_where_nothing_is_measured(tmp_path: Path) -> None:
    plan = QaPlan(heuristics=["word_dist"], thresholds="mikula2024")
    plan.questions({"word_dist": [None] * 20})
    plan.answers([1] * 20)
    found = _status(plan, tmp_path, heuristic="word_dist")
    assert (found["threshold"], found["n_lower"], found["n_higher"]) == (7, 0, 0)
    assert (found["status"], found["bias_significance"]) == ("groups too small", None)


def test_a_model_that_lacks_answers_may_have_groups_too_small_for_the_first_models_threshold(tmp_path: Path) -> None:
    plan = two_models()
    plan.spec["models"][1] |= {"path": None, "predictions": {"squad": "roberta.json"}, "on_missing": "drop"}
    lacking = {("roberta", f"q{row}") for row in range(16)}
    plan.predictions = [row for row in plan.predictions if (row["model"], row["example_id"]) not in lacking]
    found = _status(plan, tmp_path, model="roberta")
    assert found["status"] == "groups too small"
    assert (found["threshold"], found["n_lower"], found["n_higher"]) == (0, 9, 50)
    assert found["bias_significance"] is None
    [row] = rows(str(tmp_path), "from qa_by_dataset where model = 'roberta'")
    assert (row["n_rows"], row["n_missing"]) == (59, 16)


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
        run = plan.write(tmp_path / str(len(str(thresholds))))
        measure(run)
        sql = "select heuristic, threshold, searched_on from qa_bias_by_heuristic"
        assert {row["heuristic"]: (row["threshold"], row["searched_on"]) for row in rows(run, sql)} == expected
        n_fixed = sum(searched_on is None for _, searched_on in expected.values())
        [count] = rows(run, "select count(*) filter (is_fixed) as n from qa_thresholds")
        assert count["n"] == n_fixed


def test_the_code_searches_above_undefined_values_and_the_paper_above_measured_ones(tmp_path: Path) -> None:
    for variant, expected in (("paper", [2.0, 3.0]), ("reference", [0.0, 1.0, 2.0, 3.0])):
        plan = QaPlan(variant=variant, heuristics=["word_dist"])
        plan.questions({"word_dist": [None] + [2] * 10 + [4] * 10})
        plan.answers([1, *RIGHT])
        run = plan.write(tmp_path / variant)
        measure(run)
        found = rows(run, "select threshold, n_lower, n_higher from qa_bias_candidates order by threshold")
        assert [row["threshold"] for row in found] == expected
        assert [row["n_lower"] for row in found] == [0] * (len(expected) - 2) + [10, 10]
        assert {row["n_lower"] + row["n_higher"] for row in found} == {20}


def test_a_heuristic_with_too_many_thresholds_is_the_users_mistake(tmp_path: Path) -> None:
    plan = QaPlan(heuristics=["my:length"])
    plan.questions({"my:length": [0, 10**6]})
    plan.answers([1, 1])
    with pytest.raises(InputError, match="my:length: values from 0 to 1e"):
        measure(plan.write(tmp_path))
