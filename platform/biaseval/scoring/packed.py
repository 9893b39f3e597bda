"""Runs a token trie through a model: every shared prefix once, many branches in one row.

A pack is a range of the trie's nodes in one row: explicit position ids put each token where it stands in its text, and
a 4-D mask lets it see its own ancestors only, in the cache and in the row. That is right only for models that take
positions from ``position_ids`` and attention from the mask alone, hence ``why_no_packs`` and the runner's self-test.
"""

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from biaseval.models import attention_window
from biaseval.scoring.attention import dense_mask, keys_as_they_are, tree_mask
from biaseval.scoring.batched import keeps_states, takes_cached_prefixes
from biaseval.scoring.blocks import on_device
from biaseval.scoring.readout import Predictions, likeliest, logits_at
from biaseval.scoring.trie import Integers, Pack, TokenTrie, common_chain, common_length, plan_packs

_WRONG_IN_LONG_ROWS = {
    "gpt_neo": "counts the window of its local layers in the row",
    "llama4_text": "scales queries by their place in the row",
}
"""By type what the model does: packs are wrong where rows are long, which a self-test on short texts does not see."""
_ROOM_MULTIPLE = 512
"""Tokens; so parts of like length find room for themselves where an earlier one was."""
_SLIDING = "sliding_attention"
_ROTARY_BY_LENGTH = frozenset({"dynamic", "longrope"})


def why_no_packs(model: PreTrainedModel) -> str | None:
    """Return what the model does that makes packs wrong; None where only a test can tell whether they are right."""
    if not takes_cached_prefixes(model):
        return "keeps more than keys and values, or no cache that can be given"
    if keeps_states(model):
        return "keeps a running state in its layers, which would mix the texts of a pack"
    if model.config._attn_implementation not in ("sdpa", "eager"):
        return f"attends by {model.config._attn_implementation}, which takes no mask of a pack"
    # On a GPU a place beyond the last position would end the process.
    if "position_ids" not in inspect.signature(type(model).forward).parameters:
        return "takes no position ids"
    if getattr(model.config, "alibi", False):  # Falcon's first models
        return "biases attention by distance in the row"
    return _WRONG_IN_LONG_ROWS.get(model.config.get_text_config().model_type)


def rotary_limit(model: PreTrainedModel) -> int | None:
    """Return the length beyond which the rotary embeddings of a whole batch follow its longest text, or None."""
    config = model.config.get_text_config()
    parameters = getattr(config, "rope_parameters", None) or {}
    limits: list[int] = []
    for own in (parameters, *(each for each in parameters.values() if isinstance(each, dict))):
        if own.get("rope_type") in _ROTARY_BY_LENGTH:
            original = own.get("original_max_position_embeddings")
            original = original or getattr(config, "original_max_position_embeddings", None)
            limits.append(original or config.max_position_embeddings)
    return min(limits, default=None)


class PathCache(Cache):
    """Keys and values of one path through a trie, in buffers that packs are written behind.

    Attributes:
        tokens: ``[length]`` the token ids of the path that the last call left.
        stops: where the packs ended that gave it.
    """

    def __init__(self) -> None:
        super().__init__(layer_class_to_replicate=_PathLayer)
        self.tokens: Integers = np.empty(0, dtype=np.int64)
        self.stops: tuple[int, ...] = ()
        self._n_reserved = 0

    def reserve(self, n_tokens: int) -> None:
        """Have room for so many tokens from the next pass on: memory that grows piece by piece is lost between them."""
        self._n_reserved = max(self._n_reserved, -(-n_tokens // _ROOM_MULTIPLE) * _ROOM_MULTIPLE)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add keys and values to those of a layer, and return all of them."""
        return super().update(key_states, value_states, layer_idx, self._n_reserved)

    def keep(self, length: int, columns: Integers) -> None:
        """Keep the first ``length`` tokens, followed by those at ``columns``."""
        is_moved = not np.array_equal(columns, np.arange(length, length + len(columns)))
        chosen: dict[torch.device, torch.Tensor] = {}  # layers may lie on several devices
        for layer in cast(list[_PathLayer], self.layers):
            if is_moved and layer.device not in chosen:
                chosen[layer.device] = on_device(columns, layer.device)
            layer.keep(length + len(columns), chosen.get(layer.device))


class _PathLayer(CacheLayerMixin):
    is_sliding = False
    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, **_: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.length = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys, self.values = (states[:, :, :0].clone() for states in (key_states, value_states))
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, n_reserved: int = 0, **_: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start, self.length = self.length, self.length + key_states.shape[2]
        if self.length > self.keys.shape[2]:
            n_columns = max(self.length, n_reserved)
            self.keys, self.values = (_grown(states, start, n_columns) for states in (self.keys, self.values))
        self.keys[:, :, start : self.length] = key_states
        self.values[:, :, start : self.length] = value_states
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def keep(self, length: int, columns: torch.Tensor | None) -> None:
        self.length = length
        if columns is not None:
            for states in (self.keys, self.values):
                states[:, :, length - len(columns) : length] = states[:, :, columns]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return -1

    def get_max_cache_shape(self) -> int:  # what transformers 5.0 calls it
        return -1


def _grown(states: torch.Tensor, n_filled: int, n_columns: int) -> torch.Tensor:
    batch, n_heads, _, dimension = states.shape
    grown = states.new_empty((batch, n_heads, n_columns, dimension))
    grown[:, :, :n_filled] = states[:, :, :n_filled]
    return grown


def packed_predictions(model: PreTrainedModel, trie: TokenTrie, budget: int, cache: PathCache) -> Iterator[Predictions]:
    """Yield what the model predicts for every target of the trie, with at most ``budget`` tokens in a forward pass.

    There is no reason ``why_no_packs`` of the model are wrong; no text may be longer than its ``rotary_limit``. The
    cache is what an earlier call left behind, or a new one. The packs of a long shared beginning are taken from it if
    it holds the very same, and it holds those of this call afterwards.
    """
    n_nodes = 0
    for run in _runs(model, trie, budget, cache):
        n_nodes += run.pack.stop - run.pack.start
        if run.predictions is not None:
            yield replace(run.predictions, n_nodes=n_nodes)
            n_nodes = 0


def write_continuations(
    model: PreTrainedModel, trie: TokenTrie, budget: int, cache: PathCache, tokens: Integers
) -> None:
    """Write the greedy tokens that follow the node of each target into ``tokens``, ``[n_slots, n_tokens]``.

    The new tokens of all texts that end in a pack run together after the pack, which stays in the cache for them.
    """
    for run in _runs(model, trie, budget, cache, tokens.shape[1] - 1):
        if run.predictions is None:
            continue
        ends = np.unique(trie.target_node[run.predictions.targets])
        newest = likeliest(run.predictions.logits)
        following = [newest]
        for step in range(1, tokens.shape[1]):
            depths = trie.depth[ends] + step
            logits = model(
                input_ids=_row(model, np.maximum(newest, 0)),
                position_ids=_row(model, depths),
                attention_mask=_masks(model, trie, run.pack, depths, ends, step),
                past_key_values=cache,
                use_cache=True,
            ).logits[0]
            newest = likeliest(logits)
            following.append(newest)
        tokens[trie.target_slot[run.predictions.targets]] = np.stack(following, axis=1)[run.predictions.rows]


@dataclass(frozen=True)
class _Run:
    """What one pack gives. The cache holds the pack until the next one is asked for."""

    pack: Pack
    predictions: Predictions | None


def _runs(model: PreTrainedModel, trie: TokenTrie, budget: int, cache: PathCache, n_behind: int = 0) -> Iterator[_Run]:
    """Run the packs of a trie; behind each there is room for ``n_behind`` tokens of every node with a target."""
    chain = common_chain(trie)
    packs = list(plan_packs(trie, budget))
    cache.reserve(max((_n_columns(trie, pack, n_behind) for pack in packs), default=0))
    done = _reusable(trie, [pack.stop for pack in packs if pack.stop <= chain], cache)
    in_cache = np.arange(done)  # the node in each column
    for pack in packs:
        if pack.stop <= done:
            continue
        length = common_length(in_cache, pack.path)
        cache.keep(length, np.searchsorted(in_cache, pack.path[length:]))
        yield _run(model, trie, pack, cache)
        in_cache = np.concatenate([pack.path, np.arange(pack.start, pack.stop)])
    cache.stops = tuple(pack.stop for pack in packs if pack.stop <= chain)
    cache.tokens = trie.token[: max(cache.stops, default=0)].copy()
    cache.keep(len(cache.tokens), np.empty(0, dtype=np.int64))


def _n_columns(trie: TokenTrie, pack: Pack, n_behind: int) -> int:
    """Return the number of tokens in the cache with a pack and its generated tokens."""
    targets = trie.targets(pack.start, pack.stop)
    return int(len(pack.path) + pack.stop - pack.start + n_behind * (targets.stop - targets.start))


def _reusable(trie: TokenTrie, stops: Sequence[int], cache: PathCache) -> int:
    """Return how many nodes need not run: their packs, with the same tokens, are those that filled the cache."""
    done = 0
    for stop, cached in zip(stops, cache.stops, strict=False):
        targets = trie.targets(0, stop)
        is_same = stop == cached and np.array_equal(trie.token[:stop], cache.tokens[:stop])
        if not is_same or targets.stop > targets.start:
            break
        done = stop
    return done


def _run(model: PreTrainedModel, trie: TokenTrie, pack: Pack, cache: PathCache) -> _Run:
    """Run one pack, which leaves its keys and values in the cache."""
    targets = trie.targets(pack.start, pack.stop)
    places, rows = np.unique(trie.target_node[targets] - pack.start, return_inverse=True)
    nodes = slice(pack.start, pack.stop)
    with keys_as_they_are():
        logits = logits_at(
            model,
            places if len(places) else np.array([pack.stop - pack.start - 1]),
            input_ids=_row(model, trie.token[nodes]),
            position_ids=_row(model, trie.depth[nodes]),
            attention_mask=_masks(model, trie, pack, trie.depth[nodes]),
            past_key_values=cache,
            use_cache=True,
        )
    predictions = Predictions(np.arange(targets.start, targets.stop), rows, logits[0]) if len(places) else None
    return _Run(pack, predictions)


def _masks(
    model: PreTrainedModel, trie: TokenTrie, pack: Pack, depths: Integers, ends: Integers | None = None, step: int = 0
) -> torch.Tensor | dict[str, torch.Tensor]:
    """Return the mask of tokens at ``depths``, or if that is beyond a sliding window one for each type of layer.

    The tokens are those of the pack, or the ``step``-th new ones after its nodes ``ends``.
    """
    window, types = attention_window(model.config), getattr(model.config.get_text_config(), "layer_types", None)
    if window is None or depths.max() < window or _SLIDING not in (types or [_SLIDING]):
        return _mask(model, trie, pack, ends, step)
    near = _mask(model, trie, replace(pack, window=window), ends, step)
    if not types:
        return near
    return {own: near if own == _SLIDING else _mask(model, trie, pack, ends, step) for own in {*types}}


def _mask(model: PreTrainedModel, trie: TokenTrie, pack: Pack, ends: Integers | None, step: int) -> torch.Tensor:
    """Return a mask for SDPA, or a dense one to add to scores, which eager attention takes, too."""
    if step == 0 and model.config._attn_implementation == "sdpa":
        return tree_mask(trie, pack, model.device)
    is_seen = dense_mask(trie, replace(pack, window=pack.window and pack.window - step), model.device, ends)
    itself = torch.eye(len(is_seen) if step else 0, dtype=torch.bool, device=model.device)
    new = [itself & (n_between < (pack.window or step)) for n_between in reversed(range(step))]
    is_seen = torch.cat([is_seen, *new], dim=1)
    mask = torch.zeros(is_seen.shape, dtype=model.dtype, device=model.device)
    return mask.masked_fill_(~is_seen, torch.finfo(model.dtype).min)[None, None]


def _row(model: PreTrainedModel, values: Integers) -> torch.Tensor:
    return on_device(values, model.device)[None]
