"""Arranges token sequences as a trie of shared prefixes and plans how to run it. NumPy only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

_LONG_CHAIN = 64


@dataclass(frozen=True)
class TokenTrie:
    """Token sequences with every shared prefix stored once.

    Nodes are numbered in pre-order, so the subtree of node ``i`` is the range ``[i, end[i])``, and ``j`` is ``i`` or an
    ancestor of ``i`` exactly where ``j <= i < end[j]``. The last token of a sequence is a target only, never a node.
    """

    token: Integers
    """``[n_nodes]`` token id."""
    depth: Integers
    """``[n_nodes]`` position of the token in its text, from 0."""
    end: Integers
    """``[n_nodes]`` first node after the subtree."""
    target_node: Integers
    """``[n_targets]``, ascending: the node whose output predicts the target."""
    target_token: Integers
    """``[n_targets]`` the token id to predict."""
    target_slot: Integers
    """``[n_targets]`` place of the answer: the targets of sequence 0 in order, then those of sequence 1, ..."""

    @property
    def n_nodes(self) -> int:
        """Tokens that a model must read, shared prefixes once."""
        return len(self.token)

    def subset(self, is_kept: npt.NDArray[np.bool_]) -> TokenTrie:
        """Return the trie of some of its sequences, given one truth value per slot (the same for a sequence's slots).

        Slots keep their numbers.
        """
        chosen = is_kept[self.target_slot]
        wanted = np.zeros(self.n_nodes, dtype=np.bool_)
        wanted[self.target_node[chosen]] = True
        # A node stays if a kept target hangs on it or below it.
        n_below = np.concatenate([[0], np.cumsum(wanted)])
        stays = n_below[self.end] > n_below[:-1]
        number = np.concatenate([[0], np.cumsum(stays)])
        return TokenTrie(
            token=self.token[stays],
            depth=self.depth[stays],
            end=number[self.end[stays]],
            target_node=number[self.target_node[chosen]],
            target_token=self.target_token[chosen],
            target_slot=self.target_slot[chosen],
        )

    def with_last_token(self) -> TokenTrie:
        """Return the trie of one text with its last token as a node too, which predicts nothing."""
        n = self.n_nodes + 1
        last = self.target_token[-1:]
        return replace(self, token=np.append(self.token, last), depth=np.arange(n), end=np.full(n, n))

    def targets(self, start: int, stop: int) -> slice:
        """Return which targets the nodes ``[start, stop)`` predict."""
        first, last = np.searchsorted(self.target_node, [start, stop])
        return slice(int(first), int(last))


def build_trie(sequences: Sequence[npt.NDArray[np.integer]], n_context: Sequence[int]) -> TokenTrie:
    """Build the trie of ``sequences``; of sequence ``s``, the tokens from ``n_context[s]`` on are targets.

    The result depends on the set of sequences, not on their order, except for ``target_slot``. Each sequence has at
    least two tokens, and its ``n_context`` is in ``[1, len(sequence))``.
    """
    # Big-endian bytes sort like their numbers, a prefix before its extensions.
    keys = [np.ascontiguousarray(sequence, dtype=">u4").tobytes() for sequence in sequences]
    order = sorted(range(len(sequences)), key=keys.__getitem__)
    slots = np.concatenate([[0], np.cumsum([len(s) - n for s, n in zip(sequences, n_context, strict=True)])])

    tokens, depths, starts = [], [], []
    targets: list[tuple[Integers, Integers, Integers]] = []
    n_nodes = 0
    path = np.empty(max(map(len, sequences), default=0), dtype=np.int64)  # node at each depth of the current sequence
    ends: list[tuple[Integers, int]] = []
    previous = np.empty(0, dtype=np.int64)
    for index in order:
        sequence = np.asarray(sequences[index], dtype=np.int64)
        inputs = sequence[:-1]
        shared = common_length(previous, inputs)
        if shared < len(previous):
            ends.append((path[shared : len(previous)].copy(), n_nodes))
        n_new = len(inputs) - shared
        path[shared : len(inputs)] = np.arange(n_nodes, n_nodes + n_new)
        tokens.append(inputs[shared:])
        depths.append(np.arange(shared, len(inputs)))
        starts.append(n_nodes)
        n_nodes += n_new
        n_targets = len(sequence) - n_context[index]
        targets.append(
            (
                path[n_context[index] - 1 : len(inputs)].copy(),
                sequence[n_context[index] :],
                np.arange(slots[index], slots[index] + n_targets),
            )
        )
        previous = inputs
    ends.append((path[: len(previous)].copy(), n_nodes))

    end = np.empty(n_nodes, dtype=np.int64)
    for nodes, stop in ends:
        end[nodes] = stop
    node, token, slot = (_joined([target[i] for target in targets]) for i in range(3))
    by_node = np.argsort(node, kind="stable")
    return TokenTrie(
        token=_joined(tokens),
        depth=_joined(depths),
        end=end,
        target_node=node[by_node],
        target_token=token[by_node],
        target_slot=slot[by_node],
    )


@dataclass(frozen=True)
class Pack:
    """Nodes that run together in one forward pass, after the keys and values of their common path."""

    start: int
    stop: int
    """The nodes are ``[start, stop)``: any range of the pre-order, wherever it cuts a subtree."""
    path: Integers
    """``[depth of start]`` the ancestors of ``start``, from the root, which must be in the cache."""
    n_shared: int
    """How many of ``path``, from the root, are ancestors of all nodes of the pack."""
    window: int | None = None
    """How many tokens a node sees, itself and those before it; None: all."""


def plan_packs(trie: TokenTrie, budget: int) -> Iterator[Pack]:
    """Cut the pre-order into packs of ``budget`` nodes, of which only the last is smaller.

    The chain that all sequences share, if it is long, ends a pack too: the packs of that chain are then the same in
    every trie that begins with the same tokens, and so are, bit for bit, the keys and values that they give.
    """
    latest = np.empty(int(trie.depth.max(initial=-1)) + 1, dtype=np.int64)  # last node so far at each depth
    common = common_chain(trie) if common_chain(trie) >= _LONG_CHAIN else 0
    for start in (*range(0, common, budget), *range(common, trie.n_nodes, budget)):
        stop = min(start + budget, common if start < common else trie.n_nodes)
        path = latest[: trie.depth[start]].copy()
        yield Pack(start, stop, path, int(np.count_nonzero(trie.end[path] >= stop)))
        latest[trie.depth[start:stop]] = np.arange(start, stop)


def common_chain(trie: TokenTrie) -> int:
    """Return how many nodes, from the root, all sequences have in common."""
    if trie.n_nodes == 0:
        return 0
    others = np.flatnonzero(trie.end != trie.n_nodes)
    return int(others[0]) if len(others) else trie.n_nodes


def common_length(left: Integers, right: Integers) -> int:
    """Return how many numbers, from the first, two sequences have in common."""
    n = min(len(left), len(right))
    differing = np.flatnonzero(left[:n] != right[:n])
    return int(differing[0]) if len(differing) else n


def _joined(parts: Sequence[Integers]) -> Integers:
    return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, dtype=np.int64)
