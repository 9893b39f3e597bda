"""A trial of a search: a run of its own, which takes what trials share, makes the rest, and answers the objective."""

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

from pydantic import ValidationError

from biaseval.analysis.sql_files import Chosen
from biaseval.digests import inspected
from biaseval.errors import BiasevalError, TransientError
from biaseval.parsing import json_value
from biaseval.pipelines.directory import read_plan, read_spec
from biaseval.pipelines.kind import AnyKind
from biaseval.pipelines.run import analyse, make_missing, planned_run
from biaseval.pipelines.trial_kinds import trial_kind
from biaseval.search.halving import Cutoffs, Reached
from biaseval.search.objectives import EVERYTHING, Computing, Objective, Value
from biaseval.search.samplers import Point, Result
from biaseval.search.shared_work import own_readers, take
from biaseval.spec import SearchedSpec, SearchSpec
from biaseval.store import Run, part_name
from biaseval.tables import TRIAL_EVALUATIONS, TRIAL_VALUES, TRIALS
from biaseval.training.rows import CUTOFFS

SHARED = "shared"
"""The run, inside that of a search, of what its trials share."""

MADE = f"{SHARED}/made.json"
"""Says that it is complete, and which parts of its tables trials take."""


def trial_folder(number: int) -> str:
    """Return the directory of a trial, inside the search's."""
    return f"{TRIALS.name}/{number:05d}"


def files_of_trials(part: int) -> tuple[str, ...]:
    """Return the files of the trials of a part, the one that makes them complete last."""
    return (*(f"{table.name}/{part_name(part)}" for table in (TRIAL_VALUES, TRIAL_EVALUATIONS)), row_of(part))


def row_of(part: int) -> str:
    """Return the file that makes the trials of a part complete: of one trial, or of a block from it on."""
    return f"{TRIALS.name}/{part_name(part)}"


def rows_of(run: Run, *parts: int, table: str = TRIALS.name) -> list[dict[str, Any]]:
    """Return the rows of parts of a table; of all its parts where none is named."""
    return [row for part in parts or sorted(run.parts(table)) for row in run.read_part(table, part).to_pylist()]


def refuse_other_points(run: Run, part: int, points: Sequence[Point]) -> None:
    """Make sure that a part's trials are those that the sampler asks for; Raises BiasevalError: it chooses others."""
    for row, point in zip(rows_of(run, part), points, strict=True):
        if json_value(row["parameters"]) != point:
            raise BiasevalError(
                f"{run.uri}: trial {row['trial']} was made at {row['parameters']}, and Optuna now chooses "
                f"{json.dumps(point)}: it is another version than {run.uri}/environment.json names; use that one, or "
                "start the search again in another directory"
            )


def refuse_failure(run: Run, *parts: int) -> None:
    """Make sure that the first trials say anything at all; Raises BiasevalError: all of them failed."""
    rows = rows_of(run, *parts)
    if all(row["state"] == "failed" for row in rows):
        raise BiasevalError(
            f"{run.uri}: each of the first {len(rows)} trials failed, so the search ends here; the first says: "
            f"{rows[0]['problem']}"
        )


def result_of(row: Mapping[str, Any], reached: Sequence[Reached]) -> Result:
    """Return what the sampler hears of a trial."""
    if row["state"] == "done":
        return Result(next(iter(json_value(row["objectives"]).values())))
    by_steps: dict[int, list[float]] = {}
    for own in reached:
        by_steps.setdefault(own.n_steps, []).append(own.f1)
    means = {n_steps: sum(found) / len(found) for n_steps, found in by_steps.items()}
    return Result(None, means if row["state"] == "stopped" else {})


def objective_of(run: Run, search: SearchSpec) -> Objective:
    """Return the objective of a planned search."""
    name = read_plan(run)["objectives"][0]
    asked = None if "calibration" in search.search else search.spec.calibration
    chosen = Chosen(search.spec.own_calibrations, asked, search.spec.metric_files)
    return Objective(search.spec.kind, name, search.objective.sql, search.per, search.choose_on, search.seed, chosen)


def deriving(kind: AnyKind, spec: SearchedSpec) -> Callable[[Run], None]:
    """Return what writes the settings and draws that SQL reads beside outputs."""

    def derive(run: Run) -> None:
        if kind.derive is not None:
            kind.derive(run, spec)

    return derive


def make_trial(
    number: int, *, run_uri: str, points: Mapping[int, Mapping[str, Any]], cutoffs: Cutoffs, at_once: int
) -> None:
    """Make a trial, and write its results; its row of ``trials`` comes last.

    ``points`` has searched keys to values, by trial. ``cutoffs`` is what its readers must reach. The cluster is shared
    by ``at_once`` trials.

    Raises:
        TransientError: the failure has a cause outside the trial.
    """
    run, started = Run.open(run_uri), time.monotonic()
    search = cast(SearchSpec, read_spec(run))
    try:
        came = _made(run, search, number, points[number], cutoffs, at_once)
    except TransientError:
        raise
    except (BiasevalError, ValidationError) as error:
        came = Came("failed", problem=reason(error))
    write_trials(run, search, number, {number: came}, points, time.monotonic() - started)


@dataclass(frozen=True)
class Came:
    """The result of a trial."""

    state: str
    values: Sequence[Value] = ()
    objective: str = ""
    """Of these values, the one that is looked for."""
    problem: str | None = None
    steps: int = 0
    reached: Sequence[Reached] = ()

    @classmethod
    def of(cls, found: Iterable[Value | BiasevalError], objective: str, **facts: Any) -> Self:
        """Return the result of a trial with these values; a trial without a value has failed."""
        found = list(found)
        if problems := [str(own) for own in found if not isinstance(own, Value)]:
            return cls("failed", problem=problems[0], **facts)
        return cls("done", [own for own in found if isinstance(own, Value)], objective, **facts)

    def found(self, sample: str) -> str | None:
        """Return the objective on a sample as JSON: its name to the value, or to scopes and their values."""
        found: dict[str, Any] = {
            own.scope: own.value
            for own in self.values
            if own.objective == self.objective and own.sample == sample and own.left_out is None
        }
        return json.dumps({self.objective: found.get(EVERYTHING, found)}) if found else None


def write_trials(
    run: Run,
    search: SearchSpec,
    part: int,
    trials: Mapping[int, Came],
    points: Mapping[int, Mapping[str, Any]],
    seconds: float,
    *,
    have_runs: bool = True,
) -> None:
    """Write the rows of trials as a part; those of ``trials``, which make them complete, come last.

    Each trial took ``seconds``. Trials that ``have_runs`` are runs in directories of their own.
    """
    values = [{"trial": number, **value._asdict()} for number, came in trials.items() for value in came.values]
    run.write_part(TRIAL_VALUES.name, part, TRIAL_VALUES.rows(values))
    evaluations: list[dict[str, object]] = [
        {"trial": number, "model": reached.reader, "n_steps": reached.n_steps, "f1": reached.f1}
        for number, came in trials.items()
        for reached in came.reached
    ]
    run.write_part(TRIAL_EVALUATIONS.name, part, TRIAL_EVALUATIONS.rows(evaluations))
    rows: list[dict[str, object]] = [
        {
            "trial": number, "parameters": json.dumps(dict(points[number])), "state": came.state,
            "objectives": came.found("choice"), "evaluation": came.found("evaluation"), "steps": came.steps,
            "seconds": seconds, "seed": points[number].get("seed", search.spec.seed),
            "run": trial_folder(number) if have_runs else None, "problem": came.problem,
        }
        for number, came in trials.items()
    ]  # fmt: skip
    run.write_part(TRIALS.name, part, TRIALS.rows(rows))


def _made(
    search_run: Run, search: SearchSpec, number: int, point: Mapping[str, Any], cutoffs: Cutoffs, at_once: int
) -> Came:
    spec = search.at(point)
    kind = trial_kind(spec)
    with planned_run(kind, spec, f"{search_run.uri}/{trial_folder(number)}") as run:
        if search_run.has(MADE):
            shared = inspected(Run.open(f"{search_run.uri}/{SHARED}"))
            take(shared, search_run.read_json(MADE)["files"], run)
        run.write_json(CUTOFFS, cutoffs)
        trained: list[dict[str, Any]] = []
        problem: str | None = None
        for stage in kind.stages(run, spec, read_plan(run)):
            make_missing(run, [stage], spec.execution, kind, at_once=at_once)
            trained = rows_of(run, table="trained_models")
            problem = next((row["problem"] for row in trained if row.get("is_stopped")), None)
            if problem is not None:
                break
        reached = _reached_by(run, search)
        own = own_readers(search, list(search.search), with_bias_models=True)
        steps = sum(row["steps"] or 0 for row in trained if row["model"] in own)
        if problem is not None:
            return Came("stopped", problem=problem, steps=steps, reached=reached)
        analyse(run, kind, spec)
        kind.refuse_given_up(run, spec)
        alone = Computing(deriving(kind, spec), [()])
        objective = objective_of(search_run, search)
        found = [value for _, value in objective.values(run, [alone])]
    return Came.of(found, objective.name, steps=steps, reached=reached)


def _reached_by(run: Run, search: SearchSpec) -> list[Reached]:
    """Return how the readers that a trial trained itself did at their evaluations, on their sets for validation."""
    if search.spec.train is None:
        return []
    own, deciding = set(own_readers(search, list(search.search))), set(search.spec.train.validation)
    found: dict[tuple[str, int], list[float]] = {}
    for row in rows_of(run, table="evaluations"):
        if row["model"] in own and row["dataset"] in deciding and math.isfinite(row["f1"]):
            found.setdefault((row["model"], row["step"] + 1), []).append(row["f1"])
    return [Reached(model, n_steps, sum(own) / len(own)) for (model, n_steps), own in sorted(found.items())]


def reason(error: Exception) -> str:
    """Return why a trial failed."""
    if isinstance(error, ValidationError):
        return "; ".join(f"{'.'.join(map(str, own['loc']))}: {own['msg']}" for own in error.errors())
    return str(error)
