"""How far a run is, from its directory alone."""

from __future__ import annotations

from dataclasses import dataclass

from biaseval.execute.messages import under_way
from biaseval.pipelines.directory import read_plan, read_spec
from biaseval.pipelines.kind import Stage
from biaseval.pipelines.kinds import kind_of
from biaseval.store import Run
from biaseval.units import missing_units


@dataclass(frozen=True)
class StageStatus:
    """How far a stage is."""

    verb: str
    noun: str
    n_units: int
    n_units_done: int
    size: int
    """Of all units: rows, questions, adapters or steps, as ``noun`` says."""
    size_done: int


@dataclass(frozen=True)
class UnderWay:
    """A reader in training, as it was heard of last."""

    model: str
    n_steps: int
    loss: float


@dataclass(frozen=True)
class Status:
    """How far a run is."""

    kind: str
    stages: list[StageStatus]
    has_metrics: bool
    """The kind has some: marts and a report belong to it."""
    has_marts: bool
    has_report: bool
    is_complete: bool
    """Nothing is left to do."""
    under_way: list[UnderWay]
    """Readers whose training has begun and not ended; also of a process that was killed."""

    @property
    def n_parts(self) -> int:
        """Units of all stages."""
        return sum(stage.n_units for stage in self.stages)

    @property
    def n_parts_done(self) -> int:
        """Of these, complete ones."""
        return sum(stage.n_units_done for stage in self.stages)

    @property
    def size(self) -> int:
        """Of all stages together."""
        return sum(stage.size for stage in self.stages)

    @property
    def size_done(self) -> int:
        """Of this, what is made."""
        return sum(stage.size_done for stage in self.stages)


def run_status(run_uri: str) -> Status:
    """Return how far the run at ``run_uri`` is.

    Raises:
        InputError: there is no planned run.
    """
    run = Run.open(run_uri)
    plan = read_plan(run)
    spec = read_spec(run)
    kind = kind_of(spec)
    planned = list(kind.stages(run, spec, plan))
    stages = [_stage_status(run, stage) for stage in planned]
    has_marts, has_report = run.has("results.duckdb"), run.has("report.html")
    is_made = not any(missing_units(run, stage.units, needed_only=True) for stage in planned)
    is_complete = is_made and (kind.page is None or (has_marts and has_report))
    begun = [
        UnderWay(said["model"], said["n_steps"], said["loss"])
        for said in under_way(run)
        if said.get("model") is not None and not is_made
    ]
    return Status(spec.kind, stages, kind.page is not None, has_marts, has_report, is_complete, begun)


def _stage_status(run: Run, stage: Stage) -> StageStatus:
    missing = missing_units(run, stage.units)
    size, left = (sum(unit.size for unit in units) for units in (stage.units, missing))
    return StageStatus(
        verb=stage.verb,
        noun=stage.noun,
        n_units=len(stage.units),
        n_units_done=len(stage.units) - len(missing),
        size=size,
        size_done=size - left + min(left, stage.begun(run)),
    )
