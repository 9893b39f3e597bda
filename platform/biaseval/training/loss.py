"""What training on texts minimises: the weighted sum of the targets' negative log-probabilities, in nats."""

from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from biaseval.scoring.blocks import on_device
from biaseval.scoring.readout import logits_at
from biaseval.training.batches import Batch, Integers


def target_loss(model: PreTrainedModel, batch: Batch, device: torch.device) -> torch.Tensor:
    """Return the weighted loss of a batch of texts with targets, a float32 scalar."""
    logits = logits_at(
        model,
        batch.positions,
        input_ids=on_device(batch.input_ids, device),
        use_cache=False,
        **attention_inputs(model, batch.text_numbers, device),
    )
    return weighted_loss(
        logits, on_device(batch.target_ids, logits.device), on_device(batch.target_weights, logits.device)
    )


def attention_inputs(model: PreTrainedModel, text_numbers: Integers, device: torch.device) -> dict[str, Any]:
    """Return what tells the model which tokens see each other, and where each stands in its text.

    Args:
        model: one that takes packed rows (`packing.why_not_packed`) where a row has several texts.
        text_numbers: ``[rows, longest]``, as in `Batch`.
        device: where the inputs go.
    """
    numbers = on_device(text_numbers, device)
    if text_numbers.max() <= 1:
        return {"attention_mask": numbers}
    place = np.arange(text_numbers.shape[1])
    begins = np.diff(text_numbers, axis=1, prepend=-1) != 0
    positions = place - np.maximum.accumulate(np.where(begins, place, 0), axis=1)
    at = torch.arange(len(place), device=device)
    # Padding sees padding: a row of a mask that sees nothing has no softmax.
    is_seen = (numbers[:, None, :, None] == numbers[:, None, None, :]) & (at[:, None] >= at)
    if model.config._attn_implementation == "sdpa":
        mask = is_seen
    else:
        mask = torch.zeros(is_seen.shape, dtype=model.dtype, device=device)
        mask.masked_fill_(~is_seen, torch.finfo(model.dtype).min)
    return {"attention_mask": mask, "position_ids": on_device(positions, device)}


def weighted_loss(logits: torch.Tensor, target_ids: torch.Tensor, target_weights: torch.Tensor) -> torch.Tensor:
    """Return the sum of the targets' negative log-probabilities (nats), each times its weight; computed in float32.

    Logits are ``[rows, positions, vocabulary]``, the others ``[rows, positions]``; weights are 0 where there is no
    target.
    """
    logprobs = logits.float().log_softmax(dim=-1).gather(-1, target_ids.unsqueeze(-1)).squeeze(-1)
    # Not a product: where a position is no target, an infinite logit there must not turn the sum into NaN.
    return -torch.where(target_weights > 0, logprobs * target_weights, 0.0).sum()
