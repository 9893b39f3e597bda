"""Runs a token trie in padded batches, after cached prefixes or each text whole: for models that take no packs.

A prefix that several texts share is run once; the rest of those texts runs as a batch, padded on the right under a 2-D
mask, each row after its own copy of the prefix's keys, values and recurrent states. Right wherever the model's own
cache is: also for ALiBi (MPT, BLOOM, the first Falcons), where positions cannot be given. Without cached prefixes this
is the plain forward pass, right for every model that takes its mask; of one text at a time it is the yardstick of all
paths.
"""

import copy
import inspect
import math
import sys
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DummyLayer, DynamicLayer, DynamicSlidingWindowLayer, LinearAttentionLayer

from biaseval.models import inputs_taken
from biaseval.scoring.blocks import on_device
from biaseval.scoring.memory import cache_bytes, is_out_of_memory, vocabulary_of
from biaseval.scoring.readout import Predictions, logits_at
from biaseval.scoring.trie import Integers, TokenTrie

_COST_OF_A_PASS = 64
"""Tokens that one more forward pass costs beside its own: what a cached prefix must save at least."""

_KEYS: set[type] = {DynamicLayer, DynamicSlidingWindowLayer}
"""Layers of a cache that hold keys and values alone."""

_CACHES = ("past_key_values", "cache_params")
"""What the argument is called; the second by Mamba."""

_FOUND: weakref.WeakKeyDictionary[PreTrainedModel, int] = weakref.WeakKeyDictionary()
_PROBED = 16

_N_LEVELS, _N_LEVELS_COPIED = 32, 4
"""How deep prefixes are cached after prefixes, at most: in one cache that is cropped, or with a copy per level."""


def takes_cached_prefixes(model: PreTrainedModel) -> bool:
    """Return whether the model continues a cache that it is given, which can be repeated over a batch."""
    if _cache_name(model) is None:
        return False
    kinds = {type(layer) for layer in DynamicCache(config=model.config).layers}
    if keeps_states(model):
        kinds = {kind for kind in kinds if not issubclass(kind, LinearAttentionLayer | DummyLayer)}
        return kinds <= _KEYS and _tokens_behind(model) > 0
    return kinds <= _KEYS and not model._is_stateful


def _tokens_behind(model: PreTrainedModel) -> int:
    """Return how many tokens of a pass after a copied cache see its states: any number, one as in Mamba 1, or none."""
    if keeps_states(model) and model not in _FOUND:
        several, single = _distance_behind(model, _PROBED), _distance_behind(model, 1)
        limit = max(1e-3, 8 * torch.finfo(model.dtype).eps)
        _FOUND[model] = 0 if min(several, single) > limit else sys.maxsize if several <= max(1e-3, 3 * single) else 1
    return _FOUND.get(model, sys.maxsize)


@torch.inference_mode()
def _distance_behind(model: PreTrainedModel, n: int) -> float:
    """Return how far logits are from those of one pass, of the largest, with ``n`` tokens in a pass behind a cache.

    Layers that start over are 4 % off or more. Infinite where the model fails, or keeps its states elsewhere.
    """
    ids = torch.arange(2, 2 + 2 * _PROBED, device=model.device)[None].expand(2, -1) % vocabulary_of(model)
    cache, name, found = DynamicCache(config=model.config), _cache_name(model) or _CACHES[0], []
    try:
        model(input_ids=ids[:1, :_PROBED], use_cache=True, **{name: cache})
        if not all(_states(layer) for layer in cache.layers if isinstance(layer, LinearAttentionLayer)):
            return math.inf
        cache = _repeated(cache, 2)
        for at in range(_PROBED, 2 * _PROBED, n):
            places = inputs_taken(model, position_ids=torch.arange(at, at + n, device=model.device).expand(2, -1))
            found.append(model(input_ids=ids[:, at : at + n], use_cache=True, **{name: cache}, **places).logits)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        if is_out_of_memory(error):
            raise
        return math.inf
    expected = model(input_ids=ids).logits[:, _PROBED:]
    return float((torch.cat(found, 1) - expected).abs().max() / expected.abs().max())


def _states(layer: LinearAttentionLayer) -> list[torch.Tensor]:
    states = (*layer.conv_states.values(), *layer.recurrent_states.values())
    return [own for own in states if own is not None]


def _cache_name(model: PreTrainedModel) -> str | None:
    parameters = inspect.signature(type(model).forward).parameters
    return next((name for name in _CACHES if name in parameters), None)


def keeps_states(model: PreTrainedModel) -> bool:
    """Return whether layers keep a state of all tokens so far: recurrent ones, and short convolutions."""
    return any(isinstance(layer, LinearAttentionLayer) for layer in DynamicCache(config=model.config).layers)


def batched_predictions(
    model: PreTrainedModel, trie: TokenTrie, budget: int, cache_budget: int, *, has_prefixes: bool
) -> Iterator[Predictions]:
    """Yield what the model predicts for every target of the trie.

    Args:
        model: a causal model; with ``has_prefixes`` one that ``takes_cached_prefixes``.
        trie: the texts.
        budget: most tokens in one forward pass, padding counted (or one text, where that is longer).
        cache_budget: most tokens of keys and values in a batch, cached prefixes counted for every row (likewise).
        has_prefixes: cache shared prefixes, where that saves more than it costs.
    """
    runner = _Runner(model, trie, budget, cache_budget)
    yield from runner.visit(0, trie.n_nodes, chains_to_cache(model, trie) if has_prefixes else set(), None)


def _is_croppable(model: PreTrainedModel) -> bool:
    return {type(layer) for layer in DynamicCache(config=model.config).layers} <= {DynamicLayer}


def chains_to_cache(model: PreTrainedModel, trie: TokenTrie) -> set[int]:
    """Return the first nodes of the chains to cache: those whose reuse by the nodes below saves more than they cost."""
    n_levels = _N_LEVELS if _is_croppable(model) else _N_LEVELS_COPIED
    n_passes = int(trie.depth.max(initial=0)) if _tokens_behind(model) == 1 else 1
    starts, stops = _chains(trie)
    parents, levels = [], []
    open_chains: list[int] = []
    for chain, start in enumerate(starts):
        while open_chains and trie.end[starts[open_chains[-1]]] <= start:
            open_chains.pop()
        parents.append(open_chains[-1] if open_chains else -1)
        open_chains.append(chain)
        levels.append(len(open_chains))
    is_leaf = trie.end[starts] == stops
    n_texts = is_leaf.astype(np.int64)
    below = np.zeros(len(starts), dtype=np.int64)
    chosen: set[int] = set()
    for chain in reversed(range(len(starts))):
        gain = (n_texts[chain] - 1) * (stops[chain] - starts[chain]) + below[chain]
        gain -= _COST_OF_A_PASS * n_passes * (1 + (n_texts[chain] // 512 if n_passes > 1 else 0))
        if not is_leaf[chain] and gain > 0:
            chosen.add(int(starts[chain]))
            below[parents[chain]] += gain if parents[chain] >= 0 else 0
        if parents[chain] >= 0:
            n_texts[parents[chain]] += n_texts[chain]
    return {int(start) for start, level in zip(starts, levels, strict=True) if start in chosen and level <= n_levels}


def _chains(trie: TokenTrie) -> tuple[Integers, Integers]:
    """Return where the chains of only children start and stop; in pre-order they follow on each other."""
    starts = np.flatnonzero(np.concatenate([[True], trie.end[1:] != trie.end[:-1]])[: trie.n_nodes])
    return starts, np.append(starts[1:], trie.n_nodes)


@dataclass(frozen=True)
class _Text:
    """One row of a batch: the nodes from the cached prefix to a leaf."""

    nodes: Integers
    targets: slice
    """The targets that no row before this one has."""
    n_new: int
    """Nodes that no row before this one has."""


class _Runner:
    def __init__(self, model: PreTrainedModel, trie: TokenTrie, budget: int, cache_budget: int) -> None:
        self._model = model
        self._trie = trie
        self._budget = budget
        self._cache_budget = cache_budget
        starts, stops = _chains(trie)
        self._is_croppable, self._keeps_states = _is_croppable(model), keeps_states(model)
        self._cache_name = _cache_name(model) or _CACHES[0]
        self._sees_new_alone = self._cache_name != _CACHES[0]
        self._step = _tokens_behind(model)
        self._n_new = 0
        self._chain_stop = dict(zip(starts.tolist(), stops.tolist(), strict=True))

    def visit(
        self, start: int, stop: int, cached_starts: set[int], cache: DynamicCache | None
    ) -> Iterator[Predictions]:
        """Run the sibling subtrees that make up ``[start, stop)`` behind a cache of batch size one."""
        texts: list[_Text] = []
        node = start
        while node < stop:
            after = int(self._trie.end[node])
            if node in cached_starts:
                branching = self._chain_stop[node]
                if cache is None:
                    longer = DynamicCache(config=self._model.config)
                else:
                    longer = cache if self._is_croppable else _repeated(cache, 1)
                width = self._budget if cache is not None or self._step > 1 else branching - node
                for chunk in range(node, branching, width):
                    nodes = np.arange(chunk, min(chunk + width, branching))
                    text = _Text(nodes, self._trie.targets(int(nodes[0]), int(nodes[-1]) + 1), len(nodes))
                    yield from self._run([text], longer)
                yield from self.visit(branching, after, cached_starts, longer)
                if longer is cache:
                    cache.crop(node - branching)
            else:
                texts += self._texts(node, after)
            node = after
        n_held = 0 if cache is None or not texts else int(self._trie.depth[texts[0].nodes[0]]) + self._state_size(cache)
        step = sys.maxsize if cache is None else self._step
        for batch in _batches(texts, n_held, self._budget, self._cache_budget, step):
            yield from self._run(batch, None if cache is None else _repeated(cache, len(batch)))

    def _state_size(self, cache: DynamicCache) -> int:
        """Return of how many tokens the keys and values take as much memory as the states of a row and their update."""
        layers = [layer for layer in cache.layers if isinstance(layer, LinearAttentionLayer)]
        return 2 * sum(own.nbytes for layer in layers for own in _states(layer)) // cache_bytes(self._model)

    def _texts(self, start: int, stop: int) -> Iterator[_Text]:
        base = int(self._trie.depth[start])
        depth = self._trie.depth[start:stop] - base
        latest = np.empty(int(depth.max()) + 1, dtype=np.int64)
        before = start
        leaves = np.flatnonzero(self._trie.end[start:stop] == np.arange(start, stop) + 1) + start
        for leaf in leaves.tolist():
            latest[depth[before - start : leaf + 1 - start]] = np.arange(before, leaf + 1)
            nodes = latest[: depth[leaf - start] + 1].copy()
            yield _Text(nodes, self._trie.targets(before, leaf + 1), leaf + 1 - before)
            before = leaf + 1

    def _run(self, texts: Sequence[_Text], cache: DynamicCache | None) -> Iterator[Predictions]:
        self._n_new += sum(text.n_new for text in texts)
        n_cached = 0 if cache is None else int(self._trie.depth[texts[0].nodes[0]])
        width = max(len(text.nodes) for text in texts)
        ids = torch.zeros((len(texts), width), dtype=torch.long)
        mask = torch.zeros((len(texts), n_cached + width), dtype=torch.long)
        mask[:, :n_cached] = 1
        for row, text in enumerate(texts):
            ids[row, : len(text.nodes)] = torch.from_numpy(self._trie.token[text.nodes])
            mask[row, n_cached : n_cached + len(text.nodes)] = 1
        targets = [np.arange(text.targets.start, text.targets.stop) for text in texts]
        first = [self._trie.depth[text.nodes[0]] for text in texts]
        places = [
            self._trie.depth[self._trie.target_node[own]] - base for own, base in zip(targets, first, strict=True)
        ]
        kept, column = np.unique(np.concatenate(places), return_inverse=True)
        row_of_target = np.repeat(np.arange(len(texts)), [len(own) for own in targets])
        wanted, rows = np.unique(row_of_target * width + np.concatenate(places), return_inverse=True)
        found, order, step = [], [np.empty(0, dtype=np.int64)], min(self._step, width) if n_cached else width
        for at in range(0, width, step):
            is_here = (wanted % width >= at) & (wanted % width < at + step)
            kept, column = np.unique(wanted[is_here] % width - at, return_inverse=True)
            given: dict[str, object] = {self._cache_name: cache}
            new = slice(at, at + step)
            if self._keeps_states and cache is not None:  # Bamba would count from 0
                positions = torch.arange(n_cached, n_cached + width, device=self._model.device)[new]
                given["position_ids"] = positions.expand(len(texts), -1)
            seen = mask[:, n_cached + at if self._sees_new_alone else 0 : n_cached + at + step]
            logits = logits_at(
                self._model,
                kept if len(kept) else np.array([ids[:, new].shape[1] - 1]),
                input_ids=ids[:, new].to(self._model.device),
                attention_mask=seen.to(self._model.device),
                use_cache=cache is not None,
                **given,
            )
            if len(kept):
                cells = wanted[is_here] // width * len(kept) + column
                found.append(logits.flatten(0, 1)[on_device(cells, logits.device)])
                order.append(np.flatnonzero(is_here))
        if cache is not None and not self._keeps_states and cache.get_seq_length() != n_cached + width:
            raise RuntimeError(f"{type(self._model).__name__} does not fill the cache that it is given")
        if found:
            flat = torch.cat(found) if len(found) > 1 else found[0]  # a copy of all logits may be large
            is_short = np.array([len(text.nodes) < width for text in texts])
            n_new, self._n_new = self._n_new, 0
            rows = np.argsort(np.concatenate(order))[rows]
            yield Predictions(np.concatenate(targets), rows, flat, is_short[row_of_target], n_new)


def _repeated(cache: DynamicCache, n: int) -> DynamicCache:
    """Return a cache of ``n`` rows that starts with these keys, values and states and leaves the given one alone."""
    repeated = copy.copy(cache)
    repeated.layers = [copy.copy(layer) for layer in cache.layers]
    for layer in repeated.layers:
        if isinstance(layer, LinearAttentionLayer):  # whose states change in place
            vars(layer).update({name: dict(own) for name, own in vars(layer).items() if isinstance(own, dict)})
            layer.reorder_cache(torch.LongTensor([0] * n))
        elif isinstance(layer, DynamicLayer) and layer.keys is not None and layer.values is not None:
            layer.keys, layer.values = (states.expand(n, -1, -1, -1) for states in (layer.keys, layer.values))
    return repeated


def _batches(texts: Sequence[_Text], n_held: int, budget: int, cache_budget: int, step: int) -> Iterator[list[_Text]]:
    """Group texts, longest first: the first batch is the largest, so memory runs out early or not at all."""
    batch: list[_Text] = []
    for text in sorted(texts, key=lambda text: -len(text.nodes)):
        width = len(batch[0].nodes) if batch else 0
        if batch and (
            (len(batch) + 1) * min(width, step) > budget or (len(batch) + 1) * (n_held + width) > cache_budget
        ):
            yield batch
            batch = []
        batch.append(text)
    if batch:
        yield batch
