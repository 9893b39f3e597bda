"""A stage whose units are parts: each file is written where it is made, in one step, and what travels back is facts.

So a part is complete when its files exist, whatever dies before or after. Little work is done in the driver's own
process. A node of Ray starts in about four seconds. Each of its workers imports torch and transformers in another four;
the driver has imported them already. The code that makes a part is the same.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from biaseval.execute.budget import say_idle_budget
from biaseval.execute.datasets import made_on_ray
from biaseval.execute.devices import forget_attempts
from biaseval.execute.machine import n_cores
from biaseval.execute.pace import Pace
from biaseval.execute.resources import Resources, allocate
from biaseval.execute.tasks import Making, Task, as_ours, attempted, prepared_part
from biaseval.store import Run
from biaseval.units import Done, Unit

if TYPE_CHECKING:
    from biaseval.execute.cluster import Cluster


LITTLE_S = 25.0
"""Seconds of work that no Ray is started for."""

_NAME = "driver"


def is_little(parts: Making, missing: Sequence[Unit], cluster: Cluster) -> bool:
    """Return whether the missing units of a stage are made here: they are little work, and nothing asks for more.

    A stage that does not say how long it takes, a GPU that it would use, and a Ray that is there already are each a
    reason for Ray.
    """
    if parts.seconds is None or sum(map(parts.seconds, missing)) > LITTLE_S or not cluster.would_start:
        return False
    if parts.execution.gpus_per_actor == 0:
        return True
    import torch

    return not torch.cuda.is_available()


def made_here(parts: Making, run: Run, missing: Sequence[Unit]) -> Generator[Done, None, None]:
    """Make the missing units of a stage one after another, and yield each when it is complete.

    Raises:
        InputError, BiasevalError: our own, from a worker; complete parts stay.
    """
    say_idle_budget(parts.execution.max_gpu_hours, 0, run.uri)
    # All cores, unless whoever runs this says otherwise.
    n_threads = sys.modules["torch"].get_num_threads() if "torch" in sys.modules else n_cores()
    machine = Resources([{"CPU": float(n_threads)}], is_local=True, n_cores=n_threads)
    try:
        worker = parts.worker(run, allocate(parts.execution, 1, machine), **parts.arguments)
        for unit in missing:
            task = Task(unit.number, unit.work, unit.files)
            arrived = time.monotonic()
            made = prepared_part(parts.prepare, run, task, parts.name, parts.arguments)
            started = time.monotonic()
            if "prepared" in made.facts:
                make = partial(worker.make, task, made.facts["prepared"])
                made = attempted(make, parts.name, lambda error: False)
            busy = time.monotonic() - started
            digests = made.write(run)
            times: dict[str, Any] = {"arrived_s": arrived, "ended_s": time.monotonic(), "busy_s": busy}
            yield Done(unit, tokens=unit.work.get("tokens", 0), facts=made.facts, actor=_NAME, digests=digests, **times)
    except Exception as error:
        raise as_ours(error, parts.name) from error


@dataclass(frozen=True, kw_only=True)
class Parts(Making):
    """A stage of parts that are independent of each other."""

    def make(self, run: Run, missing: Sequence[Unit], cluster: Cluster) -> Generator[Done, None, None]:
        """Make the missing units in any order, and yield each when it is complete or has failed (`attempted`).

        Raises:
            InputError, BiasevalError: our own, from a worker.
            BiasevalError: Ray failed; complete parts stay.
        """
        # Parts of stages that keep no record of their speed differ too much for the first to speak for all.
        pace = Pace(run, missing if self.recorder is not None else [], self.noun, self.n_passes)
        recorder = None if self.recorder is None else self.recorder(run)
        forget_attempts(run)
        made = (
            made_here(self, run, missing)
            if is_little(self, missing, cluster)
            else made_on_ray(self, run, missing, cluster, pace)
        )
        try:
            with closing(made):
                for done in made:
                    if done.is_complete:
                        pace.add(done)
                    if recorder is not None and done.is_complete and done.busy_s:  # 0: its report got lost
                        recorder.add(done)
                    yield done
        finally:
            if recorder is not None:
                recorder.close()
            pace.close()
