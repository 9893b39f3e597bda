"""Runs a token trie through a model: every shared prefix once, many branches in one row.

A pack is one row of several subtrees: explicit position ids put each token where it stands in its text, and a 4-D mask
lets it see the cache and its own ancestors only. That is right only for models that take positions from
``position_ids`` and attention from the mask alone, hence the list below and the check in ``scorer``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from transformers import DynamicCache, PretrainedConfig, PreTrainedModel

from biaseval.scoring.trie import Step, TokenTrie, plan_steps

PACKED_FAMILIES = frozenset({"llama", "mistral", "qwen2", "qwen3", "falcon", "opt", "gpt_neox", "gpt2"})
PACKED_ATTENTION = frozenset({"sdpa", "eager"})
_LOGITS_AT_ONCE = 1 << 26

Logprobs = npt.NDArray[np.float32]


def takes_packs(model: PreTrainedModel) -> bool:
    """Return whether this family, with its present attention, is known to be right on packed rows."""
    config: PretrainedConfig = model.config
    is_alibi = getattr(config, "alibi", False)  # Falcon's first models: distance by place in the row
    return config.model_type in PACKED_FAMILIES and config._attn_implementation in PACKED_ATTENTION and not is_alibi


def packed_logprobs(model: PreTrainedModel, trie: TokenTrie, budget: int) -> Logprobs:
    """Return the log-probability of every target, ``[n_targets]`` in nats, by ``target_slot``.

    Args:
        model: one that ``takes_packs``; no text may be longer than its sliding window, if it has one.
        trie: the texts.
        budget: most tokens in one forward pass.
    """
    # Without the model's configuration the cache keeps every token of a sliding-window model, whatever a pack adds;
    # inside the window that is what each position sees.
    cache = DynamicCache()
    scores = np.full(len(trie.target_slot), np.nan, dtype=np.float32)
    for step in plan_steps(trie, budget):
        if step.kind == "crop":
            cache.crop(-(step.stop - step.start))
            continue
        _run(model, trie, step, cache, scores)
        if step.kind == "pack":
            cache.crop(-(step.stop - step.start))
    return scores


def _run(model: PreTrainedModel, trie: TokenTrie, step: Step, cache: DynamicCache, scores: Logprobs) -> None:
    """Run one step, which leaves its keys and values in the cache, and write down what its nodes predict."""
    nodes = slice(step.start, step.stop)
    targets = trie.targets(step.start, step.stop)
    rows, row_of_target = np.unique(trie.target_node[targets], return_inverse=True)
    keep = rows - step.start if len(rows) else np.array([step.stop - step.start - 1])
    wanted: int | torch.Tensor = torch.from_numpy(keep).to(model.device)
    if len(set(getattr(model, "hf_device_map", {}).values())) > 1:
        # The hidden states end on another GPU than the one an index would be on; a slice has no device.
        wanted = step.stop - step.start - int(keep[0])
        row_of_target, keep = keep[row_of_target] - keep[0], np.arange(wanted)
    n_cached = cache.get_seq_length()
    logits = model(
        input_ids=_row(model, trie.token[nodes]),
        position_ids=_row(model, trie.depth[nodes]),
        attention_mask=_tree_mask(model, trie.end[nodes], step.start, n_cached) if step.kind == "pack" else None,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=wanted,
    ).logits[0]
    if len(logits) != len(keep):
        raise RuntimeError(f"{type(model).__name__} returned {len(logits)} rows of logits where {len(keep)} were asked")
    if len(rows):
        scores[trie.target_slot[targets]] = target_logprobs(logits, row_of_target, trie.target_token[targets])


def target_logprobs(logits: torch.Tensor, rows: npt.NDArray[np.int64], tokens: npt.NDArray[np.int64]) -> Logprobs:
    """Return ``log_softmax(logits)[rows, tokens]`` in float32; ``logits`` is ``[n_rows, vocabulary]``."""
    at_once = max(1, _LOGITS_AT_ONCE // logits.shape[-1])  # bounds the float32 copy
    parts = torch.split(logits, at_once)
    normalizers = torch.cat([torch.logsumexp(part.float(), dim=-1) for part in parts])
    where = torch.from_numpy(rows).to(logits.device)
    chosen = logits[where, torch.from_numpy(tokens).to(logits.device)].float()
    values: Logprobs = (chosen - normalizers[where]).cpu().numpy()
    return values


def _row(model: PreTrainedModel, values: npt.NDArray[np.int64]) -> torch.Tensor:
    return torch.from_numpy(values).to(model.device)[None]


def _tree_mask(model: PreTrainedModel, end: npt.NDArray[np.int64], start: int, n_cached: int) -> torch.Tensor:
    """Return who sees whom, ``[1, 1, n, n_cached + n]``: each node the whole cache, its ancestors and itself."""
    ends = torch.from_numpy(end - start).to(model.device)
    index = torch.arange(len(ends), device=model.device)
    is_seen = (index[None, :] <= index[:, None]) & (index[:, None] < ends[None, :])
    is_seen = torch.nn.functional.pad(is_seen, (n_cached, 0), value=True)[None, None]
    if model.config._attn_implementation == "sdpa":
        return is_seen
    return torch.zeros(is_seen.shape, dtype=model.dtype, device=model.device).masked_fill_(
        ~is_seen, torch.finfo(model.dtype).min
    )
