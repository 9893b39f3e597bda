"""Lays the nodes of a pack out in blocks of queries, each with the keys that it can see beyond the shared path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from biaseval.scoring.kernels import KEY_MULTIPLE, UNSEEN
from biaseval.scoring.trie import Integers, Pack, TokenTrie

_BLOCK = 128
_N_WIDTHS = 3
"""Classes of blocks by how many keys they see: within one, all are filled up to the widest."""


@dataclass(frozen=True)
class Blocks:
    """Queries in blocks of equal size that see about as many keys."""

    queries: torch.Tensor
    """``[n_blocks, size]`` place of the query in the pack; the last block of a pack repeats the last query."""
    keys: torch.Tensor
    """``[n_blocks, n_keys]`` columns, cache first; filled up with column 0."""
    is_seen: torch.Tensor
    """``[n_blocks, 1, size, n_keys]``."""
    _biases: dict[Any, torch.Tensor] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Queries of a block."""
        return self.queries.shape[1]

    def bias(self, part: slice, dtype: torch.dtype, repeats: tuple[int, int, int, int]) -> torch.Tensor:
        """Return the additive mask of some blocks, repeated; made once for all layers of a model."""
        name = (part.start, part.stop, dtype, repeats)
        if name not in self._biases:
            is_seen = self.is_seen[part]
            bias = torch.full(is_seen.shape, UNSEEN, dtype=dtype, device=is_seen.device).masked_fill_(is_seen, 0)
            self._biases[name] = bias.repeat(repeats)
        return self._biases[name]

    def to(self, device: torch.device) -> Blocks:
        """Return the same on another device."""
        return Blocks(self.queries.to(device), self.keys.to(device), self.is_seen.to(device))


@dataclass(frozen=True)
class Layout:
    """How the nodes of a pack attend."""

    n_shared: int
    """Tokens that all of them see, which come first in the cache."""
    blocks: Sequence[Blocks]
    """The blocks of the nodes; empty if the pack is one path after the shared one, and so causal."""
    places: torch.Tensor | None
    """``[n]`` where each node is among the queries of all blocks; None where they are in order."""

    def to(self, device: torch.device) -> Layout:
        """Return the same on another device."""
        blocks = [own.to(device) for own in self.blocks]
        return replace(self, blocks=blocks, places=None if self.places is None else self.places.to(device))


def on_device(values: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """Return an array as a tensor on ``device``, without waiting for what a GPU still has to do."""
    tensor = torch.from_numpy(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def layout_of(trie: TokenTrie, pack: Pack, device: torch.device) -> Layout:
    """Return how the nodes of a pack attend, on ``device``."""
    n = pack.stop - pack.start
    if trie.depth[pack.stop - 1] - trie.depth[pack.start] == n - 1:  # in pre-order that is one path
        return Layout(pack.n_shared, (), None)
    size = min(_BLOCK, n)
    columns = _columns(trie, pack, size)
    widths = np.array([len(own) for own in columns])
    classes = -(-_N_WIDTHS * widths // widths.max())
    order = np.argsort(classes, kind="stable")
    blocks = [
        _blocks(trie, pack, [columns[block] for block in chosen], chosen, size, device)
        for chosen in (np.flatnonzero(classes == each) for each in np.unique(classes))
    ]
    if len(blocks) == 1:
        return Layout(pack.n_shared, blocks, None)
    places = np.argsort((order[:, None] * size + np.arange(size)).flatten())[:n]
    return Layout(pack.n_shared, blocks, on_device(places, device))


def _columns(trie: TokenTrie, pack: Pack, size: int) -> list[Integers]:
    """Return the columns beyond the shared path that each block of ``size`` nodes can see."""
    n, n_cached = pack.stop - pack.start, len(pack.path)
    column_at = np.arange(n_cached + n)  # column of the latest node at each depth, as the blocks go on
    depths = trie.depth[pack.start : pack.stop]
    columns = []
    for start in range(0, n, size):
        own = np.arange(n_cached + start, n_cached + min(start + size, n))
        columns.append(np.concatenate([column_at[pack.n_shared : depths[start]], own]))
        column_at[depths[start : start + size]] = own
    return columns


def _blocks(
    trie: TokenTrie, pack: Pack, columns: Sequence[Integers], numbers: Integers, size: int, device: torch.device
) -> Blocks:
    """Return blocks of the given ``numbers`` in the pack, filled up to as many keys as the widest sees."""
    n_cached = len(pack.path)
    width = -(-max(map(len, columns)) // KEY_MULTIPLE) * KEY_MULTIPLE
    keys = np.zeros((len(columns), width), dtype=np.int64)
    key_nodes = np.full((len(columns), width), trie.n_nodes)  # no node sees what fills up
    for block, own in enumerate(columns):
        keys[block, : len(own)] = own
        key_nodes[block, : len(own)] = np.where(
            own < n_cached, np.append(pack.path, 0)[np.minimum(own, n_cached)], own - n_cached + pack.start
        )
    queries = np.minimum(numbers[:, None] * size + np.arange(size), pack.stop - pack.start - 1)
    ends = np.append(trie.end, 0)[key_nodes]
    node, key_node, end = (
        on_device(values, device)
        for values in (queries[:, None, :, None] + pack.start, key_nodes[:, None, None], ends[:, None, None])
    )
    return Blocks(on_device(queries, device), on_device(keys, device), (key_node <= node) & (node < end))
