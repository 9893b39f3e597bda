"""Causal language models: their tokenizers, as scoring needs them, their weights, and what is known without those."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.initialization import no_init_weights

from biaseval.errors import InputError
from biaseval.models.adapters import for_inference
from biaseval.models.loading import (
    ON_CPU,
    Loading,
    built_model,
    read_model,
    read_tokenizer,
    refuse_missing,
    torch_dtype,
)
from biaseval.models.sources import ModelSource, reading

_PART = "causal language model"
_WINDOW_KEYS = ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len", "max_sequence_length", "n_ctx")


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What the planner must know about a model; read from its configuration, without any weights."""

    family: str
    """The configuration's ``model_type``: ``llama``, ``mistral``, ``falcon``..."""
    window: int | None
    """Tokens the model can take, or None where the configuration sets no limit (ALiBi models such as BLOOM)."""
    sliding_window: int | None
    """Tokens one position attends to, where that is fewer than all; not a limit on the length of a text."""
    n_parameters: int
    """Parameters; tied ones count once."""
    n_layers: int
    hidden_size: int
    vocabulary: int
    """Rows of the token embedding, which may exceed the tokenizer's vocabulary."""
    kv_values_per_token: int
    """Numbers that the key-value cache of all layers holds for one token."""

    def kv_bytes_per_token(self, dtype: str) -> int:
        """Return the bytes that the key-value cache needs for one token in ``dtype``, over all layers."""
        return self.kv_values_per_token * torch_dtype(dtype).itemsize


def load_tokenizer(source: ModelSource) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a model and make sure that it can score labels.

    Scoring tokenises prompt, label and EOS together, takes the tokens of the prompt as their context, and scores an
    EOS after each label. So the tokenizer must have an EOS, must read the EOS string back as that one id, and must not
    append anything by itself.

    Raises:
        InputError: no such model, no tokenizer there, or one that breaks the rule above.
    """
    path = source.path
    tokenizer = read_tokenizer(source)
    if tokenizer.eos_token is None or tokenizer.eos_token_id is None:
        raise InputError(f"{path}: the tokenizer has no EOS token, which is scored after every label; set eos_token")
    bare = _ids(tokenizer, "a", add_special_tokens=False)
    if not bare:
        raise InputError(f"{path}: the tokenizer gives no token for 'a'; the tokenizer files are broken or incomplete")
    if _ids(tokenizer, "a")[-len(bare) :] != bare:
        raise InputError(
            f"{path}: the tokenizer appends special tokens to every text, so that a prompt is not the beginning of "
            "prompt + label; set add_eos_token to false, or remove what follows the text from its post-processor"
        )
    if _ids(tokenizer, "a" + tokenizer.eos_token)[-1] != tokenizer.eos_token_id:
        raise InputError(
            f"{path}: the tokenizer splits its own EOS {tokenizer.eos_token!r} into other tokens; "
            "list it as a special token in tokenizer.json"
        )
    return tokenizer


def describe_model(source: ModelSource) -> ModelFacts:
    """Describe a causal language model from its configuration alone; no weight is read.

    Parameters and cache are counted on an instance without storage (torch's meta device).

    Raises:
        InputError: no such model, no configuration there, or not a causal language model.
    """
    model: Any = bare_model(source)
    config, text = model.config, model.config.get_text_config()
    with reading(source.path, _PART), torch.device("meta"), torch.no_grad():
        cache = model(input_ids=torch.zeros((1, 1), dtype=torch.long), use_cache=True).past_key_values
    if cache is None:
        raise InputError(
            f"{source.path}: is no causal language model ({config.model_type}), as its tokens see those behind them; "
            "name one, or ask a model that answers questions by kind: qa_bias"
        )
    return ModelFacts(
        family=config.model_type,
        window=model_window(config),
        sliding_window=getattr(text, "sliding_window", None),
        n_parameters=sum(parameter.numel() for parameter in model.parameters()),
        n_layers=text.num_hidden_layers,
        hidden_size=text.hidden_size,
        vocabulary=model.get_input_embeddings().weight.shape[0],
        kv_values_per_token=sum(layer.keys.numel() + layer.values.numel() for layer in cache.layers),
    )


def model_window(config: PretrainedConfig) -> int | None:
    """Return the number of tokens that a model of this configuration can take, or None where it sets no limit."""
    text = config.get_text_config()
    if getattr(text, "alibi", False) or getattr(getattr(text, "attn_config", None), "alibi", False):
        # ALiBi has no position table. MPT still refuses texts beyond the length that its bias is built for.
        return getattr(text, "max_seq_len", None)
    return next((value for key in _WINDOW_KEYS if isinstance(value := getattr(text, key, None), int)), None)


def load_model(source: ModelSource, loading: Loading = ON_CPU) -> PreTrainedModel:
    """Load a causal language model for scoring: eval mode, no gradients.

    Raises:
        InputError: no such model, weights missing or not in safetensors, unknown dtype or quantization, a device that
            is not there, bitsandbytes absent, or an adapter that does not fit.
    """
    model, missing = read_model(AutoModelForCausalLM, _PART, source, loading)
    refuse_missing(source.path, model, missing)
    return for_inference(model, source.adapter)


def unfilled_model(source: ModelSource, dtype: str = "float32") -> PreTrainedModel:
    """Return a causal language model on the CPU whose weights hold nothing and whose buffers are right.

    Its memory is taken only as weights are written: for workers that get theirs from another. Without adapter.

    Raises:
        InputError: no such model.
    """
    with no_init_weights():
        return for_inference(built_model(AutoModelForCausalLM, _PART, source, dtype), None)


def bare_model(source: ModelSource) -> PreTrainedModel:
    """Return a causal language model without storage (torch's meta device) and without adapter; no weight is read.

    Raises:
        InputError: no such model, or not a causal language model.
    """
    with torch.device("meta"):
        return built_model(AutoModelForCausalLM, _PART, source)


def _ids(tokenizer: PreTrainedTokenizerBase, text: str, *, add_special_tokens: bool = True) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=add_special_tokens)["input_ids"]
    return ids
