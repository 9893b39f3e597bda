"""Work that waits for its place on a cluster: its messages, and the end of an endless wait."""

import time
from collections.abc import Sequence

import ray

from biaseval.errors import TransientError
from biaseval.execute.holdings import free_of_nodes, holders, remove_strays
from biaseval.execute.resources import Ask, Holder, Resources
from biaseval.progress import duration, say
from biaseval.spec import ExecutionSpec

FIRST_S = 60.0
"""Seconds without a place after which somebody should know."""

AGAIN_S = 300.0

ENDS_S = 600.0
"""Seconds in which nothing could give work its place, after which the run ends."""

_BETWEEN_LOOKS_S = 1.0


class Wait:
    """Watches work that may wait: prints a message after a minute and then every five, and ends an endless wait.

    A wait has no limit while nodes may join, or while tasks, another job or another run of this job hold the
    resources. A number of GPUs in the spec means that nodes with GPUs will join.
    """

    def __init__(self, name: str, execution: ExecutionSpec, resources: Resources) -> None:
        self._name, self._resources = name, resources
        self._may_grow = resources.may_grow(execution)
        self._looked = self._since = self._since_stuck = time.monotonic()
        self._next_s = FIRST_S

    def is_due(self) -> bool:
        """Return whether it is time for another look, where somebody could look all the time."""
        return time.monotonic() - self._looked >= _BETWEEN_LOOKS_S

    def look(self, ask: Ask | None, *, is_idle: bool = True) -> None:
        """Record the current request, None if all work has its place; called repeatedly.

        ``is_idle``: no other part of the work has a place that it would give back.

        Raises:
            TransientError: for `ENDS_S` seconds nothing could free its place, or the Ray of this machine has died.
        """
        self._looked = now = time.monotonic()
        if ask is None:
            self._since, self._since_stuck, self._next_s = now, now, FIRST_S
            return
        if self._resources.is_local and not any(node["Alive"] for node in ray.nodes()):
            raise TransientError(f"{self._name} failed: Ray died; run the same command again to resume")
        remove_strays()
        waited = now - self._since
        held = _hold_for_ever(ask, self._resources) if is_idle and not self._may_grow else None
        if held is None:
            self._since_stuck = now
        elif now - self._since_stuck >= ENDS_S:
            raise TransientError(
                f"{self._words(ask, waited)}, no node is known to come, and nothing will free more ("
                f"{'; '.join(map(str, held)) or 'nobody holds any'}); free it, or use a larger cluster, and run the "
                "same command again to resume"
            )
        if waited >= self._next_s:
            self._next_s = waited + AGAIN_S if is_idle else float("inf")
            say(self._words(ask, waited))

    def _words(self, ask: Ask, waited_s: float) -> str:
        """Return the message: the time, the request, the cluster's resources, and the node types that may join."""
        kind = next((kind for kind in ("GPU", "CPU") if ask.bundle.get(kind)), "CPU")
        there, free = ray.cluster_resources().get(kind, 0), ray.available_resources().get(kind, 0)
        types = [each for each in self._resources.types if each.resources.get(kind, 0) >= ask.bundle.get(kind, 0)]
        coming = " and ".join(f"{each.at_most} {each.name}" for each in types)
        more = f"; up to {coming} may come" if coming else ""
        amounts = f"of {there:g} {kind}s there {free:g} are free"
        return f"{self._name} has waited {duration(waited_s)} for {ask}: {amounts}{more}"


def _hold_for_ever(ask: Ask, resources: Resources) -> Sequence[Holder] | None:
    """Return the holders of the requested resources that keep them; None if they are free or may become free."""
    free = free_of_nodes()
    if ask.fits(free):
        return None
    total = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    kind = "GPU" if ask.bundle.get("GPU") else "CPU"
    held = holders(kind)
    if not ask.fits(total):
        return held
    of_tasks = (
        sum(own.get(kind, 0) for own in total)
        - sum(own.get(kind, 0) for own in free)
        - sum(holder.amount for holder in held)
    )
    if resources.is_shared or of_tasks > _ROUNDING or any(holder.job is not None for holder in held):
        return None
    return held


_ROUNDING = 1e-3
"""CPUs or GPUs that Ray's own rounding may leave."""
