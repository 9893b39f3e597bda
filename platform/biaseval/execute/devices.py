"""GPUs that break: after such an error nothing in the process can use them any more."""

import logging
import os
import uuid

from biaseval.errors import InputError
from biaseval.store import Run

logger = logging.getLogger(__name__)

_TROUBLE = "trouble"
"""The folder of a run that counts how often a part broke a GPU; it is deleted when the process ends."""

_ATTEMPTS = 3
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


def leave_broken_device(run: Run, part: int, error: Exception) -> None:
    """End this process, so that another one takes the part; after three times return, as the part is to blame."""
    n_before = sum(name.startswith(f"{_TROUBLE}/{part}.") for name in run.files(_TROUBLE))
    if n_before + 1 >= _ATTEMPTS:
        return
    run.write_text(f"{_TROUBLE}/{part}.{uuid.uuid4().hex}", str(error))
    logger.error("part %d broke the GPU; another process takes it", part, exc_info=error)
    os._exit(1)


def forget_broken_devices(run: Run) -> None:
    """Reset the counts."""
    if run.files(_TROUBLE):
        run.delete(_TROUBLE)
