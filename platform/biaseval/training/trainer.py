"""Trains one adapter after another on a model that stays in memory."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from biaseval.models import adapter_files, attached, trainable
from biaseval.spec import LoraSpec
from biaseval.training.batches import EncodedRow, step_batches
from biaseval.training.loss import RowLoss
from biaseval.training.optimization import DeepSpeedOptimization, Optimization, PlainOptimization
from biaseval.training.preparation import training_mode
from biaseval.training.schedule import learning_rate_at, n_steps_of, step_rows


@dataclass(frozen=True)
class StepRecord:
    """One row of the table ``training``, but for which adapter it is of."""

    step: int
    epoch: int
    loss: float
    """Before the step; nats."""
    grad_norm: float | None
    """Before clipping."""
    learning_rate: float
    seconds: float
    n_tokens: int | None = None
    """Of all texts of the step, where they are many."""
    eval_loss: float | None = None
    """Mean over the answer tokens of held-out conversations behind the step, in nats; where it was computed."""

    @property
    def is_finite(self) -> bool:
        """Whether loss and gradient were finite, so that the step was made."""
        return self.grad_norm is not None and math.isfinite(self.grad_norm)


@dataclass(frozen=True)
class TrainedAdapter:
    """What came of one adapter."""

    steps: list[StepRecord]
    files: dict[str, bytes] | None
    """By name, in the order in which to write them; None if loss or gradient was not finite at the last step."""


def train_adapter(
    model: PreTrainedModel,
    rows: Sequence[EncodedRow],
    lora: LoraSpec,
    *,
    device: torch.device,
    rank: int = 0,
    n_workers: int = 1,
) -> TrainedAdapter:
    """Train a fresh adapter on the model and take it off again; the model is as before.

    With several workers all of them call this with the same rows; each returns the same.

    Args:
        model: in the precision of ``lora`` (`preparation.set_precision`).
        rows: the training rows, in the order of their positions.
        lora: how to train.
        device: of this worker.
        rank: of this worker.
        n_workers: in the process group, which must be there for several, and with DeepSpeed for one.
    """
    with attached(model, lora, lora.seed) as adapted, training_mode(model, lora):
        loss = RowLoss(model, lora.precision, device)
        parameters = trainable(adapted)
        optimization: Optimization = (
            PlainOptimization(loss, parameters, lora)
            if lora.zero is None
            else DeepSpeedOptimization(loss, parameters, lora)
        )
        try:
            steps = list(_steps(optimization, rows, lora, rank, n_workers))
            files = None
            if steps[-1].is_finite:
                with optimization.gathered():
                    files = adapter_files(adapted)
        finally:
            optimization.close()
    return TrainedAdapter(steps, files)


def _steps(
    optimization: Optimization, rows: Sequence[EncodedRow], lora: LoraSpec, rank: int, n_workers: int
) -> Iterator[StepRecord]:
    """Make the steps, up to the first whose loss or gradient is not finite."""
    n_steps = n_steps_of(len(rows), lora)
    for step, (epoch, chosen) in enumerate(step_rows(len(rows), lora, lora.seed)):
        started = time.perf_counter()
        batches = step_batches([rows[number] for number in chosen], lora.batch_size, rank, n_workers)
        learning_rate = learning_rate_at(step, n_steps, lora)
        done = optimization.step(batches, learning_rate)
        record = StepRecord(step, epoch, done.loss, done.grad_norm, learning_rate, time.perf_counter() - started)
        yield record
        if not record.is_finite:
            return
