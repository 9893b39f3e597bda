"""From logits to log-probabilities and tokens. Log-softmax in float32 for every dtype of the model."""

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel

from biaseval.models import inputs_taken
from biaseval.scoring.blocks import on_device
from biaseval.scoring.trie import Integers, TokenTrie

Logprobs = npt.NDArray[np.float32]

_LOGITS_AT_ONCE = 1 << 26


@dataclass(frozen=True)
class Predictions:
    """What one forward pass predicts for some targets of a trie."""

    targets: Integers
    """``[n]`` numbers of the targets."""
    rows: Integers
    """``[n]`` the row of ``logits`` for each."""
    logits: torch.Tensor
    """``[n_rows, vocabulary]``."""
    is_padded: npt.NDArray[np.bool_] | None = None
    """``[n]`` whether the target's text was filled up to the length of a longer one; None: none was."""
    n_nodes: int = 0
    """Of the trie that ran for the first time since the predictions before these."""


def write_logprobs(trie: TokenTrie, predictions: Iterable[Predictions], scores: Logprobs) -> None:
    """Write the log-probability in nats of every target into ``scores``, at its slot."""
    targets, values = [], []
    for each in predictions:
        targets.append(each.targets)
        values.append(_logprobs(each.logits, each.rows, trie.target_token[each.targets]))
    if targets:
        # Fetched at the end alone, so that a GPU need not wait for the next pack to be made.
        scores[trie.target_slot[np.concatenate(targets)]] = torch.cat(values).cpu().numpy()


def write_likeliest(trie: TokenTrie, predictions: Iterable[Predictions], tokens: Integers) -> None:
    """Write the token that the model finds likeliest in place of every target into ``tokens``, at its slot."""
    for each in predictions:
        tokens[trie.target_slot[each.targets]] = likeliest(each.logits)[each.rows]


def largest_logit(trie: TokenTrie, predictions: Iterable[Predictions]) -> float:
    """Return the size of the largest logit that scores are made of: a target's, or that of the likeliest token."""
    largest = 0.0
    for each in predictions:
        where = (on_device(own, each.logits.device) for own in (each.rows, trie.target_token[each.targets]))
        of_targets = each.logits[tuple(where)]
        largest = max(largest, float(of_targets.abs().max()), float(each.logits.amax(dim=-1).abs().max()))
    return largest


def _logprobs(logits: torch.Tensor, rows: Integers, tokens: Integers) -> torch.Tensor:
    at_once = max(1, _LOGITS_AT_ONCE // logits.shape[-1])  # bounds the float32 copy
    normalizers = torch.cat([part.float().logsumexp(dim=-1) for part in torch.split(logits, at_once)])
    where = on_device(rows, logits.device)
    return logits[where, on_device(tokens, logits.device)].float() - normalizers[where]


def likeliest(logits: torch.Tensor) -> Integers:
    """Return the token of the largest logit of each row, the first on ties; -1 where a logit is not a number."""
    tokens = logits.argmax(dim=-1).masked_fill_(logits.isnan().any(dim=-1), -1)
    found: Integers = tokens.cpu().numpy()
    return found


def logits_at(model: PreTrainedModel, positions: Integers, **inputs: Any) -> torch.Tensor:
    """Run the model and return its logits at ``positions`` of every row, ``[batch, len(positions), vocabulary]``.

    Only the hidden states at these positions go through the head, where the model offers that. Inputs that it does not
    take, as some take no mask, are left out: whether its numbers are right all the same is the self-test's to say.
    """
    width = inputs["input_ids"].shape[1]
    first, n_expected = 0, width
    inputs = inputs_taken(model, **inputs)
    if "logits_to_keep" in inspect.signature(type(model).forward).parameters:
        if len(set(getattr(model, "hf_device_map", {}).values())) > 1:
            # The hidden states end on another device than the one an index would be on; a slice has no device.
            first = int(positions[0])
            n_expected = inputs["logits_to_keep"] = width - first
        else:
            inputs["logits_to_keep"] = on_device(positions, model.device)
            n_expected = len(positions)
    logits: torch.Tensor = model(**inputs).logits
    if logits.shape[1] != n_expected:
        raise RuntimeError(f"{type(model).__name__} returned logits at {logits.shape[1]} positions, not {n_expected}")
    if n_expected == len(positions):
        return logits
    return logits[:, on_device(positions - first, logits.device)]
