"""Prepares a model for training: loads it in its dtype, with its trained parameters and its optimizer."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from peft import PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from biaseval import models
from biaseval.errors import InputError
from biaseval.spec import TrainingSpec
from biaseval.training.objectives import Loss, Objective, Share
from biaseval.training.optimization import Optimization
from biaseval.training.recipe import Recipe
from biaseval.training.zero import DeepSpeedOptimization, partition

_PASS_TOKENS = 128
"""What a pass costs a CPU beside its tokens, in tokens: readers of 2 and 4 layers were fastest with 128 and 256, by
a few percent, where 32 to 512 were tried."""


@dataclass(frozen=True)
class Base:
    """A base model as one worker of a group holds it."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    device: torch.device
    share: Share
    """Which part of every step this worker computes."""


@dataclass(frozen=True)
class Prepared:
    """A model that is ready to be trained."""

    model: PreTrainedModel
    adapter: PeftModel | None
    """None where all parameters are trained."""
    trained: dict[str, torch.nn.Parameter]
    """The trained parameters by name, in the order of the model's modules."""
    optimization: Optimization


def load_base(recipe: Recipe, device: torch.device, rank: int = 0, n_workers: int = 1) -> Base:
    """Load a base model for training; all workers of a group call this at once.

    With ZeRO 3, one worker reads the weights, and each keeps its share of them: the whole model need not fit a device.
    The process group must exist for several workers, and with DeepSpeed also for one.

    Raises:
        InputError: the model cannot be used.
    """
    training = recipe.training
    dtype = recipe.weights_dtype
    # Below an adapter norms keep all that their files have.
    stored = None if recipe.adapter is not None and dtype == "bfloat16" else dtype
    if training.zero != 3:
        model = _loaded(recipe, models.Loading(stored, str(device)))
    elif rank == 0:
        model = _loaded(recipe, models.Loading(stored))
    else:
        unfilled = models.unfilled_model if recipe.task == "causal" else models.unfilled_reader
        model = unfilled(recipe.model, dtype)
    if recipe.adapter is not None:
        set_precision(model, training.precision)
    partition(model, training, device)
    load = models.load_tokenizer if recipe.task == "causal" else models.load_reader_tokenizer
    # Nobody has measured what a pass costs a GPU beside its tokens: far more of them, as it works on all at once.
    pass_tokens = _PASS_TOKENS if device.type == "cpu" and n_workers == 1 else None
    return Base(model, load(recipe.model), device, Share(training.batch_size, rank, n_workers, pass_tokens))


def _loaded(recipe: Recipe, loading: models.Loading) -> PreTrainedModel:
    """Return the base model; weights that the files of a reader lack are drawn at random, because it is trained."""
    if recipe.task == "causal":
        return models.load_model(recipe.model, loading)
    if recipe.is_new:
        return models.new_reader(recipe.model, loading, seed=recipe.seed)
    return models.load_extractive_model(recipe.model, loading, allow_untrained_head=True, seed=recipe.seed)


@contextmanager
def prepared(base: Base, recipe: Recipe, objective: Objective) -> Iterator[Prepared]:
    """Yield the model in training mode with its optimizer; workers of a group call this at once.

    After the block the model is without the adapter, as before. If all parameters are trained, they keep their new
    values.

    Raises:
        InputError: the model lacks a layer of ``lora.targets``, or the requested gradient checkpointing.
    """
    model = base.model
    with _subject(model, recipe) as adapter, _training_mode(model, recipe.training):
        trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        loss = Loss(model, objective, recipe.training.precision, base.device)
        if objective.layers is not None:
            # One dtype for all that is trained: ZeRO lays it out together.
            layers = objective.layers.to(base.device, models.torch_dtype(recipe.weights_dtype))
            trained |= {f"objective.{name}": parameter for name, parameter in layers.named_parameters()}
        parameters = list(trained.values())
        if recipe.training.zero is None:
            optimization = Optimization(loss, parameters, recipe.training)
        else:
            optimization = DeepSpeedOptimization(loss, parameters, recipe.training, base.device)
        try:
            yield Prepared(model, adapter, trained, optimization)
        finally:
            optimization.close()


@contextmanager
def _subject(model: PreTrainedModel, recipe: Recipe) -> Iterator[PeftModel | None]:
    """Yield the adapter that is trained in the block; None: all parameters are."""
    if recipe.adapter is not None:
        with models.attached(model, recipe.adapter, recipe.seed, in_float32=recipe.adapter_in_float32) as adapter:
            yield adapter
        return
    model.requires_grad_(True)
    try:
        yield None
    finally:
        model.requires_grad_(False)


@contextmanager
def _training_mode(model: PreTrainedModel, training: TrainingSpec) -> Iterator[None]:
    """Set the model to training mode in the block, and to eval mode after it; adapters come before.

    The model computes activations again in the backward pass where the spec asks for that.

    Raises:
        InputError: it cannot.
    """
    switches: Any = model  # transformers leaves these methods untyped
    if training.gradient_checkpointing and not model.supports_gradient_checkpointing:
        key = f"{training.SECTION}.gradient_checkpointing"
        raise InputError(f"{key}: {type(model).__name__} has none; set it to false")
    try:
        if training.gradient_checkpointing:
            switches.activation_checkpointing_enable({"use_reentrant": False})
            # Only the reentrant kind needs embeddings with a gradient; the hook would stay on the model.
            switches.disable_input_require_grads()
        switches.train()
        yield
    finally:
        if training.gradient_checkpointing:
            switches.activation_checkpointing_disable()
        switches.eval()


def set_precision(model: PreTrainedModel, precision: str) -> None:
    """Give the base model's parameters the dtypes that it is trained in (protocol section 8).

    ``bfloat16``: all in bfloat16 but those of norms, in float32. A layer is a norm if its name says so, as in P1's
    code. Buffers in float32, such as rotary frequencies, stay as they are. The model comes in the dtype of its files,
    so that norms lose nothing.
    """
    for name, module in model.named_modules():
        is_norm = "norm" in name.rpartition(".")[2]
        dtype = torch.float32 if precision == "float32" or is_norm else torch.bfloat16
        for parameter in module.parameters(recurse=False):
            parameter.data = parameter.data.to(dtype)
        for buffer in module.buffers(recurse=False):
            if buffer.dtype in (torch.float16, torch.bfloat16):
                buffer.data = buffer.data.to(dtype)
