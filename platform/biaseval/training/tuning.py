"""Tunes a model on conversations: its own parameters, or an adapter on it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from peft import PeftModel
from transformers import PreTrainedModel

from biaseval.models import new_adapter
from biaseval.spec import InstructSpec
from biaseval.training.loss import RowLoss
from biaseval.training.optimization import DeepSpeedOptimization, Optimization, PlainOptimization
from biaseval.training.packing import conversation_batches
from biaseval.training.preparation import checkpoint_activations
from biaseval.training.schedule import learning_rate_at, n_steps_of, step_rows
from biaseval.training.templates import EncodedConversation
from biaseval.training.trainer import StepRecord


@dataclass(frozen=True)
class Tuned:
    """A model that is ready to be tuned."""

    model: PreTrainedModel
    adapter: PeftModel | None
    """None where all parameters are trained."""
    trained: dict[str, torch.nn.Parameter]
    """What is trained, by name, in the order of the model's modules."""
    optimization: Optimization


def weights_dtype(spec: InstructSpec) -> str:
    """Return the numbers that the model is loaded in.

    All parameters are trained in float32, with forward and backward passes in bfloat16 where ``precision`` says so:
    bfloat16 alone would lose small updates. From stage 1 on, ZeRO keeps and updates float32 copies, and the model
    itself can be in bfloat16. So it can below an adapter, which is in float32.
    """
    keeps_copies = spec.lora is not None or (spec.training.zero or 0) > 0
    return spec.training.precision if keeps_copies else "float32"


def prepared(model: PreTrainedModel, spec: InstructSpec, device: torch.device) -> Tuned:
    """Return the model in training mode with what makes its steps; workers of a group call this at once.

    Args:
        model: in `weights_dtype`, below an adapter with norms in float32 (`preparation.set_precision`); with ZeRO 3
            partitioned (`optimization.partition`).
        spec: how to tune it.
        device: of this worker.

    Raises:
        InputError: the model lacks a layer of ``lora.targets``, or gradient checkpointing where that is asked for.
    """
    switches: Any = model  # transformers leaves these methods untyped
    adapter = None
    if spec.lora is None:
        model.requires_grad_(True)
    else:
        adapter = new_adapter(model, spec.lora, spec.seed, in_float32=True)
    checkpoint_activations(model, spec.training)
    switches.train()
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    loss = RowLoss(model, spec.training.precision, device)
    parameters = list(trained.values())
    optimization: Optimization = (
        PlainOptimization(loss, parameters, spec.training)
        if spec.training.zero is None
        else DeepSpeedOptimization(loss, parameters, spec.training)
    )
    return Tuned(model, adapter, trained, optimization)


def n_tuning_steps(n_conversations: int, spec: InstructSpec) -> int:
    """Return the optimizer steps of the whole training."""
    n_steps = n_steps_of(n_conversations, spec.training)
    return n_steps if spec.training.max_steps is None else min(n_steps, spec.training.max_steps)


def tuning_steps(
    optimization: Optimization,
    train: Sequence[EncodedConversation],
    held_out: Sequence[EncodedConversation],
    spec: InstructSpec,
    *,
    capacity: int | None,
    start: int = 0,
    rank: int = 0,
    n_workers: int = 1,
) -> Iterator[StepRecord]:
    """Make the steps, up to the first whose loss or gradient is not finite, and yield each.

    The loss of a step is the mean over all answer tokens of its conversations, however they are packed and whoever
    computes them. Behind the last step of an epoch the same mean is taken over the held-out conversations.

    Args:
        optimization: behind step ``start``.
        train: at least one.
        held_out: none, or those that ``eval_loss`` is of.
        spec: how to train.
        capacity: tokens of a packed row; None for a row for each conversation.
        start: steps that were made before.
        rank: of this worker.
        n_workers: that make each step together.
    """
    training = spec.training
    n_steps = n_tuning_steps(len(train), spec)
    share: dict[str, Any] = {"capacity": capacity, "rank": rank, "n_workers": n_workers}
    planned = list(step_rows(len(train), training, spec.seed))[:n_steps]
    for step, (epoch, chosen) in enumerate(planned):
        if step < start:
            continue
        started = time.perf_counter()
        # What dropout drops depends on the step alone, not on what came before: a resumed training drops the same.
        torch.manual_seed(int(np.random.SeedSequence([spec.seed, step, rank]).generate_state(1)[0]))
        conversations = [train[number] for number in chosen]
        batches = conversation_batches(conversations, training.batch_size, **share)
        learning_rate = learning_rate_at(step, n_steps, training, training.schedule)
        done = optimization.step(batches, learning_rate)
        is_last_of_epoch = step == n_steps - 1 or planned[step + 1][0] != epoch
        eval_loss = None
        if is_last_of_epoch and held_out and done.grad_norm is not None:
            eval_loss = _mean_loss(optimization, held_out, training.batch_size * training.accumulation, spec, share)
        record = StepRecord(
            step=step,
            epoch=epoch,
            loss=done.loss,
            grad_norm=done.grad_norm,
            learning_rate=learning_rate,
            seconds=time.perf_counter() - started,
            n_tokens=sum(len(one.token_ids) for one in conversations),
            eval_loss=eval_loss,
        )
        yield record
        if not record.is_finite:
            return


def _mean_loss(
    optimization: Optimization,
    conversations: Sequence[EncodedConversation],
    at_once: int,
    spec: InstructSpec,
    share: dict[str, Any],
) -> float:
    """Return the mean over all answer tokens, of as many conversations at once as a step has."""
    total = n_tokens = 0.0
    for start in range(0, len(conversations), at_once):
        part = conversations[start : start + at_once]
        n_own = sum(int(one.is_answer.sum()) for one in part)
        total += n_own * optimization.evaluate(conversation_batches(part, spec.training.batch_size, **share))
        n_tokens += n_own
    return total / n_tokens
