"""A stage whose units are parts: each file is written where it is made, in one step, and what travels back is facts.

So a part is complete when its files exist, whatever dies before or after.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from biaseval.execute.datasets import made_on_ray
from biaseval.execute.in_process import is_little, made_here
from biaseval.execute.pace import Pace
from biaseval.execute.tasks import Making
from biaseval.store import Run
from biaseval.units import Done, Unit

if TYPE_CHECKING:
    from biaseval.execute.cluster import Cluster


@dataclass(frozen=True, kw_only=True)
class Parts(Making):
    """A stage of parts that are independent of each other."""

    def make(self, run: Run, missing: Sequence[Unit], cluster: Cluster) -> Generator[Done, None, None]:
        """Make the missing units in any order, and yield each when it is complete.

        Raises:
            InputError, BiasevalError: our own, from a worker.
            BiasevalError: Ray failed; complete parts stay.
        """
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
