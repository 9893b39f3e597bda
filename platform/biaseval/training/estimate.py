"""What training costs, from shapes alone: memory of one worker, time, and how many GPUs a model needs. All about."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from biaseval.spec import TrainingSpec
from biaseval.training.deepspeed_config import offloaded_parts
from biaseval.training.recipe import Recipe

GPU_GIB = 80
"""Of the GPU that needs are counted in."""

_USABLE = 0.9
"""Of a GPU's memory; the rest goes to the driver, buffers and fragments."""

_LAYER_BYTES = 34
"""Activations that one layer keeps for its backward pass, for each token and hidden unit, in 16-bit precision and with
fused attention (Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models", equation 2,
without the part of the attention matrix)."""


@dataclass(frozen=True)
class ModelShape:
    """What counts of a model."""

    name: str
    n_parameters: int
    hidden_size: int
    n_layers: int
    targets: Sequence[tuple[int, int]]
    """Inputs and outputs of each layer that an adapter changes; none where all parameters are trained."""

    @classmethod
    def of(cls, facts: Mapping[str, Any], targets: Sequence[tuple[int, int]]) -> ModelShape:
        """Return the shape of a model by its facts (`biaseval.models.ModelFacts`) and its targets."""
        return cls(facts["family"], facts["n_parameters"], facts["hidden_size"], facts["n_layers"], targets)

    def n_trained(self, recipe: Recipe) -> int:
        """Return the parameters that are trained."""
        if recipe.adapter is None:
            return self.n_parameters
        # Two matrices a layer, [r, inputs] and [outputs, r].
        return recipe.adapter.r * sum(n_in + n_out for n_in, n_out in self.targets)


def _llama(hidden: int, inner: int, n_layers: int, vocabulary: int) -> list[tuple[int, int]]:
    layer = [(hidden, hidden)] * 4 + [(hidden, inner)] * 2 + [(inner, hidden)]
    return layer * n_layers + [(hidden, vocabulary)]


def _falcon(hidden: int, query_key_value: int, n_layers: int, vocabulary: int) -> list[tuple[int, int]]:
    layer = [(hidden, query_key_value), (hidden, hidden), (hidden, 4 * hidden), (4 * hidden, hidden)]
    return layer * n_layers + [(hidden, vocabulary)]


PUBLISHED_SHAPES = (
    ModelShape("7B (Llama-2)", 6_738_415_616, 4096, 32, _llama(4096, 11008, 32, 32000)),
    ModelShape("13B (Llama-2)", 13_015_864_320, 5120, 40, _llama(5120, 13824, 40, 32000)),
    ModelShape("40B (Falcon)", 41_303_293_952, 8192, 60, _falcon(8192, 9216, 60, 65024)),
)
"""Models of P1, with every linear layer as a target."""


@dataclass(frozen=True)
class Memory:
    """Bytes that one worker needs while it trains."""

    weights: int
    """Of the base model."""
    adapter: int
    gradients: int
    optimizer: int
    activations: int
    offloaded: int = 0
    """Of weights and optimizer state, in the memory of the machine instead."""

    @property
    def total(self) -> int:
        """All of them on the worker's device."""
        return self.weights + self.adapter + self.gradients + self.optimizer + self.activations


@dataclass(frozen=True)
class TrainingCost:
    """What training is going to cost, about."""

    flops: int
    row_tokens: int
    """Of the longest row."""
    shapes: list[ModelShape]
    """The spec's model, then those of P1."""
    n_trainable: list[int]
    """Parameters that are trained, for each shape."""
    memory: list[dict[str, Memory]]
    """Of one worker, by ZeRO stage, for each shape."""
    gpus: list[int]
    """Needed for each shape; 0 where none will do."""


def cost_of(shapes: list[ModelShape], recipe: Recipe, *, row_tokens: int, flops: int) -> TrainingCost:
    """Return what models of these shapes need.

    Args:
        shapes: of the models.
        recipe: how they are trained.
        row_tokens: of the longest row, as it goes through a model.
        flops: of all training together.

    Raises:
        InputError: the DeepSpeed file cannot be read.
    """
    stages = {"none": None, "1": 1, "2": 2, "3": 3}
    offloaded = offloaded_parts(recipe.training)

    def memory(of: ModelShape, zero: int | None, n_workers: int) -> Memory:
        return memory_of(of, recipe, row_tokens, zero, n_workers, offloaded.get(zero or 0, ()))

    return TrainingCost(
        flops=flops,
        row_tokens=row_tokens,
        shapes=shapes,
        n_trainable=[each.n_trained(recipe) for each in shapes],
        memory=[
            {name: memory(each, zero, recipe.training.workers) for name, zero in stages.items()} for each in shapes
        ],
        gpus=[fewest_gpus(partial(memory, each)) for each in shapes],
    )


def memory_of(
    shape: ModelShape, recipe: Recipe, n_tokens: int, zero: int | None, n_workers: int, offloaded: Collection[str] = ()
) -> Memory:
    """Return the memory of one of ``n_workers`` workers.

    Each ZeRO stage shares one thing more among the workers: optimizer state (1), gradients (2), weights (3).

    Under an adapter the model is in ``precision``; few-shot adapters are too, others in float32. Adam keeps two values
    per parameter, in the dtype of the parameters. From stage 1 on, ZeRO keeps them, and a copy of the trained
    parameters, in float32. With all parameters trained, the model itself is then in ``precision`` instead of float32,
    and so are its gradients at stage 1; from stage 2 on DeepSpeed sums them in float32.

    Args:
        shape: of the model.
        recipe: how it is trained.
        n_tokens: of the longest row.
        zero: the ZeRO stage, or None for no DeepSpeed.
        n_workers: at least 1.
        offloaded: any of ``optimizer``, ``gradients`` and ``weights``, which DeepSpeed keeps in host memory.
    """
    stage = zero or 0
    width = 4 if recipe.training.precision == "float32" else 2
    n_trained = shape.n_trained(recipe)
    has_adapter = recipe.adapter is not None
    base = width if has_adapter or stage else 4
    own = (4 if recipe.adapter_in_float32 else width) if has_adapter else base
    summed = 4 if stage > 1 and recipe.adapter_in_float32 else own

    def share(n_bytes: int, from_stage: int) -> int:
        return n_bytes // n_workers if stage >= from_stage else n_bytes

    memory = Memory(
        weights=share(shape.n_parameters * base, 3),
        adapter=share(n_trained * own, 3) if has_adapter else 0,
        gradients=share(n_trained * summed, 2),
        optimizer=share(n_trained * (12 if stage else 2 * own), 1),
        activations=_activations(shape, recipe.training, n_tokens),
    )
    away = {name: getattr(memory, name) for name in offloaded}
    return replace(memory, **dict.fromkeys(away, 0), offloaded=sum(away.values()))


def fewest_gpus(memory: Callable[[int | None, int], Memory]) -> int:
    """Return how many GPUs of 80 GiB are enough: one, or a power of two up to 64 with ZeRO 3; 0 if none are.

    GPUs that are a power of two share a step of the published size evenly. With ZeRO 3 one can be enough where it
    offloads; with none the activations alone are too much for one GPU. ``memory`` is that of one worker, by ZeRO stage
    and number of workers.
    """
    usable = int(_USABLE * GPU_GIB * 2**30)
    if memory(None, 1).total <= usable:
        return 1
    return next((n_gpus for n_gpus in (1, 2, 4, 8, 16, 32, 64) if memory(3, n_gpus).total <= usable), 0)


def training_flops(n_parameters: int, n_tokens: int, recipe: Recipe) -> int:
    """Return the floating-point operations of training a base model on the tokens of all steps together.

    Two for each parameter and token forward, and two backward, which passes the gradient on; two more for the gradients
    of weights, which frozen ones do not need; and two more for computing activations again under gradient
    checkpointing.
    """
    passes = 4 + 2 * (recipe.adapter is None) + 2 * recipe.training.gradient_checkpointing
    return passes * n_parameters * n_tokens


def _activations(shape: ModelShape, training: TrainingSpec, n_tokens: int) -> int:
    width = 4 if training.precision == "float32" else 2
    unit = training.batch_size * n_tokens * shape.hidden_size
    layer = _LAYER_BYTES * unit * width // 2
    # With checkpointing, each layer keeps its input, and one at a time all that it computes.
    return shape.n_layers * unit * width + layer if training.gradient_checkpointing else shape.n_layers * layer
