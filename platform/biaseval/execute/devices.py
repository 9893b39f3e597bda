"""GPUs that break, after which nothing in the process can use them any more, and parts that end their process."""

import logging
import os

from biaseval.errors import InputError
from biaseval.execute.tasks import ATTEMPTS
from biaseval.store import Run

logger = logging.getLogger(__name__)

_TROUBLE = "trouble"
"""The folder of a run that counts how often a part ended its process; it is deleted when the command ends."""

_NO_WORD = "it gave no reason; the machine may lack memory, or the process hung"
_WORDS = ("CUDA error", "CUDA driver error", "device-side assert", "NCCL error")
_MEMORY = "out of memory"


def refuse_unusable_gpu(num_gpus: float) -> None:
    """Make sure that torch reaches the GPU that Ray gave to this process, if it gave one.

    Raises:
        InputError: it does not; the message names the node.
    """
    if not num_gpus:
        return
    import ray
    import torch

    if not torch.cuda.is_available():
        raise InputError(unusable_gpu(ray.util.get_node_ip_address(), torch.__version__, torch.version.cuda))


def unusable_gpu(node: str, version: str, cuda: str | None) -> str:
    """Return the message about a node whose GPU torch cannot use; ``cuda`` is that of its build, None: for CPUs."""
    build, remedy = "for CPUs alone", "install a build with CUDA on it"
    if cuda is not None:
        build = f"with CUDA {cuda}"
        remedy = f"give it a driver for CUDA {cuda} or newer (nvidia-smi names the one it has)"
    return (
        f"execution.gpus_per_actor: Ray gives this work a GPU of the node {node}, which torch {version} there, built "
        f"{build}, cannot use; {remedy}, or set execution.gpus_per_actor to 0"
    )


def is_broken_device(error: Exception) -> bool:
    """Return whether an error says that the process lost its GPU, for other reasons than memory."""
    text = str(error)
    return isinstance(error, RuntimeError) and any(words in text for words in _WORDS) and _MEMORY not in text


def leave_broken_device(run: Run, part: int, attempt: int, error: Exception) -> None:
    """End this process, so that another one takes the part."""
    _mark(run, part, attempt, None, str(error))
    logger.error("part %d broke the GPU; another process takes it", part, exc_info=error)
    os._exit(1)


def blamed(run: Run, part: int, attempt: int) -> str | None:
    """Return why a part is not tried again: it ended three processes; None: it is, and the attempt is recorded.

    A process that ended together with its node says nothing about the part. ``attempt``: of the part, 0-based.
    """
    import ray

    if not attempt:
        return None
    alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    marks = [run.read_json(name) for name in sorted(run.files(_TROUBLE)) if name.startswith(f"{_TROUBLE}/{part}.")]
    reasons = [mark["why"] for mark in marks if mark["node"] is None or mark["node"] in alive]
    if len(reasons) >= ATTEMPTS:
        return f"the process that makes it ended {len(reasons)} times or more: {reasons[-1]}"
    _mark(run, part, attempt, ray.get_runtime_context().get_node_id(), _NO_WORD)
    return None


def _mark(run: Run, part: int, attempt: int, node: str | None, why: str) -> None:
    run.write_json(f"{_TROUBLE}/{part}.{attempt}", {"node": node, "why": why})


def forget_attempts(run: Run) -> None:
    """Reset the counts."""
    if run.files(_TROUBLE):
        run.delete(_TROUBLE)
