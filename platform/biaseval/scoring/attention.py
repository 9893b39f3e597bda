"""Attention over a token trie without computing masked scores.

The nodes of a pack see their shared path, and of the rest only their own ancestors. A dense mask would compute every
score and drop most. So the shared path gets plain unmasked attention, and the rest small blocks of queries with only
the keys that they see. Softmax normalizers join the two (as in cascade attention). A pack that is one path needs no
blocks: after the shared path it is causal.

Models receive this as a mask. A ``TreeMask`` works wherever it is used as the dense boolean mask, which is made only
then; ``scaled_dot_product_attention`` recognises it and takes the faster way.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F
from torch.utils._pytree import tree_map_only

from biaseval.scoring.blocks import Blocks, Layout, layout_of, on_device
from biaseval.scoring.kernels import Attended, attend, takes
from biaseval.scoring.trie import Integers, Pack, TokenTrie

_NUMBERS_AT_ONCE = 1 << 27
"""Keys, or scores where they are kept, that are gathered for blocks at a time."""

_OF_SHAPE = {getattr(torch.Tensor, name).__get__ for name in ("shape", "dtype", "device", "ndim", "requires_grad")}
_OF_SHAPE |= {torch.Tensor.dim, torch.Tensor.size}


class TreeMask(torch.Tensor):
    """The dense mask ``[1, 1, n, n_cached + n]`` of a pack (True: seen), made where something needs its values."""

    trie: TokenTrie
    pack: Pack
    arranged: Layout
    copies: dict[torch.device, TreeMask]
    made: torch.Tensor | None

    @classmethod
    def of(cls, trie: TokenTrie, pack: Pack, layout: Layout, device: torch.device) -> TreeMask:
        """Return the mask of a pack, whose layout is on ``device``."""
        n = pack.stop - pack.start
        mask: TreeMask = torch.Tensor._make_subclass(
            cls, torch.zeros(1, dtype=torch.bool, device=device).expand(1, 1, n, len(pack.path) + n)
        )
        mask.trie, mask.pack, mask.arranged = trie, pack, layout
        mask.copies, mask.made = {}, None
        return mask

    def on(self, device: torch.device) -> TreeMask:
        """Return the mask on a device, always the same: a model over several moves it for each of its layers."""
        if device == self.device:
            return self
        if device not in self.copies:
            self.copies[device] = TreeMask.of(self.trie, self.pack, self.arranged.to(device), device)
        return self.copies[device]

    def dense(self) -> torch.Tensor:
        """Return the mask as a tensor like any other; made once."""
        if self.made is None:
            self.made = dense_mask(self.trie, self.pack, self.device)[None, None]
        return self.made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():
            if func in _OF_SHAPE:
                return func(*args, **kwargs)
            if func is F.scaled_dot_product_attention and isinstance(kwargs.get("attn_mask"), cls):
                return _attention(*args, **kwargs)
            if func is torch.Tensor.to and isinstance(mask := args[0], cls):
                asked = func(torch.empty(0, dtype=torch.bool, device=mask.device), *args[1:], **kwargs)
                if asked.dtype == torch.bool:
                    return mask.on(asked.device)
            args, kwargs = tree_map_only(cls, cls.dense, (args, kwargs))
            return func(*args, **kwargs)


@contextmanager
def keys_as_they_are() -> Iterator[None]:
    """Have transformers hand attention one key for each key head, where it would repeat them for a masked call."""
    name = "TRANSFORMERS_SDPA_FORCE_GQA"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def dense_mask(trie: TokenTrie, pack: Pack, device: torch.device, nodes: Integers | None = None) -> torch.Tensor:
    """Return who sees whom, ``[n, n_cached + n]``: each node of the pack, or of ``nodes``, its ancestors and itself."""
    of_pack = np.arange(pack.start, pack.stop)
    columns = np.concatenate([pack.path, of_pack])
    rows = of_pack if nodes is None else nodes
    node, column, end = (on_device(values, device) for values in (rows, columns, trie.end[columns]))
    is_seen = (column <= node[:, None]) & (node[:, None] < end)
    if pack.window is not None:
        is_seen &= on_device(trie.depth[rows][:, None] - trie.depth[columns] < pack.window, device)
    return is_seen


def tree_mask(trie: TokenTrie, pack: Pack, device: torch.device) -> TreeMask:
    """Return the mask of a pack for ``scaled_dot_product_attention``."""
    return TreeMask.of(trie, pack, layout_of(trie, pack, device), device)


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: TreeMask,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Attend as ``scaled_dot_product_attention`` would with the dense mask."""
    batch, n_heads, n, dimension = query.shape
    layout = attn_mask.arranged
    # For a single token, transformers may lay the queries of a key head side by side.
    is_plain = batch == 1 and n == attn_mask.shape[2] and not dropout_p and not is_causal
    is_plain &= attn_mask.pack.window is None
    if not is_plain or n_heads % key.shape[1] or value.shape[-1] != dimension or not takes(query):
        group = n_heads // key.shape[1] if enable_gqa else 1  # there are no kernels for both a mask and groups
        key, value = (states.repeat_interleave(group, dim=1) if group > 1 else states for states in (key, value))
        mask = attn_mask.dense()
        return F.scaled_dot_product_attention(query, key, value, mask, dropout_p, is_causal, scale=scale)
    scale = 1 / math.sqrt(dimension) if scale is None else scale
    if layout.blocks:
        own, own_sum = _of_blocks(query, key, value, layout, scale)
    else:
        own, own_sum = _of_path(query, key, value, layout.n_shared, scale)
    if layout.n_shared == 0:
        return own
    shared, shared_sum = _shared(query, key, value, layout.n_shared, scale)
    # Softmax over both sets of keys: each part weighs what its scores sum to.
    weight = torch.sigmoid(shared_sum - own_sum)[..., None]
    return torch.lerp(own.float(), shared.float(), weight).to(query.dtype)


def _shared(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, n_shared: int, scale: float) -> Attended:
    """Unmasked attention to the shared path, ``[1, heads, n, dimension]``; queries that share a key head in one go."""
    _, n_heads, n, dimension = query.shape
    queries = query.reshape(1, key.shape[1], -1, dimension)
    output, total = attend(queries, key[:, :, :n_shared], value[:, :, :n_shared], scale)
    return output.reshape(1, n_heads, n, dimension), total.reshape(1, n_heads, n)


def _of_path(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, n_shared: int, scale: float) -> Attended:
    """Causal attention of the nodes of one path to each other; queries that share a key head as a batch."""
    _, n_heads, n, dimension = query.shape
    group = n_heads // key.shape[1]
    queries = query.reshape(-1, group, n, dimension).transpose(0, 1)
    keys, values = (states[:, :, n_shared:].expand(group, -1, -1, -1) for states in (key, value))
    output, total = attend(queries, keys, values, scale, is_causal=True)
    return output.transpose(0, 1).reshape(1, n_heads, n, dimension), total.transpose(0, 1).reshape(1, n_heads, n)


def _of_blocks(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layout: Layout, scale: float) -> Attended:
    """Masked attention of each block to the keys that it can see beyond the shared path."""
    _, n_heads, n, dimension = query.shape
    outputs, totals = [], []
    for blocks in layout.blocks:
        n_blocks, n_keys = blocks.keys.shape
        at_once = max(1, _NUMBERS_AT_ONCE // (n_heads * n_keys * max(blocks.size, dimension)))
        for start in range(0, n_blocks, at_once):
            output, total = _of_some(query, key, value, blocks, slice(start, min(start + at_once, n_blocks)), scale)
            outputs.append(output)
            totals.append(total)
    output, total = torch.cat(outputs, dim=1), torch.cat(totals, dim=1)
    chosen = slice(n) if layout.places is None else layout.places
    return output[None, :, chosen], total[None, :, chosen]


def _of_some(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, blocks: Blocks, part: slice, scale: float
) -> Attended:
    """Attention of some blocks, ``[heads, blocks * size, dimension]``."""
    n_heads, n_key_heads, dimension = query.shape[1], key.shape[1], query.shape[3]
    size, n_keys, group = blocks.size, blocks.keys.shape[1], n_heads // n_key_heads
    queries = query[0][:, blocks.queries[part].flatten()].view(n_key_heads, group, -1, size, dimension)
    keys, values = (
        states[0][:, blocks.keys[part].flatten()].view(n_key_heads, -1, n_keys, dimension) for states in (key, value)
    )
    if group <= n_key_heads:  # [blocks, key heads, group * size, dimension]: masks are repeated for each of a group
        queries = queries.permute(2, 0, 1, 3, 4).reshape(-1, n_key_heads, group * size, dimension)
        keys, values = keys.transpose(0, 1), values.transpose(0, 1)
        bias = blocks.bias(part, query.dtype, (1, 1, group, 1)).expand(-1, n_key_heads, -1, -1)
        output, total = attend(queries, keys, values, scale, bias=bias)
        output = output.reshape(-1, n_key_heads, group, size, dimension).permute(1, 2, 0, 3, 4)
        total = total.reshape(-1, n_key_heads, group, size).permute(1, 2, 0, 3)
    else:  # [key heads * blocks, group, size, dimension]: masks are repeated for each key head
        queries = queries.transpose(1, 2).reshape(-1, group, size, dimension)
        keys, values = (states.view(-1, 1, n_keys, dimension).expand(-1, group, -1, -1) for states in (keys, values))
        bias = blocks.bias(part, query.dtype, (n_key_heads, 1, 1, 1)).expand(-1, group, -1, -1)
        output, total = attend(queries, keys, values, scale, bias=bias)
        output = output.reshape(n_key_heads, -1, group, size, dimension).transpose(1, 2)
        total = total.reshape(n_key_heads, -1, group, size).transpose(1, 2)
    return output.reshape(n_heads, -1, dimension), total.reshape(n_heads, -1)
