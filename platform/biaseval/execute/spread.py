"""Things of which each is made for itself by a CPU task of Ray, some at a time, and heard of in their order.

What is made is in two: facts, which come here, and what is to be kept, which does not. A second task keeps it, when
those before it have said under which names.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from biaseval.errors import BiasevalError, TransientError
from biaseval.execute.cluster import Cluster
from biaseval.execute.machine import n_cores, quiet_worker
from biaseval.spec import ExecutionSpec

Item = TypeVar("Item")
Facts = TypeVar("Facts")
Kept = TypeVar("Kept")


def is_spread() -> bool:
    """Return whether work may be spread: not by what is itself a task or an actor, and not on one core alone."""
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        context = ray.get_runtime_context()
        return context.get_task_id() is None and context.get_actor_id() is None
    return n_cores() > 1


def spread(
    items: Iterator[Item],
    make: Callable[[Item], tuple[Facts, Kept]],
    keep: Callable[..., None],
    execution: ExecutionSpec,
    name: str,
    *,
    hands_on: bool,
) -> Iterator[tuple[Facts, Callable[..., None]]]:
    """Yield, in order, the facts of what is made of each item, and what has the rest kept: ``keep(kept, *arguments)``.

    All is kept before the last is followed by nothing.

    Args:
        items: what this process begins, while others make what it began.
        make: runs in a CPU task.
        keep: runs in another.
        execution: of the run.
        name: what is done, for messages.
        hands_on: leave Ray to what comes next (`Cluster`).

    Raises:
        BiasevalError: our own, from a task.
        TransientError: Ray failed.
    """
    import ray
    from ray.exceptions import RayError, RayTaskError

    with Cluster(execution, hands_on=hands_on) as cluster:
        resources = cluster.resources()
        n_workers = min(resources.n_cores, int(sum(resources.cpus))) if resources.is_local else int(sum(resources.cpus))
        making = ray.remote(num_cpus=1, num_returns=2)(_quietly)
        keeping = ray.remote(num_cpus=0.1)(_quietly)
        begun: deque[Any] = deque()
        kept: list[Any] = []

        def first() -> tuple[Facts, Callable[..., None]]:
            facts, rest = begun.popleft()
            return ray.get(facts), lambda *arguments: kept.append(keeping.remote(keep, rest, *arguments))

        try:
            for item in items:
                begun.append(making.remote(make, item))
                if len(begun) > n_workers + n_workers // 2:
                    yield first()
            while begun:
                yield first()
            ray.get(kept)
        except RayTaskError as error:
            if isinstance(error.cause, BiasevalError):
                raise error.cause from error
            raise
        except RayError as error:
            raise TransientError(f"{name} failed: {error}; run the same command again") from error
        finally:
            if kept:  # nothing is written when this has ended, however it does
                ray.wait(kept, num_returns=len(kept))


def _quietly(work: Callable[..., Any], *arguments: Any) -> Any:
    quiet_worker()
    return work(*arguments)
