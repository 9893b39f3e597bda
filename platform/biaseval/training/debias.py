"""Losses that train a reader against a shortcut, as functions of tensors (P3 section 4.4).

A shortcut is given as a bias model: a reader that answers by it. Start and end of an answer are two classifications
over the positions of a window. A loss is a scalar in nats, the mean over rows and over start and end. Bias and teacher
are constants: no gradient reaches them.

Every loss takes pairs, the start before the end. Logits are raw, in floating point, ``[batch, positions]``, a row for
each window. ``labels`` are integers, ``[batch]``, inclusive, at positions that the mask leaves in.

Where there is a ``mask``, ``[batch, positions]``, positions that are false in it (padding) take no part in any softmax
or entropy; P3's code has none, and lets padding take part. Logits in 16 bits are computed with in float32; a gate
computes in its own numbers.

    learned_mixin_loss              Clark et al., 2019; P3's LMIX
    confidence_regularization_loss  Utama et al., 2020; P3's CREG
    product_of_experts_loss         Clark et al., 2019; He et al., 2019
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from biaseval.errors import BiasevalError

LearnedMixinVariant = Literal["paper", "head", "clark"]
ConfidenceVariant = Literal["utama", "head"]

Sides = Sequence[Tensor]
"""Of the start and of the end."""


def learned_mixin_loss(
    logits: Sides,
    biases: Sides,
    hidden_states: Tensor,
    labels: Sides,
    gate: nn.Linear,
    *,
    bias_scale: float,
    entropy_penalty: float,
    variant: LearnedMixinVariant = "paper",
    mask: Tensor | None = None,
) -> Tensor:
    """Return LearnedMixin+H: the cross-entropy of the model beside its bias, as far as a gate g >= 0 lets that in.

    With z = g b, the loss of a side is CE(l + u z, y) + H Entropy(softmax(z)): the penalty keeps the gate from closing.

    - ``paper``, as run for P3: one g for each row, of the hidden states where its start and its end logit are largest.
    - ``head``, P3's repository at its last commit: a g for each position, of its hidden state.
    - ``clark``, the definition (for any task; its own form for QA has further layers): one g for each row, of the mean
      of its hidden states, and b is a log-probability.

    Args:
        logits: of the trained model.
        biases: logits of the bias model.
        hidden_states: of the trained model's last layer, ``[batch, positions, width]``.
        labels: of the answers.
        gate: to one number, from ``2 * width`` for ``paper``, else from ``width``; g is its softplus. It is trained
            with the model.
        bias_scale: u, in (0, 1]; how much of the bias is kept (P3: 0.2, its code 0.1; 1 is the original method).
        entropy_penalty: H, at least 0; of z as it is, without u (P3: 0.4).
        variant: which form.
        mask: true where a position counts; None counts all.
    """
    logits = [_wide(own) for own in logits]
    biases = [_in_mask(_wide(own).detach(), mask, 0.0) for own in biases]
    hidden = _wide(hidden_states)
    if variant == "paper":
        rows = torch.arange(len(hidden), device=hidden.device)
        largest = [_in_mask(own, mask).argmax(dim=-1) for own in logits]
        mixed = _gate(gate, torch.cat([hidden[rows, position] for position in largest], dim=-1))
    elif variant == "head":
        mixed = _gate(gate, hidden).squeeze(-1)
    else:
        mixed = _gate(gate, _mean(hidden, mask))
        biases = [_in_mask(_log_softmax(own, mask), mask, 0.0) for own in biases]
    losses = []
    for own, bias, position in zip(logits, biases, labels, strict=True):
        z = mixed * bias
        losses.append(_cross_entropy(own + bias_scale * z, position, mask) + entropy_penalty * _entropy(z, mask))
    return torch.stack(losses).mean()


def confidence_regularization_loss(
    logits: Sides,
    teachers: Sides,
    biases: Sides,
    labels: Sides,
    *,
    bias_scale: float,
    variant: ConfidenceVariant = "utama",
    mask: Tensor | None = None,
) -> Tensor:
    """Return the cross-entropy to a teacher that is less sure where the bias alone gives the right answer.

    With the teacher's probabilities p and the bias model's probability of the label, beta, the target is p to the power
    of w = 1 - u beta, normalised. Labels enter through beta alone.

    - ``utama``, the definition: probabilities are softmax of logits.
    - ``head``, P3's repository at its last commit: softmax of the exponential of logits.

    Args:
        logits: of the trained model.
        teachers: logits of a model that was trained without regard to the bias.
        biases: logits of the bias model.
        labels: of the answers.
        bias_scale: u, in (0, 1] (P3: 0.1, its code 0.2; 1 is the original method).
        variant: which form.
        mask: true where a position counts; None counts all.

    Raises:
        BiasevalError: ``head``, and a logit is so large that its exponential overflows.
    """
    losses = []
    for own, teacher, bias, position in zip(logits, teachers, biases, labels, strict=True):
        sure, biased = _wide(teacher).detach(), _wide(bias).detach()
        if variant == "head":
            sure, biased = _exponential(sure, mask), _exponential(biased, mask)
        beta = _log_softmax(biased, mask).exp().gather(-1, position[:, None])
        powers = (1 - bias_scale * beta) * _in_mask(_log_softmax(sure, mask), mask, 0.0)
        target = _log_softmax(powers, mask).exp()
        found = _in_mask(_log_softmax(_wide(own), mask), mask, 0.0)
        losses.append(-(target * found).sum(dim=-1).mean())
    return torch.stack(losses).mean()


def product_of_experts_loss(
    logits: Sides, biases: Sides, labels: Sides, *, bias_scale: float = 1.0, mask: Tensor | None = None
) -> Tensor:
    """Return the cross-entropy of the model and its bias together, CE(l + u log_softmax(b), y).

    Args:
        logits: of the trained model.
        biases: logits of the bias model.
        labels: of the answers.
        bias_scale: u, in (0, 1]; 1 is the original method.
        mask: true where a position counts; None counts all.
    """
    losses = []
    for own, bias, position in zip(logits, biases, labels, strict=True):
        known = _in_mask(_log_softmax(_wide(bias).detach(), mask), mask, 0.0)
        losses.append(_cross_entropy(_wide(own) + bias_scale * known, position, mask))
    return torch.stack(losses).mean()


def _gate(gate: nn.Linear, states: Tensor) -> Tensor:
    opened: Tensor = gate(states.to(gate.weight.dtype))
    return F.softplus(opened.to(states.dtype))


def _wide(values: Tensor) -> Tensor:
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def _in_mask(values: Tensor, mask: Tensor | None, outside: float = -torch.inf) -> Tensor:
    return values if mask is None else values.masked_fill(~mask.bool(), outside)


def _log_softmax(values: Tensor, mask: Tensor | None) -> Tensor:
    return _in_mask(values, mask).log_softmax(dim=-1)


def _cross_entropy(logits: Tensor, positions: Tensor, mask: Tensor | None) -> Tensor:
    return F.cross_entropy(_in_mask(logits, mask), positions)


def _entropy(logits: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mean entropy of the rows, in nats."""
    logs = _log_softmax(logits, mask)
    # Nothing times minus infinity would be no number.
    return -(logs.exp() * _in_mask(logs, mask, 0.0)).sum(dim=-1).mean()


def _mean(hidden: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return hidden.mean(dim=1)
    counted = mask.to(hidden.dtype).unsqueeze(-1)
    return (hidden * counted).sum(dim=1) / counted.sum(dim=1)


def _exponential(logits: Tensor, mask: Tensor | None) -> Tensor:
    found = _in_mask(logits, mask, 0.0).exp()
    if not bool(found.isfinite().all()):
        raise BiasevalError(
            f"confidence_regularization.variant head: the exponential of a logit of {float(logits.max()):.4g} "
            f"overflows {str(found.dtype).removeprefix('torch.')}; use variant utama"
        )
    return found
