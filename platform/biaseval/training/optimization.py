"""Makes optimizer steps, in one process or several: plainly, or by DeepSpeed.

Several workers hold the same adapter and share the rows of each step (data parallelism); with ZeRO they also share its
optimizer state (1), gradients (2) and the weights of the whole model (3). The process group is there before.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist
from transformers import PreTrainedModel

from biaseval.spec import LoraSpec
from biaseval.training.batches import Batch
from biaseval.training.deepspeed_config import deepspeed_config
from biaseval.training.loss import RowLoss

_BETA1, _EPSILON = 0.9, 1e-8


@dataclass(frozen=True)
class Step:
    """What one optimizer step saw; the same in all workers."""

    loss: float
    """Mean over the step's rows before the step, in nats."""
    grad_norm: float | None
    """Of the adapter's whole gradient before clipping; None if the loss was not finite, so that no step was made."""


class Optimization(Protocol):
    """Makes the steps of one adapter."""

    def step(self, batches: Sequence[Batch], learning_rate: float) -> Step:
        """Make one step of this worker's batches, whose losses over all workers sum to the step's."""

    def gathered(self) -> Any:
        """Return a context in which the adapter's parameters are whole in every worker."""

    def close(self) -> None:
        """Leave nothing on the model."""


class PlainOptimization:
    """AdamW on every worker; gradients are summed over the workers."""

    def __init__(self, loss: RowLoss, parameters: Sequence[torch.nn.Parameter], lora: LoraSpec) -> None:
        self._loss = loss
        self._parameters = list(parameters)
        self._max_grad_norm = lora.max_grad_norm
        self._optimizer = _adamw(parameters, lora)

    def step(self, batches: Sequence[Batch], learning_rate: float) -> Step:
        """Make one step; none if loss or gradient is not finite."""
        self._optimizer.zero_grad(set_to_none=True)
        losses = []
        for batch in batches:
            loss = self._loss(batch)
            loss.backward()
            losses.append(loss.detach())
        total = _sum_over_workers(torch.stack(losses).sum())
        if not math.isfinite(total):
            return Step(total, None)
        self._sum_gradients()
        grad_norm = float(torch.nn.utils.clip_grad_norm_(self._parameters, self._max_grad_norm))
        if math.isfinite(grad_norm):
            _set_learning_rate(self._optimizer, learning_rate)
            self._optimizer.step()
        return Step(total, grad_norm)

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Parameters are whole at all times."""
        yield

    def close(self) -> None:
        """Drop the gradients."""
        self._optimizer.zero_grad(set_to_none=True)

    def _sum_gradients(self) -> None:
        if _n_workers() == 1:
            return
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        # One message, not one for each of some hundred small matrices.
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        sums = torch.split(flat, [gradient.numel() for gradient in gradients])
        for gradient, summed in zip(gradients, sums, strict=True):
            gradient.copy_(summed.view_as(gradient))


class DeepSpeedOptimization:
    """AdamW under DeepSpeed, at the ZeRO stage of the spec."""

    def __init__(self, loss: RowLoss, parameters: Sequence[torch.nn.Parameter], lora: LoraSpec) -> None:
        deepspeed = _deepspeed()
        self._is_partitioned = lora.zero == 3
        self._parameters = list(parameters)
        self._n_workers = _n_workers()
        self._engine, self._optimizer, _, _ = deepspeed.initialize(
            model=loss,
            optimizer=_adamw(parameters, lora),
            config=deepspeed_config(lora, sum(parameter.numel() for parameter in parameters)),
            dist_init_required=False,
        )

    def step(self, batches: Sequence[Batch], learning_rate: float) -> Step:
        """Make one step; none if the loss is not finite."""
        losses = []
        for number, batch in enumerate(batches):
            self._engine.set_gradient_accumulation_boundary(number == len(batches) - 1)
            loss = self._engine(batch)
            losses.append(loss.detach())
            # DeepSpeed takes the mean over workers, and these losses are to be summed.
            self._engine.backward(loss * self._n_workers, scale_wrt_gas=False)
        total = _sum_over_workers(torch.stack(losses).sum())
        if not math.isfinite(total):
            return Step(total, None)
        _set_learning_rate(self._optimizer, learning_rate)
        self._engine.step()
        return Step(total, float(self._engine.get_global_grad_norm()))

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Gather the adapter's parameters where they are partitioned."""
        import deepspeed

        with deepspeed.zero.GatheredParameters(self._parameters, enabled=self._is_partitioned):
            yield

    def close(self) -> None:
        """Take DeepSpeed's hooks off the model; a partitioned base model stays so, for the next adapter."""
        self._engine.destroy()
        # The engine and its optimizer refer to each other: their buffers, some GiB for a large model, would wait for
        # Python's next look while the next adapter asks for its own.
        del self._engine, self._optimizer
        gc.collect()


def partition(model: PreTrainedModel, lora: LoraSpec, device: torch.device) -> None:
    """Leave each worker its share of the base model, on its device, where the ZeRO stage is 3; done once.

    Weight by weight: the whole model need not fit a device. DeepSpeed itself would move it there first.

    Args:
        model: whole, in the memory of the machine; that is needed for every worker.
        lora: says which stage.
        device: of this worker.
    """
    if lora.zero != 3:
        return
    deepspeed = _deepspeed()
    # It must know of the process group first, or would take this worker for the only one.
    deepspeed.init_distributed(auto_mpi_discovery=False, dist_init_required=False, verbose=False)
    deepspeed.zero.Init(module=model, config_dict_or_path=deepspeed_config(lora, 1))
    for buffer in model.buffers():
        buffer.data = buffer.data.to(device)


def _deepspeed() -> Any:
    """Return DeepSpeed, set to compile nothing.

    On the CPU it would compile an all-reduce through shared memory at first use, which needs a compiler; a process that
    is killed meanwhile leaves a lock for which all later ones wait without end. The process group does the same.
    """
    import deepspeed
    import deepspeed.ops

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed


def _adamw(parameters: Sequence[torch.nn.Parameter], lora: LoraSpec) -> torch.optim.AdamW:
    return torch.optim.AdamW(
        parameters,
        lr=lora.learning_rate,
        betas=(_BETA1, lora.beta2),
        eps=_EPSILON,
        weight_decay=lora.weight_decay,
    )


def _set_learning_rate(optimizer: Any, learning_rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = learning_rate


def _n_workers() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def _sum_over_workers(value: torch.Tensor) -> float:
    if _n_workers() > 1:
        dist.all_reduce(value)
    return float(value)
