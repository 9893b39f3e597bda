"""The smallest work of a run, and what is missing of it: a set difference of file names, and nothing else knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from biaseval.store import Digest, Run


@dataclass(frozen=True)
class Unit:
    """The smallest work that is redone after a kill: complete when all its files have their final names."""

    number: int
    size: int
    """Prompts, questions, adapters or steps, for progress."""
    files: tuple[str, ...]
    """Names inside the run, such as ``label_scores/part-00003.parquet``."""
    work: Mapping[str, Any] = field(default_factory=dict)
    """What its worker is told, as JSON values."""
    products: tuple[str, ...] = ()
    """Files that are made with this unit: while all are there nothing needs it, and when it is made anew so are they.

    None for units that are wanted for themselves.
    """
    beside: tuple[str, ...] = ()
    """Parts of tables that say how its files were made; those that are there belong to the run."""


@dataclass(frozen=True)
class Done:
    """What came of a unit, beside its files."""

    unit: Unit
    tokens: int = 0
    """Computed for it, about."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """How it was made."""
    actor: str = ""
    """Who made it; one that was started again is another."""
    arrived_s: float = 0.0
    """When it reached the actor, by the clock of its machine."""
    ended_s: float = 0.0
    """When it was written, by the same clock."""
    busy_s: float = 0.0
    """How long the actor worked on it in between."""
    digests: Mapping[str, Digest] = field(default_factory=dict)
    """Of its files, where who wrote them said so."""

    @property
    def is_complete(self) -> bool:
        """Whether its files are there; otherwise it was given up, and the facts say why."""
        return bool(self.facts.get("is_complete", True))


def missing_units(run: Run, units: Sequence[Unit], *, needed_only: bool = False) -> list[Unit]:
    """Return the units that lack files, each with the files that it lacks.

    Args:
        run: the run directory.
        units: of one stage.
        needed_only: leave out units that nothing needs: all their products are there.
    """
    there = files_of(run, [name for unit in units for name in (*unit.files, *(unit.products if needed_only else ()))])
    missing = []
    for unit in units:
        lacking = tuple(name for name in unit.files if name not in there)
        is_needed = not (needed_only and unit.products) or not there.issuperset(unit.products)
        if lacking and is_needed:
            missing.append(replace(unit, files=lacking))
    return missing


def files_of(run: Run, names: Iterable[str]) -> set[str]:
    """Return the complete files in the folders of these names; each folder is listed once."""
    folders = {name.partition("/")[0] for name in names}
    return {name for folder in folders for name in run.files(folder)}
