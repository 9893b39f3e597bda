"""The work that scoring needs, counted on unique tokens, and what the device does in a plain matrix product."""

import time
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from biaseval.scoring.trie import TokenTrie

_N_TRIALS = 5


def useful_flops(model: PreTrainedModel, trie: TokenTrie) -> int:
    """Return the floating-point operations without which the texts of ``trie`` cannot be scored.

    Two per weight of the layers and unique token; four per layer, attention channel (heads times their dimension) and
    pair of a token with itself or an ancestor; two per weight of the LM head and token that predicts a target. Shared
    prefixes count once. Norms, softmax and embeddings are left out.
    """
    config: Any = model.config.get_text_config()
    head = cast(Any, model).get_output_embeddings()
    weights = sum(m.weight.numel() for m in model.modules() if isinstance(m, nn.Linear) and m is not head)
    channels = config.num_attention_heads * config.head_dim
    n_seen = int(trie.depth.sum()) + trie.n_nodes
    n_predicting = len(np.unique(trie.target_node))
    return int(
        2 * weights * trie.n_nodes
        + 4 * config.num_hidden_layers * channels * n_seen
        + 2 * config.hidden_size * config.vocab_size * n_predicting
    )


def matrix_flops_per_s(dtype: str, device: str) -> float:
    """Return the rate of a plain product of two square matrices: the best of several (2,048 wide; CUDA 8,192)."""
    size, n_products = (8192, 20) if device == "cuda" else (2048, 1)
    left, right = (torch.randn(size, size, device=device).to(getattr(torch, dtype)) for _ in range(2))
    out = torch.empty_like(left)
    seconds = []
    for _ in range(_N_TRIALS + 1):  # the first one also warms up
        _wait(device)
        start = time.perf_counter()
        for _ in range(n_products):
            torch.mm(left, right, out=out)
        _wait(device)
        seconds.append(time.perf_counter() - start)
    return n_products * 2 * size**3 / min(seconds[1:])


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
