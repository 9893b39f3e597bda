"""Llamas of random weights, whose work is that of a real model of the same shape, and a tokenizer for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel, PreTrainedTokenizerFast


@dataclass(frozen=True)
class Shape:
    """What a Llama's configuration needs."""

    hidden: int
    layers: int
    heads: int
    key_heads: int
    intermediate: int
    vocabulary: int


SHAPES = {
    "tiny": Shape(hidden=64, layers=2, heads=4, key_heads=2, intermediate=128, vocabulary=512),
    "30m": Shape(hidden=512, layers=8, heads=8, key_heads=8, intermediate=1408, vocabulary=8192),
    "1b": Shape(hidden=2048, layers=16, heads=32, key_heads=8, intermediate=8192, vocabulary=32000),
    "7b": Shape(hidden=4096, layers=32, heads=32, key_heads=8, intermediate=14336, vocabulary=32000),
}


@torch.no_grad()
def random_model(shape: Shape, dtype: str, device: str) -> PreTrainedModel:
    """Return a Llama of this shape, made in ``dtype`` on ``device``.

    Weights are bfloat16 numbers in every dtype, so that two dtypes differ in arithmetic alone (float16 cannot hold the
    smallest of them exactly).
    """
    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_heads,
        max_position_embeddings=8192,
        bos_token_id=0,
        eos_token_id=1,
    )
    auto: Any = AutoModelForCausalLM
    with torch.device(device):
        model = auto.from_config(config, dtype=getattr(torch, dtype))
    generator = torch.Generator(device).manual_seed(0)
    for parameter in model.parameters():
        if parameter.dim() == 2:  # keeps the variance of what goes through it; norms stay 1
            drawn = torch.empty_like(parameter, dtype=torch.bfloat16)
            parameter.copy_(drawn.normal_(0, shape.hidden**-0.5, generator=generator))
    model.eval()
    return cast(PreTrainedModel, model)


def train_tokenizer(texts: Sequence[str], vocabulary: int) -> str:
    """Train a byte-level BPE of at most ``vocabulary`` tokens that puts BOS first; return it as JSON."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return str(tokenizer.to_str())


def load_tokenizer(trained: str) -> PreTrainedTokenizerFast:
    """Return what ``train_tokenizer`` made, as transformers uses it."""
    fast: Any = PreTrainedTokenizerFast
    return cast(
        PreTrainedTokenizerFast, fast(tokenizer_object=Tokenizer.from_str(trained), bos_token="<s>", eos_token="</s>")
    )
