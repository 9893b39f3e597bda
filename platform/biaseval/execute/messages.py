"""What groups of workers say while they train, in files of the run directory that go when all have ended."""

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
