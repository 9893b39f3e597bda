"""What a run is, from spec to report. Read this first.

spec → claim the run directory → plan (Parquet parts) → compute the missing parts on Ray → marts by SQL → report
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import yaml

from biaseval.pipelines.claim import read_plan, refuse_another, refuse_foreign
from biaseval.pipelines.label_outputs import (
    LIKELIHOOD,
    PlanSummary,
    missing_parts,
    read_inputs,
    score_missing,
    ways_of,
    write_plan,
)
from biaseval.progress import say
from biaseval.spec import Spec
from biaseval.store import Run


@dataclass(frozen=True)
class Status:
    """How far a run is."""

    n_parts: int
    n_parts_done: int
    n_prompts: int
    n_prompts_done: int
    kind: str
    has_marts: bool
    has_report: bool


def run_spec(spec: Spec, run_uri: str) -> Run:
    """Plan, score, analyse and report a run; on a directory that has it already, only what is missing.

    Returns:
        The complete run.

    Raises:
        InputError: bad input, before any model is loaded.
        BiasevalError: scoring or a check failed; the same call resumes.
    """
    from biaseval.analysis import build_marts
    from biaseval.report import write_report

    run = Run.open(run_uri)
    refuse_foreign(run)
    inputs = None if run.has("plan.json") else read_inputs(spec)
    run.create()
    with run.lock():
        run.sweep()
        if run.has("plan.json"):
            refuse_another(run, spec)
        else:
            write_plan(run, spec, inputs or read_inputs(spec))
        score_missing(run, spec.model, spec.execution, ways_of(spec))
        say("computing the metrics")
        build_marts(run.uri)
        write_report([run.uri])
    return run


def summarize_plan(spec: Spec) -> tuple[PlanSummary, dict[str, Any]]:
    """Return what the spec would score, and the facts of its model; writes nothing and loads no weights."""
    inputs = read_inputs(spec)
    return sum((planned.summary for planned in inputs.planned), inputs.start), asdict(inputs.facts)


def run_status(run_uri: str) -> Status:
    """Return how far the run at ``run_uri`` is, from its directory alone.

    Raises:
        InputError: there is no planned run.
    """
    run = Run.open(run_uri)
    plan = read_plan(run)
    spec = yaml.safe_load(run.read_text("spec.yaml"))
    done = set(range(plan["n_parts"])) - missing_parts(run, plan, spec.get("predict", LIKELIHOOD))
    return Status(
        n_parts=plan["n_parts"],
        n_parts_done=len(done),
        n_prompts=plan["n_prompts"],
        n_prompts_done=sum(part["n_prompts"] for part in plan["parts"] if part["part"] in done),
        kind=str(spec.get("kind")),
        has_marts=run.has("results.duckdb"),
        has_report=run.has("report.html"),
    )
