"""What groups of workers say while they train, in files of the run directory that go when all have ended."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from biaseval.store import Run
from biaseval.units import Unit

STORAGE = ".train"
"""The folder of a run for what training leaves while it goes on."""

PROGRESS = f"{STORAGE}/progress"
"""The folder of a run that holds what each training with checkpoints says of itself while it works."""

OUTCOMES = f"{STORAGE}/outcomes"
"""The folder of a run that holds, while it trains, what came of each unit of this sitting."""


def progress_file(unit: Unit) -> str:
    """Return where a training with checkpoints says how far it is."""
    return f"{PROGRESS}/{unit.number:05d}.json"


def outcome_file(unit: Unit) -> str:
    """Return where a group says what came of a unit."""
    return f"{OUTCOMES}/{unit.number:05d}.json"


def under_way(run: Run) -> list[Mapping[str, Any]]:
    """Return what each training said last that has begun and not ended: ``model``, ``n_steps`` of ``n_planned``,
    ``loss`` and ``seconds``.

    A process that was killed leaves what it said; it is what the same command goes on from, about.
    """
    ended = {name.removeprefix(OUTCOMES) for name in run.files(OUTCOMES)}
    names = sorted(name for name in run.files(PROGRESS) if name.removeprefix(PROGRESS) not in ended)
    found = []
    for name in names:
        with suppress(FileNotFoundError):  # it has ended meanwhile
            found.append(run.read_json(name))
    return found
