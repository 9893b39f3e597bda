"""A part of a stage's work, its worker, and the messages of failures; needs no Ray."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from biaseval.errors import BiasevalError, InputError, TransientError
from biaseval.spec import ExecutionSpec
from biaseval.store import Digest, Run
from biaseval.units import Done, Unit

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)


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


RESUMES = "; mend this and run the same command again to resume"

ATTEMPTS = 3
"""How often a part is tried before it counts as failed."""


def failure(problem: str, attempts: int, *, has_ended: bool = False) -> dict[str, Any]:
    """Return the facts of a part that failed, or whose processes ended, in place of those of its making."""
    return {"is_complete": False, "problem": problem, "attempts": attempts, "has_ended": has_ended}


class Worker(Protocol):
    """Makes one part after another. Whoever has it make them writes them, if need be while it makes the next."""

    def make(self, task: Task, prepared: Any) -> Made:
        """Return the files that a task lacks."""


class Recorder(Protocol):
    """Notes how a stage is made, in ``environment.json``, while it is."""

    def add(self, done: Done) -> None:
        """Hear of a finished part."""

    def close(self) -> None:
        """Clean up when the process ends, with or without an error."""


@dataclass(frozen=True, kw_only=True)
class Staged:
    """What a stage says of its units."""

    name: str
    """The name of the work, for messages: ``scoring``."""
    verb: str
    """The state of a complete unit: ``scored``."""
    noun: str = "rows"
    """What units are measured in: ``rows``, ``adapters``, ``steps``."""
    units: Sequence[Unit]
    execution: ExecutionSpec
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the function that makes a unit."""


@dataclass(frozen=True, kw_only=True)
class Making(Staged):
    """How parts that are independent of each other are made."""

    worker: Callable[..., Worker]
    """Makes the worker in its actor: ``worker(run, allocation, **arguments)``."""
    prepare: Callable[..., Any] | None = None
    """The function of a CPU task before the worker, which gets its result: ``prepare(run, task, **arguments)``."""
    weights_bytes: int | None = None
    """Of the model that each worker holds; None: nobody knows."""
    n_passes: int = 0
    """Of the model over each token of a unit, where workers measure batches (`leave_pace`); 0: they do not."""
    recorder: Callable[[Run], Recorder] | None = None
    seconds: Callable[[Unit], float] | None = None
    """Returns about how long this process would take for a unit; None: nobody knows, or actors are asked for."""


def attempted(make: Callable[[], Made], name: str, ends_all: Callable[[Exception], bool]) -> Made:
    """Return a part that was tried up to `ATTEMPTS` times; one that failed has no tables, and the facts of `failure`.

    An error with a message of ours comes again, so it is not tried again.

    Raises:
        InputError, TransientError, OSError: bad input, a disk, a store or a network; other parts would meet it, too.
        Exception: one that ``ends_all`` work of this process.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return make()
        except (InputError, TransientError, OSError):
            raise
        except Exception as error:
            if ends_all(error):
                raise
            if isinstance(error, BiasevalError) or attempt == ATTEMPTS:
                return Made({}, failure(str(as_ours(error, name)), attempt))
            logger.warning("%s failed, and is tried again", name, exc_info=error)
    raise AssertionError("unreachable")


def prepared_part(
    prepare: Callable[..., Any] | None, run: Run, task: Task, name: str, given: Mapping[str, Any]
) -> Made:
    """Return what a worker needs for a part, as the fact ``prepared``, or the facts of a failure.

    Raises:
        InputError, TransientError, OSError: as `attempted`.
    """
    if prepare is None:
        return Made({}, {"prepared": None})
    return attempted(lambda: Made({}, {"prepared": prepare(run, task, **given)}), name, lambda error: False)


def as_ours(error: Exception, name: str) -> BiasevalError:
    """Return an error of a worker as a BiasevalError with its cause and the correction."""
    if isinstance(error, BiasevalError):
        return error
    reason = " ".join(str(error).split()) or "no reason is given"
    return BiasevalError(f"{name} failed: {type(error).__name__}: {reason}{RESUMES}")
