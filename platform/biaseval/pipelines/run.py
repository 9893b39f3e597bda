"""What a run is, from spec to report. Read this first.

spec → claim the run directory → plan (Parquet parts) → train the missing adapters on Ray, where the spec has some →
compute the missing parts on Ray → marts by SQL → report
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from biaseval.errors import InputError
from biaseval.pipelines.claim import read_plan, refuse_another, refuse_foreign
from biaseval.pipelines.instruct import (
    InstructPlan,
    InstructSummary,
    n_steps_done,
    read_instruct_inputs,
    tune_planned,
    tuned_folder,
    write_instruct_plan,
)
from biaseval.pipelines.label_outputs import (
    LIKELIHOOD,
    PlanSummary,
    check_lora,
    missing_outputs,
    needed_adapters,
    read_inputs,
    score_missing,
    ways_of,
    write_plan,
)
from biaseval.pipelines.questions import (
    QuestionsPlan,
    answer_and_measure_missing,
    n_missing_parts,
    n_missing_rows,
    read_questions_inputs,
    refuse_other_sources,
    write_questions_plan,
)
from biaseval.pipelines.training import (
    AdaptersCost,
    TrainingSummary,
    adapters_cost,
    lora_of,
    refuse_stopped,
    train_missing_adapters,
)
from biaseval.progress import say
from biaseval.spec import CausalSpec, InstructSpec, QaBiasSpec, Spec
from biaseval.store import Run
from biaseval.training.rows import trained_adapters


@dataclass(frozen=True)
class Status:
    """How far a run is."""

    n_parts: int
    n_parts_done: int
    n_rows: int
    """Prompts to score; of a QA-bias run, questions to measure and, by each model, to answer; of tuning, steps."""
    n_rows_done: int
    kind: str
    n_adapters: int
    """Of the run; 0 where it has none."""
    n_adapters_done: int
    has_marts: bool
    has_report: bool


def run_spec(spec: Spec, run_uri: str) -> Run:
    """Plan, train, score, analyse and report a run; on a directory that has it already, only what is missing.

    Returns:
        The complete run.

    Raises:
        InputError: bad input, before any model is loaded.
        BiasevalError: scoring or a check failed; the same call resumes.
    """
    from biaseval.analysis import build_marts
    from biaseval.report import write_report

    if isinstance(spec, InstructSpec):
        raise InputError("kind: instruct is a training, not a measurement; use biaseval train instruct")
    with planned_run(spec, run_uri) as run:
        if isinstance(spec, QaBiasSpec):
            answer_and_measure_missing(run, spec)
        else:
            if spec.lora is not None:
                needed = needed_adapters(run, ways_of(spec))
                refuse_stopped(train_missing_adapters(run, spec, spec.lora, needed))
            score_missing(run, spec.model, spec.execution, ways_of(spec))
        say("computing the metrics")
        build_marts(run.uri)
        write_report([run.uri])
    return run


@contextmanager
def planned_run(spec: Spec, run_uri: str) -> Iterator[Run]:
    """Yield the run directory, claimed for the spec, locked and planned.

    Raises:
        InputError: bad input, or the directory is another's.
    """
    run = Run.open(run_uri)
    refuse_foreign(run)
    plan = None if run.has("plan.json") else _planner(spec)
    run.create()
    with run.lock():
        run.sweep()
        if run.has("plan.json"):
            refuse_another(run, spec)
            if isinstance(spec, QaBiasSpec):
                refuse_other_sources(run, spec)
        else:
            (plan or _planner(spec))(run)
        yield run


def train_lora(spec: Spec, run_uri: str) -> TrainingSummary:
    """Plan a run as `run_spec` does, and train its adapters; on a directory that has it, only those that are missing.

    Raises:
        InputError: bad input, before any weights are loaded.
        BiasevalError: training failed; the same call resumes.
    """
    checked, lora = lora_of(spec)
    with planned_run(checked, run_uri) as run:
        return train_missing_adapters(run, checked, lora)


def train_instruct(spec: Spec, run_uri: str) -> InstructSummary:
    """Tune a model on conversations; on a directory that has begun to, go on behind its last checkpoint.

    Raises:
        InputError: bad input, before any weights are loaded.
        BiasevalError: training failed, or a loss or gradient was not finite; the same call resumes.
    """
    if not isinstance(spec, InstructSpec):
        raise InputError(f"kind: {spec.kind} is a measurement; name a spec of the kind instruct")
    with planned_run(spec, run_uri) as run:
        return tune_planned(run, spec)


def _planner(spec: Spec) -> Callable[[Run], None]:
    """Validate a spec's inputs, and return what writes the plan that follows from them."""
    if isinstance(spec, QaBiasSpec):
        questions = read_questions_inputs(spec)
        return lambda run: write_questions_plan(run, spec, questions)
    if isinstance(spec, InstructSpec):
        conversations = read_instruct_inputs(spec)
        return lambda run: write_instruct_plan(run, spec, conversations)
    inputs = read_inputs(spec)
    if spec.lora is not None:
        check_lora(spec, spec.lora)
    return lambda run: write_plan(run, spec, inputs)


def summarize_questions(spec: QaBiasSpec) -> QuestionsPlan:
    """Return what a QA-bias spec would measure; writes nothing and loads no weights."""
    return read_questions_inputs(spec).plan


def summarize_instruct(spec: InstructSpec) -> InstructPlan:
    """Return what tuning would read and cost; writes nothing and loads no weights."""
    return read_instruct_inputs(spec).plan


def summarize_plan(spec: CausalSpec) -> tuple[PlanSummary, dict[str, Any], AdaptersCost | None]:
    """Return what the spec would score, the facts of its model, and what training its adapters would cost.

    Writes nothing and loads no weights.
    """
    inputs = read_inputs(spec)
    if spec.lora is not None:
        check_lora(spec, spec.lora)
    facts = asdict(inputs.facts)
    summary = inputs.start
    adapters: list[dict[str, Any]] = []
    problems: list[str] = []
    for planned in inputs.planned:
        summary += planned.summary
        adapters += planned.adapters
        problems += planned.problems
    if problems:
        raise InputError.of(problems)
    return summary, facts, None if spec.lora is None else adapters_cost(spec, spec.lora, adapters, facts)


def run_status(run_uri: str) -> Status:
    """Return how far the run at ``run_uri`` is, from its directory alone.

    Raises:
        InputError: there is no planned run.
    """
    run = Run.open(run_uri)
    plan = read_plan(run)
    spec = run.read_yaml("spec.yaml")
    if spec.get("kind") == "instruct":
        n_parts, n_rows = 1, plan["n_steps"]
        n_parts_done = int(tuned_folder(run) is not None)
        n_rows_done = n_rows if n_parts_done else n_steps_done(run)
    elif spec.get("kind") == "qa_bias":
        n_models = len(spec["models"])
        n_parts, n_rows = ((1 + n_models) * n for n in (plan["n_parts"], sum(plan["datasets"].values())))
        n_parts_done = n_parts - n_missing_parts(run, plan, n_models)
        n_rows_done = n_rows - n_missing_rows(run, plan, n_models)
    else:
        missing = missing_outputs(run, plan, spec.get("predict", LIKELIHOOD))
        n_parts, n_rows = plan["n_parts"], plan["n_prompts"]
        n_parts_done = n_parts - len(missing)
        n_rows_done = n_rows - sum(part["n_prompts"] for part in plan["parts"] if part["part"] in missing)
    adapters = {adapter["adapter"] for adapter in plan.get("adapters", ())}
    return Status(
        n_parts=n_parts,
        n_parts_done=n_parts_done,
        n_rows=n_rows,
        n_rows_done=n_rows_done,
        kind=str(spec.get("kind")),
        n_adapters=len(adapters),
        n_adapters_done=len(adapters & trained_adapters(run)) if adapters else 0,
        has_marts=run.has("results.duckdb"),
        has_report=run.has("report.html"),
    )
