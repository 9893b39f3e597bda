"""How far a run is, and whether something works on it, from its directory alone."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from biaseval.digests import inspected
from biaseval.environment import SPEC, raw_spec
from biaseval.errors import InputError
from biaseval.execute.messages import progress_file, under_way
from biaseval.lease import Seen, Sight, look
from biaseval.pipelines.directory import FINDINGS, is_planned, read_plan, read_spec
from biaseval.pipelines.failed_parts import failed_parts
from biaseval.pipelines.kind import Stage
from biaseval.pipelines.run import needed_units
from biaseval.runs.kinds import kind_of
from biaseval.runs.measured_rate import Pace, rate_of, written_units
from biaseval.store import LOGS, Run
from biaseval.units import lost_files, missing_units


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
    n_planned: int | None
    """Steps that it makes at most; None: an older version began it."""
    loss: float
    step_s: float
    """Seconds of its last step."""


@dataclass(frozen=True)
class Status:
    """How far a run is."""

    kind: str
    stages: list[StageStatus] = field(default_factory=list)
    has_metrics: bool = False
    """The kind has some: marts and a report belong to it."""
    has_marts: bool = False
    has_report: bool = False
    is_complete: bool = False
    """No work is left."""
    under_way: list[UnderWay] = field(default_factory=list)
    """Readers whose training has begun and not ended, also by a killed process."""
    driver: Sight | None = None
    """The process that works on the run, or ended without notice; None if it ended in order or none ever began."""
    pace: Pace | None = None
    """The speed of the current stage; None if all are complete."""
    given_up: Mapping[str, str] = field(default_factory=dict)
    """The units that the run continues without, and the reasons known so far."""
    damaged: Sequence[str] = ()
    """Files that are missing or differ from their recorded digest; the same command makes them again."""
    is_planned: bool = True
    """Whether the plan is complete; otherwise a process is planning, and the stages are unknown."""
    log: str | None = None
    """The file with the output of the last command that wrote to the run; None: none is there."""

    @property
    def is_live(self) -> bool:
        """A process works on the run."""
        return self.driver is not None and self.driver.is_live

    @property
    def size(self) -> int:
        """The size of all stages."""
        return sum(stage.size for stage in self.stages)

    @property
    def size_done(self) -> int:
        """The completed part of that size."""
        return sum(stage.size_done for stage in self.stages)


def run_status(run_uri: str) -> Status:
    """Return how far the run at ``run_uri`` is.

    Raises:
        InputError: there is no planned run, and no process is planning one.
        TransientError: the disk or store does not answer.
    """
    run = inspected(Run.open(run_uri), with_trained=True)
    run.ledger.is_whole = False  # what is not recorded yet is made
    if not is_planned(run):
        return _planning(run)
    plan, spec = read_plan(run), read_spec(run)
    damaged = sorted(lost_files(run))
    kind = kind_of(spec)
    planned = list(kind.stages(run, spec, plan))
    stages = [_stage_status(run, stage) for stage in planned]
    has_report, has_marts = map(run.has, FINDINGS)
    is_made = not needed_units(run, planned)
    is_complete = is_made and not damaged and (kind.page is None or (has_marts and has_report))
    said = [] if is_made else under_way(run)
    begun = [
        UnderWay(own["model"], own["n_steps"], own.get("n_planned"), own["loss"], own["seconds"])
        for own in said
        if own.get("model") is not None
    ]
    driver, seen = look(run)
    making = [pair for pair in zip(planned, stages, strict=True) if pair[1].n_units_done < pair[1].n_units]
    pace = None if is_made else _pace(run, *making[0], said, driver, seen)
    return Status(
        kind=spec.kind, stages=stages, has_metrics=kind.page is not None, has_marts=has_marts,
        has_report=has_report, is_complete=is_complete, under_way=begun, driver=driver, pace=pace,
        given_up={**kind.given_up(run, spec), **failed_parts(run)}, damaged=damaged,
        log=max(run.listed(LOGS), default=None),
    )  # fmt: skip


def _planning(run: Run) -> Status:
    """Return the status of a run that a process is planning; Raises InputError: no process is, there is no run."""
    driver, _ = look(run)
    if driver is None or not driver.is_live:
        raise InputError(
            f"{run.uri}: holds no planned run; check the path, or start one (one that has just been started reads its "
            "inputs before it writes: look again)"
        )
    return Status(str(raw_spec(run)["kind"]) if run.has(SPEC) else "", driver=driver, is_planned=False)


def _stage_status(run: Run, stage: Stage) -> StageStatus:
    missing = missing_units(run, stage.units)
    size, left = (sum(unit.size for unit in units) for units in (stage.units, missing))
    return StageStatus(
        verb=stage.verb,
        noun=stage.noun,
        n_units=len(stage.units),
        n_units_done=len(stage.units) - len(missing),
        size=size,
        size_done=size - left + min(left, _steps_begun(run, stage)),
    )


def _steps_begun(run: Run, stage: Stage) -> int:
    """Return the steps of a training that is counted in them, those behind its last checkpoint included."""
    if stage.noun != "steps":  # units of all other stages are there or not
        return 0
    norms = [
        norm for part in run.parts("training") for norm in run.read_part("training", part)["grad_norm"].to_pylist()
    ]
    kept = sum(norm is not None and math.isfinite(norm) for norm in norms)  # where it is not, no step was made
    [file] = map(progress_file, stage.units)
    return max(kept, int(run.read_json(file)["n_steps"]) if run.has(file) else 0)


def _pace(
    run: Run,
    stage: Stage,
    status: StageStatus,
    said: Sequence[Mapping[str, Any]],
    driver: Sight | None,
    seen: Seen | None,
) -> Pace:
    """Return the speed of a stage, now or of the last process if its driver ended without notice."""
    written = written_units(run, stage.units)
    began_s = 0.0 if driver is None or seen is None else seen.written_s - driver.held_s
    now_s = time.time() if seen is None else seen.now_s
    rate = rate_of([(time_s, size) for time_s, size in written if time_s >= began_s])
    if stage.noun == "steps" and len(said) == 1 and said[0]["seconds"] > 0:
        rate = 1 / said[0]["seconds"]
    is_live = driver is not None and driver.is_live
    return Pace(
        noun=stage.noun,
        verb=stage.verb,
        rate_per_s=rate,
        left_s=(status.size - status.size_done) / rate if rate and is_live else None,
        last_part_age_s=max(0.0, now_s - max(time_s for time_s, _ in written)) if written else None,
    )
