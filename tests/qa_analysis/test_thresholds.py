"""Which thresholds are tried, chosen and kept."""

from pathlib import Path
from typing import Any

import pytest

from biaseval.errors import InputError
from tests.qaplans import RIGHT, VALUES, QaPlan, two_models

THREE = [0] * 25 + [1] * 25 + [2] * 25


def lacking_answers(**spec: Any) -> QaPlan:
    """Return two models, of which roberta has no answers to 16 questions."""
    plan = two_models(**spec)
    plan.spec["models"][1] |= {"path": None, "predictions": {"squad": "roberta.json"}, "on_missing": "drop"}
    lacking = {("roberta", f"q{row}") for row in range(16)}
    plan.predictions = [row for row in plan.predictions if (row["model"], row["example_id"]) not in lacking]
    return plan


def test_tried_thresholds_are_those_of_the_model_that_was_searched(tmp_path: Path) -> None:
    """Bert's groups reach the sample at both of its thresholds, roberta's, which lacks answers, at one of them."""
    plan = lacking_answers(thresholds={"sim_word": 1}, heuristics=["ans_len", "sim_word"], variant="reference")
    for row in range(75):
        place = {"dataset": "squad", "example_id": f"q{row}"}
        plan.attributes.append({**place, "heuristic": "sim_word", "value": 1.0, "is_measured": True})
    sql = "select model, heuristic, n_tried, n_tried_measured from qa_bias_by_heuristic order by all"
    assert [tuple(row.values()) for row in plan.relations(tmp_path).rows(sql)] == [
        ("bert", "ans_len", 2, 2),
        ("bert", "sim_word", None, None),
        ("roberta", "ans_len", 2, 1),
        ("roberta", "sim_word", None, None),
    ]


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


def test_a_model_without_a_threshold_does_not_hide_the_bias_of_the_others(tmp_path: Path) -> None:
    plan = QaPlan(["random", "biased"])
    plan.questions({"ans_len": THREE})
    plan.answers([0] * 75, model="random")
    plan.answers([1] * 25 + [0] * 50, model="biased")
    assert [tuple(row.values()) for row in plan.relations(tmp_path).rows(FOUND)] == [
        ("biased", 0, "biased", pytest.approx(100)),
        ("random", 0, "biased", 0),
    ]


def test_the_search_is_on_the_first_model_that_answers_the_data_set(tmp_path: Path) -> None:
    datasets = {"in_distribution": {"squad": "squad.json"}, "out_of_distribution": {"natural": "nq.json"}}
    plan = two_models(datasets=datasets)
    plan.spec["models"][0] |= {"path": None, "predictions": {"squad": "bert.json"}}
    plan.questions({"ans_len": THREE}, dataset="natural")
    plan.answers([1] * 50 + [0] * 25, model="roberta", dataset="natural")
    run = plan.relations(tmp_path)
    sql = (
        "select dataset, model, threshold, searched_on, role, qa_by_dataset.n_rows "
        "from qa_bias_by_heuristic inner join qa_by_dataset using (dataset, model) order by all"
    )
    assert [tuple(row.values()) for row in run.rows(sql)] == [
        ("natural", "roberta", 1.0, "roberta", "out_of_distribution", 75),
        ("squad", "bert", 0.0, "bert", "in_distribution", 75),
        ("squad", "roberta", 0.0, "bert", "in_distribution", 75),
    ]


def test_a_model_that_lacks_answers_may_have_groups_too_small_for_the_first_models_threshold(tmp_path: Path) -> None:
    run = lacking_answers().relations(tmp_path)
    [row] = run.rows("from qa_bias_by_heuristic where model = 'roberta'")
    names = ("status", "threshold", "n_lower", "n_higher", "bias_significance")
    assert [row[name] for name in names] == ["groups too small", 0, 9, 50, None]
    [row] = run.rows("from qa_by_dataset where model = 'roberta'")
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
