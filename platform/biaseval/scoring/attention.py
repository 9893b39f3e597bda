"""Attention over a token trie without computing what is masked.

The nodes of a pack see the path that all of them share, and of the rest their own ancestors only. A dense mask would
compute every score and drop most: so the shared path gets plain unmasked attention, the rest small blocks of queries
with just the keys that they can see, and the two are joined by their softmax normalizers (as in cascade attention).

This reaches models as a mask. A ``TreeMask`` is the dense boolean mask, and right wherever it is used as one;
``scaled_dot_product_attention`` alone recognises it and takes the faster way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional as F

from biaseval.scoring.trie import Pack, TokenTrie

_BLOCK = 128
_KEY_MULTIPLE = 8
_SCORES_AT_ONCE = 1 << 27

Attended = tuple[torch.Tensor, torch.Tensor]
"""Outputs ``[batch, heads, queries, dimension]`` and log-sum-exp of the scores ``[batch, heads, queries]``."""


@dataclass(frozen=True)
class _Blocks:
    """The queries of a pack in blocks of equal size, and the keys that each block can see beyond the shared path."""

    n_shared: int
    queries: torch.Tensor
    """``[n_blocks * block]`` place of the query in the pack; the last block repeats the last query."""
    keys: torch.Tensor
    """``[n_blocks, n_keys]`` columns, cache first; filled up with column 0."""
    is_seen: torch.Tensor
    """``[n_blocks, 1, block, n_keys]``."""

    def to(self, device: torch.device) -> _Blocks:
        moved = {name: getattr(self, name).to(device) for name in ("queries", "keys", "is_seen")}
        return replace(self, **moved)


class TreeMask(torch.Tensor):
    """The dense mask ``[1, 1, n, n_cached + n]`` of a pack (True: seen) that knows its blocks."""

    blocks: _Blocks

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():
            if func is F.scaled_dot_product_attention and isinstance(kwargs.get("attn_mask"), cls):
                attended = _attention(*args, **kwargs)
                if attended is not None:
                    return attended
            result = func(*args, **kwargs)
        if func is torch.Tensor.to and result.dtype == torch.bool and not isinstance(result, cls):
            return _wrapped(result, args[0].blocks.to(result.device))  # a model over several devices moves its mask
        return result


def on_device(values: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """Return an array as a tensor on ``device``, without waiting for what a GPU still has to do."""
    tensor = torch.from_numpy(values)
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


def dense_mask(trie: TokenTrie, pack: Pack, device: torch.device) -> torch.Tensor:
    """Return who sees whom, ``[n, n_cached + n]``: each node of the pack its ancestors and itself."""
    nodes = np.arange(pack.start, pack.stop)
    columns = np.concatenate([pack.path, nodes])
    node, column, end = (on_device(values, device) for values in (nodes, columns, trie.end[columns]))
    return (column <= node[:, None]) & (node[:, None] < end)


def tree_mask(trie: TokenTrie, pack: Pack, device: torch.device) -> TreeMask:
    """Return the mask of a pack for ``scaled_dot_product_attention``."""
    return _wrapped(dense_mask(trie, pack, device)[None, None], _blocks(trie, pack, device))


def _wrapped(mask: torch.Tensor, blocks: _Blocks) -> TreeMask:
    wrapped: TreeMask = torch.Tensor._make_subclass(TreeMask, mask)
    wrapped.blocks = blocks
    return wrapped


def _blocks(trie: TokenTrie, pack: Pack, device: torch.device) -> _Blocks:
    n, n_cached = pack.stop - pack.start, len(pack.path)
    size = min(_BLOCK, n)
    column_at = np.arange(n_cached + n)  # column of the latest node at each depth, as the blocks go on
    depths = trie.depth[pack.start : pack.stop]
    columns = []
    for start in range(0, n, size):
        stop = min(start + size, n)
        columns.append(
            np.concatenate([column_at[pack.n_shared : depths[start]], np.arange(n_cached + start, n_cached + stop)])
        )
        column_at[depths[start:stop]] = np.arange(n_cached + start, n_cached + stop)
    width = -(-max(map(len, columns)) // _KEY_MULTIPLE) * _KEY_MULTIPLE
    keys = np.zeros((len(columns), width), dtype=np.int64)
    key_nodes = np.full((len(columns), width), trie.n_nodes)  # no node sees what fills up
    for block, own in enumerate(columns):
        keys[block, : len(own)] = own
        key_nodes[block, : len(own)] = np.where(
            own < n_cached, np.append(pack.path, 0)[np.minimum(own, n_cached)], own - n_cached + pack.start
        )
    queries = np.minimum(np.arange(len(columns) * size), n - 1)
    ends = np.append(trie.end, 0)[key_nodes]
    node, key_node, end = (
        on_device(values, device)
        for values in (queries.reshape(-1, 1, size, 1) + pack.start, key_nodes[:, None, None], ends[:, None, None])
    )
    return _Blocks(
        n_shared=pack.n_shared,
        queries=on_device(queries, device),
        keys=on_device(keys, device),
        is_seen=(key_node <= node) & (node < end),
    )


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: TreeMask,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor | None:
    """Attend as ``scaled_dot_product_attention`` would with the dense mask, or return None where only that is right."""
    batch, n_heads, n, dimension = query.shape
    if batch != 1 or dropout_p or is_causal or n_heads % key.shape[1] or value.shape[-1] != dimension:
        return None
    if query.device.type == "cuda" and not _has_kernel(query):
        return None
    if n != attn_mask.shape[2]:  # for a single token, transformers lays the queries of a key head side by side
        return None
    blocks = attn_mask.blocks
    scale = 1 / math.sqrt(dimension) if scale is None else scale
    own, own_sum = _own(query, key, value, blocks, scale)
    if blocks.n_shared == 0:
        return own
    shared, shared_sum = _shared(query, key[:, :, : blocks.n_shared], value[:, :, : blocks.n_shared], scale)
    # Softmax over both sets of keys: each part weighs what its scores sum to.
    weight = torch.sigmoid(shared_sum - own_sum)[..., None]
    return torch.lerp(own.float(), shared.float(), weight).to(query.dtype)


def _has_kernel(query: torch.Tensor) -> bool:
    """Return whether CUDA's fused kernels, called by name in ``_shared``, take these queries."""
    is_sized = query.shape[-1] % 8 == 0 and query.shape[-1] <= 256
    return is_sized and (query.dtype == torch.float32 or torch.cuda.get_device_capability(query.device) >= (8, 0))


def _shared(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float) -> Attended:
    """Unmasked attention to the shared path, ``[1, heads, n, dimension]``; queries that share a key head in one go."""
    _, n_heads, n, dimension = query.shape
    folded = query.reshape(1, key.shape[1], -1, dimension)
    if query.device.type == "cpu":
        output, total = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(folded, key, value, scale=scale)
    elif query.dtype == torch.float32:
        output, total, *_ = torch.ops.aten._scaled_dot_product_efficient_attention(
            folded, key, value, None, True, scale=scale
        )
        total = total[..., : folded.shape[2]]  # that kernel fills up the last dimension
    else:
        output, total, *_ = torch.ops.aten._scaled_dot_product_flash_attention(folded, key, value, scale=scale)
    return output.reshape(1, n_heads, n, dimension), total.reshape(1, n_heads, n)


def _own(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, blocks: _Blocks, scale: float) -> Attended:
    """Masked attention of each block to the keys that it can see beyond the shared path."""
    _, n_heads, n, dimension = query.shape
    n_blocks, n_keys = blocks.keys.shape
    size = blocks.is_seen.shape[2]
    n_key_heads = key.shape[1]
    group = n_heads // n_key_heads
    outputs, totals = [], []
    for part in _slices(n_blocks, max(1, _SCORES_AT_ONCE // (n_heads * size * n_keys))):
        chosen = blocks.queries[part.start * size : part.stop * size]
        # [heads, blocks * size, dimension] -> [blocks, key heads, group * size, dimension]
        queries = query[0, :, chosen].view(n_key_heads, group, -1, size, dimension)
        queries = queries.permute(2, 0, 1, 3, 4).reshape(-1, n_key_heads, group * size, dimension)
        keys, values = (
            states[0][:, blocks.keys[part].flatten()].view(n_key_heads, -1, n_keys, dimension).transpose(0, 1)
            for states in (key, value)
        )
        output, total = _masked(queries, keys, values, blocks.is_seen[part].repeat(1, 1, group, 1), scale)
        output = output.reshape(-1, n_key_heads, group, size, dimension).permute(1, 2, 0, 3, 4)
        total = total.reshape(-1, n_key_heads, group, size).permute(1, 2, 0, 3)
        outputs.append(output.reshape(n_heads, -1, dimension))
        totals.append(total.reshape(n_heads, -1))
    return torch.cat(outputs, dim=1)[None, :, :n], torch.cat(totals, dim=1)[None, :, :n]


def _masked(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, is_seen: torch.Tensor, scale: float
) -> Attended:
    if query.device.type != "cpu":
        return _masked_by_products(query, key, value, is_seen, scale)
    bias = torch.zeros(is_seen.shape, dtype=query.dtype).masked_fill_(~is_seen, -math.inf)
    attended: Attended = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, attn_mask=bias, scale=scale
    )
    return attended


def _masked_by_products(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, is_seen: torch.Tensor, scale: float
) -> Attended:
    # In float32 throughout, as in fused kernels: 16 bits would round large scores to whole nats.
    scores = (query.float() @ key.float().transpose(-1, -2)).mul_(scale).masked_fill_(~is_seen, -math.inf)
    total = scores.logsumexp(dim=-1)
    return scores.sub_(total[..., None]).exp_().to(value.dtype) @ value, total


def _slices(n: int, size: int) -> Iterator[slice]:
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))
