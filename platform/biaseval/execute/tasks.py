"""One part of a stage's work, who makes it, and what is said when that fails; needs no Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from biaseval.errors import BiasevalError


@dataclass(frozen=True)
class Task:
    """One part, as workers see it."""

    number: int
    work: Mapping[str, Any]
    files: tuple[str, ...]
    """Those that are missing."""


class Worker(Protocol):
    """Makes the files of one part after another."""

    def make(self, task: Task, prepared: Any) -> Mapping[str, Any]:
        """Write the files that a task lacks, and return facts of how; JSON values."""


def as_ours(error: Exception, name: str) -> BiasevalError:
    """Return an error of a worker as one of ours: what it is, and what to do."""
    if isinstance(error, BiasevalError):
        return error
    reason = " ".join(str(error).split()) or "no reason is given"
    return BiasevalError(
        f"{name} failed: {type(error).__name__}: {reason}; mend this and run the same command again to resume"
    )
