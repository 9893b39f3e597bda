"""How fast a run goes: from when its parts were written, by the clock of the store that holds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from biaseval.store import Run
from biaseval.units import Unit

_RECENT = 20
"""Parts, of those last written, that a rate is taken from."""


@dataclass(frozen=True)
class Pace:
    """How fast the stage that is being made goes."""

    noun: str
    """What is counted: ``rows``, ``steps``."""
    verb: str
    """What happens to it: ``scored``."""
    rate_per_s: float | None
    """Of what ``noun`` says, a second, over the parts last written in the last sitting; None: too few to say."""
    left_s: float | None
    """Seconds until the stage is complete at this rate; None: nothing works on it, or the rate is not known."""
    last_part_age_s: float | None
    """Seconds since a part of the stage was written; None: there is none."""


def rate_of(written: Sequence[tuple[float, int]]) -> float | None:
    """Return how much was made a second.

    Args:
        written: when each part was, in seconds, and how much it holds.
    """
    recent = sorted(written)[-_RECENT:]
    if len(recent) < 2 or recent[-1][0] <= recent[0][0]:
        return None
    # The first of them was made before the time that is counted.
    return sum(size for _, size in recent[1:]) / (recent[-1][0] - recent[0][0])


def written_units(run: Run, units: Sequence[Unit]) -> list[tuple[float, int]]:
    """Return when each complete unit was written, in seconds since 1970 by the store's clock, and its size."""
    folders = {name.partition("/")[0] for unit in units for name in unit.files}
    times = {name: time_ns / 1e9 for folder in folders for name, (_, time_ns) in run.listed(folder).items()}
    return [
        (max(times[name] for name in unit.files), unit.size)
        for unit in units
        if unit.files and all(name in times for name in unit.files)
    ]
