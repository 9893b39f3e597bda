"""Makes optimizer steps by DeepSpeed, at a ZeRO stage; its oddities end here."""

from __future__ import annotations

import gc
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from biaseval.spec import TrainingSpec
from biaseval.training import optimization
from biaseval.training.deepspeed_config import deepspeed_config
from biaseval.training.loss_scale import LossScale, Step, step_of, steps_made

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class DeepSpeedOptimization(optimization.Optimization):
    """AdamW under DeepSpeed, at the ZeRO stage of the spec."""

    def __init__(
        self,
        loss: torch.nn.Module,
        parameters: Sequence[torch.nn.Parameter],
        training: TrainingSpec,
        device: torch.device,
    ) -> None:
        super().__init__(loss, parameters, training)
        self._stage = training.zero or 0
        self._bare_loss = loss
        self._has_moments = False
        # The engine gives losses as the module in it does.
        self._loss, self._optimizer, _, _ = _deepspeed(device).initialize(
            model=loss,
            optimizer=self._optimizer,
            config=deepspeed_config(training, sum(map(optimization.n_elements, parameters))),
            dist_init_required=False,
        )

    def step(self, batches: Sequence[Any], learning_rate: float) -> Step:
        """Make one step; none if the loss is not finite, nor in float16 or at stage 0 if the gradient is not."""
        scale = 1.0 if self.loss_scale is None else self.loss_scale.value
        if self._stage > 0 and self.loss_scale is not None:
            self._optimizer.loss_scale = scale
        # What ZeRO does not scale itself. DeepSpeed takes the mean over workers, and these losses are to be summed.
        factor = optimization.n_workers() * (scale if self._stage == 0 else 1)
        losses = []
        for number, batch in enumerate(batches):
            self._loss.set_gradient_accumulation_boundary(number == len(batches) - 1)
            loss = self._loss(batch)
            losses.append(loss.detach())
            self._loss.backward(loss * factor, scale_wrt_gas=False)
        total = optimization.sum_over_workers(torch.stack(losses).sum())
        if not math.isfinite(total):
            return Step(total, None)
        optimization.set_learning_rate(self._optimizer, learning_rate)
        if self._stage == 0:
            # DeepSpeed tells the norm of no gradient that it does not keep itself; all are summed by now.
            optimization.divide(self._parameters, scale)
            gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
            grad_norm = float(torch.nn.utils.get_total_norm(gradients))
            if math.isfinite(grad_norm):
                self._loss.step()
            else:
                self._loss.zero_grad()
            return step_of(self.loss_scale, total, grad_norm)
        self._loss.step()
        self._has_moments |= not self._optimizer.overflow
        return step_of(self.loss_scale, total, float(self._loss.get_global_grad_norm()))

    @contextmanager
    def gathered(self, parameters: Sequence[torch.nn.Parameter] | None = None) -> Iterator[None]:
        """Gather parameters where they are partitioned."""
        import deepspeed

        chosen = self._parameters if parameters is None else list(parameters)
        with deepspeed.zero.GatheredParameters(chosen, enabled=self._stage == 3):
            yield

    def state_of(self, parameter: torch.nn.Parameter) -> optimization.State:
        """Collect the shares of all workers."""
        from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

        if self._stage == 0:
            return super().state_of(parameter)
        weight = safe_get_full_fp32_param(parameter)
        if not self._has_moments:  # every step was skipped
            return {"weight": weight, **{key: torch.zeros_like(weight) for key in optimization.MOMENTS}}
        return {
            "weight": weight,
            **{key: safe_get_full_optimizer_state(parameter, key) for key in optimization.MOMENTS},
        }

    def restore(
        self,
        states: Iterator[tuple[torch.nn.Parameter, optimization.State]],
        n_steps: int,
        loss_scale: LossScale | None = None,
    ) -> None:
        """Set this worker's shares of parameters, of their float32 copies, and of what Adam keeps; and the scale."""
        if self._stage == 0:
            super().restore(states, n_steps, loss_scale)
            return
        self.loss_scale, self._has_moments = loss_scale, True
        n_made = steps_made(n_steps, loss_scale)
        zero = self._optimizer
        flat = zero.fp32_partitioned_groups_flat if self._stage == 3 else zero.single_partition_of_fp32_groups
        for share in flat:
            zeros = {key: torch.zeros_like(share) for key in optimization.MOMENTS}
            zero.optimizer.state[share] = {"step": torch.tensor(float(n_made)), **zeros}
        if self._stage == 3:
            for parameter, state in states:
                _restore_partitioned(parameter, state)
        else:
            # The engine does this itself after the first step, when Adam has its state.
            zero._lazy_init_hp_params_optimizer_state()
            for parameter, state in states:
                _restore_shared(parameter, state)

    def close(self) -> None:
        """Take DeepSpeed's hooks off the model; a partitioned base model stays so, for the next adapter."""
        self._loss.destroy()
        if self._stage == 3:
            _forget_partitioned(self._bare_loss)
        # The engine and its optimizer refer to each other: their buffers, some GiB for a large model, would wait for
        # Python's next look while the next adapter asks for its own.
        del self._loss, self._optimizer, self._bare_loss
        gc.collect()


def partition(model: PreTrainedModel, training: TrainingSpec, device: torch.device) -> None:
    """Leave each worker its share of the base model, on its device, where the ZeRO stage is 3; done once.

    Weight by weight: the whole model need not fit a device. DeepSpeed itself would move it there first. The model comes
    in the memory of the machine. What counts are the weights of the first worker, which the others get.
    """
    if training.zero != 3:
        return
    deepspeed = _deepspeed(device)
    # It must know of the process group first, or would take this worker for the only one.
    deepspeed.init_distributed(auto_mpi_discovery=False, dist_init_required=False, verbose=False)
    deepspeed.zero.Init(module=model, config_dict_or_path=deepspeed_config(training, 1))
    for buffer in model.buffers():
        buffer.data = buffer.data.to(device)


def _forget_partitioned(loss: torch.nn.Module) -> None:
    """Drop the references to a closed engine: the base model and DeepSpeed would keep all engines and their parameters.

    The next engine makes its own hooks on the base model's layers; without this it would use those of the first.
    """
    from deepspeed.runtime.zero import parameter_offload
    from deepspeed.runtime.zero.partitioned_param_coordinator import PartitionedParameterCoordinator

    for module in loss.modules():
        for name in ("pre_bwd_fn", "post_bwd_fn"):
            vars(module).pop(name, None)
    for parameter in loss.parameters():
        vars(parameter).pop("_z3_optimizer", None)
    parameter_offload.FWD_MODULE_STACK.clear()
    cached = vars(PartitionedParameterCoordinator)["_PartitionedParameterCoordinator__params_to_release"]
    cached.__closure__[0].cell_contents.cache_clear()  # a cache of the class, whose keys are engines' own


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


def _restore_shared(parameter: torch.nn.Parameter, state: optimization.State) -> None:
    """Restore a parameter that is whole in every worker; its float32 copy and moments are not."""
    from deepspeed.utils import safe_set_full_fp32_param, safe_set_full_optimizer_state

    parameter.data.copy_(state["weight"])
    safe_set_full_fp32_param(parameter, state["weight"])
    for key in optimization.MOMENTS:
        safe_set_full_optimizer_state(parameter, state[key], key)


def _restore_partitioned(parameter: Any, state: optimization.State) -> None:
    """Restore a parameter of which every worker holds a share, of equal length, zeros after the end."""
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
    for key in optimization.MOMENTS:
        safe_set_local_optimizer_state(parameter, own(state[key]), key)
