"""What is said while work waits for actors: what is asked for, what is there, and since when."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import ray

from biaseval.execute.resources import Allocation, Resources
from biaseval.progress import duration, say

FIRST_S = 60.0
"""Seconds without an actor after which somebody should know."""

AGAIN_S = 300.0

_BETWEEN_LOOKS_S = 1.0


@contextmanager
def said_while_waiting(name: str, allocation: Allocation, resources: Resources, actor: str) -> Iterator[None]:
    """Say in the block, after a minute and then every five, that no actor is there.

    Args:
        name: of the work.
        allocation: what an actor asks for.
        resources: of the cluster, and what may come.
        actor: name of its class.
    """
    ended = threading.Event()
    thread = threading.Thread(target=_watch, args=(ended, name, allocation, resources, actor), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _watch(ended: threading.Event, name: str, allocation: Allocation, resources: Resources, actor: str) -> None:
    since = time.monotonic()
    next_s = FIRST_S
    while not ended.wait(_BETWEEN_LOOKS_S):
        if _n_alive(actor):
            since, next_s = time.monotonic(), FIRST_S
        elif (waited := time.monotonic() - since) >= next_s:
            next_s = waited + AGAIN_S
            say(waiting_words(name, allocation, resources, ray.cluster_resources(), ray.available_resources(), waited))


def _n_alive(actor: str) -> int:
    """Return how many actors of a class work for this driver."""
    job = ray._private.worker.global_worker.current_job_id
    table = ray._private.state.actors(job_id=job, actor_state_name="ALIVE")
    return sum(actor in str(found["ActorClassName"]) for found in table.values())


def waiting_words(
    name: str,
    allocation: Allocation,
    resources: Resources,
    there: Mapping[str, float],
    free: Mapping[str, float],
    waited_s: float,
) -> str:
    """Return what is said: for how long, for what, what there is, and what may come."""
    kind, asked = ("GPU", allocation.num_gpus) if allocation.num_gpus else ("CPU", allocation.num_cpus)
    amounts = f"of {there.get(kind, 0):g} {kind}s there {free.get(kind, 0):g} are free"
    coming = [f"{each.at_most} {each.name}" for each in resources.types if each.resources.get(kind, 0) >= asked]
    more = f"; up to {' and '.join(coming)} may come" if coming else ""
    return f"{name} has waited {duration(waited_s)} for an actor, which asks for {asked:g} {kind}: {amounts}{more}"
