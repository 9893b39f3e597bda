"""A pool of CPU actors that make independent items; the results arrive in the order of the items.

Each result has two parts: facts, which come to this process, and content to keep, which does not. The actor that made
the content stores it after all earlier items have announced their names.
"""

import itertools
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

_AHEAD = 3
"""How many things a worker may be ahead of the oldest that is not heard of yet, on average."""
_RETRIES = 3
"""The retries of a worker and of its current item, because its process or node may die."""


def is_spread() -> bool:
    """Return whether work may be spread: not from inside a task or an actor, and not on a single core."""
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
    """Yield in order the facts of each item, and a function that stores its content: ``keep(kept, *arguments)``.

    All content is stored before the iteration ends. Items come from this process, while actors work on earlier ones;
    ``make`` and ``keep`` run in actors with a CPU. Messages name the work, and ``hands_on`` leaves Ray to the next step
    (`Cluster`).

    Raises:
        BiasevalError: a worker raised it.
        TransientError: Ray failed.
    """
    import ray
    from ray.exceptions import RayError, RayTaskError

    with Cluster(execution, hands_on=hands_on) as cluster:
        resources = cluster.resources()
        n_cpus = int(sum(resources.cpus))  # 0 where all are still to come
        n_workers = max(1, min(resources.n_cores, n_cpus) if resources.is_local else n_cpus)
        # Without num_cpus an actor needs a free CPU to be placed, and holds none: one that lost its node has a place.
        of_ray: Any = {"max_concurrency": 2, "max_restarts": _RETRIES, "max_task_retries": _RETRIES}
        maker = ray.remote(**of_ray, scheduling_strategy="SPREAD")(_Worker)
        first_items = list(itertools.islice(items, n_workers))
        workers: list[Any] = [maker.remote(make, keep) for _ in first_items]
        busy = {worker.begin.remote(): worker for worker in workers}  # those that have a place come back from it
        begun: deque[tuple[Any, Any, Any]] = deque()
        kept: list[Any] = []

        def first() -> tuple[Facts, Callable[..., None]]:
            worker, facts, rest = begun.popleft()
            return ray.get(facts), lambda *arguments: kept.append(worker.keep.remote(rest, *arguments))

        try:
            for item in itertools.chain(first_items, items):
                [ended], _ = ray.wait(list(busy))
                worker = busy.pop(ended)
                facts, rest = worker.make.options(num_returns=2).remote(item)
                busy[facts] = worker
                begun.append((worker, facts, rest))
                if len(begun) > _AHEAD * n_workers:
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
            for worker in workers:
                ray.kill(worker)


class _Worker:
    """Makes one item at a time, and stores its content while it makes the next.

    It is an actor, whose process lives until all items are made. In a Ray task, whose processes come and go, imports
    and loading would take longer than the work.
    """

    def __init__(self, make: Callable[[Any], tuple[Any, Any]], keep: Callable[..., None]) -> None:
        quiet_worker()
        self._make, self._keep = make, keep

    def begin(self) -> None:
        """Say that it has a place."""

    def make(self, item: Any) -> tuple[Any, Any]:
        return self._make(item)

    def keep(self, kept: Any, *arguments: Any) -> None:
        self._keep(kept, *arguments)
