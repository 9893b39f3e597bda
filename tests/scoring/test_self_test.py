"""Ways to run texts that are wrong for a model are found out and left, and right ones are kept."""

from __future__ import annotations

import logging
import re

import pyarrow as pa
import pytest
import torch
from transformers import (
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from biaseval.scoring import LabelScorer, packed, runner
from tests.scoring.families import (
    EXACT,
    PACKED,
    PREFIX_CACHE,
    by_the_rule,
    few_shot_prompts,
    largest_difference,
    random_model,
)


def test_sixteen_bit_scores_stay_within_the_self_test_tolerance(tokenizer: PreTrainedTokenizerBase) -> None:
    model = random_model(PACKED["llama, grouped queries"]()).to(torch.bfloat16)
    scoring = LabelScorer(model, tokenizer)
    prompts = few_shot_prompts()
    difference = largest_difference(scoring.score(prompts), by_the_rule(model, tokenizer, prompts))
    assert scoring.path == "packed"
    assert difference < runner.TOLERANCE[torch.bfloat16]


def test_a_model_that_packs_wrongly_is_found_out_and_scored_whole(
    tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # MPT takes its positions from places in the row: no error, only wrong numbers.
    monkeypatch.setattr(packed, "PACKED_FAMILIES", frozenset({"mpt"}))
    model = random_model(PREFIX_CACHE["mpt"]())
    scoring = LabelScorer(model, tokenizer)
    assert scoring.path == "packed"
    prompts = few_shot_prompts()
    with caplog.at_level(logging.WARNING):
        scores = scoring.score(prompts)
    assert scoring.path == "prefix_cache"
    assert "nats off" in scoring.facts()["paths_left"]["packed"]
    assert re.search("mpt: the packed path is .* nats off the plain forward pass", caplog.text)
    assert largest_difference(scores, by_the_rule(model, tokenizer, prompts)) < EXACT


def test_texts_that_share_nothing_do_not_use_up_the_self_test(
    tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "PACKED_FAMILIES", frozenset({"mpt"}))
    model = random_model(PREFIX_CACHE["mpt"]())
    scoring = LabelScorer(model, tokenizer)
    for text in ("one text", "another", "a third", "and more"):
        scoring.score(pa.table({"prompt_id": ["a"], "text": [text], "labels": [["yes"]]}))
    assert scoring.facts()["self_test_difference"] is None
    prompts = few_shot_prompts()
    assert largest_difference(scoring.score(prompts), by_the_rule(model, tokenizer, prompts)) < EXACT
    assert scoring.path == "prefix_cache"


def test_wrong_packs_are_found_out_in_16_bits(
    tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "PACKED_FAMILIES", frozenset({"mpt"}))
    config = PREFIX_CACHE["mpt"]()
    config.initializer_range = 0.1  # packed wrongly, scores are about 0.8 nats off; rounding costs 0.01
    scoring = LabelScorer(random_model(config).to(torch.bfloat16), tokenizer)
    scoring.score(few_shot_prompts())
    assert scoring.path == "prefix_cache"


def with_large_logits(config: PretrainedConfig) -> PreTrainedModel:
    """Return a model whose logits reach 28."""
    model = random_model(config)
    with torch.no_grad():
        logits = model(torch.arange(2, 40)[None]).logits
        model.get_output_embeddings().weight *= 28 / logits.abs().max()
    return model


def test_right_packs_are_kept_where_16_bits_round_large_logits(tokenizer: PreTrainedTokenizerBase) -> None:
    # Between 16 and 32 a step of bfloat16 is 0.125. Here nothing but the logits is rounded: padding changes no score,
    # and a pack adds the same to all tokens, which changes none either.
    model = with_large_logits(PACKED["llama, grouped queries"]())
    model.__class__ = type("Rounded", (type(model),), {"dtype": torch.bfloat16})
    more = []

    def note(module: torch.nn.Module, args: tuple[()], kwargs: dict[str, torch.Tensor]) -> None:
        more[:] = [0.06 if kwargs["attention_mask"].dim() == 4 else 0.0]

    model.register_forward_pre_hook(note, with_kwargs=True)
    model.get_output_embeddings().register_forward_hook(lambda head, args, logits: (logits + more[0]).bfloat16())
    scoring = LabelScorer(model, tokenizer)
    scoring.score(few_shot_prompts())
    assert scoring.path == "packed"
    assert 0.1 < scoring.facts()["self_test_difference"] <= 0.3


def test_wrong_packs_are_found_out_where_16_bits_round_large_logits(
    tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "PACKED_FAMILIES", frozenset({"mpt"}))
    config = PREFIX_CACHE["mpt"]()
    config.initializer_range, config.tie_word_embeddings = 0.1, False
    scoring = LabelScorer(with_large_logits(config).bfloat16(), tokenizer)
    scoring.score(few_shot_prompts())
    assert scoring.path == "prefix_cache"


def test_a_path_that_fails_is_left(
    tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Falcon's ALiBi models refuse the mask of a pack.
    monkeypatch.setattr(runner, "takes_packs", lambda model: True)
    model = random_model(PREFIX_CACHE["falcon rw (alibi)"]())
    prompts = few_shot_prompts()
    scoring = LabelScorer(model, tokenizer)
    with caplog.at_level(logging.WARNING):
        scores = scoring.score(prompts)
    assert scoring.path == "prefix_cache"
    assert "falcon: the packed path fails with" in caplog.text
    assert largest_difference(scores, by_the_rule(model, tokenizer, prompts)) < EXACT
