"""What training costs, from shapes alone: memory of one worker, time, and how many GPUs a model needs. All about."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from biaseval.spec import InstructSpec, LoraSpec, TrainingSpec

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
    """Inputs and outputs of each layer that the adapter changes."""

    def n_trainable(self, r: int) -> int:
        """Return the parameters of an adapter of rank ``r``."""
        return n_trainable(self.targets, r)


def n_trainable(targets: Sequence[tuple[int, int]], r: int) -> int:
    """Return the parameters of an adapter of rank ``r``: two matrices a layer, ``[r, inputs]`` and ``[outputs, r]``."""
    return r * sum(n_in + n_out for n_in, n_out in targets)


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


def memory_of(shape: ModelShape, lora: LoraSpec, n_tokens: int, zero: int | None, n_workers: int) -> Memory:
    """Return the memory of one of ``n_workers`` workers.

    Without DeepSpeed, and at stage 0, Adam keeps two values a parameter in the adapter's precision; from stage 1 on,
    ZeRO keeps them and a copy of the adapter in float32. Each stage shares one thing more among the workers: optimizer
    state (1), gradients (2), weights (3).

    Args:
        shape: of the model.
        lora: rank, precision, batch size and gradient checkpointing.
        n_tokens: of the longest training row.
        zero: the ZeRO stage, or None for no DeepSpeed.
        n_workers: at least 1.
    """
    stage = zero or 0
    width = 4 if lora.precision == "float32" else 2
    n_trainable = shape.n_trainable(lora.r)

    def share(n_bytes: int, from_stage: int) -> int:
        return n_bytes // n_workers if stage >= from_stage else n_bytes

    return Memory(
        weights=share(shape.n_parameters * width, 3),
        adapter=share(n_trainable * width, 3),
        gradients=share(n_trainable * width, 2),
        optimizer=share(n_trainable * (12 if stage else 2 * width), 1),
        activations=_activations(shape, lora, n_tokens),
    )


def tuning_memory(
    shape: ModelShape,
    spec: InstructSpec,
    n_tokens: int,
    zero: int | None,
    n_workers: int,
    offloaded: Collection[str] = (),
) -> Memory:
    """Return the memory of one of ``n_workers`` workers that tune a model, or an adapter on it.

    All that is trained has weights, gradients and Adam's two values in float32. From stage 1 on, ZeRO keeps a copy in
    float32; the parameters themselves, where all are trained, are then in ``precision``, and their gradients too at
    stage 1: from stage 2 on DeepSpeed sums them in float32. Below an adapter the model is in ``precision`` always.

    Args:
        shape: of the model.
        spec: adapter, precision, batch size and gradient checkpointing.
        n_tokens: of a row.
        zero: the ZeRO stage, or None for no DeepSpeed.
        n_workers: at least 1.
        offloaded: any of ``optimizer``, ``gradients`` and ``weights``: what DeepSpeed keeps in the machine's memory.
    """
    stage = zero or 0
    width = 4 if spec.training.precision == "float32" else 2
    n_trained = shape.n_parameters if spec.lora is None else shape.n_trainable(spec.lora.r)
    base = width if spec.lora is not None or stage else 4
    own = 4 if spec.lora is not None else base

    def share(n_bytes: int, from_stage: int) -> int:
        return n_bytes // n_workers if stage >= from_stage else n_bytes

    memory = Memory(
        weights=share(shape.n_parameters * base, 3),
        adapter=0 if spec.lora is None else share(n_trained * own, 3),
        gradients=share(n_trained * (4 if stage > 1 else own), 2),
        optimizer=share(n_trained * (12 if stage else 8), 1),
        activations=_activations(shape, spec.training, n_tokens),
    )
    away = {name: getattr(memory, name) for name in offloaded}
    return replace(memory, **dict.fromkeys(away, 0), offloaded=sum(away.values()))


def gpus_needed(shape: ModelShape, lora: LoraSpec, n_tokens: int) -> int:
    """Return the fewest GPUs of 80 GiB that one adapter can be trained on: one, or several with ZeRO 3.

    The number is a power of two, so that GPUs share a step of the published size evenly. 0 stands for none that do: the
    activations alone are too much for one GPU.
    """
    return fewest_gpus(lambda zero, n_workers: memory_of(shape, lora, n_tokens, zero, n_workers))


def fewest_gpus(memory: Callable[[int | None, int], Memory]) -> int:
    """Return how many GPUs of 80 GiB are enough: one, or a power of two up to 64 with ZeRO 3; 0 if none are.

    With ZeRO 3 one can be enough where it offloads.

    Args:
        memory: of one worker, by ZeRO stage and number of workers.
    """
    usable = int(_USABLE * GPU_GIB * 2**30)
    if memory(None, 1).total <= usable:
        return 1
    return next((n_gpus for n_gpus in (1, 2, 4, 8, 16, 32, 64) if memory(3, n_gpus).total <= usable), 0)


def training_flops(n_parameters: int, n_tokens: int, lora: LoraSpec) -> int:
    """Return the floating-point operations of training.

    Two for each parameter and token forward, and two backward, which passes the gradient on through frozen weights and
    needs none of theirs; two more for computing activations again under gradient checkpointing.

    Args:
        n_parameters: of the base model.
        n_tokens: of all training rows of all adapters, each once.
        lora: epochs and gradient checkpointing.
    """
    return (6 if lora.gradient_checkpointing else 4) * n_parameters * n_tokens * lora.epochs


def tuning_flops(n_parameters: int, n_tokens: int, spec: InstructSpec) -> int:
    """Return the floating-point operations of tuning: those of `training_flops`, and two more for gradients of weights.

    Args:
        n_parameters: of the model.
        n_tokens: of all steps together.
        spec: adapter and gradient checkpointing.
    """
    passes = 4 + 2 * (spec.lora is None) + 2 * spec.training.gradient_checkpointing
    return passes * n_parameters * n_tokens


def _activations(shape: ModelShape, training: TrainingSpec, n_tokens: int) -> int:
    width = 4 if training.precision == "float32" else 2
    unit = training.batch_size * n_tokens * shape.hidden_size
    layer = _LAYER_BYTES * unit * width // 2
    # With checkpointing, each layer keeps its input, and one at a time all that it computes.
    return shape.n_layers * unit * width + layer if training.gradient_checkpointing else shape.n_layers * layer
