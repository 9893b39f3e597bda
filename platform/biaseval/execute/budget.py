"""The limit of GPU-hours of a run: counted while it works, kept in ``environment.json`` across processes."""

from functools import cache

from biaseval.environment import amend_environment, read_environment
from biaseval.errors import BiasevalError
from biaseval.progress import say
from biaseval.store import Run
from biaseval.units import Done

HALT = "halt"
"""The file of a run that tells its actors and groups to start nothing more; it is deleted when the process ends."""


IDLE_BUDGET = "no GPU is used: execution.max_gpu_hours counts nothing"


def say_idle_budget(most: float | None, n_gpus: float, run_uri: str) -> None:
    """Say once of a run that GPU-hours are allowed to work that takes none, where it is so."""
    if most is not None and n_gpus == 0:
        _say_once(run_uri)


@cache
def _say_once(run_uri: str) -> None:
    say(IDLE_BUDGET)


class GpuHours:
    """Counts the GPU time of actors, from the arrival of their first part to the end of their last, and of trainings.

    Earlier processes of the run count too. ``most`` is the limit of the spec in GPU-hours, None for no limit;
    ``gpus_per_actor`` is of this stage, or per training group.
    """

    def __init__(self, run: Run, most: float | None, gpus_per_actor: float) -> None:
        self._run, self._most, self._n_gpus = run, most, gpus_per_actor
        self._before = float(read_environment(run).get("gpu_hours", 0.0))
        self._spans: dict[str, tuple[float, float]] = {}
        self._trained_s = 0.0
        say_idle_budget(most, gpus_per_actor, run.uri)
        if self.is_used_up:
            raise self.error()
        run.delete(HALT)

    @property
    def used(self) -> float:
        """GPU-hours so far, of all processes."""
        seconds = self._trained_s + sum(ended - arrived for arrived, ended in self._spans.values())
        return self._before + self._n_gpus * seconds / 3600

    @property
    def is_used_up(self) -> bool:
        """Whether no other part should begin."""
        return self._n_gpus > 0 and self._most is not None and self.used >= self._most

    def add(self, done: Done) -> None:
        """Count a part; once all is used up actors are told to begin no other."""
        first, last = self._spans.get(done.actor, (done.arrived_s, done.ended_s))
        self._spans[done.actor] = (min(first, done.arrived_s), max(last, done.ended_s))
        self._halt_if_used_up()

    def add_training(self, done: Done) -> None:
        """Count a training, which is known when it ends."""
        self._trained_s += done.busy_s
        self._halt_if_used_up()

    def _halt_if_used_up(self) -> None:
        if self.is_used_up and not self._run.has(HALT):
            self._run.write_text(HALT, "")

    def close(self) -> None:
        """Store the used GPU-hours."""
        self._run.delete(HALT)
        if self._n_gpus and (self._spans or self._trained_s):
            amend_environment(self._run, gpu_hours=round(self.used, 6))

    def error(self) -> BiasevalError:
        """Return the error for a run with parts left."""
        return BiasevalError(
            f"execution.max_gpu_hours: {self._most:g} are used up ({self.used:.3g}) before all is made; raise it and "
            "run the same command again: complete parts are kept"
        )
