"""Curves of training, bias models and costs, by hand."""

from __future__ import annotations

from tests.qa_debiasing.studies import two_readers
from tests.qa_debiasing.study import rows

# Curves of training


def test_curves_are_of_the_readers_that_were_asked_behind_a_step() -> None:
    study = two_readers()
    study.reader("again", "learned_mixin", "cos_sim")
    study.reader("broken", "learned_mixin", "word_dist", problem="its loss is not finite")
    study.reader("hypothesis", "bias_model", "ans_len")
    asked = (
        ("careful", 0, "squad", 2.0, 0.25, 0.5), ("again", 0, "squad", 4.0, 0.5, 0.625),
        ("broken", 0, "squad", 9.0, 1.0, 1.0),
        ("careful", 1, "squad", 1.0, 0.5, 0.75), ("again", 1, "squad", float("inf"), 0.0, 0.0),
        ("careful", 1, "dev", float("nan"), 0.0, 0.0), ("again", 1, "dev", 3.0, 0.5, 0.5),
        ("base", 1, "squad", 1.5, 0.5, 0.75), ("hypothesis", 1, "squad (biased)", 2.5, 0.5, 0.75),
    )  # fmt: skip
    names = ("model", "step", "dataset", "loss", "exact_match", "f1")
    study.tables |= {"evaluations": [dict(zip(names, row, strict=True)) for row in asked], "training": []}
    with study.opened("qa_training_curves") as connection:
        found = rows("from qa_training_curves", connection)
    inside = "in_distribution"
    assert [tuple(row.values())[2:] for row in found] == [
        ("bias_model", "squad (biased)", None, 1, *[2.5] * 3, *[0.5] * 3, *[0.75] * 3, 1),
        ("learned_mixin", "dev", None, 1, *[3.0] * 3, *[0.5] * 6, 1),
        ("learned_mixin", "squad", inside, 0, 3.0, 2.0, 4.0, 0.375, 0.25, 0.5, 0.5625, 0.5, 0.625, 2),
        ("learned_mixin", "squad", inside, 1, *[1.0] * 3, *[0.5] * 3, *[0.75] * 3, 1),
        ("standard", "squad", inside, 1, *[1.5] * 3, *[0.5] * 3, *[0.75] * 3, 1),
    ]
    assert {(row["base"], row["data"]) for row in found} == {("bert", "squad")}
    assert list(found[0]) == [
        "base", "data", "method", "dataset", "role", "step", "loss", "loss_low", "loss_high", "exact_match",
        "exact_match_low", "exact_match_high", "f1", "f1_low", "f1_high", "n_readers",
    ]  # fmt: skip


# Bias models


def test_a_bias_model_by_hand() -> None:
    study = two_readers()
    study.reader("hypothesis", "bias_model", "ans_len", best_step=1)
    study.tables["evaluations"] = [
        {"model": model, "step": step, "dataset": f"{name} ({segment})", "loss": 1.0, "exact_match": exact, "f1": f1}
        for model, step, name, segment, exact, f1 in (
            ("hypothesis", 1, "squad", "biased", 0.5, 0.625),
            ("hypothesis", 1, "squad", "other", 0.125, 0.25),
            ("hypothesis", 1, "more (biased)", "biased", 0.25, 0.5),
            ("hypothesis", 1, "more (biased)", "other", 0.0, 0.75),
            ("hypothesis", 2, "squad", "biased", 0.9, 0.9),
            ("hypothesis", 2, "squad", "other", 0.9, 0.9),
            ("careful", 1, "squad", "biased", 0.9, 0.9),
        )
    ]
    segments = {"base": "bert", "data": "squad", "threshold": 1.0}
    study.tables["qa_segments"] = [
        {**segments, "bias": "ans_len", "n_biased_validation": 30, "n_other_validation": 12},
        {**segments, "bias": "sim_word", "n_biased_validation": 1, "n_other_validation": 2},
        {**segments, "base": "roberta", "bias": "ans_len", "n_biased_validation": 3, "n_other_validation": 4},
    ]
    with study.opened("qa_bias_models") as connection:
        found = rows("from qa_bias_models", connection)
    place = {"model": "hypothesis", "base": "bert", "data": "squad", "bias": "ans_len"}
    assert found == [
        place
        | {
            "dataset": "more (biased)", "best_step": 1, "f1_biased": 0.5, "f1_other": 0.75, "f1_difference": -0.25,
            "exact_match_biased": 0.25, "exact_match_other": 0.0, "n_biased": 30, "n_other": 12,
        },
        place
        | {
            "dataset": "squad", "best_step": 1, "f1_biased": 0.625, "f1_other": 0.25, "f1_difference": 0.375,
            "exact_match_biased": 0.5, "exact_match_other": 0.125, "n_biased": 30, "n_other": 12,
        },
    ]  # fmt: skip
    assert list(found[0]) == [*place, "dataset", "best_step", *list(found[0])[6:]]


# Costs


def test_costs_by_hand() -> None:
    study = two_readers()
    study.trained[1] |= {"device": "NVIDIA H100", "n_workers": 4, "steps": 2, "best_step": 1}
    study.reader("never began", "resample", "ans_len", steps=0, problem="a segment is empty", device=None)
    study.tables["training"] = [
        {"model": "base", "step": 0, "loss": 1.0, "seconds": 5.0},
        {"model": "careful", "step": 0, "loss": 1.0, "seconds": 1000.0},
        {"model": "careful", "step": 1, "loss": 1.0, "seconds": 800.0},
    ]
    study.tables["evaluations"] = [
        {
            "model": "careful",
            "step": step,
            "dataset": name,
            "loss": 1.0,
            "exact_match": 0.0,
            "f1": 0.0,
            "seconds": 450.0,
        }
        for step in (0, 1)
        for name in ("squad", "more")
    ]
    with study.opened("qa_training_costs") as connection:
        found = rows("from qa_training_costs order by model", connection)
    place = {"base": "bert", "data": "squad", "seed": 42}
    assert found == [
        {"model": "base", **place, "method": "standard", "bias": None, "steps": 3, "best_step": 2, "seconds": 5.0,
         "accelerator_hours": None, "n_evaluations": 0, "evaluation_seconds": None, "problem": None},
        {"model": "careful", **place, "method": "learned_mixin", "bias": "ans_len", "steps": 2, "best_step": 1,
         "seconds": 1800.0, "accelerator_hours": 4.0, "n_evaluations": 2, "evaluation_seconds": 1800.0,
         "problem": None},
        {"model": "never began", **place, "method": "resample", "bias": "ans_len", "steps": 0, "best_step": None,
         "seconds": None, "accelerator_hours": None, "n_evaluations": 0, "evaluation_seconds": None,
         "problem": "a segment is empty"},
    ]  # fmt: skip
    assert list(found[0]) == [
        "model", "base", "data", "method", "bias", "seed", "steps", "best_step", "seconds", "accelerator_hours",
        "n_evaluations", "evaluation_seconds", "problem",
    ]  # fmt: skip
