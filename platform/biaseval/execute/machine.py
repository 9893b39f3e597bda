"""What a process may use of its machine, and what a worker sets for itself; needs no Ray."""

from __future__ import annotations

import os


def n_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def quiet_worker() -> None:
    """Keep libraries in a worker from phoning home and from warning."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
