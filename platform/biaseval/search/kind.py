"""The kind search: keys of another spec are varied, each trial being a run of its own.

What trials share is made once, in ``RUN/shared``; trial n is the run ``RUN/trials/0000n`` and part n of ``trials``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from biaseval.analysis import query
from biaseval.analysis.sign_flips import MAX_UNITS, sign_flips
from biaseval.digests import recorded
from biaseval.errors import Problems, refuse
from biaseval.parsing import json_value
from biaseval.pipelines.cost_lines import cost_lines
from biaseval.pipelines.directory import read_plan
from biaseval.pipelines.kind import Deferred, Description, Inputs, Kind, Plan, Stage
from biaseval.pipelines.optional_packages import needs_of
from biaseval.pipelines.qa.trained_models import readers_of
from biaseval.pipelines.run import make_missing, planned_run
from biaseval.pipelines.trial_kinds import trial_kind
from biaseval.progress import say
from biaseval.search import trials
from biaseval.search.computed_trials import Computed
from biaseval.search.halving import Cutoffs, Reached, cutoffs
from biaseval.search.objectives import objective_columns
from biaseval.search.samplers import Point, sampler_of
from biaseval.search.shared_work import made_files, methods_of, own_readers, shared_stages, varies
from biaseval.spec import CausalSpec, QaTrainSpec, SearchSpec, dump_spec
from biaseval.store import Run
from biaseval.tables import SEARCH_SETTINGS, SIGN_FLIPS, TRIAL_EVALUATIONS
from biaseval.units import Done, Unit, plan_files

if TYPE_CHECKING:
    from biaseval.execute.cluster import Cluster
    from biaseval.execute.resources import Resources
    from biaseval.execute.waiting import Wait
    from biaseval.training.estimate import TrainingCost


BEST = "best.yaml"
"""The spec of the chosen trial, ready to be run alone."""


@dataclass(frozen=True)
class SearchInputs:
    """What planning starts from, validated."""

    objective: str
    """Its name."""
    searched: Inputs
    """Of the spec whose keys are searched."""
    n_trials: int

    @property
    def subject(self) -> str:
        """The planned work."""
        return f"{self.n_trials:,} trials"

    @property
    def facts(self) -> Mapping[str, Any]:
        """What ``environment.json`` says of it."""
        return self.searched.facts


def _read(spec: SearchSpec) -> SearchInputs:
    problems, name = Problems(), ""
    with problems.noted():
        name = objective_columns(spec.spec.kind, spec.objective.sql, spec.per, spec.choose_on)[0]
    with problems.noted():
        _refuse_idle(spec)
    searched: Any = None
    with problems.noted():
        searched = trial_kind(spec.spec).read(spec.spec)
    problems.refuse()
    problems.found += _impossible(spec, searched)
    problems.refuse()
    return SearchInputs(name, searched, spec.n_trials)


def _impossible(spec: SearchSpec, inputs: Inputs) -> list[str]:
    """Return which values of a list, and which ends of a range, no trial can run with, and why."""
    return [
        f"search.{key}: with {value}: {problem}"
        for key, domain in spec.search.items()
        for value in next(iter(domain.values()))
        for problem in trial_kind(spec.spec).problems(spec.at({key: value}), inputs, key)
    ]


def _refuse_idle(spec: SearchSpec) -> None:
    """Make sure that something is trained otherwise where keys of training are searched; Raises InputError: nothing."""
    problems = [
        f"search.{key}: no reader of train.methods changes with it; leave it out"
        for key in spec.search
        if key.startswith("train.") and not own_readers(spec, [key], with_bias_models=True)
    ]
    if spec.stop_early is not None and not own_readers(spec, list(spec.search)):
        problems.append("stop_early: no trial trains a reader that is watched; leave it out")
    refuse(problems)


def _stages(run: Run, spec: SearchSpec, plan: Plan) -> Iterator[Stage]:
    if any(not varies(spec)(Unit(0, 1, (file,), {}), file) for file in ("qa_attributes/", "label_scores/")):
        yield SharedWork(run, spec)
    yield Computed(spec) if spec.is_arithmetic else Trials(spec, plan)


@dataclass(frozen=True)
class SharedWork:
    """The stage that makes what trials share."""

    run: Run
    """The search's."""
    spec: SearchSpec
    verb: str = "done"
    noun: str = "pieces of shared work"

    @cached_property
    def units(self) -> list[Unit]:
        """All work as one unit; lost files are made again."""
        shared = recorded(Run.open(f"{self.run.uri}/{trials.SHARED}")) or {}
        return [Unit(0, 1, (*(f"{trials.SHARED}/{name}" for name in sorted(shared)), trials.MADE))]

    def make(self, run: Run, missing: Sequence[Unit], cluster: Cluster) -> Iterator[Done]:
        """Make the shared work, as a part of a run of the spec as it is.

        Raises:
            InputError: the cluster cannot hold as many trials as are asked for.
            BiasevalError: as such a run does.
        """
        kind, execution = trial_kind(self.spec.spec), self.spec.execution.of_a_trial
        spec = self.spec.spec.model_copy(update={"execution": execution})
        if not self.spec.is_arithmetic:
            _at_once(self.spec, self.spec.n_trials, cluster.resources())  # refuses before anything is made
        cluster.resources()  # connects, so that stages find Ray running
        with planned_run(kind, spec, f"{run.uri}/{trials.SHARED}") as shared:
            for stage in shared_stages(kind.stages(shared, spec, read_plan(shared)), varies(self.spec)):
                make_missing(shared, [stage], spec.execution, kind)
            files = made_files(shared, spec.kind) - plan_files(read_plan(shared))
        run.write_sealed(trials.MADE, {"files": sorted(files)})
        yield Done(missing[0])


@dataclass(frozen=True)
class Trials:
    """The stage that makes the trials, in batches: the results of earlier batches choose the next."""

    spec: SearchSpec
    plan: Plan
    verb: str = "ended"
    noun: str = "trials"

    @cached_property
    def units(self) -> list[Unit]:
        """All trials."""
        return [Unit(number, 1, trials.files_of_trials(number)) for number in range(self.plan["n_trials"])]

    def make(self, run: Run, missing: Sequence[Unit], cluster: Cluster) -> Iterator[Done]:
        """Make the missing trials, and yield each when it has ended, however it did.

        Raises:
            InputError: the cluster cannot hold as many as are asked for.
            BiasevalError: no trial of the first batch came to an end, or another version chose the points.
        """
        from biaseval.execute.waiting import Wait

        spec, resources = self.spec, cluster.resources()
        at_once = _at_once(spec, len(missing), resources)
        sampler, left = sampler_of(spec), {unit.number: unit for unit in missing}
        reached: list[list[Reached]] = []
        for numbers in _batches(spec, len(self.units)):
            points = dict(zip(numbers, sampler.ask(len(numbers)), strict=True))
            due = [number for number in numbers if number in left]
            for number in due:  # of a trial whose values are lost
                run.delete(trials.row_of(number))
            for number in set(numbers) - set(due):
                trials.refuse_other_points(run, number, [points[number]])
            if due:
                asked_of = {} if spec.stop_early is None else cutoffs(spec.stop_early, reached)
                wait = Wait("the search", spec.execution.of_a_trial, resources)
                for number in self._tried(run, due, points, asked_of, at_once, wait):
                    yield Done(left[number])
            if numbers[0] == 0:
                trials.refuse_failure(run, *numbers)
            rows = trials.rows_of(run, *numbers)
            batch = [_reached(run, number) for number in numbers]
            sampler.tell([trials.result_of(row, own) for row, own in zip(rows, batch, strict=True)])
            reached += batch

    def _tried(
        self, run: Run, numbers: Sequence[int], points: Mapping[int, Point], cutoffs: Cutoffs, at_once: int, wait: Wait
    ) -> Iterator[int]:
        """Have trials made, and yield the number of each that has ended; one that Ray Tune gave up has failed."""
        from biaseval.execute.tune import Attempts, try_all

        told = {"run_uri": run.uri, "points": points, "cutoffs": cutoffs, "at_once": at_once}
        attempts = Attempts(trials.make_trial, told, at_once)
        for number, problem in try_all(numbers, attempts, lambda one: run.has(trials.row_of(one)), wait):
            if problem is not None:
                trials.write_trials(
                    run, self.spec, number, {number: trials.Came("failed", problem=problem)}, points, 0.0
                )
            [row] = trials.rows_of(run, number)
            say(f"trial {number} ({_shown(points[number])}): {_outcome(row)}")
            yield number


def _batches(spec: SearchSpec, n_trials: int) -> Iterator[range]:
    """Yield the trials that are chosen together; after the first batch all, where nothing is learned of others."""
    learns = spec.algorithm == "optuna" or spec.stop_early is not None
    starts = range(0, n_trials, spec.batch) if learns else range(0, n_trials, spec.batch)[:2]
    yield from (range(*pair) for pair in pairwise([*starts, n_trials]))


def _at_once(spec: SearchSpec, n_trials: int, resources: Resources) -> int:
    """Return how many trials run at a time; Raises InputError: the cluster cannot hold as many as are asked for."""
    from biaseval.execute.resources import runs_at_once

    asked = None if spec.execution.at_once == "auto" else spec.execution.at_once
    most = max(map(len, _batches(spec, spec.n_trials)))
    return runs_at_once(asked, spec.execution.of_a_trial, _gpus(spec), min(n_trials, most), resources)


def _shown(point: Point) -> str:
    values = {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in point.items()}
    return ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in values.items())


def _outcome(row: Mapping[str, Any]) -> str:
    if row["state"] == "done":
        [(name, own)] = json_value(row["objectives"]).items()
        values = {f"{name} of {scope}": value for scope, value in own.items()} if isinstance(own, dict) else {name: own}
        return ", ".join(f"{which} {value:.4g}" for which, value in values.items() if value is not None)
    return f"failed: {row['problem']}" if row["state"] == "failed" else str(row["problem"])


def _gpus(spec: SearchSpec) -> int:
    own = spec.spec.train or getattr(spec.spec, "lora", None)
    asked = spec.execution.gpus_per_actor
    return max(1 if asked == "auto" else asked, own.workers if own is not None else 1)


def _reached(run: Run, number: int) -> list[Reached]:
    rows = trials.rows_of(run, number, table=TRIAL_EVALUATIONS.name)
    return [Reached(row["model"], row["n_steps"], row["f1"]) for row in rows]


def _derive(run: Run, spec: SearchSpec) -> None:
    """Write what SQL reads beside the trials."""
    shared = Run.open(f"{run.uri}/{trials.SHARED}")
    steps = sum(row["steps"] or 0 for row in trials.rows_of(shared, table="trained_models"))
    row: dict[str, object] = {
        **spec.model_dump(include={"name", "per", "algorithm", "choose_on", "batch", "seed"}),
        "searched": spec.spec.kind,
        "objectives": read_plan(run)["objectives"][:1],
        "are_maximized": [spec.objective.maximize],
        "are_of_bias_score": ["bias_score" in spec.objective.sql.casefold()],
        "keys": list(spec.search),
        "shared_steps": steps,
    }
    run.write_part(SEARCH_SETTINGS.name, 0, SEARCH_SETTINGS.rows([row]))
    run.write_part(SIGN_FLIPS.name, 0, sign_flips(MAX_UNITS if spec.per else 1, spec.seed))


def _conclude(run: Run, spec: SearchSpec) -> None:
    """Write ``best.yaml``, the spec of the chosen trial, to be run alone; there is none where several are chosen."""
    best = query([run.uri], "select any_value(parameters) as parameters from search_best having count(*) > 0")
    if best.num_rows and not spec.per:
        point = json_value(best["parameters"][0].as_py())
        run.write_text(BEST, dump_spec(spec.at(point).model_copy(update={"execution": spec.spec.execution})))


_CHOSEN_ON = {
    "half": "one half, measured on the other",
    "held_out": "held-out rows, measured on the main rows",
    "published": "all that is measured",
}


def _describe(spec: SearchSpec, inputs: SearchInputs) -> Description:
    found = trial_kind(spec.spec).describe(spec.spec, inputs.searched)
    keys = ", ".join(f"{key} ({next(iter(domain))})" for key, domain in spec.search.items())
    batches = f", chosen {spec.batch} at a time" if spec.algorithm == "optuna" else ""
    lines = [
        ("trials", f"{inputs.n_trials:,} ({spec.algorithm}{batches})"),
        ("searched", keys),
        ("objective", inputs.objective),
        ("chosen on", _CHOSEN_ON[spec.choose_on]),
    ]
    facts: dict[str, Any] = {"n_trials": inputs.n_trials, "objectives": [inputs.objective], "trial": found.facts}
    if spec.spec.train is not None and found.training is not None:
        cost = _training_cost(spec, spec.spec.train, found.training, found.facts["training"]["readers"])
        facts["search_training"] = cost
        lines += [
            ("trained once, for all", f"{cost['n_shared']:,} readers, {cost['shared_steps']:,} steps"),
            ("trained in each trial", f"{cost['n_own']:,} readers, {cost['own_steps']:,} steps"),
            ("steps of the search", f"{cost['steps']:,}"),
        ]
        if spec.stop_early is not None:
            lines.append(("steps, if all that may be are stopped first", f"{cost['fewest_steps']:,}"))
        lines += cost_lines("FLOPs of training", cost["flops"])
    elif not spec.is_arithmetic and isinstance(found.facts.get("flops"), int):
        lines += cost_lines("FLOPs, all trials", inputs.n_trials * found.facts["flops"])
    if spec.is_arithmetic:
        lines.append(("a trial", "computed from stored scores; no model is loaded"))
    whose = "once" if spec.is_arithmetic else "a trial"
    own = [(f"{whose}: {name}", value) for name, value in found.lines]
    notes = list(found.notes)
    if spec.choose_on == "published":
        notes.append("note: choose_on published: the choice sees all that it is measured on, as in the papers")
    return replace(found, lines=[*lines, *own], notes=notes, facts=facts)


def _training_cost(
    spec: SearchSpec, train: QaTrainSpec, alone: TrainingCost, readers: Sequence[Mapping[str, Any]]
) -> dict[str, int]:
    """Return the training cost of a search: steps of shared and of per-trial trainings, and FLOPs of all."""
    methods = methods_of(spec.search)
    steps = {own["name"]: own["steps"] for own in readers}
    own = {reader.name: steps[reader.name] for reader in readers_of(train) if reader.method in methods}
    shared_steps, own_steps = sum(steps.values()) - sum(own.values()), sum(own.values())
    n_trials = spec.n_trials
    total = shared_steps + n_trials * own_steps
    fewest = total
    if spec.stop_early is not None:
        watched = set(own_readers(spec, list(spec.search)))
        first, between = min(n_trials, spec.batch), train.evaluation_steps
        looked = -(-spec.stop_early.grace_steps // between) * between  # the first evaluation after the grace
        least = sum(min(looked, n) if name in watched else n for name, n in own.items())
        fewest = shared_steps + first * own_steps + (n_trials - first) * least
    return {
        "n_shared": len(steps) - len(own),
        "shared_steps": shared_steps,
        "n_own": len(own),
        "own_steps": own_steps,
        "steps": total,
        "fewest_steps": fewest,
        "flops": round(alone.flops * total / max(1, shared_steps + own_steps)),
    }


def _given_up(run: Run, spec: SearchSpec) -> Mapping[str, str]:
    return {f"trial {row['trial']}": str(row["problem"]) for row in trials.rows_of(run) if row["state"] == "failed"}


_HEADLINE = """
select
    {scope}objective, trial, parameters, value, value_low, value_high, evaluation, {above}n_within_noise, n_done,
    n_trials
from search_best
order by objective, scope
"""

SEARCH = Kind(
    read=_read,
    needs=lambda spec: needs_of(trial_kind(spec.spec), spec.spec),
    describe=_describe,
    write=lambda run, spec, inputs: {
        "n_trials": inputs.n_trials,
        "objectives": [inputs.objective],
        "batch": spec.batch,
    },
    stages=_stages,
    changes=lambda spec, environment: trial_kind(spec.spec).changes(spec.spec, environment),
    given_up=_given_up,
    derive=_derive,
    conclude=_conclude,
    page=Deferred("biaseval.report:run_page"),
    headline=lambda spec: _HEADLINE.format(
        scope="scope, " if spec.per else "", above="is_above_constant, " if isinstance(spec.spec, CausalSpec) else ""
    ),
)
