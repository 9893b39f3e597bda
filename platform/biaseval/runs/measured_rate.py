"""How long a run takes by the rate at which it was scored so far, where its directory has a record of that."""

from __future__ import annotations

from dataclasses import dataclass

from biaseval.environment import read_environment
from biaseval.pipelines.directory import is_planned, read_plan, read_spec
from biaseval.runs.kinds import kind_of
from biaseval.spec import AnySpec, differences
from biaseval.store import Run
from biaseval.units import missing_units


@dataclass(frozen=True)
class Measured:
    """What its scorers took, over all sittings that ended in order."""

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
    """Return what a run's record says of its spec; None where there is no such run, or no record, or another spec's.

    Args:
        spec: as it would be run.
        run_uri: of the directory that it would be run in.
    """
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
