"""GPUs that break: after such an error nothing in the process can use them any more."""

from __future__ import annotations

import logging
import os
import uuid

from biaseval.store import Run

logger = logging.getLogger(__name__)

_TROUBLE = "trouble"
"""The folder of a run that counts how often a part broke a GPU; it goes with the sitting."""

_ATTEMPTS = 3
_WORDS = ("CUDA error", "CUDA driver error", "device-side assert", "NCCL error")
_MEMORY = "out of memory"


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
    """Count anew."""
    if run.files(_TROUBLE):
        run.delete(_TROUBLE)
