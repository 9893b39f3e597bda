"""What a process may use of its machine, and what a worker sets for itself; needs no Ray."""

import os

PATIENT_THREADS = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Threads that wait for each other sleep: where they spin and other processes work on the same cores, little passes of
a model take up to seven times as long. Read when torch is imported."""

_ALLOCATOR, _ALLOCATOR_BEFORE = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"


def n_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def take_share(n_threads: int | None, num_gpus: float) -> None:
    """Have torch use the threads (None: its own choice), and of a GPU's memory the part, that this process may."""
    import torch

    if n_threads is not None:
        # Ray sets OMP_NUM_THREADS to the actor's logical CPUs, which need not be the cores it may use.
        torch.set_num_threads(n_threads)
    if 0 < num_gpus < 1:
        torch.cuda.set_per_process_memory_fraction(num_gpus)


def quiet_worker() -> None:
    """Keep libraries in a worker from phoning home, from warning, and from losing GPU memory between pieces in use.

    Called before torch is imported, which reads its allocator's settings once.
    """
    for name, value in PATIENT_THREADS.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    if _ALLOCATOR_BEFORE not in os.environ:  # torch would no longer look at it
        os.environ.setdefault(_ALLOCATOR, "expandable_segments:True")
