"""Actors that hang: they are alive, keep their part, and never finish it."""

import time
from collections.abc import Sequence
from typing import Any

from biaseval.progress import duration, say
from biaseval.units import Done, Unit

_LEAST_S = 600.0
"""Seconds without a finished part or a change of the actors, before which none counts as hanging."""

_STOPPED_S = 60.0
"""Seconds between two looks after which this process itself was stopped."""

_TIMES = 10.0
"""How many times as long as by the slowest part so far the largest part may take."""


class Stalls:
    """Has Ray restart actors that hang; `biaseval.execute.devices.blamed` then counts their part's attempts.

    The limit follows from the tokens of the largest part and from the slowest part so far; before the first part is
    finished there is none.
    """

    def __init__(self, name: str, missing: Sequence[Unit]) -> None:
        self._name, self._most = name, max(map(_amount, missing), default=1)
        self._slowest = 0.0
        """Seconds per token, or per row."""
        self._seen: set[tuple[Any, int]] = set()
        self._since = self._looked = time.monotonic()

    def add(self, done: Done) -> None:
        """Hear of a part."""
        self._since = time.monotonic()
        self._slowest = max(self._slowest, done.busy_s / _amount(done.unit))

    def look(self, executors: Sequence[Any]) -> None:
        """Restart actors that hang; called now and then, by another thread. ``executors``: of Ray Data."""
        if not executors or not executors[0]._topology or not self._slowest:
            return
        import ray
        from ray.core.generated.gcs_pb2 import ActorTableData  # type: ignore[attr-defined]

        pool = list(executors[0]._topology)[-1]._actor_pool
        busy = {(actor, own.num_tasks_in_flight) for actor, own in list(pool._running_actors.items())
                if own.num_tasks_in_flight and actor._get_local_state() == ActorTableData.ALIVE}  # fmt: skip
        now, limit = time.monotonic(), max(_LEAST_S, _TIMES * self._slowest * self._most)
        was_stopped, self._looked = now - self._looked > _STOPPED_S, now
        if busy != self._seen or not busy or was_stopped:
            self._seen, self._since = busy, now
        elif now - self._since > limit:
            self._since = now
            say(f"{self._name}: no part was finished for {duration(limit)}; Ray restarts the processes that work")
            for actor, _ in busy:
                ray.kill(actor, no_restart=False)


def _amount(unit: Unit) -> int:
    return max(1, int(unit.work.get("tokens", unit.size)))
