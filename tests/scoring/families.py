"""Tiny models of every family that the engine names, and what the plain forward pass makes of a text."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import transformers as hf

EXACT = 1e-4  # nats in float32: what the design promises
VOCABULARY = 420


def llama_like(**sizes: Any) -> dict[str, Any]:
    """Return the arguments that Llama and its kin share."""
    return {
        "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 48, "initializer_range": 0.3, "num_key_value_heads": 2, "pad_token_id": 0,
        "bos_token_id": 0, "eos_token_id": 1,
    } | sizes  # fmt: skip


def falcon_like(**sizes: Any) -> dict[str, Any]:
    """Return Falcon's arguments."""
    return {
        "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "initializer_range": 0.3, "bos_token_id": 0, "eos_token_id": 1,
    } | sizes  # fmt: skip


# The families for which the packed path is used, in the variants that differ in how they attend.
PACKED: dict[str, Callable[..., hf.PretrainedConfig]] = {
    "llama": lambda **s: hf.LlamaConfig(**llama_like(num_key_value_heads=None, **s)),
    "llama, grouped queries": lambda **s: hf.LlamaConfig(**llama_like(**s)),
    "llama, one key head, tied": lambda **s: hf.LlamaConfig(
        **llama_like(num_key_value_heads=1, tie_word_embeddings=True, **s)),
    "mistral": lambda **s: hf.MistralConfig(**llama_like(sliding_window=None, **s)),
    "mistral, inside its window": lambda **s: hf.MistralConfig(**llama_like(sliding_window=1024, **s)),
    "mistral, beyond its window": lambda **s: hf.MistralConfig(**llama_like(sliding_window=40, **s)),
    "qwen2": lambda **s: hf.Qwen2Config(**llama_like(**s)),
    "qwen3": lambda **s: hf.Qwen3Config(**llama_like(head_dim=8, **s)),
    "falcon 7b": lambda **s: hf.FalconConfig(**falcon_like(alibi=False, multi_query=True, **s)),
    "falcon 40b": lambda **s: hf.FalconConfig(
        **falcon_like(alibi=False, new_decoder_architecture=True, num_kv_heads=2, **s)),
    "opt": lambda **s: hf.OPTConfig(
        **falcon_like(ffn_dim=48, word_embed_proj_dim=16, init_std=0.3, pad_token_id=0, **s)),
    "gpt_neox": lambda **s: hf.GPTNeoXConfig(**falcon_like(intermediate_size=48, **s)),
    "gpt2": lambda **s: hf.GPT2Config(**falcon_like(**s)),
    "gemma": lambda **s: hf.GemmaConfig(**llama_like(head_dim=8, **s)),
    "gemma2": lambda **s: hf.Gemma2Config(**llama_like(head_dim=8, query_pre_attn_scalar=8, sliding_window=1024, **s)),
    "gemma2, beyond its window": lambda **s: hf.Gemma2Config(
        **llama_like(head_dim=8, query_pre_attn_scalar=8, sliding_window=40, **s)),
    "gemma3": lambda **s: hf.Gemma3TextConfig(
        **llama_like(head_dim=8, query_pre_attn_scalar=8, sliding_window=1024, **s)),
    "phi": lambda **s: hf.PhiConfig(**llama_like(num_key_value_heads=None, **s)),
    "phi3": lambda **s: hf.Phi3Config(**llama_like(sliding_window=1024, **s)),
    "gptj": lambda **s: hf.GPTJConfig(**falcon_like(rotary_dim=4, **s)),
}  # fmt: skip
# Positions come from the place in the row: cached prefixes in padded batches. Hybrids keep states, too.
PREFIX_CACHE: dict[str, Callable[..., hf.PretrainedConfig]] = {
    "falcon rw (alibi)": lambda **s: hf.FalconConfig(**falcon_like(alibi=True, multi_query=False, **s)),
    "mpt": lambda **s: hf.MptConfig(**_mpt_like(**s)),
    "bloom": lambda **s: hf.BloomConfig(**falcon_like(**s)),
    "granite 4 (mamba 2 and attention)": lambda **s: hf.GraniteMoeHybridConfig(
        **llama_like(num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=48, **s),
        layer_types=_hybrid(s), mamba_n_heads=4, mamba_d_state=8, mamba_d_head="auto", mamba_chunk_size=8,
    ),
    "qwen3.5 (gated delta and attention)": lambda **s: hf.Qwen3_5TextConfig(
        **llama_like(head_dim=8, **s), layer_types=_hybrid(s), linear_key_head_dim=8, linear_value_head_dim=8,
        linear_num_key_heads=2, linear_num_value_heads=4,
    ),
}  # fmt: skip
FAMILIES = PACKED | PREFIX_CACHE


def _hybrid(sizes: dict[str, Any]) -> list[str]:
    return [("linear_attention", "full_attention")[layer % 2] for layer in range(sizes.get("num_hidden_layers", 2))]


def _mpt_like(hidden_size: int = 32, num_hidden_layers: int = 2, num_attention_heads: int = 4) -> dict[str, Any]:
    return {
        "vocab_size": VOCABULARY, "d_model": hidden_size, "n_layers": num_hidden_layers,
        "n_heads": num_attention_heads, "initializer_range": 0.3, "bos_token_id": 0, "eos_token_id": 1,
    }  # fmt: skip


def random_model(config: hf.PretrainedConfig, attention: str | None = None, seed: int = 0) -> hf.PreTrainedModel:
    torch.manual_seed(seed)
    made = hf.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=attention)
    model: hf.PreTrainedModel = made.eval()
    return model


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
def by_the_rule(
    model: hf.PreTrainedModel, tokenizer: hf.PreTrainedTokenizerBase, prompts: pa.Table
) -> list[list[float]]:
    """Score each (prompt, label) as protocol section 5.1 says it, those of a length in one pass, without padding."""
    texts: list[tuple[list[int], int]] = []
    for prompt in prompts.to_pylist():
        for label in prompt["labels"]:
            gap = "" if prompt["text"][-1:] in (" ", "\n", "\t") or label[:1] in (" ", "\n", "\t") else " "
            ids = tokenizer(prompt["text"] + gap + label + tokenizer.eos_token)["input_ids"]
            texts.append((ids, len(tokenizer(prompt["text"])["input_ids"])))
    results: list[list[float]] = [[]] * len(texts)
    for length in {len(ids) for ids, _ in texts}:
        places = [place for place, (ids, _) in enumerate(texts) if len(ids) == length]
        passed = model(torch.tensor([texts[place][0] for place in places])).logits.float().log_softmax(-1)
        for place, logprobs in zip(places, passed, strict=True):
            ids, n_context = texts[place]
            results[place] = [logprobs[i - 1, ids[i]].item() for i in range(n_context, length)]
    return results


def largest_difference(scores: pa.Table | Sequence[list[float]], expected: Sequence[list[float]]) -> float:
    found = scores["token_logprobs"].to_pylist() if isinstance(scores, pa.Table) else scores
    assert [len(own) for own in found] == [len(own) for own in expected]
    return float(np.abs(np.concatenate(found) - np.concatenate(expected)).max())
