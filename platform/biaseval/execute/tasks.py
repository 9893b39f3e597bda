"""One part of a stage's work, who makes it, and what is said when that fails; needs no Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from biaseval.errors import BiasevalError
from biaseval.store import Digest, Run

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Task:
    """One part, as workers see it."""

    number: int
    work: Mapping[str, Any]
    files: tuple[str, ...]
    """Those that are missing."""


@dataclass(frozen=True)
class Made:
    """What a worker made of a part."""

    tables: Mapping[str, pa.Table]
    """By the files that the task lacked."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Of how; JSON values."""

    def write(self, run: Run) -> dict[str, Digest]:
        """Write each file in one step, and return their digests."""
        for file, rows in self.tables.items():
            run.write_table(file, rows)
        return {file: digest for file in self.tables if (digest := run.ledger.files.get(file)) is not None}


class Worker(Protocol):
    """Makes one part after another. Whoever has it make them writes them, if need be while it makes the next."""

    def make(self, task: Task, prepared: Any) -> Made:
        """Return the files that a task lacks."""


def as_ours(error: Exception, name: str) -> BiasevalError:
    """Return an error of a worker as one of ours: what it is, and what to do."""
    if isinstance(error, BiasevalError):
        return error
    reason = " ".join(str(error).split()) or "no reason is given"
    return BiasevalError(
        f"{name} failed: {type(error).__name__}: {reason}; mend this and run the same command again to resume"
    )
