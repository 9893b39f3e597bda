"""The data and the loss of a training, in which trainings differ."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from transformers import PreTrainedModel

from biaseval.models import torch_dtype
from biaseval.training.batches import Batch, EncodedRow, WeighedText, collate, lay_out
from biaseval.training.loss import target_loss
from biaseval.training.optimization import Asked
from biaseval.training.packing import pack
from biaseval.training.templates import EncodedConversation

_Row = TypeVar("_Row")


@dataclass(frozen=True)
class Share:
    """Which part of every optimizer step one worker computes."""

    batch_size: int
    """Rows in a forward pass."""
    rank: int = 0
    n_workers: int = 1
    """That make each step together."""
    pass_tokens: int | None = None
    """What a pass costs beside its tokens, in tokens: batches of like length are cut where that saves more padding.
    None: they are as large as they may be, as those of several workers must be, whose passes depend on each other."""

    def __post_init__(self) -> None:
        """Make sure that workers make passes together."""
        if self.pass_tokens is not None and self.n_workers > 1:
            raise ValueError("several workers cannot cut batches, each its own")

    def batches_of(self, rows: Sequence[_Row]) -> list[Sequence[_Row]]:
        """Deal the rows of a step to the workers, ``batch_size`` at a time, and return the batches of this one.

        All workers get the same number, empty ones where no row is left: forward passes of several workers may depend
        on each other (ZeRO 3).
        """
        per_round = self.batch_size * self.n_workers
        stop = -(-len(rows) // per_round) * per_round
        starts = range(self.rank * self.batch_size, stop, per_round)
        return [rows[start : start + self.batch_size] for start in starts]

    def batches_of_like_length(self, rows: Sequence[_Row], lengths: Sequence[int]) -> list[Sequence[_Row]]:
        """Deal the rows of a step likewise, from the longest on, so that less of the batches is padding.

        Lengths are the tokens of each row.
        """
        order = sorted(range(len(rows)), key=lambda place: -lengths[place])
        batches = self.batches_of(order)
        if self.pass_tokens is not None:
            batches = [part for own in batches for part in _cut(own, lengths, self.pass_tokens)]
        return [[rows[place] for place in own] for own in batches]


def _cut(rows: Sequence[int], lengths: Sequence[int], pass_tokens: int) -> list[Sequence[int]]:
    """Cut rows, places in ``lengths``, the longest first, into parts of the least cost.

    A part costs its padded tokens and ``pass_tokens``.
    """
    least, starts = [0], [0]  # of the first n rows: their cost, and where the last part of them begins
    for stop in range(1, len(rows) + 1):
        costs = [least[start] + (stop - start) * lengths[rows[start]] + pass_tokens for start in range(stop)]
        least.append(min(costs))
        starts.append(costs.index(least[-1]))
    parts, stop = [], len(rows)
    while stop > 0:
        parts.append(rows[starts[stop] : stop])
        stop = starts[stop]
    return parts[::-1]


class Objective(ABC):
    """Rows to train on, and the loss that is minimised over them."""

    held_out: Objective | None = None
    """The held-out rows, whose loss is computed after each epoch; None without any."""

    @property
    def layers(self) -> torch.nn.Module | None:
        """Layers that are trained with the model and dropped afterwards; None without any."""
        return None

    @cached_property
    @abstractmethod
    def lengths(self) -> list[int]:
        """Tokens of each row of an epoch, at least one, without padding."""

    @property
    def n_rows(self) -> int:
        """Of an epoch."""
        return len(self.lengths)

    def weight(self, rows: Sequence[int]) -> float:
        """Return what the loss of these rows counts beside that of others: each the same, if nothing else is said."""
        return len(rows)

    def names(self, rows: Sequence[int]) -> Sequence[str]:
        """Return what messages call these rows; nothing where they have no names."""
        return ()

    def n_tokens(self, rows: Sequence[int]) -> int | None:
        """Return the tokens of all texts of a step, where the table of steps is to say so."""
        return sum(self.lengths[row] for row in rows)

    @abstractmethod
    def batches(self, rows: Sequence[int], share: Share) -> Sequence[Any]:
        """Return what one worker computes of a step.

        All workers get the same number of batches, of a weight of zero where no row is left. Their losses over all
        workers add up to that of the step.

        Args:
            rows: 0-based, of the whole step, at least one.
            share: of the worker.
        """

    def loss(self, model: PreTrainedModel, batch: Any, device: torch.device) -> torch.Tensor:
        """Return the weighted loss of a batch, a float32 scalar in nats, which every trained parameter is part of.

        If nothing else is said, it is that of texts: the negative log-probabilities of the targets.
        """
        return target_loss(model, batch, device)


class Loss(torch.nn.Module):
    """The model with its loss, as one module: what wraps a model for training may wrap this."""

    def __init__(self, model: PreTrainedModel, objective: Objective, precision: str, device: torch.device) -> None:
        super().__init__()
        self.model = model
        self.layers = objective.layers
        self._objective = objective
        self._device = device
        self._precision = None if precision == "float32" else torch_dtype(precision)

    def forward(self, batch: Any, work: Asked | None = None) -> torch.Tensor:
        """Return the weighted loss of a batch, or what ``work`` makes of it.

        It is computed in 16 bits where ``precision`` says so.
        """
        work = self._objective.loss if work is None else work
        with torch.autocast(self._device.type, dtype=self._precision, enabled=self._precision is not None):
            return work(self.model, batch, self._device)


@dataclass(frozen=True)
class LabelledPrompts(Objective):
    """Prompts with their labels: label and EOS are predicted.

    Each row counts by the mean over its own targets, however many it has. Hugging Face's Trainer did so at the time of
    P1's code; since 4.46 it takes the mean over all target tokens of a step instead, so that longer labels weigh more.
    """

    rows: Sequence[EncodedRow]

    @cached_property
    def lengths(self) -> list[int]:
        """Tokens of each prompt with its label."""
        return [len(row.token_ids) for row in self.rows]

    def n_tokens(self, rows: Sequence[int]) -> None:
        """Return nothing: the table of training rows says it."""

    def batches(self, rows: Sequence[int], share: Share) -> list[Batch]:
        """Return what one worker computes of the mean over rows."""
        step = [self.rows[number] for number in rows]
        return [
            collate(own, [1 / len(step)] * len(own)) if own else collate(step[:1], [0.0])
            for own in share.batches_of(step)
        ]


@dataclass(frozen=True)
class Conversations(Objective):
    """Conversations: every answer token of a step counts the same, however they are laid out in rows."""

    conversations: Sequence[EncodedConversation]
    capacity: int | None
    """Tokens of a packed row; None puts each conversation in a row of its own."""
    held_out: Conversations | None = None

    @cached_property
    def lengths(self) -> list[int]:
        """Tokens of each conversation."""
        return [len(one.token_ids) for one in self.conversations]

    def weight(self, rows: Sequence[int]) -> float:
        """Return the answer tokens."""
        return sum(int(self.conversations[number].is_answer.sum()) for number in rows)

    def batches(self, rows: Sequence[int], share: Share) -> list[Batch]:
        """Return what one worker computes of the mean over all answer tokens; rows are dealt from the longest on."""
        step = [self.conversations[number] for number in rows]
        weight = 1 / self.weight(rows)
        lengths = [len(one.token_ids) for one in step]
        packed = pack(lengths, max(lengths) if self.capacity is None else self.capacity)
        if self.capacity is None:
            packed = [[index] for row in packed for index in row]
        packed.sort(key=lambda row: -sum(lengths[index] for index in row))
        texts = [[_weighed(step[index], weight) for index in row] for row in packed]
        nothing = [[_weighed(step[packed[-1][-1]], 0.0)]]
        return [lay_out(own or nothing) for own in share.batches_of(texts)]


def _weighed(one: EncodedConversation, weight: float) -> WeighedText:
    return one.token_ids, one.is_answer.astype(np.float32) * np.float32(weight)
