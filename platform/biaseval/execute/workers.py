"""Groups of workers that train together on Ray Train, and their restart when one dies."""

import errno
import socket
import uuid
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, cast

import ray
from ray.exceptions import RayError
from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError, WorkerGroupError
from ray.train.torch import TorchConfig, TorchTrainer
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from biaseval.errors import BiasevalError, TransientError
from biaseval.execute.machine import quiet_worker
from biaseval.execute.messages import STORAGE
from biaseval.execute.resources import Groups
from biaseval.store import Run

ATTEMPTS = 3
"""Without anything that is kept in between."""

_LOST = ("Connection closed by peer", "Connection reset by peer", "remote process exited")
"""What gloo and NCCL say when a worker is gone."""


def _listen_at_address() -> None:
    """Have the store by which workers meet listen at its own address; torch's listens on all interfaces."""
    rendezvous: Any = import_module("torch.distributed.rendezvous")

    class Store(rendezvous.TCPStore):  # type: ignore[misc]
        def __init__(self, host_name: str, port: int, **how: Any) -> None:
            if how.get("is_master"):
                family = socket.AF_INET6 if ":" in host_name else socket.AF_INET
                try:
                    how["master_listen_fd"] = socket.create_server((host_name, port), family=family).detach()
                except OSError as error:
                    if error.errno != errno.EADDRNOTAVAIL:  # behind NAT the address is none of this machine's
                        raise
            super().__init__(host_name, port, **how)

    rendezvous.TCPStore = Store


class _Backend(TorchConfig().backend_cls):  # type: ignore[misc]
    def on_start(self, worker_group: Any, backend_config: TorchConfig) -> None:
        worker_group.execute(_listen_at_address)
        super().on_start(worker_group, backend_config)


class _Torch(TorchConfig):
    backend_cls = _Backend


def this_node() -> NodeAffinitySchedulingStrategy:
    """Return where what leads a group runs: it may take no CPU, and an autoscaler gives idle nodes away."""
    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)


def fit(
    run: Run, work: Callable[[dict[str, Any]], Any], config: Callable[[], dict[str, Any]], section: str, groups: Groups
) -> Any:
    """Do work in all workers of a group at once; if a worker or its node dies, continue with the unfinished work.

    Three deaths in a row without progress are an error. Deaths with progress between them, as on spot nodes, are not
    limited. A single worker works in this process; its caller restarts it. Each worker calls ``work`` with the result
    of ``config``: the unfinished work, which shrinks with progress. Returned is what the first worker returns. Messages
    name the spec's section that says how to train.

    Raises:
        BiasevalError: a worker raised it, or workers died three times.
    """
    quiet_worker()
    left = config()
    n_lost = 0
    while True:
        trainer = TorchTrainer(
            cast(Any, work),  # Ray's annotations know no train function that returns a value
            train_loop_config=left,
            torch_config=_Torch(),
            scaling_config=ScalingConfig(
                num_workers=0 if groups.is_alone else groups.n_workers,  # 0: in this process
                use_gpu=groups.use_gpu,
                resources_per_worker=groups.resources_per_worker,
            ),
            run_config=RunConfig(
                # A name that was there before would go on where it ended.
                name=uuid.uuid4().hex,
                storage_path=run.path(STORAGE),
                storage_filesystem=run.fs,
                # Ray itself would begin again with all that was there to do.
                failure_config=FailureConfig(max_failures=0, max_preemption_failures=0),  # type: ignore[call-arg]
            ),
        )
        try:
            result: Any = trainer.fit()
            return result.return_value
        except TrainingFailedError as error:
            causes = list(error.worker_failures.values()) if isinstance(error, WorkerGroupError) else []
            ours = next((cause for cause in causes if isinstance(cause, BiasevalError)), None)
            if ours is not None:
                raise ours from None
            before, left = left, config()
            n_lost = n_lost + 1 if left == before else 1
            # What our code raises it will raise again; a worker that died may be replaced.
            if n_lost == ATTEMPTS or (causes and not any(map(_is_loss, causes))):
                raise _failed(next(iter(causes), error), section) from None


def collected(started: Sequence[Any], section: str) -> list[Any]:
    """Return what all groups returned; raise the first error only when every group has ended."""
    found: list[Any] = []
    errors: list[Exception] = []
    for group in started:
        try:
            found.append(ray.get(group))
        except RayError as error:
            cause = getattr(error, "cause", None)
            errors.append(cause if isinstance(cause, BiasevalError) else _failed(error, section))
    if errors:
        raise errors[0]
    return found


def _is_loss(cause: BaseException) -> bool:
    """Return whether an error says that a worker died: Ray's own, or what those that it trained with then meet."""
    # Ray Train has an error of its own around the one that an actor's death is.
    found = getattr(cause, "health_check_failure", cause)
    return isinstance(found, RayError) or any(words in str(found) for words in _LOST)


def _failed(error: BaseException, section: str) -> BiasevalError:
    from biaseval.scoring.memory import is_out_of_memory

    lines = [line for line in str(error).strip().splitlines() if line.strip()] or [repr(error)]
    remedy = ""
    if is_out_of_memory(error):
        remedy = (
            f"set {section}.gradient_checkpointing to true, {section}.batch_size to 1, or {section}.zero to 3 with "
            f"more {section}.workers; "
        )
    return TransientError(f"training failed: {lines[-1]}; {remedy}run the same command again to resume")
