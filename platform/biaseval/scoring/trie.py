"""Arranges token sequences as a trie of shared prefixes and plans how to run it. NumPy only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


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

    def targets(self, start: int, stop: int) -> slice:
        """Return which targets the nodes ``[start, stop)`` predict."""
        first, last = np.searchsorted(self.target_node, [start, stop])
        return slice(int(first), int(last))


def build_trie(sequences: Sequence[npt.NDArray[np.integer]], n_context: Sequence[int]) -> TokenTrie:
    """Build the trie of ``sequences``; of sequence ``s``, the tokens from ``n_context[s]`` on are targets.

    The result depends on the set of sequences, not on their order, except for ``target_slot``.

    Args:
        sequences: token ids, each of at least two tokens.
        n_context: per sequence, in ``[1, len(sequence))``.
    """
    # Big-endian bytes sort like the numbers they hold, a prefix before what it begins.
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
        shared = _common_length(previous, inputs)
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
class Step:
    """One thing to do with a model and its cache, which holds the path from the root to where the run is."""

    kind: Literal["extend", "pack", "crop"]
    """``extend``: run the chain of nodes ``[start, stop)`` and keep it in the cache. ``pack``: run the subtrees that
    make up ``[start, stop)`` in one row, each node seeing its ancestors only, and leave the cache as it was. ``crop``:
    drop the last ``stop - start`` tokens of the cache."""
    start: int
    stop: int


def plan_steps(trie: TokenTrie, budget: int) -> Iterator[Step]:
    """Plan a run over all nodes, depth first, with at most ``budget`` nodes in a step.

    Neighbouring subtrees are packed together as long as they fit; the chain above a subtree that does not fit is run
    into the cache, and its branches are planned in the same way.
    """
    stack: list[tuple[Literal["visit", "crop"], int, int]] = [("visit", 0, trie.n_nodes)]
    while stack:
        what, start, stop = stack.pop()
        if what == "crop":
            yield Step("crop", start, stop)
            continue
        pending = node = start
        while node < stop and trie.end[node] - node <= budget:
            after = int(trie.end[node])
            if after - pending > budget:
                yield Step("pack", pending, node)
                pending = node
            node = after
        if pending < node:
            yield Step("pack", pending, node)
        if node == stop:
            continue
        subtree_end = int(trie.end[node])
        branching = _chain_end(trie, node)
        for chunk in range(node, branching, budget):
            yield Step("extend", chunk, min(chunk + budget, branching))
        stack += [("visit", subtree_end, stop), ("crop", node, branching), ("visit", branching, subtree_end)]


def _chain_end(trie: TokenTrie, start: int) -> int:
    """Return the first node after the chain of only children that begins at ``start``."""
    end = int(trie.end[start])
    others = np.flatnonzero(trie.end[start:end] != end)
    return start + int(others[0]) if len(others) else end


def _common_length(left: Integers, right: Integers) -> int:
    n = min(len(left), len(right))
    differing = np.flatnonzero(left[:n] != right[:n])
    return int(differing[0]) if len(differing) else n


def _joined(parts: Sequence[Integers]) -> Integers:
    return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, dtype=np.int64)
