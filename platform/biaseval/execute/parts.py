"""A stage whose units are parts: each file is written where it is made, in one step, and what travels back is facts.

So a part is complete when its files exist, whatever dies before or after.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from biaseval.execute.tasks import Worker
from biaseval.spec import ExecutionSpec
from biaseval.store import Run
from biaseval.units import Done, Unit

if TYPE_CHECKING:
    from biaseval.execute.cluster import Cluster


class Recorder(Protocol):
    """Notes how a stage is made, in ``environment.json``, while it is."""

    def add(self, done: Done) -> None:
        """Hear of a finished part."""

    def close(self) -> None:
        """Hear that the sitting ends, however it does."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """A stage of parts that are independent of each other."""

    name: str
    """What is done, for messages: ``scoring``."""
    verb: str
    """What has happened to a part that is complete: ``scored``."""
    noun: str = "rows"
    """What units are measured in."""
    units: Sequence[Unit]
    execution: ExecutionSpec
    worker: Callable[..., Worker]
    """Makes the worker in its actor: ``worker(run, allocation, **arguments)``."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    prepare: Callable[..., Any] | None = None
    """What a CPU task does before: ``prepare(run, task, **arguments)``; the worker gets what it returns."""
    weights_bytes: int | None = None
    """Of the model that each worker holds; None: nobody knows."""
    n_passes: int = 0
    """Of the model over each token of a unit, where workers measure batches (`leave_pace`); 0: they do not."""
    recorder: Callable[[Run], Recorder] | None = None
    seconds: Callable[[Unit], float] | None = None
    """Returns about how long this process would take for a unit; None: nobody knows, or actors are asked for."""

    def begun(self, run: Run) -> int:
        """Return 0: a part is there or it is not."""
        return 0

    def make(self, run: Run, missing: Sequence[Unit], cluster: Cluster) -> Generator[Done, None, None]:
        """Make the missing units in any order, and yield each when it is complete.

        Raises:
            InputError, BiasevalError: our own, from a worker.
            BiasevalError: Ray failed; complete parts stay.
        """
        from biaseval.execute.datasets import made_on_ray
        from biaseval.execute.here import is_little, made_here
        from biaseval.execute.pace import Pace

        # Parts of stages that keep no record of their speed differ too much for the first to speak for all.
        pace = Pace(run, missing if self.recorder is not None else [], self.noun, self.n_passes)
        recorder = None if self.recorder is None else self.recorder(run)
        made = (
            made_here(self, run, missing)
            if is_little(self, missing, cluster)
            else made_on_ray(self, run, missing, cluster, pace)
        )
        try:
            with closing(made):
                for done in made:
                    pace.add(done)
                    if recorder is not None:
                        recorder.add(done)
                    yield done
        finally:
            if recorder is not None:
                recorder.close()
            pace.close()
