"""Torch's fused attention, called by name, because only then it returns the log-sum-exp that joins parts.

On CUDA, flash attention takes 16 bits without a mask; the memory-efficient kernel also takes float32 and masks. All get
the same shapes and return the same.
"""

import logging
import math
from functools import cache
from typing import Any

import torch

from biaseval.scoring.memory import is_out_of_memory

logger = logging.getLogger(__name__)

Attended = tuple[torch.Tensor, torch.Tensor]
"""Outputs ``[batch, heads, queries, dimension]`` and log-sum-exp of the scores ``[batch, heads, queries]``, float32."""

UNSEEN = -65504.0
"""The addition to a masked score: below any other score, and finite in 16 bits, because inf - inf is no number."""

KEY_MULTIPLE = 8
"""Masks have rows of a multiple of so many keys, which CUDA's kernels read at a time."""

_aten: Any = torch.ops.aten

_NEAR = 0.05
"""More than 16 bits round of outputs and sums of a few random numbers, and far less than a mask changes."""


def takes(query: torch.Tensor) -> bool:
    """Return whether there are fused kernels for queries ``[..., dimension]`` of this dtype on this device."""
    if query.device.type != "cuda":
        return True
    is_sized = query.shape[-1] % 8 == 0 and query.shape[-1] <= 256
    return is_sized and (query.dtype == torch.float32 or torch.cuda.get_device_capability(query.device) >= (8, 0))


def _is_cpu(states: torch.Tensor) -> bool:
    return states.device.type == "cpu"


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scale: float,
    *,
    bias: torch.Tensor | None = None,
    is_causal: bool = False,
) -> Attended:
    """Attend to all keys, to those that a mask leaves, or, with as many keys as queries, to none after a query.

    Args:
        query: ``[batch, heads, queries, dimension]``, of those that the device ``takes``.
        key: ``[batch, heads, keys, dimension]``.
        value: the same.
        scale: of the scores.
        bias: ``[batch, heads, queries, keys]``, 0 or ``UNSEEN``, of the queries' dtype; rows of ``KEY_MULTIPLE`` keys.
        is_causal: instead of a bias.
    """
    if _is_cpu(query):
        output, total = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, is_causal=is_causal, attn_mask=bias, scale=scale
        )
    elif bias is not None and not _takes_bias(query.device, query.dtype, query.shape[-1]):
        return by_products(query, key, value, scale, bias)
    elif bias is not None or query.dtype == torch.float32:
        output, total, *_ = _aten._scaled_dot_product_efficient_attention(
            query, key, value, bias, True, is_causal=is_causal, scale=scale
        )
    else:
        output, total, *_ = _aten._scaled_dot_product_flash_attention(
            query, key, value, is_causal=is_causal, scale=scale
        )
    return output, total[..., : query.shape[2]]  # some fill up the last dimension


def by_products(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, bias: torch.Tensor
) -> Attended:
    """Attend as ``attend`` does with a bias, by matrix products: slower, and on any device."""
    # In float32 throughout, as in fused kernels: 16 bits would round large scores to whole nats.
    scores = (query.float() @ key.float().transpose(-1, -2)).mul_(scale).add_(bias)
    total = scores.logsumexp(dim=-1)
    return scores.sub_(total[..., None]).exp_().to(value.dtype) @ value, total


@cache
def _takes_bias(device: torch.device, dtype: torch.dtype, dimension: int) -> bool:
    """Return whether the memory-efficient kernel is right with a mask here, by a few numbers, once in a process."""
    if device.type == "meta":
        return True
    generator = torch.Generator(device).manual_seed(0)
    n, n_keys, scale = 40, 200, 1 / math.sqrt(dimension)
    query, key, value = (
        torch.randn((2, 2, length, dimension), generator=generator, device=device).to(dtype)
        for length in (n, n_keys, n_keys)
    )
    # A query sees its last keys, so that whole tiles before them count for nothing.
    first = n_keys - 1 - 5 * torch.arange(n, device=device)
    is_seen = torch.arange(n_keys, device=device) >= first[:, None]
    bias = torch.full((2, 1, n, n_keys), UNSEEN, dtype=dtype, device=device).masked_fill_(is_seen, 0)
    bias = bias.expand(-1, 2, -1, -1)
    try:
        output, total, *_ = _aten._scaled_dot_product_efficient_attention(query, key, value, bias, True, scale=scale)
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        logger.warning("attention with a mask goes by matrix products, which are slower: %s", error)
        return False
    pairs = zip((output, total[..., :n]), by_products(query, key, value, scale, bias), strict=True)
    difference = max(float((own.float() - right.float()).abs().max()) for own, right in pairs)
    if not difference < _NEAR:
        logger.warning("attention with a mask goes by matrix products: the kernel for it is %.2g off", difference)
        return False
    return True
