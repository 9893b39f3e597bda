"""Makes optimizer steps, in one process or several, with AdamW alone; `zero` makes them by DeepSpeed.

Several workers hold the same adapter or model and share the rows of each step (data parallelism); with ZeRO they also
share its optimizer state (1), gradients (2) and the weights of the whole model (3). The process group is there before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from biaseval.spec import TrainingSpec
from biaseval.training.loss_scale import LossScale, Step, loss_scale_of, step_of, steps_made

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_BETA1, _EPSILON = 0.9, 1e-8

_BUCKET = 1 << 26
"""Elements of gradients that go over the network in one message."""

MOMENTS = ("exp_avg", "exp_avg_sq")

State = dict[str, torch.Tensor]
"""What a step changes of a parameter, each tensor whole, in its shape and in float32: ``weight`` and Adam's ``exp_avg``
and ``exp_avg_sq``."""

Asked = Callable[["PreTrainedModel", Any, torch.device], torch.Tensor]
"""What a model is made to do with a batch, on a device."""


class Optimization:
    """Makes the steps of one adapter or model: AdamW on every worker; gradients are summed over the workers."""

    loss_scale: LossScale | None
    """Behind the last step; None where nothing is scaled."""

    def __init__(self, loss: torch.nn.Module, parameters: Sequence[torch.nn.Parameter], training: TrainingSpec) -> None:
        self._loss: Any = loss
        self._parameters = list(parameters)
        self._max_grad_norm = training.max_grad_norm
        self._optimizer: Any = adamw(parameters, training, fused=training.zero is None)
        self.loss_scale = loss_scale_of(training)

    def step(self, batches: Sequence[Any], learning_rate: float) -> Step:
        """Make one step of this worker's batches, whose losses over all workers sum to the step's.

        None is made if loss or gradient is not finite.
        """
        scale = 1.0 if self.loss_scale is None else self.loss_scale.value
        self._optimizer.zero_grad(set_to_none=True)
        losses = []
        for batch in batches:
            loss = self._loss(batch)
            (loss * scale).backward()
            losses.append(loss.detach())
        total = sum_over_workers(torch.stack(losses).sum())
        if not math.isfinite(total):
            return Step(total, None)
        self._sum_gradients()
        divide(self._parameters, scale)
        grad_norm = float(torch.nn.utils.clip_grad_norm_(self._parameters, self._max_grad_norm))
        if math.isfinite(grad_norm):
            set_learning_rate(self._optimizer, learning_rate)
            self._optimizer.step()
        return step_of(self.loss_scale, total, grad_norm)

    def evaluate(self, batches: Sequence[Any]) -> float:
        """Return the loss of batches that over all workers make one whole, without a step."""
        with torch.no_grad(), evaluating(self._loss):
            return sum_over_workers(torch.stack([self._loss(batch) for batch in batches]).sum())

    def ask(self, batch: Any, work: Asked) -> torch.Tensor:
        """Return what the model in eval mode makes of a batch, without a step; all workers ask at once."""
        with torch.no_grad(), evaluating(self._loss):
            answer: torch.Tensor = self._loss(batch, work)
        return answer

    @contextmanager
    def gathered(self, parameters: Sequence[torch.nn.Parameter] | None = None) -> Iterator[None]:
        """Have parameters, all trained ones if none are named, whole in every worker inside the block."""
        yield

    def state_of(self, parameter: torch.nn.Parameter) -> State:
        """Return the state of a trained parameter after a step; all workers ask for it at once."""
        weight = parameter.detach().float()
        own = self._optimizer.state.get(parameter)  # nothing of a parameter that no loss depends on
        return {"weight": weight, **{key: own[key].float() if own else torch.zeros_like(weight) for key in MOMENTS}}

    def restore(
        self, states: Iterator[tuple[torch.nn.Parameter, State]], n_steps: int, loss_scale: LossScale | None = None
    ) -> None:
        """Go on after step ``n_steps`` of another process, whose states these are, of every trained parameter."""
        self.loss_scale = loss_scale
        for parameter, state in states:
            plain_restore(parameter, state, steps_made(n_steps, loss_scale), self._optimizer)

    def close(self) -> None:
        """Leave nothing on the model."""
        self._optimizer.zero_grad(set_to_none=True)

    def _sum_gradients(self) -> None:
        if n_workers() == 1:
            return
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        # Few messages, not one for each of some hundred small matrices.
        for bucket in _buckets(gradients):
            flat = torch.cat([gradient.flatten() for gradient in bucket])
            dist.all_reduce(flat)
            sums = torch.split(flat, [gradient.numel() for gradient in bucket])
            for gradient, summed in zip(bucket, sums, strict=True):
                gradient.copy_(summed.view_as(gradient))


def adamw(
    parameters: Sequence[torch.nn.Parameter], training: TrainingSpec, *, fused: bool = False
) -> torch.optim.AdamW:
    """Return AdamW as a training asks for it."""
    return torch.optim.AdamW(
        parameters,
        lr=training.learning_rate,
        betas=(_BETA1, training.beta2),
        eps=_EPSILON,
        weight_decay=training.weight_decay,
        fused=fused,
    )


def divide(parameters: Sequence[torch.nn.Parameter], scale: float) -> None:
    """Take the scale out of gradients."""
    for parameter in parameters if scale != 1 else ():
        if parameter.grad is not None:
            parameter.grad.mul_(1 / scale)


def plain_restore(parameter: torch.nn.Parameter, state: State, n_steps: int, optimizer: torch.optim.Optimizer) -> None:
    """Set a parameter that is whole in this worker, and what Adam keeps of it."""
    parameter.data.copy_(state["weight"])
    moments = {key: torch.zeros_like(parameter).copy_(state[key]) for key in MOMENTS}
    # A fused kernel wants the number of steps where the parameter is, another one on the CPU.
    device = parameter.device if optimizer.param_groups[0].get("fused") else torch.device("cpu")
    optimizer.state[parameter] = {"step": torch.tensor(float(n_steps), device=device), **moments}


def n_elements(tensor: torch.Tensor) -> int:
    """Return the size of a tensor, of the whole where it is a parameter that is partitioned."""
    return int(getattr(tensor, "ds_numel", tensor.numel()))


def _buckets(gradients: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Yield the gradients in order, of one dtype and about as many elements as go into a message."""
    bucket: list[torch.Tensor] = []
    for gradient in gradients:
        n_held = sum(other.numel() for other in bucket)
        if bucket and (bucket[0].dtype != gradient.dtype or n_held + gradient.numel() > _BUCKET):
            yield bucket
            bucket = []
        bucket.append(gradient)
    if bucket:
        yield bucket


@contextmanager
def evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Have a module in eval mode inside the block."""
    module.eval()
    try:
        yield
    finally:
        module.train()


def set_learning_rate(optimizer: Any, learning_rate: float) -> None:
    """Set the learning rate of the next step."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate


def n_workers() -> int:
    """Return how many workers make each step together."""
    return dist.get_world_size() if dist.is_initialized() else 1


def sum_over_workers(value: torch.Tensor) -> float:
    """Return the sum of a number over all workers."""
    if n_workers() > 1:
        dist.all_reduce(value)
    return float(value)
