"""The work that groups of workers have left, and their messages while they train, in files that go at the end."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from biaseval.store import Run
from biaseval.units import Unit

STORAGE = ".train"
"""The folder of a run for what training leaves while it goes on."""

PROGRESS = f"{STORAGE}/progress"
"""The folder of a run that holds what each training with checkpoints says of itself while it works."""

OUTCOMES = f"{STORAGE}/outcomes"
"""The folder of a run with the outcome of each unit of this process, while it trains."""


def progress_file(unit: Unit) -> str:
    """Return where a training with checkpoints says how far it is."""
    return f"{PROGRESS}/{unit.number:05d}.json"


def outcome_file(unit: Unit) -> str:
    """Return the file in which a group reports the outcome of a unit."""
    return f"{OUTCOMES}/{unit.number:05d}.json"


def under_way(run: Run) -> list[Mapping[str, Any]]:
    """Return the last report of each unfinished training: ``model``, ``n_steps`` of ``n_planned``, ``loss`` and
    ``seconds``.

    A killed process leaves its reports; the same command continues from about there.
    """
    ended = {name.removeprefix(OUTCOMES) for name in run.files(OUTCOMES)}
    names = sorted(name for name in run.files(PROGRESS) if name.removeprefix(PROGRESS) not in ended)
    found = []
    for name in names:
        with suppress(FileNotFoundError):  # it has ended meanwhile
            found.append(run.read_json(name))
    return found


class Queue:
    """Units that any of several groups may take, the costliest first, so that the last to end are short."""

    def __init__(self, units: Iterable[Unit]) -> None:
        self._left = deque(sorted(units, key=lambda unit: (-unit.work.get("tokens", 0), unit.number)))
        self._held: dict[int, Unit] = {}
        self._n_ended: Counter[int] = Counter()
        self._leaders: dict[int, str] = {}

    def take(self, group: int) -> Unit | None:
        """Return the next unit for a group, which is done with the one that it had; None where none is left."""
        if self._held.pop(group, None) is not None:
            self._n_ended[group] += 1
        if not self._left:
            return None
        self._held[group] = self._left.popleft()
        return self._held[group]

    def begin(self, group: int, leader: str) -> tuple[int, Unit | None]:
        """Take back the unit of a group that died, and return the number of its finished units, and that unit.

        The unit goes to the end of the queue: a unit that kills its workers runs again when no other is left.
        ``leader`` is Ray's id of the process that leads the group.
        """
        self._leaders[group] = leader
        if (unit := self._held.pop(group, None)) is not None:
            self._left.append(unit)
        return self._n_ended[group], unit

    def leave(self, group: int) -> None:
        """Forget what a group had that ends with an error: others would meet it, too."""
        self._held.pop(group, None)
        self._leaders.pop(group, None)

    def leaders(self) -> set[str]:
        """Return Ray's ids of the processes that lead the groups that have begun and not ended."""
        return set(self._leaders.values())

    def is_over(self, *, is_halted: bool) -> bool:
        """Return whether no group has a unit or may take one; ``is_halted``: none is to be begun."""
        return not self._held and (is_halted or not self._left)
