"""Trials that are arithmetic: they differ only in computations on shared outputs, and run in blocks.

They load no model and score nothing again. Specs that differ only in calibrations are computed together, with each
calibration as a method of the same metrics.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, cast

from pydantic import ValidationError

from biaseval.digests import inspected
from biaseval.errors import BiasevalError, TransientError
from biaseval.pipelines.directory import read_spec
from biaseval.pipelines.trial_kinds import trial_kind
from biaseval.prompting.calibration import PURPOSES
from biaseval.qa_bias.splits.significance import given_thresholds
from biaseval.search import trials
from biaseval.search.objectives import Computing, Value, is_by_threshold
from biaseval.search.samplers import Point, sampler_of
from biaseval.spec import SearchedSpec, SearchSpec
from biaseval.store import Run
from biaseval.units import Done, Unit

if TYPE_CHECKING:
    from biaseval.execute.cluster import Cluster

_BLOCK = 50
"""Trials per block, if points do not depend on the results of others."""


@dataclass(frozen=True)
class Computed:
    """The stage that computes the trials, some at a time."""

    spec: SearchSpec
    verb: str = "ended"
    noun: str = "trials"

    @cached_property
    def units(self) -> list[Unit]:
        """Blocks of trials, numbered by the first of each."""
        n_trials, size = self.spec.n_trials, self.spec.batch if self.spec.algorithm == "optuna" else _BLOCK
        return [
            Unit(first, min(size, n_trials - first), trials.files_of_trials(first))
            for first in range(0, n_trials, size)
        ]

    def make(self, run: Run, missing: Sequence[Unit], cluster: Cluster) -> Iterator[Done]:
        """Compute the missing blocks, and yield each.

        Raises:
            BiasevalError: no trial of the first block came to an end, or another version chose the points.
        """
        from biaseval.execute.resources import blocks_at_once
        from biaseval.execute.tune import Attempts, try_all
        from biaseval.execute.waiting import Wait

        sampler, due = sampler_of(self.spec), {unit.number: unit for unit in missing}
        learns, execution, resources = self.spec.algorithm == "optuna", self.spec.execution, cluster.resources()
        for blocks in [[unit] for unit in self.units] if learns else [self.units]:
            points = {unit.number: sampler.ask(unit.size) for unit in blocks}
            mine = [unit.number for unit in blocks if unit.number in due]
            for number in mine:  # of trials whose values are lost
                run.delete(trials.row_of(number))
            for unit in blocks:
                if unit.number not in due:
                    trials.refuse_other_points(run, unit.number, points[unit.number])
            told = {"run_uri": run.uri, "points": {number: points[number] for number in mine}}
            attempts = Attempts(make_block, told, blocks_at_once(execution.at_once, len(mine), resources), num_cpus=1)
            wait = Wait("the search", execution.of_a_trial, resources)
            for number, problem in try_all(mine, attempts, lambda one: run.has(trials.row_of(one)), wait):
                if problem is not None:
                    raise BiasevalError(f"trials from {number} on: {problem}; run the same command again to resume")
                yield Done(due[number])
            trials.refuse_failure(run, blocks[0].number)
            if learns:
                sampler.tell([trials.result_of(row, ()) for row in trials.rows_of(run, blocks[0].number)])


def make_block(number: int, *, run_uri: str, points: Mapping[int, Sequence[Point]]) -> None:
    """Compute the trials from ``number`` on, and write their results."""
    run, started = Run.open(run_uri), time.monotonic()
    search = cast(SearchSpec, read_spec(run))
    specs: dict[int, SearchedSpec] = {}
    failed: dict[int, trials.Came] = {}
    block = dict(enumerate(points[number], number))
    for trial, point in block.items():
        try:
            specs[trial] = search.at(point)
        except ValidationError as error:
            failed[trial] = trials.Came("failed", problem=trials.reason(error))
    by_threshold = is_by_threshold(search.spec.kind, search.objective.sql)
    kind, groups = trial_kind(search.spec), together(specs, by_threshold=by_threshold)
    computings = [Computing(trials.deriving(kind, own.spec), list(own.own.values())) for own in groups]
    asked = [trial for own in groups for trial in own.own]
    found: dict[int, list[Value | BiasevalError]] = {trial: [] for trial in asked}
    objective = trials.objective_of(run, search)
    try:
        for place, value in objective.values(inspected(Run.open(f"{run.uri}/{trials.SHARED}")), computings, threads=1):
            found[asked[place]].append(value)
    except TransientError:
        raise
    except BiasevalError as error:
        failed |= {trial: trials.Came("failed", problem=str(error)) for trial in asked}
    came = {trial: trials.Came.of(own, objective.name) for trial, own in found.items()} | failed
    seconds = (time.monotonic() - started) / len(block)
    trials.write_trials(run, search, number, {trial: came[trial] for trial in block}, block, seconds, have_runs=False)


@dataclass(frozen=True)
class Together:
    """Specs that are computed as one."""

    spec: SearchedSpec
    """With the calibrations, or thresholds, of all of them."""
    own: Mapping[int, Collection[str] | Mapping[str, float]]
    """Trial to its methods, or to its thresholds."""


def together(specs: Mapping[int, SearchedSpec], *, by_threshold: bool = False) -> list[Together]:
    """Return the specs of trials in groups, each of those that differ in nothing but calibrations, or thresholds.

    ``by_threshold`` says whether all that is asked of them is asked of single thresholds.
    """
    groups: dict[str, dict[int, SearchedSpec]] = {}
    for trial, spec in specs.items():
        groups.setdefault(_rest(spec, by_threshold).model_dump_json(), {})[trial] = spec
    return [_group(own, by_threshold) for own in groups.values()]


def _rest(spec: SearchedSpec, by_threshold: bool) -> SearchedSpec:
    """Return a spec without what those that are computed as one may differ in."""
    fixed = _fixed(spec) if by_threshold else {}
    update: dict[str, object] = {"calibration": []} if spec.calibration else {}
    return spec.model_copy(update=update | ({"thresholds": dict.fromkeys(fixed, 0.0)} if fixed else {}))


def _fixed(spec: SearchedSpec) -> dict[str, float]:
    """Return the thresholds of a spec that are not searched."""
    return {name: own for name, own in given_thresholds(spec.thresholds).items() if isinstance(own, float)}


def _methods(calibrations: Iterable[str]) -> set[str]:
    return {f"{adapted}{name}" for name in calibrations for adapted in ("", "lora+")}


def _group(specs: Mapping[int, SearchedSpec], by_threshold: bool) -> Together:
    first = next(iter(specs.values()))
    if first.calibration:
        every = list(dict.fromkeys(name for spec in specs.values() for name in spec.calibration))
        unnamed = _methods(PURPOSES) - _methods(every)  # scored calibrations are stored under their plain names
        methods = {
            trial: sorted({"none", "lora"} | _methods(spec.calibration) | unnamed) for trial, spec in specs.items()
        }
        return Together(first.model_copy(update={"calibration": every}), methods)
    fixed = {trial: _fixed(spec) for trial, spec in specs.items()}
    tried = {name: sorted({own[name] for own in fixed.values()}) for name in _fixed(first)}
    if not by_threshold or not tried:
        return Together(first, dict.fromkeys(specs, ()))
    return Together(first.model_copy(update={"thresholds": {**given_thresholds(first.thresholds), **tried}}), fixed)
