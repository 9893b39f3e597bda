"""Which readers a study trains, what they are called, in which order, and what guides them."""

from typing import Any

import pytest

from biaseval.pipelines.qa.trained_models import guides_of, readers_of
from biaseval.spec import QaTrainSpec

EVERY = ["standard", "resample", "learned_mixin", "confidence_regularization", "product_of_experts"]


def train(**changes: Any) -> QaTrainSpec:
    content: dict[str, Any] = {
        "bases": [{"name": "bert", "path": "b"}], "data": {"squad": "s.json"}, "validation": {"dev": "d.json"},
        **changes,
    }  # fmt: skip
    return QaTrainSpec.model_validate(content).resolved("paper")


def names(**changes: Any) -> list[str]:
    return [reader.name for reader in readers_of(train(**changes))]


def test_names_leave_out_what_there_is_one_of() -> None:
    assert names() == ["bert"]
    assert names(methods=["standard", "resample"], biases=["word_dist"]) == ["bert", "bert+resample"]
    assert names(methods=["standard", "resample"], biases=["word_dist", "ans_len"]) == [
        "bert", "bert+resample(word_dist)", "bert+resample(ans_len)"
    ]  # fmt: skip
    assert names(data={"squad": "s.json", "nq": "n.json"}, seeds=[1, 2]) == [
        "bert@squad#1", "bert@squad#2", "bert@nq#1", "bert@nq#2"
    ]  # fmt: skip
    both = names(
        bases=[{"name": "bert", "path": "b"}, {"name": "electra", "path": "e"}],
        methods=["standard", "learned_mixin"], biases=["word_dist"], seeds=[1, 2],
    )  # fmt: skip
    assert both == [
        *("bert#1", "bert#2", "electra#1", "electra#2"),
        *("bert+bias_model", "electra+bias_model"),
        *("bert+learned_mixin#1", "bert+learned_mixin#2", "electra+learned_mixin#1", "electra+learned_mixin#2"),
    ]


@pytest.mark.parametrize(("bias_model", "expected"), [
    ({}, ["bert+bias_model(word_dist)", "bert+bias_model(ans_len)"]), ({"tfidf": True}, ["bert+tfidf"]),
    ({"predictions": "p.parquet"}, ["bert+predictions(word_dist)", "bert+predictions(ans_len)"]),
])  # fmt: skip
def test_guides_are_bias_models_or_their_like_and_teachers(bias_model: dict[str, Any], expected: list[str]) -> None:
    own = train(methods=EVERY, biases=["word_dist", "ans_len"], seeds=[3, 4], bias_model=bias_model)
    assert [guide.name for guide in guides_of(own)] == [*expected, "bert#3", "bert#4"]
    trained = [reader.name for reader in readers_of(own) if reader.method == "bias_model"]
    assert trained == (expected if not bias_model else [])
    guided = {reader.method for reader in readers_of(own) if reader.guide is not None}
    assert guided == {"learned_mixin", "confidence_regularization", "product_of_experts"}
