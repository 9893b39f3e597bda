"""Readies a model to be trained: in which numbers, in training mode, with activations kept or computed again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import PreTrainedModel

from biaseval.errors import InputError
from biaseval.spec import TrainingSpec


def set_precision(model: PreTrainedModel, precision: str) -> None:
    """Give the base model's parameters the dtypes that it is trained in (protocol section 8).

    ``bfloat16``: all in bfloat16 but those of norms, in float32. A layer is a norm if its name says so, as in P1's
    code. Buffers in float32, such as rotary frequencies, stay as they are.

    Args:
        model: in the dtype of its files, so that norms lose nothing.
        precision: ``float32`` or ``bfloat16``.
    """
    for name, module in model.named_modules():
        is_norm = "norm" in name.rpartition(".")[2]
        dtype = torch.float32 if precision == "float32" or is_norm else torch.bfloat16
        for parameter in module.parameters(recurse=False):
            parameter.data = parameter.data.to(dtype)
        for buffer in module.buffers(recurse=False):
            if buffer.dtype in (torch.float16, torch.bfloat16):
                buffer.data = buffer.data.to(dtype)


def checkpoint_activations(model: PreTrainedModel, training: TrainingSpec) -> None:
    """Let the model compute activations again in the backward pass, where the spec asks for that; adapters come before.

    Raises:
        InputError: it cannot.
    """
    if not training.gradient_checkpointing:
        return
    if not model.supports_gradient_checkpointing:
        key = f"{training.SECTION}.gradient_checkpointing"
        raise InputError(f"{key}: {type(model).__name__} has none; set it to false")
    switches: Any = model  # transformers leaves these methods untyped
    switches.activation_checkpointing_enable({"use_reentrant": False})
    # Only the reentrant kind needs embeddings with a gradient; the hook would stay on the model.
    switches.disable_input_require_grads()


@contextmanager
def training_mode(model: PreTrainedModel, training: TrainingSpec) -> Iterator[None]:
    """Have the model train in the block, with `checkpoint_activations`; behind it the model is in eval mode.

    Raises:
        InputError: gradient checkpointing is asked for and the model has none.
    """
    switches: Any = model  # transformers leaves these methods untyped
    try:
        checkpoint_activations(model, training)
        switches.train()
        yield
    finally:
        if training.gradient_checkpointing and model.supports_gradient_checkpointing:
            switches.activation_checkpointing_disable()
        switches.eval()
