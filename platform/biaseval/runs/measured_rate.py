"""How fast a run goes: by when its parts were written, and by the record of its scorers, where it has one."""

from collections.abc import Sequence
from dataclasses import dataclass

from biaseval.environment import read_environment
from biaseval.pipelines.directory import is_planned, read_plan, read_spec
from biaseval.runs.kinds import kind_of
from biaseval.spec import AnySpec, differences
from biaseval.store import Run
from biaseval.units import Unit, missing_units

_RECENT = 20
"""Parts, of those last written, that a rate is taken from."""


@dataclass(frozen=True)
class Pace:
    """The speed of the current stage."""

    noun: str
    """The counted things: ``rows``, ``steps``."""
    verb: str
    """The work on them: ``scored``."""
    rate_per_s: float | None
    """Counted things per second, over the latest parts of the last process; None with too few parts."""
    left_s: float | None
    """Seconds until the stage is complete at this rate; None if no process works on it or the rate is unknown."""
    last_part_age_s: float | None
    """Seconds since the last part of the stage was written; None without a part."""


def rate_of(written: Sequence[tuple[float, int]]) -> float | None:
    """Return how much was made a second; of each part ``written`` has the time in seconds, and how much it holds."""
    recent = sorted(written)[-_RECENT:]
    if len(recent) < 2 or recent[-1][0] <= recent[0][0]:
        return None
    # The first of them was made before the time that is counted.
    return sum(size for _, size in recent[1:]) / (recent[-1][0] - recent[0][0])


def written_units(run: Run, units: Sequence[Unit]) -> list[tuple[float, int]]:
    """Return when each complete unit was written, in seconds since 1970 by the store's clock, and its size."""
    folders = {name.partition("/")[0] for unit in units for name in unit.files}
    times = {name: time_ns / 1e9 for folder in folders for name, (_, time_ns) in run.listed(folder).items()}
    return [
        (max(times[name] for name in unit.files), unit.size)
        for unit in units
        if unit.files and all(name in times for name in unit.files)
    ]


@dataclass(frozen=True)
class Measured:
    """The time and tokens of a run's scorers, over all processes that ended in order."""

    run: str
    """URI of the run."""
    device: str
    """Of an actor, the last that was heard of."""
    tokens_per_s: float
    """Tokens of the plan, shared prefixes counted once, that an actor got through a second."""
    hours: float
    """Of one actor, for the whole run."""
    hours_left: float
    """Of one actor, for the parts that are missing."""

    @property
    def line(self) -> tuple[str, str]:
        """Name and value, for a person."""
        return (
            "by its rate so far",
            f"{self.hours:.3g} hours of one actor on {self.device}, {self.hours_left:.3g} of them left "
            f"({self.tokens_per_s:,.0f} tokens/s, in {self.run})",
        )


def rate_so_far(spec: AnySpec, run_uri: str) -> Measured | None:
    """Return what a run's record says of its spec; None where there is no such run, or no record, or another spec's."""
    run = Run.open(run_uri)
    if not is_planned(run) or differences(read_spec(run), spec):
        return None
    scorer = read_environment(run).get("scorer", {})
    if not scorer.get("tokens") or not scorer.get("elapsed_s"):
        return None
    stages = kind_of(spec).stages(run, spec, read_plan(run))
    units = [unit for stage in stages if stage.verb == "scored" for unit in stage.units]
    tokens, left = (sum(unit.work["tokens"] for unit in own) for own in (units, missing_units(run, units)))
    rate = scorer["tokens"] / scorer["elapsed_s"]
    return Measured(run.uri, scorer["device"], rate, tokens / rate / 3600, left / rate / 3600)
