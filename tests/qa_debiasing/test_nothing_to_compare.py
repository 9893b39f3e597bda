"""Readers, groups and sets of which there is nothing to compare."""

from __future__ import annotations

import pytest

from tests.qa_debiasing.studies import ARTICLES, two_readers
from tests.qa_debiasing.study import Study, problems, rows
from tests.qaplans import RIGHT, VALUES

UNKNOWN = (
    "bias_significance", "standard_significance", "significance_change", "significance_change_low",
    "significance_change_high", "worse_high", "standard_worse_high", "worse_high_change", "gap", "standard_gap",
    "gap_change", "gap_change_low", "gap_change_high", "is_nearly_broken",
)  # fmt: skip


def test_groups_that_are_too_small_have_no_bias_and_no_change() -> None:
    study = two_readers(bootstrap={"trials": 20, "sample": 11})
    with study.opened() as connection:
        [found] = rows("from qa_debiasing where model = 'careful'", connection)
        assert problems("qa_changes_have_their_draws", connection) == []
        assert rows("from qa_change_draws", connection) == []
    assert [found[name] for name in UNKNOWN] == [None] * len(UNKNOWN)
    assert (found["status"], found["n_rows"], found["n_articles"], found["n_draws"]) == ("groups too small", 20, 4, 0)
    assert found["exact_match"] == pytest.approx(100 * 13 / 21)


def test_a_heuristic_without_values_has_no_questions() -> None:
    study = two_readers()
    for row in study.attributes:
        row |= {"value": -1.0, "is_measured": False}
    with study.opened() as connection:
        [found] = rows("from qa_debiasing where model = 'careful'", connection)
        assert problems("qa_changes_have_their_draws", connection) == []
    assert [found[name] for name in UNKNOWN] == [None] * len(UNKNOWN)
    assert (found["n_rows"], found["n_articles"]) == (0, 0)


def test_no_significant_threshold_is_no_change_without_an_interval() -> None:
    """Of two thresholds none is significant for either reader: both significances are 0."""
    study = Study({"ans_len": [1, 2]})
    study.questions({"ans_len": VALUES})
    study.titles(ARTICLES)
    study.reader("base")
    study.reader("careful", "resample", "ans_len")
    for model in ("base", "careful"):
        study.answers([1, 0] * 10, model=model)
    with study.opened() as connection:
        [found] = rows("from qa_debiasing where model = 'careful'", connection)
        assert problems("qa_changes_have_their_draws", connection) == []
    assert (found["status"], found["threshold"], found["significance_change"]) == ("not significant", None, 0)
    assert found["significance_change_low"] is found["gap"] is found["gap_change"] is None


@pytest.mark.parametrize(
    "titles",
    [["A"] * 20, ["A"] * 10 + list("BCDEFGHIJK"), list("BCDEFGHIJK") + ["A"] * 10],
    ids=["one article", "one below", "one above"],
)
def test_a_segment_in_a_single_article_has_no_interval(titles: list[str]) -> None:
    study = two_readers()
    study.titles([*titles, "E"])
    with study.opened() as connection:
        [found] = rows("from qa_debiasing where model = 'careful'", connection)
        assert problems("qa_changes_have_their_draws", connection) == []
    assert (found["gap_change"], found["significance_change"]) == (pytest.approx(-20), pytest.approx(-20))
    for name in ("gap_change", "significance_change"):
        assert found[f"{name}_low"] is found[f"{name}_high"] is None
    assert found["n_articles"] == len(set(titles))


def test_a_data_set_of_a_single_article_has_changes_without_intervals() -> None:
    study = two_readers()
    study.titles(["A"] * 21)
    with study.opened() as connection:
        [found] = rows("from qa_out_of_distribution where model = 'careful'", connection)
        assert problems("qa_changes_have_their_draws", connection) == []
    assert (found["exact_match_change"], found["n_articles"]) == (pytest.approx(-1 / 21), 1)
    for name in ("exact_match_change", "f1_change"):
        assert found[f"{name}_low"] is found[f"{name}_high"] is None


def test_a_reader_that_was_given_up_has_a_row_among_the_costs_only() -> None:
    study = two_readers()
    study.reader("broken", "learned_mixin", "ans_len", problem="its loss is not finite", steps=1)
    study.reader("hypothesis", "bias_model", "ans_len")
    with study.opened("qa_debiasing", "qa_out_of_distribution", "qa_training_costs") as connection:
        for mart in ("qa_debiasing", "qa_out_of_distribution"):
            models = {row["model"] for row in rows(f"from {mart}", connection)}
            assert models == {"base", "careful"}, mart
        costs = {row["model"]: row for row in rows("from qa_training_costs", connection)}
    assert set(costs) == {"base", "careful", "broken", "hypothesis"}
    assert costs["broken"]["problem"] == "its loss is not finite"


def test_a_reader_whose_standard_one_was_given_up_is_measured_and_compared_with_nothing() -> None:
    study = two_readers()
    study.trained[0] |= {"path": None, "best_step": None, "problem": "its loss is not finite"}
    study.predictions = [row for row in study.predictions if row["model"] == "careful"]
    with study.opened() as connection:
        [found] = rows("from qa_debiasing", connection)
        [outcome] = rows("from qa_out_of_distribution", connection)
        assert rows("from qa_debiasing_by_method", connection) == []
        [mean] = rows("from qa_out_of_distribution_by_method", connection)
        assert problems("qa_changes_have_their_draws", connection) == []
    assert (mean["f1_change"], mean["exact_match_change"], mean["n_biases"]) == (None, None, 0)
    assert (found["model"], found["bias_significance"]) == ("careful", pytest.approx(10))
    assert [found[name] for name in UNKNOWN if name not in ("bias_significance", "worse_high")] == [None] * 12
    assert (found["n_rows"], found["n_articles"]) == (20, 4)
    assert (outcome["f1_change"], outcome["standard_f1"], outcome["n_rows"], outcome["n_articles"]) == (
        None, None, 21, 5,
    )  # fmt: skip


def test_models_that_the_run_did_not_train_are_compared_with_nothing() -> None:
    study = two_readers()
    study.answers([*RIGHT, 1], model="from elsewhere")
    with study.opened("qa_debiasing", "qa_out_of_distribution") as connection:
        for mart in ("qa_debiasing", "qa_out_of_distribution"):
            assert {row["model"] for row in rows(f"from {mart}", connection)} == {"base", "careful"}
        assert len(rows("select distinct model from qa_bias_by_heuristic", connection)) == 3
