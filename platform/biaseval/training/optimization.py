"""Makes optimizer steps, in one process or several: plainly, or by DeepSpeed.

Several workers hold the same adapter or model and share the rows of each step (data parallelism); with ZeRO they also
share its optimizer state (1), gradients (2) and the weights of the whole model (3). The process group is there before.
"""

from __future__ import annotations

import gc
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.distributed as dist

from biaseval.spec import TrainingSpec
from biaseval.training.deepspeed_config import deepspeed_config

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_BETA1, _EPSILON = 0.9, 1e-8

_BUCKET = 1 << 26
"""Elements of gradients that go over the network in one message."""

_MOMENTS = ("exp_avg", "exp_avg_sq")

_GROWTH_STEPS, _MOST_SKIPPED = 2000, 20
"""Steps in a row behind which a loss is scaled by more, as torch's GradScaler does; and those that end a training where
none of them was made."""

State = dict[str, torch.Tensor]
"""What a step changes of a parameter, each tensor whole, in its shape and in float32: ``weight`` and Adam's ``exp_avg``
and ``exp_avg_sq``."""

Asked = Callable[["PreTrainedModel", Any, torch.device], torch.Tensor]
"""What a model is made to do with a batch, on a device."""


@dataclass(frozen=True)
class Step:
    """What one optimizer step saw; the same in all workers."""

    loss: float
    """Mean over the step's rows before the step, in nats."""
    grad_norm: float | None
    """Of the whole gradient before clipping; None if the loss was not finite, so that no step was made."""
    is_skipped: bool = False
    """The scaled gradient was too large for float16, so that no step was made, and the next one is worth trying;
    ``grad_norm`` is infinite."""


@dataclass
class LossScale:
    """What losses are multiplied by in float16, so that small gradients are not lost: as torch's GradScaler does it.

    It halves where a gradient overflows, and doubles behind 2,000 steps in a row without that.
    """

    value: float = 2.0**16
    n_made: int = 0
    """Steps in a row, since the value last changed."""
    n_skipped: int = 0
    """Steps of all."""
    n_skipped_now: int = 0
    """In a row."""

    def step(self, loss: float, grad_norm: float) -> Step:
        """Hear of a step's unscaled gradient, and return the step, which is made if the norm is finite."""
        if math.isfinite(grad_norm):
            self.n_made, self.n_skipped_now = self.n_made + 1, 0
            if self.n_made == _GROWTH_STEPS:
                self.value, self.n_made = 2 * self.value, 0
            return Step(loss, grad_norm)
        self.value, self.n_made = self.value / 2, 0
        self.n_skipped, self.n_skipped_now = self.n_skipped + 1, self.n_skipped_now + 1
        return Step(loss, math.inf, is_skipped=self.n_skipped_now < _MOST_SKIPPED)


class Optimization(Protocol):
    """Makes the steps of one adapter or model."""

    loss_scale: LossScale | None
    """Behind the last step; None where nothing is scaled."""

    def step(self, batches: Sequence[Any], learning_rate: float) -> Step:
        """Make one step of this worker's batches, whose losses over all workers sum to the step's."""

    def evaluate(self, batches: Sequence[Any]) -> float:
        """Return the loss of batches that over all workers make one whole, without a step."""

    def ask(self, batch: Any, work: Asked) -> torch.Tensor:
        """Return what the model in eval mode makes of a batch, without a step; all workers ask at once."""

    def gathered(self, parameters: Sequence[torch.nn.Parameter] | None = None) -> Any:
        """Return a context in which parameters, all trained ones if none are named, are whole in every worker."""

    def state_of(self, parameter: torch.nn.Parameter) -> State:
        """Return the state of a trained parameter behind a step; all workers ask for it at once."""

    def restore(
        self, states: Iterator[tuple[torch.nn.Parameter, State]], n_steps: int, loss_scale: LossScale | None = None
    ) -> None:
        """Go on behind step ``n_steps`` of another process, whose states these are, of every trained parameter."""

    def close(self) -> None:
        """Leave nothing on the model."""


def optimization_of(
    loss: torch.nn.Module, parameters: Sequence[torch.nn.Parameter], training: TrainingSpec, device: torch.device
) -> Optimization:
    """Return what makes the steps: DeepSpeed where the spec names a ZeRO stage.

    Args:
        loss: returns the weighted loss of a batch.
        parameters: that are trained.
        training: the spec's section.
        device: of this worker.
    """
    if training.zero is None:
        return PlainOptimization(loss, parameters, training)
    return DeepSpeedOptimization(loss, parameters, training, device)


class PlainOptimization:
    """AdamW on every worker; gradients are summed over the workers."""

    def __init__(self, loss: torch.nn.Module, parameters: Sequence[torch.nn.Parameter], training: TrainingSpec) -> None:
        self._loss = loss
        self._parameters = list(parameters)
        self._max_grad_norm = training.max_grad_norm
        self._optimizer = _adamw(parameters, training, fused=True)
        self.loss_scale = _loss_scale(training)

    def step(self, batches: Sequence[Any], learning_rate: float) -> Step:
        """Make one step; none if loss or gradient is not finite."""
        scale = 1.0 if self.loss_scale is None else self.loss_scale.value
        self._optimizer.zero_grad(set_to_none=True)
        losses = []
        for batch in batches:
            loss = self._loss(batch)
            (loss * scale).backward()
            losses.append(loss.detach())
        total = _sum_over_workers(torch.stack(losses).sum())
        if not math.isfinite(total):
            return Step(total, None)
        self._sum_gradients()
        _divide(self._parameters, scale)
        grad_norm = float(torch.nn.utils.clip_grad_norm_(self._parameters, self._max_grad_norm))
        if math.isfinite(grad_norm):
            _set_learning_rate(self._optimizer, learning_rate)
            self._optimizer.step()
        return _heard(self.loss_scale, total, grad_norm)

    def evaluate(self, batches: Sequence[Any]) -> float:
        """Return the loss, without gradients."""
        with torch.no_grad(), _evaluating(self._loss):
            return _sum_over_workers(torch.stack([self._loss(batch) for batch in batches]).sum())

    def ask(self, batch: Any, work: Asked) -> torch.Tensor:
        """Return what the model makes of a batch, without gradients."""
        with torch.no_grad(), _evaluating(self._loss):
            answer: torch.Tensor = self._loss(batch, work)
        return answer

    @contextmanager
    def gathered(self, parameters: Sequence[torch.nn.Parameter] | None = None) -> Iterator[None]:
        """Parameters are whole at all times."""
        yield

    def state_of(self, parameter: torch.nn.Parameter) -> State:
        """Return the parameter and what Adam keeps of it."""
        return _state(parameter, self._optimizer)

    def restore(
        self, states: Iterator[tuple[torch.nn.Parameter, State]], n_steps: int, loss_scale: LossScale | None = None
    ) -> None:
        """Set parameters, what Adam keeps, and the scale."""
        self.loss_scale = loss_scale
        for parameter, state in states:
            _restore(parameter, state, _n_made(n_steps, loss_scale), self._optimizer)

    def close(self) -> None:
        """Drop the gradients."""
        self._optimizer.zero_grad(set_to_none=True)

    def _sum_gradients(self) -> None:
        if _n_workers() == 1:
            return
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        # Few messages, not one for each of some hundred small matrices.
        for bucket in _buckets(gradients):
            flat = torch.cat([gradient.flatten() for gradient in bucket])
            dist.all_reduce(flat)
            sums = torch.split(flat, [gradient.numel() for gradient in bucket])
            for gradient, summed in zip(bucket, sums, strict=True):
                gradient.copy_(summed.view_as(gradient))


class DeepSpeedOptimization:
    """AdamW under DeepSpeed, at the ZeRO stage of the spec."""

    def __init__(
        self,
        loss: torch.nn.Module,
        parameters: Sequence[torch.nn.Parameter],
        training: TrainingSpec,
        device: torch.device,
    ) -> None:
        deepspeed = _deepspeed(device)
        self._stage = training.zero or 0
        self._parameters = list(parameters)
        self._n_workers = _n_workers()
        self._has_moments = False
        self.loss_scale = _loss_scale(training)
        self._engine, self._optimizer, _, _ = deepspeed.initialize(
            model=loss,
            optimizer=_adamw(parameters, training),
            config=deepspeed_config(training, sum(map(n_elements, parameters))),
            dist_init_required=False,
        )

    def step(self, batches: Sequence[Any], learning_rate: float) -> Step:
        """Make one step; none if the loss is not finite, nor in float16 or at stage 0 if the gradient is not."""
        scale = 1.0 if self.loss_scale is None else self.loss_scale.value
        if self._stage > 0 and self.loss_scale is not None:
            self._optimizer.loss_scale = scale
        # What ZeRO does not scale itself. DeepSpeed takes the mean over workers, and these losses are to be summed.
        factor = self._n_workers * (scale if self._stage == 0 else 1)
        losses = []
        for number, batch in enumerate(batches):
            self._engine.set_gradient_accumulation_boundary(number == len(batches) - 1)
            loss = self._engine(batch)
            losses.append(loss.detach())
            self._engine.backward(loss * factor, scale_wrt_gas=False)
        total = _sum_over_workers(torch.stack(losses).sum())
        if not math.isfinite(total):
            return Step(total, None)
        _set_learning_rate(self._optimizer, learning_rate)
        if self._stage == 0:
            # DeepSpeed tells the norm of no gradient that it does not keep itself; all are summed by now.
            _divide(self._parameters, scale)
            gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
            grad_norm = float(torch.nn.utils.get_total_norm(gradients))
            if math.isfinite(grad_norm):
                self._engine.step()
            else:
                self._engine.zero_grad()
            return _heard(self.loss_scale, total, grad_norm)
        self._engine.step()
        self._has_moments |= not self._optimizer.overflow
        return _heard(self.loss_scale, total, float(self._engine.get_global_grad_norm()))

    def evaluate(self, batches: Sequence[Any]) -> float:
        """Return the loss, without gradients."""
        with torch.no_grad(), _evaluating(self._engine):
            return _sum_over_workers(torch.stack([self._engine(batch) for batch in batches]).sum())

    def ask(self, batch: Any, work: Asked) -> torch.Tensor:
        """Return what the model makes of a batch, without gradients."""
        with torch.no_grad(), _evaluating(self._engine):
            answer: torch.Tensor = self._engine(batch, work)
        return answer

    @contextmanager
    def gathered(self, parameters: Sequence[torch.nn.Parameter] | None = None) -> Iterator[None]:
        """Gather parameters where they are partitioned."""
        import deepspeed

        chosen = self._parameters if parameters is None else list(parameters)
        with deepspeed.zero.GatheredParameters(chosen, enabled=self._stage == 3):
            yield

    def state_of(self, parameter: torch.nn.Parameter) -> State:
        """Collect the shares of all workers."""
        from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

        if self._stage == 0:
            return _state(parameter, self._optimizer)
        weight = safe_get_full_fp32_param(parameter)
        if not self._has_moments:  # every step was skipped
            return {"weight": weight, **{key: torch.zeros_like(weight) for key in _MOMENTS}}
        return {"weight": weight, **{key: safe_get_full_optimizer_state(parameter, key) for key in _MOMENTS}}

    def restore(
        self, states: Iterator[tuple[torch.nn.Parameter, State]], n_steps: int, loss_scale: LossScale | None = None
    ) -> None:
        """Set this worker's shares of parameters, of their float32 copies, and of what Adam keeps; and the scale."""
        self.loss_scale, self._has_moments = loss_scale, True
        n_made = _n_made(n_steps, loss_scale)
        if self._stage == 0:
            for parameter, state in states:
                _restore(parameter, state, n_made, self._optimizer)
            return
        zero = self._optimizer
        flat = zero.fp32_partitioned_groups_flat if self._stage == 3 else zero.single_partition_of_fp32_groups
        for share in flat:
            zeros = {key: torch.zeros_like(share) for key in _MOMENTS}
            zero.optimizer.state[share] = {"step": torch.tensor(float(n_made)), **zeros}
        if self._stage == 3:
            for parameter, state in states:
                _restore_partitioned(parameter, state)
        else:
            # What it does itself behind the first step, when Adam has its state.
            zero._lazy_init_hp_params_optimizer_state()
            for parameter, state in states:
                _restore_shared(parameter, state)

    def close(self) -> None:
        """Take DeepSpeed's hooks off the model; a partitioned base model stays so, for the next adapter."""
        self._engine.destroy()
        # The engine and its optimizer refer to each other: their buffers, some GiB for a large model, would wait for
        # Python's next look while the next adapter asks for its own.
        del self._engine, self._optimizer
        gc.collect()


def partition(model: PreTrainedModel, training: TrainingSpec, device: torch.device) -> None:
    """Leave each worker its share of the base model, on its device, where the ZeRO stage is 3; done once.

    Weight by weight: the whole model need not fit a device. DeepSpeed itself would move it there first.

    Args:
        model: in the memory of the machine. What counts are the weights of the first worker, which the others get.
        training: says which stage.
        device: of this worker.
    """
    if training.zero != 3:
        return
    deepspeed = _deepspeed(device)
    # It must know of the process group first, or would take this worker for the only one.
    deepspeed.init_distributed(auto_mpi_discovery=False, dist_init_required=False, verbose=False)
    deepspeed.zero.Init(module=model, config_dict_or_path=deepspeed_config(training, 1))
    for buffer in model.buffers():
        buffer.data = buffer.data.to(device)


def _deepspeed(device: torch.device) -> Any:
    """Return DeepSpeed, on this worker's kind of device, and set to compile nothing.

    On the CPU it would compile an all-reduce through shared memory at first use, which needs a compiler; a process that
    is killed meanwhile leaves a lock for which all later ones wait without end. The process group does the same.
    """
    with _accelerator(device.type):
        import deepspeed
        import deepspeed.ops

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed


@contextmanager
def _accelerator(name: str) -> Iterator[None]:
    """Tell DeepSpeed, while it is imported, what to use.

    It would look for accelerators itself, find those that this worker may not use, and say so on standard output.
    """
    before = os.environ.get("DS_ACCELERATOR")
    os.environ["DS_ACCELERATOR"] = name
    try:
        yield
    finally:
        if before is None:
            del os.environ["DS_ACCELERATOR"]
        else:
            os.environ["DS_ACCELERATOR"] = before


def _adamw(
    parameters: Sequence[torch.nn.Parameter], training: TrainingSpec, *, fused: bool = False
) -> torch.optim.AdamW:
    return torch.optim.AdamW(
        parameters,
        lr=training.learning_rate,
        betas=(_BETA1, training.beta2),
        eps=_EPSILON,
        weight_decay=training.weight_decay,
        fused=fused,
    )


def _loss_scale(training: TrainingSpec) -> LossScale | None:
    return LossScale() if training.precision == "float16" else None


def _heard(loss_scale: LossScale | None, loss: float, grad_norm: float) -> Step:
    return Step(loss, grad_norm) if loss_scale is None else loss_scale.step(loss, grad_norm)


def _n_made(n_steps: int, loss_scale: LossScale | None) -> int:
    """Return how many of a training's steps Adam made."""
    return n_steps - (0 if loss_scale is None else loss_scale.n_skipped)


def _divide(parameters: Sequence[torch.nn.Parameter], scale: float) -> None:
    """Take the scale out of gradients."""
    for parameter in parameters if scale != 1 else ():
        if parameter.grad is not None:
            parameter.grad.mul_(1 / scale)


def _state(parameter: torch.nn.Parameter, optimizer: torch.optim.Optimizer) -> State:
    weight = parameter.detach().float()
    own = optimizer.state.get(parameter)  # nothing of a parameter that no loss depends on
    return {"weight": weight, **{key: own[key].float() if own else torch.zeros_like(weight) for key in _MOMENTS}}


def _restore(parameter: torch.nn.Parameter, state: State, n_steps: int, optimizer: torch.optim.Optimizer) -> None:
    parameter.data.copy_(state["weight"])
    moments = {key: torch.zeros_like(parameter).copy_(state[key]) for key in _MOMENTS}
    # A fused kernel wants the number of steps where the parameter is, another one on the CPU.
    device = parameter.device if optimizer.param_groups[0].get("fused") else torch.device("cpu")
    optimizer.state[parameter] = {"step": torch.tensor(float(n_steps), device=device), **moments}


def _restore_shared(parameter: torch.nn.Parameter, state: State) -> None:
    """Restore a parameter that is whole in every worker; its float32 copy and moments are not."""
    from deepspeed.utils import safe_set_full_fp32_param, safe_set_full_optimizer_state

    parameter.data.copy_(state["weight"])
    safe_set_full_fp32_param(parameter, state["weight"])
    for key in _MOMENTS:
        safe_set_full_optimizer_state(parameter, state[key], key)


def _restore_partitioned(parameter: Any, state: State) -> None:
    """Restore a parameter of which every worker holds a share, of equal length, zeros behind the end."""
    from deepspeed.runtime.zero.partition_parameters import ZeroParamStatus
    from deepspeed.utils import safe_set_local_fp32_param, safe_set_local_optimizer_state

    n_own = parameter.ds_tensor.numel()
    start = n_own * dist.get_rank()

    def own(value: torch.Tensor) -> torch.Tensor:
        found = value.flatten()[start : start + n_own]
        return torch.nn.functional.pad(found, (0, n_own - found.numel()))

    parameter.ds_tensor.data.copy_(own(state["weight"]))
    if parameter.ds_status == ZeroParamStatus.AVAILABLE:  # small ones stay whole
        parameter.data.copy_(state["weight"])
    safe_set_local_fp32_param(parameter, own(state["weight"]))
    for key in _MOMENTS:
        safe_set_local_optimizer_state(parameter, own(state[key]), key)


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
def _evaluating(module: torch.nn.Module) -> Iterator[None]:
    module.eval()
    try:
        yield
    finally:
        module.train()


def _set_learning_rate(optimizer: Any, learning_rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = learning_rate


def _n_workers() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def _sum_over_workers(value: torch.Tensor) -> float:
    if _n_workers() > 1:
        dist.all_reduce(value)
    return float(value)
