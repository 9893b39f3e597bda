"""The units of work of a run; the missing units are a set difference of file names."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from biaseval.errors import BiasevalError
from biaseval.store import DIGESTS, Digest, Run, part_name


@dataclass(frozen=True)
class Unit:
    """The smallest work that is redone after a kill: complete when all its files have their final names."""

    number: int
    size: int
    """Prompts, questions, adapters or steps, for progress."""
    files: tuple[str, ...]
    """Names inside the run, such as ``label_scores/part-00003.parquet``."""
    work: Mapping[str, Any] = field(default_factory=dict)
    """The arguments of its worker, as JSON values."""
    products: tuple[str, ...] = ()
    """Files whose making needs this unit: if all exist, the unit is not needed; if it runs again, they do too.

    None for units that are wanted for themselves.
    """
    beside: tuple[str, ...] = ()
    """Parts of tables with facts about its files; existing ones belong to the run."""


@dataclass(frozen=True)
class Done:
    """The result of a unit, besides its files."""

    unit: Unit
    tokens: int = 0
    """The approximate number of computed tokens."""
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
    """Return the units of a stage that lack files, each with the files that it lacks.

    With ``needed_only`` leave out units that nothing needs: all their products are there.
    """
    there = files_of(run, [name for unit in units for name in (*unit.files, *(unit.products if needed_only else ()))])
    missing = []
    for unit in units:
        lacking = tuple(name for name in unit.files if name not in there)
        is_needed = not (needed_only and unit.products) or not there.issuperset(unit.products)
        if lacking and is_needed:
            missing.append(replace(unit, files=lacking))
    return missing


def plan_files(plan: Mapping[str, Any]) -> set[str]:
    """Return the names of the Parquet files that a plan consists of; plans of older versions do not name all tables."""
    tables, parts = dict(plan.get("tables", {})), plan.get("parts", ())
    if parts and "contexts_part" in parts[0]:
        tables |= {"prompts": len(parts), "contexts": 1 + max(part["contexts_part"] for part in parts)}
    return {f"{table}/{part_name(part)}" for table, n_parts in tables.items() for part in range(n_parts)}


def lost_files(run: Run) -> set[str]:
    """Return the files that an inspected run once had, and lacks or has with other bytes; digests, or planned parts."""
    known = run.ledger.known
    planned = plan_files(run.read_json("plan.json")) if known is None and run.has("plan.json") else set()
    unknown = {DIGESTS} if known == {} else planned - files_of(run, planned)
    return unknown | run.ledger.damaged | run.ledger.lost


def refuse_missing(run: Run, missing: Sequence[str], n_expected: int) -> None:
    """Make sure that a run has all files expected of it; Raises BiasevalError: some are missing."""
    if missing:
        raise BiasevalError(
            f"{run.uri}: {len(missing)} of {n_expected} parts missing or damaged (first: {missing[0]}); run the same "
            "command again"
        )


def files_of(run: Run, names: Iterable[str]) -> set[str]:
    """Return the complete files in the folders of these names; each folder is listed once."""
    folders = {name.partition("/")[0] for name in names}
    return {name for folder in folders for name in run.files(folder)}
