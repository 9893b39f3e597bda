"""The scorer gives the plain forward pass's numbers, whatever it shares, packs or cuts."""

from __future__ import annotations

import logging
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from peft import LoraConfig, get_peft_model
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    FalconConfig,
    Gemma2Config,
    GPT2Config,
    GPTJConfig,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    MptConfig,
    OPTConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

from biaseval.errors import BiasevalError, InputError
from biaseval.models import load_model, load_tokenizer
from biaseval.scoring import LabelScorer, encode, packed, scorer
from biaseval.scoring.encoding import _cutting_rules
from biaseval.scoring.trie import build_trie, plan_steps
from tests.tinymodels import make_llama, make_tokenizer

EXACT = 1e-4  # nats in float32: what the design promises
VOCABULARY = 420
SIZES = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA = {**SIZES, "intermediate_size": 48, "initializer_range": 0.3}

# The families for which the packed path is used, in the variants that differ in how they attend.
PACKED = {
    "llama": LlamaConfig(**LLAMA),
    "llama, grouped queries": LlamaConfig(**LLAMA, num_key_value_heads=2),
    "llama, one key head, tied": LlamaConfig(**LLAMA, num_key_value_heads=1, tie_word_embeddings=True),
    "mistral": MistralConfig(**LLAMA, num_key_value_heads=2, sliding_window=None),
    "mistral, inside its window": MistralConfig(**LLAMA, num_key_value_heads=2, sliding_window=1024),
    "qwen2": Qwen2Config(**LLAMA, num_key_value_heads=2),
    "qwen3": Qwen3Config(**LLAMA, num_key_value_heads=2),
    "falcon 7b": FalconConfig(**SIZES, alibi=False, multi_query=True, initializer_range=0.3),
    "falcon 40b": FalconConfig(**SIZES, alibi=False, new_decoder_architecture=True, num_kv_heads=2,
                               initializer_range=0.3),
    "opt": OPTConfig(**SIZES, ffn_dim=48, word_embed_proj_dim=16, init_std=0.3),
    "gpt_neox": GPTNeoXConfig(**SIZES, intermediate_size=48, initializer_range=0.3),
    "gpt2": GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, initializer_range=0.3),
}  # fmt: skip
WHOLE = {
    "falcon rw (alibi)": FalconConfig(**SIZES, alibi=True, multi_query=False, initializer_range=0.3),
    "mpt": MptConfig(d_model=32, n_layers=2, n_heads=4, vocab_size=VOCABULARY, initializer_range=0.3),
    "bloom": BloomConfig(hidden_size=32, n_layer=2, n_head=4, vocab_size=VOCABULARY, initializer_range=0.3),
    "gptj": GPTJConfig(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, rotary_dim=4, initializer_range=0.3),
    "gemma2": Gemma2Config(**LLAMA, num_key_value_heads=2, head_dim=8),
}


def random_model(config: PretrainedConfig, attention: str | None = None) -> PreTrainedModel:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=attention).eval()


def few_shot_prompts(n_contexts: int = 3, n_inputs: int = 4) -> pa.Table:
    """Several contexts whose inputs begin alike, in mixed order, with labels that begin one another."""
    texts = []
    for context in range(n_contexts):
        demos = "".join(f"Input: case {context} of {demo}.\n Output: no.\n\n" for demo in range(context * 2))
        for number in range(n_inputs):
            texts.append(f"Say which.\n\n{demos}Input: the case {'very ' * number}new.\n\nOutput:")
    texts += ["x", "Input: naïve “quotes” — 你好 🙂.\n\nOutput:", "ends in a tab\t", "Output:\n"]
    random.Random(0).shuffle(texts)
    labels = ["no", "no way", "not sure", "yes", "yes, yes", "  Yes  ", "ja ☂"]
    return pa.table(
        {"prompt_id": [f"p{row}" for row in range(len(texts))], "text": texts, "labels": [labels] * len(texts)}
    )


@torch.inference_mode()
def by_the_rule(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompts: pa.Table) -> list[list[float]]:
    """Score with one forward pass per (prompt, label), as protocol section 5.1 says it; none of the scorer's code."""
    results = []
    for prompt in prompts.to_pylist():
        for label in prompt["labels"]:
            gap = "" if prompt["text"][-1:] in (" ", "\n", "\t") or label[:1] in (" ", "\n", "\t") else " "
            ids = tokenizer(prompt["text"] + gap + label + tokenizer.eos_token)["input_ids"]
            n_context = len(tokenizer(prompt["text"])["input_ids"])
            logprobs = model(torch.tensor([ids])).logits[0].float().log_softmax(-1)
            results.append([logprobs[i - 1, ids[i]].item() for i in range(n_context, len(ids))])
    return results


def largest_difference(scores: pa.Table | Sequence[list[float]], expected: Sequence[list[float]]) -> float:
    found = scores["token_logprobs"].to_pylist() if isinstance(scores, pa.Table) else scores
    assert [len(own) for own in found] == [len(own) for own in expected]
    return float(np.abs(np.concatenate(found) - np.concatenate(expected)).max())


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return make_tokenizer()


# ---- golden values ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["packed", "full_text"])
def test_golden_scores_of_the_reference_code(path: str, shared: Path) -> None:
    golden = pq.read_table(shared / "golden/superni/expected/scores.parquet")
    golden = golden.take(list(range(0, golden.num_rows, 2)))
    prompts = pa.table(
        {"prompt_id": [str(row) for row in range(len(golden))], "text": golden["prompt"], "labels": golden["labels"]}
    )
    scoring = LabelScorer.load(str(shared / "golden/tiny-llama"))
    scoring.path = path
    scores = scoring.score(prompts)
    assert scoring.path == path
    expected = [own for row in golden["full_token_logprobs"].to_pylist() for own in row]
    assert largest_difference(scores, expected) < 2e-4
    n_completion = [n for row in golden["completion_tokens"].to_pylist() for n in row]
    assert [n + 1 for n in scores["n_label_tokens"].to_pylist()] == n_completion
    assert scores["label"].to_pylist() == [label for row in golden["labels"].to_pylist() for label in row]


# ---- both paths against plain forward passes -------------------------------------------------------------------------


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", PACKED)
def test_packed_scores_are_the_plain_forward_pass(
    name: str, attention: str, tokenizer: PreTrainedTokenizerBase
) -> None:
    model = random_model(PACKED[name], attention)
    prompts = few_shot_prompts()
    expected = by_the_rule(model, tokenizer, prompts)
    for budget in (24, 64, 4096):
        scoring = LabelScorer(model, tokenizer, token_budget=budget)
        assert largest_difference(scoring.score(prompts), expected) < EXACT
        assert scoring.path == "packed"
        assert 0 <= scoring.facts()["self_test_difference"] < EXACT


@pytest.mark.parametrize("name", WHOLE)
def test_other_families_are_scored_from_whole_texts(name: str, tokenizer: PreTrainedTokenizerBase) -> None:
    model = random_model(WHOLE[name])
    prompts = few_shot_prompts()
    scoring = LabelScorer(model, tokenizer, token_budget=300)
    assert scoring.path == "full_text"
    assert largest_difference(scoring.score(prompts), by_the_rule(model, tokenizer, prompts)) < EXACT


def test_a_model_over_several_devices_gives_the_same_scores(tokenizer: PreTrainedTokenizerBase) -> None:
    # Only the device map is pretended: such a model is asked for a slice of its logits and not for single rows.
    model = random_model(PACKED["llama"])
    prompts = few_shot_prompts()
    expected = by_the_rule(model, tokenizer, prompts)
    model.hf_device_map = {"model": 0, "lm_head": 1}
    scoring = LabelScorer(model, tokenizer, token_budget=64)
    assert largest_difference(scoring.score(prompts), expected) < EXACT
    assert scoring.path == "packed"


def test_texts_beyond_a_sliding_window_are_scored_whole(tokenizer: PreTrainedTokenizerBase) -> None:
    prompts = few_shot_prompts()
    lengths = [len(ids) for ids in encode(tokenizer, prompts)["token_ids"].to_pylist()]
    window = sorted(lengths)[len(lengths) // 2]
    model = random_model(MistralConfig(**LLAMA, num_key_value_heads=2, sliding_window=window))
    scoring = LabelScorer(model, tokenizer)
    assert largest_difference(scoring.score(prompts), by_the_rule(model, tokenizer, prompts)) < EXACT
    assert scoring.path == "packed"


def test_scores_do_not_depend_on_what_else_is_in_the_call(tokenizer: PreTrainedTokenizerBase) -> None:
    scoring = LabelScorer(random_model(PACKED["llama, grouped queries"]), tokenizer)
    prompts = few_shot_prompts()
    together = scoring.score(prompts)["token_logprobs"].to_pylist()
    n_labels = len(prompts["labels"][0])
    order = list(range(len(prompts)))[::-1]
    backwards = scoring.score(prompts.take(order))["token_logprobs"].to_pylist()
    reordered = [own for row in order for own in together[row * n_labels : (row + 1) * n_labels]]
    assert largest_difference(backwards, reordered) < EXACT
    alone = [own for row in order for own in scoring.score(prompts.slice(row, 1))["token_logprobs"].to_pylist()]
    assert largest_difference(alone, reordered) < EXACT


def test_rows_come_back_in_order_with_their_own_labels(tokenizer: PreTrainedTokenizerBase) -> None:
    scoring = LabelScorer(random_model(PACKED["llama"]), tokenizer)
    prompts = pa.table(
        {
            "prompt_id": ["b", "a", "c"],
            "text": ["same", "same", "other"],
            "labels": [["yes", "no"], ["no"], ["no", "no"]],
        }
    )
    scores = scoring.score(prompts)
    assert scores["prompt_id"].to_pylist() == ["b", "b", "a", "c", "c"]
    assert scores["label"].to_pylist() == ["yes", "no", "no", "no", "no"]
    found = scores["token_logprobs"].to_pylist()
    assert found[1] == found[2]
    assert found[3] == found[4]
    assert [len(own) for own in found] == [n + 1 for n in scores["n_label_tokens"].to_pylist()]


def test_no_prompts_give_no_scores(tokenizer: PreTrainedTokenizerBase) -> None:
    scoring = LabelScorer(random_model(PACKED["llama"]), tokenizer)
    scores = scoring.score(few_shot_prompts().slice(0, 0))
    assert scores.num_rows == 0
    assert scores.schema == scorer.SCORES


def test_sixteen_bit_scores_stay_within_the_self_test_tolerance(tokenizer: PreTrainedTokenizerBase) -> None:
    model = random_model(PACKED["llama, grouped queries"]).to(torch.bfloat16)
    scoring = LabelScorer(model, tokenizer)
    prompts = few_shot_prompts()
    difference = largest_difference(scoring.score(prompts), by_the_rule(model, tokenizer, prompts))
    assert scoring.path == "packed"
    assert difference < scorer.TOLERANCE[torch.bfloat16]


def test_an_adapter_changes_the_scores_to_those_of_the_adapted_model(tiny_llama: Path, tmp_path: Path) -> None:
    adapted = get_peft_model(load_model(str(tiny_llama)), LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    torch.manual_seed(1)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.5)
    adapted.eval().save_pretrained(tmp_path)
    prompts = few_shot_prompts()
    scoring = LabelScorer.load(str(tiny_llama), adapter=str(tmp_path))
    assert largest_difference(scoring.score(prompts), by_the_rule(adapted, scoring.tokenizer, prompts)) < EXACT
    assert scoring.path == "packed"
    plain = LabelScorer.load(str(tiny_llama)).score(prompts)["token_logprobs"].to_pylist()
    assert largest_difference(scoring.score(prompts), plain) > 0.1


# ---- when something is wrong -----------------------------------------------------------------------------------------


def test_a_model_that_packs_wrongly_is_found_out_and_scored_whole(
    tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # MPT takes its positions from places in the row: no error, only wrong numbers.
    monkeypatch.setattr(packed, "PACKED_FAMILIES", frozenset({"mpt"}))
    model = random_model(WHOLE["mpt"])
    scoring = LabelScorer(model, tokenizer)
    assert scoring.path == "packed"
    prompts = few_shot_prompts()
    with caplog.at_level(logging.WARNING):
        scores = scoring.score(prompts)
    assert scoring.path == "full_text"
    assert "packed scores of this mpt" in caplog.text
    assert scoring.facts()["self_test_difference"] > 1e-2
    assert largest_difference(scores, by_the_rule(model, tokenizer, prompts)) < EXACT


def test_a_first_call_too_small_to_judge_by_does_not_end_the_self_test(
    tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "PACKED_FAMILIES", frozenset({"mpt"}))
    model = random_model(WHOLE["mpt"])
    scoring = LabelScorer(model, tokenizer)
    one = pa.table({"prompt_id": ["a"], "text": ["one text"], "labels": [["yes"]]})
    assert largest_difference(scoring.score(one), by_the_rule(model, tokenizer, one)) < EXACT
    prompts = few_shot_prompts()
    assert largest_difference(scoring.score(prompts), by_the_rule(model, tokenizer, prompts)) < EXACT
    assert scoring.path == "full_text"


@pytest.mark.parametrize("path", ["packed", "full_text"])
def test_memory_running_out_halves_the_budget_and_goes_on(path: str, tokenizer: PreTrainedTokenizerBase) -> None:
    model = random_model(PACKED["llama"])
    prompts = few_shot_prompts()
    expected = by_the_rule(model, tokenizer, prompts)

    def refuse_large(module: torch.nn.Module, args: tuple[()], kwargs: dict[str, torch.Tensor]) -> None:
        if kwargs["input_ids"].numel() > 150:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    model.register_forward_pre_hook(refuse_large, with_kwargs=True)
    scoring = LabelScorer(model, tokenizer, token_budget=1024)
    scoring.path = path
    assert largest_difference(scoring.score(prompts), expected) < EXACT
    assert scoring.token_budget == 128
    assert scoring.facts()["token_budget"] == 128


def test_memory_that_never_suffices_is_said(tokenizer: PreTrainedTokenizerBase) -> None:
    model = random_model(PACKED["llama"])

    def refuse(module: torch.nn.Module, args: tuple[()]) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    model.register_forward_pre_hook(refuse)
    with pytest.raises(BiasevalError, match="GPU memory runs out"):
        LabelScorer(model, tokenizer).score(few_shot_prompts())


@pytest.mark.parametrize("path", ["packed", "full_text"])
def test_a_score_that_is_no_number_is_an_error_with_the_prompt(path: str, tokenizer: PreTrainedTokenizerBase) -> None:
    model = random_model(PACKED["llama"])
    rare = tokenizer("z", add_special_tokens=False)["input_ids"][0]
    with torch.no_grad():
        model.get_input_embeddings().weight[rare] = float("nan")
    scoring = LabelScorer(model, tokenizer)
    scoring.path = path
    prompts = pa.table({"prompt_id": ["fine", "bad"], "text": ["a b", "a z"], "labels": [["no"], ["no"]]})
    with pytest.raises(BiasevalError, match=r"prompt 'bad', label 'no'.*not finite \(1 of 2"):
        scoring.score(prompts)


def test_a_text_longer_than_the_window_is_refused_by_prompt(tmp_path: Path) -> None:
    scoring = LabelScorer.load(str(make_llama(tmp_path, window=64)))
    prompts = pa.table({"prompt_id": ["short", "long"], "text": ["a", "z" + " z" * 80], "labels": [["no"], ["no"]]})
    with pytest.raises(InputError, match=r"prompt 'long': \d+ tokens .* the model takes 64"):
        scoring.score(prompts)


def test_a_tokenizer_of_another_model_is_refused(tokenizer: PreTrainedTokenizerBase) -> None:
    model = random_model(LlamaConfig(**{**LLAMA, "vocab_size": 50}))
    with pytest.raises(InputError, match="outside the model's vocabulary of 50"):
        LabelScorer(model, tokenizer).score(few_shot_prompts())


@pytest.mark.parametrize(
    ("prompts", "what"),
    [
        ({"prompt_id": ["a"], "labels": [["x"]]}, "column text missing"),
        ({"prompt_id": ["a", "a"], "text": ["t", "t"], "labels": [["x"], ["x"]]}, "'a': missing or repeated"),
        ({"prompt_id": [None], "text": ["t"], "labels": [["x"]]}, "None: missing or repeated"),
        ({"prompt_id": ["a"], "text": pa.array([None], pa.string()), "labels": [["x"]]}, "'a': no text"),
        ({"prompt_id": ["a"], "text": ["t"], "labels": pa.array([[]], pa.list_(pa.string()))}, "'a': labels"),
        ({"prompt_id": ["a"], "text": ["t"], "labels": [["x", ""]]}, "'a': labels"),
        ({"prompt_id": ["a"], "text": ["t"], "labels": pa.array([None], pa.list_(pa.string()))}, "'a': labels"),
    ],
)
def test_prompts_that_cannot_be_scored_are_refused(
    prompts: dict[str, object], what: str, tokenizer: PreTrainedTokenizerBase
) -> None:
    with pytest.raises(InputError, match=what):
        encode(tokenizer, pa.table(prompts))


def test_a_label_that_merges_into_the_prompt_is_scored_from_where_the_texts_part() -> None:
    tokenizer = trained(None, texts=["ab. c"] * 50)
    prompts = pa.table({"prompt_id": ["merged"], "text": ["ab."], "labels": [["c", "d"]]})
    assert len(tokenizer("ab. c</s>")["input_ids"]) == 3  # <s>, "ab. c", </s>: no token is the label's alone
    encoded = encode(tokenizer, prompts)
    assert encoded["n_context_tokens"].to_pylist() == [1, 1]
    assert encoded["n_label_tokens"][0].as_py() == 1
    assert encoded["token_ids"][0].as_py() == tokenizer("ab. c</s>")["input_ids"]
    assert encoded["token_ids"][1].as_py() == tokenizer("ab. d</s>")["input_ids"]


def test_a_label_after_a_prompt_that_ends_in_a_space_is_never_empty() -> None:
    tokenizer = trained(pre_tokenizers.ByteLevel(add_prefix_space=False), texts=["cut here yes"] * 50)
    prompts = pa.table({"prompt_id": ["cut"], "text": ["cut here "], "labels": [["yes", "no"]]})
    encoded = encode(tokenizer, prompts)
    assert min(encoded["n_label_tokens"].to_pylist()) >= 1
    assert len(set(encoded["n_context_tokens"].to_pylist())) == 1


def test_an_empty_prompt_is_scored_after_bos_and_refused_without(tokenizer: PreTrainedTokenizerBase) -> None:
    prompts = pa.table({"prompt_id": ["empty"], "text": [""], "labels": [["yes"]]})
    assert encode(tokenizer, prompts)["n_context_tokens"].to_pylist() == [1]
    with pytest.raises(InputError, match="prompt 'empty': no token before the label"):
        encode(trained(pre_tokenizers.ByteLevel(add_prefix_space=False), bos=False), prompts)


# ---- tokenising in pieces --------------------------------------------------------------------------------------------


def trained(
    pre_tokenizer: pre_tokenizers.PreTokenizer | None,
    *,
    normalizer: normalizers.Normalizer | None = None,
    texts: Sequence[str] = (),
    bos: bool = True,
    vocab_size: int = 500,
) -> PreTrainedTokenizerFast:
    """Return a BPE tokenizer trained here."""
    tokenizer = Tokenizer(models.BPE())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet, show_progress=False
    )
    words = "Input: the case is new. Output: no yes not sure, don't 123 4567 way!\n\n It's  very  odd\t(so) … naïve"
    tokenizer.train_from_iterator(texts or [words] * 30, trainer)
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


def split_by(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def unsplit(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """Let the tokens learned word by word be found in whole texts, as in tokenizers converted from SentencePiece."""
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    return tokenizer


LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CUT = {
    "gpt2": lambda: trained(pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "gpt2 with a first space": lambda: trained(pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "gpt2 without bos": lambda: trained(pre_tokenizers.ByteLevel(add_prefix_space=False), bos=False),
    "llama 3": lambda: trained(split_by(LLAMA_3)),
    "falcon": lambda: trained(
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Punctuation("contiguous"),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
                pre_tokenizers.Digits(individual_digits=False),
                pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), behavior="isolated"),
            ]
        )
    ),
    "llama 2": lambda: trained(pre_tokenizers.Metaspace(split=True)),
    "llama 2, one word": lambda: unsplit(trained(pre_tokenizers.Metaspace(split=True))),
    "qwen 2": lambda: trained(split_by(LLAMA_3.replace("{1,3}", "")), normalizer=normalizers.NFC()),
}
NOT_CUT = {
    "words may join": lambda: trained(None),
    "unknown pattern": lambda: trained(split_by(r"\w+ \w+|\s+|[^\s\w]+")),
    "lower case": lambda: trained(
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        normalizer=normalizers.Lowercase(),
    ),
}


def awkward_prompts(n: int, seed: int) -> pa.Table:
    """Long texts that begin alike and go on with whatever disturbs a tokenizer."""
    draw = random.Random(seed)
    fragments = ["Input:", " ", "  ", "\n", "\n\n", "\t", ".", "don't", " the case", "123 4567", "naïve", "e\u0301",
                 "你好", "🙂", "…", "<s>", "</s>", "</s", "<", "/s>", "▁", " ▁ ", "\u00a0", "\u3000", "\x1c", "Ġ",
                 "a", " a", "!", " 'll", "'s", " new", "\r\n", "\u200b", "x" * 300, "(so)"]  # fmt: skip
    context = "Say which one it is. " + " ".join(draw.choice(["case", "new", "is,", "123"]) for _ in range(300))
    texts = [context + " " + "".join(draw.choices(fragments, k=draw.randint(0, 60))) for _ in range(n - 3)]
    texts += ["", " ", context]
    labels = ["no", "no way", " No ", "\nYes", "7", "'s", "…", "naïve 你好", "</s>x", "<s>"]
    return pa.table({"prompt_id": [str(row) for row in range(n)], "text": texts, "labels": [labels] * n})


def assert_encoded_by_the_rule(tokenizer: PreTrainedTokenizerBase, prompts: pa.Table) -> None:
    """Compare with protocol section 5.1, a text at a time; leaves out what the rule itself cannot score."""
    rows = []
    for prompt in prompts.to_pylist():
        n_context = len(tokenizer(prompt["text"])["input_ids"])
        kept = []
        for label in prompt["labels"]:
            gap = "" if prompt["text"][-1:] in (" ", "\n", "\t") or label[:1] in (" ", "\n", "\t") else " "
            ids = tokenizer(prompt["text"] + gap + label + tokenizer.eos_token)["input_ids"]
            if n_context and len(ids) - n_context >= 2:
                kept.append((label, ids))
        if kept:
            rows.append((prompt["prompt_id"], prompt["text"], n_context, kept))
    table = pa.table(
        {
            "prompt_id": [row[0] for row in rows],
            "text": [row[1] for row in rows],
            "labels": [[label for label, _ in row[3]] for row in rows],
        }
    )
    encoded = encode(tokenizer, table)
    assert encoded["token_ids"].to_pylist() == [ids for row in rows for _, ids in row[3]]
    assert encoded["n_context_tokens"].to_pylist() == [row[2] for row in rows for _ in row[3]]
    assert encoded["label"].to_pylist() == [label for row in rows for label, _ in row[3]]
    assert encoded["n_label_tokens"].to_pylist() == [len(ids) - row[2] - 1 for row in rows for _, ids in row[3]]


@pytest.mark.parametrize("make", [*CUT.values(), *NOT_CUT.values()], ids=[*CUT, *NOT_CUT])
def test_token_ids_are_those_of_the_whole_text(
    make: Callable[[], PreTrainedTokenizerFast], caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = make()
    for seed in range(3):
        assert_encoded_by_the_rule(tokenizer, awkward_prompts(40, seed))
    assert "whole texts" not in caplog.text  # the safety net was not needed


@pytest.mark.parametrize("model", ["golden/tiny-llama", "data/models/stories260K"])
def test_token_ids_are_those_of_the_whole_text_with_real_tokenizers(
    model: str, shared: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = load_tokenizer(str(shared / model))
    assert _cutting_rules(tokenizer, len(tokenizer)) is not None
    for seed in range(3):
        assert_encoded_by_the_rule(tokenizer, awkward_prompts(40, seed))
    assert "whole texts" not in caplog.text


def test_only_tokenizers_that_prove_it_are_cut() -> None:
    assert all(_cutting_rules(make(), 0) is not None for make in CUT.values())
    assert all(_cutting_rules(make(), 0) is None for make in NOT_CUT.values())


def test_shared_text_is_tokenised_once(tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    backend = tokenizer.backend_tokenizer

    class Counting:
        def __getattr__(self, name: str) -> object:
            return getattr(backend, name)

        def encode_batch_fast(self, texts: list[str], **options: bool) -> object:
            seen.extend(texts)
            return backend.encode_batch_fast(texts, **options)

    context = "Say which one it is. " + "case new. " * 500
    texts = [f"{context}Input: number {row}.\n\nOutput:" for row in range(50)]
    prompts = pa.table({"prompt_id": list("abcdefghij" * 5), "text": texts, "labels": [["no", "yes"]] * 50})
    prompts = prompts.set_column(0, "prompt_id", [[str(row) for row in range(50)]])
    encode(tokenizer, prompts.slice(0, 4))  # the rules are asked of the tokenizer itself
    monkeypatch.setattr(type(tokenizer), "backend_tokenizer", property(lambda self: Counting()))
    encode(tokenizer, prompts)
    assert sum(map(len, seen)) < len(context) + 50 * 600


# ---- the trie --------------------------------------------------------------------------------------------------------


def test_a_trie_by_hand() -> None:
    # 7 8 -> 1 | 2 3 ; the last token of each is only predicted
    trie = build_trie([np.array([7, 8, 2, 3, 9]), np.array([7, 8, 1, 9]), np.array([7, 8, 2, 9])], [2, 2, 2])
    assert trie.token.tolist() == [7, 8, 1, 2, 3]
    assert trie.depth.tolist() == [0, 1, 2, 2, 3]
    assert trie.end.tolist() == [5, 5, 3, 5, 5]
    answers = sorted(zip(trie.target_slot.tolist(), trie.target_node.tolist(), trie.target_token.tolist(), strict=True))
    # slots 0-2 of the first: 2, 3, 9 after nodes 8, 2, 3; slots 3-4: 1, 9; slots 5-6: 2, 9
    assert answers == [(0, 1, 2), (1, 3, 3), (2, 4, 9), (3, 1, 1), (4, 2, 9), (5, 1, 2), (6, 3, 9)]
    assert [(step.kind, step.start, step.stop) for step in plan_steps(trie, 5)] == [("pack", 0, 5)]
    assert [(step.kind, step.start, step.stop) for step in plan_steps(trie, 2)] == [
        ("extend", 0, 2), ("pack", 2, 3), ("pack", 3, 5), ("crop", 0, 2),
    ]  # fmt: skip


def random_sequences(seed: int) -> Iterator[np.ndarray]:
    draw = np.random.default_rng(seed)
    for _ in range(60):
        yield np.concatenate([[0], draw.integers(1, 3, draw.integers(1, 40)), [9]])


@pytest.mark.parametrize("budget", [1, 7, 50, 10_000])
@pytest.mark.parametrize("seed", range(3))
def test_every_node_runs_once_behind_exactly_its_ancestors(seed: int, budget: int) -> None:
    sequences = list(random_sequences(seed))
    trie = build_trie(sequences, [1] * len(sequences))
    assert trie.n_nodes == len({tuple(own[: i + 1]) for own in sequences for i in range(len(own) - 1)})
    cached: list[int] = []
    run: list[int] = []
    for step in plan_steps(trie, budget):
        nodes = list(range(step.start, step.stop))
        if step.kind == "crop":
            assert cached[-len(nodes) :] == nodes
            del cached[-len(nodes) :]
            continue
        assert len(nodes) <= budget
        assert [trie.depth[node] for node in cached] == list(range(len(cached)))
        for node in nodes:
            ancestors = [other for other in range(node) if trie.end[other] > node]
            within = [other for other in ancestors if other >= step.start]
            assert ancestors == cached + within
            assert trie.depth[node] == len(ancestors)
        run += nodes
        if step.kind == "extend":
            assert all(trie.end[left] == trie.end[right] for left, right in pairwise(nodes))
            cached += nodes
    assert sorted(run) == list(range(trie.n_nodes))
    assert not cached


# ---- the package -----------------------------------------------------------------------------------------------------


def test_the_scorer_needs_neither_ray_nor_duckdb_nor_pydantic() -> None:
    code = (
        "import sys, biaseval.scoring\n"
        "print(sorted({'ray', 'duckdb', 'pydantic', 'peft', 'bitsandbytes'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
