"""The highest memory use while something runs."""

import ctypes
import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

_MIB = 2**20
_SAMPLE_S = 0.005


@dataclass
class Peak:
    """What was used at most beyond what was used before; known when the block ends."""

    mib: float = 0.0


@contextmanager
def peak_memory(device: str) -> Iterator[Peak]:
    """Measure the block: CUDA's allocated memory exactly, elsewhere the resident set by samples."""
    peak = Peak()
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        yield peak
        peak.mib = (torch.cuda.max_memory_allocated() - before) / _MIB
        return

    import psutil  # type: ignore[import-untyped]

    _give_back_freed_memory()
    process = psutil.Process()
    before = highest = process.memory_info().rss
    is_over = threading.Event()

    def sample() -> None:
        nonlocal highest
        while not is_over.wait(_SAMPLE_S):
            highest = max(highest, process.memory_info().rss)

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    try:
        yield peak
    finally:
        is_over.set()
        sampler.join()
    peak.mib = (max(highest, process.memory_info().rss) - before) / _MIB


def _give_back_freed_memory() -> None:
    """Return freed memory to the system, which would hide what the next block uses (glibc alone keeps it)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
