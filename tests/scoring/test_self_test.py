"""Self-tests, and models with code of their own."""

import json
import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.torch import save_file
from transformers import CpmAntConfig, GPTNeoConfig, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from biaseval.errors import InputError
from biaseval.models import ModelSource, describe_model
from biaseval.scoring import LabelScorer, encode, prepare, runner
from biaseval.scoring.packed import packed_predictions
from biaseval.scoring.trie import TokenTrie
from tests.scoring.families import (
    EXACT,
    PACKED,
    PREFIX_CACHE,
    VOCABULARY,
    by_the_rule,
    few_shot_prompts,
    largest_difference,
    random_model,
)
from tests.tinymodels import make_tokenizer


def test_a_model_that_packs_wrongly_is_found_out_and_scored_whole(
    tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # MPT takes its positions from places in the row: no error, only wrong numbers.
    monkeypatch.setattr(runner, "why_no_packs", lambda model: None)
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


@pytest.mark.parametrize("has_large_logits", [False, True])
def test_wrong_packs_are_found_out_in_16_bits(
    has_large_logits: bool, tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packed wrongly, scores are about 0.8 nats off; rounding costs 0.01, and more where logits are large."""
    monkeypatch.setattr(runner, "why_no_packs", lambda model: None)
    config = PREFIX_CACHE["mpt"]()
    config.initializer_range, config.tie_word_embeddings = 0.1, not has_large_logits
    model = with_large_logits(config) if has_large_logits else random_model(config)
    scoring = LabelScorer(model.bfloat16(), tokenizer)
    scoring.score(few_shot_prompts())
    assert scoring.path == "prefix_cache"


def test_texts_that_fill_the_window_are_tested_in_16_bits(tokenizer: PreTrainedTokenizerBase) -> None:
    longest = max(prepare(tokenizer, prompts := few_shot_prompts()).rows["n_tokens"].to_pylist())
    scoring = LabelScorer(random_model(PACKED["gpt2"](n_positions=longest)).bfloat16(), tokenizer)
    scoring.score(prompts)
    assert (scoring.path, scoring.facts()["paths_left"]) == ("packed", {})


def test_a_path_that_fails_is_left(
    tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Falcon's ALiBi models refuse the mask of a pack.
    monkeypatch.setattr(runner, "why_no_packs", lambda model: None)
    model = random_model(PREFIX_CACHE["falcon rw (alibi)"]())
    prompts = few_shot_prompts()
    scoring = LabelScorer(model, tokenizer)
    with caplog.at_level(logging.WARNING):
        scores = scoring.score(prompts)
    assert scoring.path == "prefix_cache"
    assert "falcon: the packed path fails with" in caplog.text
    assert largest_difference(scores, by_the_rule(model, tokenizer, prompts)) < EXACT


def test_a_few_texts_decide_before_the_others_run(
    tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def note(model: PreTrainedModel, trie: TokenTrie, *rest: Any) -> Any:
        tried.append(trie)
        return packed_predictions(model, trie, *rest)

    monkeypatch.setattr(runner, "packed_predictions", note)
    prompts = few_shot_prompts()
    n_texts = sum(map(len, prompts["labels"].to_pylist()))
    LabelScorer(random_model(PACKED["llama"]()), tokenizer).score(prompts)
    few, whole = (np.count_nonzero(trie.end == np.arange(trie.n_nodes) + 1) for trie in tried)
    assert 2 <= few <= 4 < whole <= n_texts
    assert tried[0].depth.max() == tried[1].depth.max()
    tried.clear()
    monkeypatch.setattr(runner, "why_no_packs", lambda model: None)
    LabelScorer(random_model(PREFIX_CACHE["mpt"]()), tokenizer).score(prompts)
    assert len(tried) == 1


def test_longer_texts_are_tested_again(tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch) -> None:
    # Its local layers count their window by places in the row, so that packs of short texts alone are right.
    config = GPTNeoConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]],
        window_size=48, initializer_range=0.3, bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    model = random_model(config)
    assert "was not tried" in LabelScorer(model, tokenizer).facts()["paths_left"]["packed"]
    monkeypatch.setattr(runner, "why_no_packs", lambda model: None)
    short, prompts = pa.table({"prompt_id": ["a"], "text": ["x"], "labels": [["no", "yes"]]}), few_shot_prompts()
    scoring = LabelScorer(model, tokenizer)
    for table, path in ((short, "packed"), (prompts, "prefix_cache")):
        assert largest_difference(scoring.score(table), by_the_rule(model, tokenizer, table)) < EXACT
        assert scoring.path == path


def test_an_error_of_any_kind_is_a_reason(tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise IndexError("index out of range in self")

    monkeypatch.setattr(runner, "packed_predictions", fails)
    scoring = LabelScorer(random_model(PACKED["llama"]()), tokenizer)
    scoring.score(few_shot_prompts())
    assert scoring.facts()["paths_left"] == {"packed": "fails with IndexError: index out of range in self"}


def cpm_ant() -> PreTrainedModel:
    """Return a model that ignores the mask, and whose tokens see all others."""
    config = CpmAntConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_attention_heads=4, dim_head=8, dim_ff=48, num_hidden_layers=2,
        prompt_types=4, prompt_length=4, segment_types=4, init_std=0.3,
    )  # fmt: skip
    return random_model(config)


def without_mask(*, has_cache: bool = False) -> PreTrainedModel:
    """Return a model whose code takes no mask, and counts positions as if texts were filled up at their beginning."""
    model = random_model(PACKED["gpt2"]())
    forward = type(model).forward

    def behind(
        self: PreTrainedModel, input_ids: torch.Tensor, past_key_values: Any = None, use_cache: Any = None
    ) -> Any:
        n_cached = 0 if past_key_values is None else past_key_values.get_seq_length()
        n_filled = (input_ids[:, 1:].flip(1).cumsum(1) == 0).sum(dim=1, keepdim=True)
        positions = n_cached + torch.arange(input_ids.shape[1]) + n_filled
        more = {"past_key_values": past_key_values, "use_cache": use_cache}
        return forward(self, input_ids=input_ids, position_ids=positions, **more)

    def whole(self: PreTrainedModel, input_ids: torch.Tensor) -> Any:
        return behind(self, input_ids)

    model.__class__ = type("Unmasked", (type(model),), {"forward": behind if has_cache else whole})
    return model


@torch.inference_mode()
def alone(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompts: pa.Table) -> list[list[float]]:
    """Score every text by a forward pass of its own, which is given its tokens and nothing else."""
    found = []
    for row in encode(tokenizer, prompts).to_pylist():
        ids, n = row["token_ids"], row["n_context_tokens"]
        logprobs = model(input_ids=torch.tensor([ids[:-1]])).logits[0].log_softmax(-1)
        found.append([logprobs[place - 1, ids[place]].item() for place in range(n, len(ids))])
    return found


def test_a_model_that_heeds_no_mask_is_scored_one_text_at_a_time(
    tokenizer: PreTrainedTokenizerBase, caplog: pytest.LogCaptureFixture
) -> None:
    model, prompts = without_mask(), few_shot_prompts()
    scoring = LabelScorer(model, tokenizer, path="full_text")
    with caplog.at_level(logging.WARNING):
        scores = scoring.score(prompts)
    assert largest_difference(scores, alone(model, tokenizer, prompts)) < EXACT
    assert scoring.path == scoring.facts()["path"] == "one_by_one"
    assert "nats off the plain forward pass" in scoring.facts()["paths_left"]["full_text"]
    assert "gpt2: the full_text path is" in caplog.text
    assert largest_difference(scoring.score(prompts.slice(0, 1)), alone(model, tokenizer, prompts.slice(0, 1))) < EXACT


def test_a_model_whose_tokens_see_those_behind_them_is_refused(tokenizer: PreTrainedTokenizerBase) -> None:
    prompts = few_shot_prompts()
    for own in (prompts, prompts.slice(0, 1)):
        with pytest.raises(
            InputError, match=r"CpmAntForCausalLM: is no plain causal language model \(cpmant\), as its tokens see"
        ):
            LabelScorer(cpm_ant(), tokenizer).score(own)


CODE = """
import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

class OwnConfig(PretrainedConfig):
    model_type = "own"
    vocab_size: int = 420
    hidden_size: int = 32
    num_hidden_layers: int = 1
    sees: str = "before"

class OwnModel(PreTrainedModel):
    config_class = OwnConfig
    def __init__(self, config):
        super().__init__(config)
        self.embedding = torch.nn.Embedding(config.vocab_size, config.hidden_size)
        self.head = torch.nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()
    def get_input_embeddings(self):
        return self.embedding
    def forward(self, input_ids):  # takes no mask
        states = self.embedding(input_ids)
        if self.config.sees == "all":
            states = states + states.mean(1, keepdim=True)
        else:
            states = states.cumsum(1) * torch.log(torch.tensor(float(input_ids.shape[1])))  # as Qwen's first models
        return CausalLMOutput(logits=self.head(states))
"""


def own_model(folder: Path, sees: str) -> Path:
    config = {"model_type": "own", "sees": sees, "vocab_size": VOCABULARY, "architectures": ["OwnModel"]}
    config["auto_map"] = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(CODE)
    torch.manual_seed(0)
    shapes = {"embedding.weight": (VOCABULARY, 32), "head.weight": (VOCABULARY, 32), "head.bias": (VOCABULARY,)}
    save_file({name: torch.randn(shape) / 8 for name, shape in shapes.items()}, folder / "model.safetensors")
    make_tokenizer().save_pretrained(folder)
    return folder


def test_a_model_that_takes_no_mask_and_follows_the_length_of_a_batch_is_scored_one_text_at_a_time(
    tmp_path: Path,
) -> None:
    folder, prompts = own_model(tmp_path, "before"), few_shot_prompts()
    assert describe_model(ModelSource(str(folder), trust_remote_code=True)).family == "own"
    scoring = LabelScorer.load(str(folder), trust_remote_code=True)
    expected = by_the_rule(scoring.model, scoring.tokenizer, prompts)
    assert largest_difference(scoring.score(prompts), expected) < EXACT
    assert scoring.path == "one_by_one"


def test_a_model_that_takes_no_mask_and_looks_ahead_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is no causal language model \(own\): its prediction for a token changes"):
        LabelScorer.load(str(own_model(tmp_path, "all")), trust_remote_code=True)


def test_code_that_nobody_trusts_is_not_run(tmp_path: Path) -> None:
    for read in (LabelScorer.load, lambda path: describe_model(ModelSource(path))):
        with pytest.raises(InputError, match="trust_remote_code"):
            read(str(own_model(tmp_path, "before")))
