"""What training minimises: the mean negative log-probability of a row's label tokens and EOS, in nats."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from biaseval.scoring.attention import on_device
from biaseval.scoring.readout import logits_at
from biaseval.training.batches import Batch


class RowLoss(torch.nn.Module):
    """The model with its loss, as one module: what wraps a model for training may wrap this.

    Each row counts by the mean over its own targets, however many it has. Hugging Face's Trainer did so at the time of
    P1's code; since 4.46 it takes the mean over all target tokens of a step instead, so that longer labels weigh more.
    """

    def __init__(self, model: PreTrainedModel, precision: str, device: torch.device) -> None:
        super().__init__()
        self.model = model
        self._device = device
        self._is_mixed = precision == "bfloat16"

    def forward(self, batch: Batch) -> torch.Tensor:
        """Return the weighted loss of a batch, a float32 scalar."""
        device = self._device
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=self._is_mixed):
            logits = logits_at(
                self.model,
                batch.positions,
                input_ids=on_device(batch.input_ids, device),
                attention_mask=on_device(batch.attention_mask, device),
                use_cache=False,
            )
        return weighted_loss(
            logits, on_device(batch.target_ids, logits.device), on_device(batch.target_weights, logits.device)
        )


def weighted_loss(logits: torch.Tensor, target_ids: torch.Tensor, target_weights: torch.Tensor) -> torch.Tensor:
    """Return the sum of the targets' negative log-probabilities (nats), each times its weight; computed in float32.

    Args:
        logits: ``[rows, positions, vocabulary]``.
        target_ids: ``[rows, positions]``.
        target_weights: ``[rows, positions]``; 0 where there is no target.
    """
    logprobs = logits.float().log_softmax(dim=-1).gather(-1, target_ids.unsqueeze(-1)).squeeze(-1)
    # Not a product: where a position is no target, an infinite logit there must not turn the sum into NaN.
    return -torch.where(target_weights > 0, logprobs * target_weights, 0.0).sum()
