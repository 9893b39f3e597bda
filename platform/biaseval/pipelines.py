"""What a run is, from spec to report. Read this first.

spec → claim the run directory → plan (Parquet parts) → score the missing parts on Ray → marts by SQL → report
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from biaseval.environment import describe_environment
from biaseval.errors import BiasevalError, InputError
from biaseval.label_bias.plan import TaskPlan, plan_tasks
from biaseval.label_bias.tasks import TaskSelection, select_tasks
from biaseval.progress import say, scoring_progress
from biaseval.spec import ExecutionSpec, LabelBiasSpec, ModelSpec, differences, dump_spec
from biaseval.store import Run
from biaseval.tables import CONTEXTS, PROMPTS, TABLES


@dataclass(frozen=True)
class PlanSummary:
    """What a run is going to score, in numbers."""

    n_tasks: int
    n_prompts: int
    n_scores: int
    """(prompt, label) pairs."""
    tokens: int
    """To compute with shared prefixes (about)."""
    tokens_unshared: int
    """To compute with one full text per (prompt, label) (about)."""
    notes: list[str]
    left_out: dict[str, str]


@dataclass(frozen=True)
class Status:
    """How far a run is."""

    n_parts: int
    n_parts_done: int
    n_prompts: int
    n_prompts_done: int
    has_marts: bool
    has_report: bool


def run_label_bias(spec: LabelBiasSpec, run_uri: str) -> Run:
    """Plan, score, analyse and report a label-bias run; on a directory that has it already, only what is missing.

    Returns:
        The complete run.

    Raises:
        InputError: bad input, before any model is loaded.
        BiasevalError: scoring or a check failed; the same call resumes.
    """
    from biaseval.analysis import build_marts
    from biaseval.report import write_report

    run = Run.open(run_uri)
    if not _is_planned(run, spec):
        _plan_label_bias(run, spec)
    _score_missing(run, spec.model, spec.execution)
    say("computing the metrics")
    build_marts(run.uri)
    write_report([run.uri])
    return run


def summarize_plan(spec: LabelBiasSpec) -> tuple[PlanSummary, dict[str, Any]]:
    """Return what the spec would score, and the facts of its model; writes nothing and loads no weights."""
    selection, tokenizer, facts = _inputs(spec)
    summary = PlanSummary(0, 0, 0, 0, 0, [], selection.left_out)
    for plan in plan_tasks(spec, selection.files, tokenizer, facts.window):
        summary = _extended(summary, plan)
    return summary, asdict(facts)


def run_status(run_uri: str) -> Status:
    """Return how far the run at ``run_uri`` is, from its directory alone.

    Raises:
        InputError: there is no planned run.
    """
    run = Run.open(run_uri)
    plan = _read_plan(run)
    done = run.parts("label_scores")
    return Status(
        n_parts=plan["n_parts"],
        n_parts_done=len(done),
        n_prompts=plan["n_prompts"],
        n_prompts_done=sum(part["n_prompts"] for part in plan["parts"] if part["part"] in done),
        has_marts=run.has("results.duckdb"),
        has_report=run.has("report.html"),
    )


def score_prompts(model: ModelSpec, execution: ExecutionSpec, prompts_file: Path, out_uri: str) -> Run:
    """Score any prompts with any labels; the scores are OUT/label_scores/part-*.parquet.

    Args:
        model: what to score with.
        execution: actors and their resources.
        prompts_file: Parquet or JSONL with ``prompt_id``, ``text`` and ``labels`` (list of text).
        out_uri: the directory for the scores; the same call resumes.

    Raises:
        InputError: bad input; the directory belongs to other prompts or another model.
    """
    from biaseval.models import describe_model, fingerprint_model, load_tokenizer

    prompts = _read_prompts(prompts_file)
    describe_model(model.path, revision=model.revision, trust_remote_code=model.trust_remote_code)
    load_tokenizer(model.path, revision=model.revision, trust_remote_code=model.trust_remote_code)
    run = Run.open(out_uri)
    fingerprint = fingerprint_model(model.path, revision=model.revision, adapter=model.adapter)
    content_hash = hashlib.sha256(repr(prompts.to_pylist()).encode()).hexdigest()
    claim = {"kind": "score", "model": model.model_dump(), "prompts_sha256": content_hash}
    _refuse_foreign(run)
    if run.has("plan.json"):
        if yaml.safe_load(run.read_text("spec.yaml")) != claim:
            raise InputError(f"{run.uri}: holds scores of other prompts or another model; choose another --out")
    else:
        run.create()
        run.write_text("spec.yaml", yaml.safe_dump(claim, sort_keys=False, allow_unicode=True))
        run.write_text("environment.json", _json({**describe_environment(), "model": fingerprint}))
        _write_prompts(run, prompts, execution)
    _score_missing(run, model, execution)
    return run


def _is_planned(run: Run, spec: LabelBiasSpec) -> bool:
    """Return whether the run has its plan, after making sure that it is this spec's.

    Raises:
        InputError: the directory belongs to another spec or to something else, or its inputs changed since.
    """
    _refuse_foreign(run)
    if not run.has("plan.json"):
        return False
    different = differences(run.read_text("spec.yaml"), spec)
    if different:
        raise InputError.of(
            [f"{run.uri}: belongs to another spec; choose another --run-dir, or undo the difference", *different]
        )
    recorded = json.loads(run.read_text("environment.json")).get("data", {})
    folder = Path(spec.tasks.path)
    for name, sha256 in recorded.items():
        path = folder / name if folder.is_dir() else folder
        if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
            raise InputError(f"{path}: changed since the run was planned; restore it, or choose another --run-dir")
    return True


def _refuse_foreign(run: Run) -> None:
    if run.names() and not run.has("spec.yaml"):
        raise InputError(f"{run.uri}: is not empty and not a run directory; choose another, nothing is written over")


def _plan_label_bias(run: Run, spec: LabelBiasSpec) -> None:
    from biaseval.models import fingerprint_model

    selection, tokenizer, facts = _inputs(spec)
    fingerprint = fingerprint_model(spec.model.path, revision=spec.model.revision, adapter=spec.model.adapter)
    run.create()
    run.sweep()
    for table in TABLES:
        run.drop_table(table)
    run.write_text("spec.yaml", dump_spec(spec))
    say(f"planning {len(selection.files)} tasks")
    environment = {
        **describe_environment(),
        "seed": spec.seed,
        "model": fingerprint,
        "model_facts": asdict(facts),
        "data": {},
    }
    summary = PlanSummary(0, 0, 0, 0, 0, [], selection.left_out)
    parts: list[dict[str, int]] = []
    for number, plan in enumerate(plan_tasks(spec, selection.files, tokenizer, facts.window)):
        run.write_part("tasks", number, plan.tasks)
        run.write_part("splits", number, plan.splits)
        run.write_part("contexts", number, plan.contexts)
        for part in plan.parts:
            run.write_part("prompts", len(parts), part.prompts)
            parts.append(_part_entry(len(parts), number, part.prompts.num_rows, part.tokens))
        summary = _extended(summary, plan)
        environment["data"][f"{plan.task}.json"] = plan.sha256
    run.write_text("environment.json", _json(environment))
    # The plan's final name is what says that planning is complete.
    run.write_text("plan.json", _json({**asdict(summary), "n_parts": len(parts), "parts": parts}))


def _inputs(spec: LabelBiasSpec) -> tuple[TaskSelection, Any, Any]:
    """Return the task files, the tokenizer and the model's facts, all validated; loads no weights."""
    from biaseval.models import describe_model, load_tokenizer

    model = spec.model
    selection = select_tasks(spec.tasks)
    facts = describe_model(model.path, revision=model.revision, trust_remote_code=model.trust_remote_code)
    tokenizer = load_tokenizer(model.path, revision=model.revision, trust_remote_code=model.trust_remote_code)
    return selection, tokenizer, facts


def _extended(summary: PlanSummary, plan: TaskPlan) -> PlanSummary:
    return PlanSummary(
        n_tasks=summary.n_tasks + 1,
        n_prompts=summary.n_prompts + plan.n_prompts,
        n_scores=summary.n_scores + plan.n_scores,
        tokens=summary.tokens + sum(part.tokens for part in plan.parts),
        tokens_unshared=summary.tokens_unshared + sum(part.tokens_unshared for part in plan.parts),
        notes=[*summary.notes, *plan.notes],
        left_out=summary.left_out,
    )


def _score_missing(run: Run, model: ModelSpec, execution: ExecutionSpec) -> None:
    from biaseval.execute import PartToScore, ScoredPart, score_parts

    plan = _read_plan(run)
    missing = set(run.missing_parts("label_scores", plan["n_parts"]))
    if not missing:
        return
    _refuse_another_model(run, model)
    n_done = plan["n_prompts"] - sum(part["n_prompts"] for part in plan["parts"] if part["part"] in missing)
    if n_done:
        say(f"resuming: {n_done:,} of {plan['n_prompts']:,} rows are scored")
    with scoring_progress(plan["n_prompts"], n_done) as progress:

        def on_scored(part: ScoredPart) -> None:
            progress.advance(part.n_prompts, part.tokens)
            _record_scorer(run, part.facts)

        parts = [PartToScore(**part) for part in plan["parts"] if part["part"] in missing]
        score_parts(run, parts, model, execution, on_scored)
    still = run.missing_parts("label_scores", plan["n_parts"])
    if still:
        raise BiasevalError(
            f"{run.uri}: {len(still)} of {plan['n_parts']} parts are missing (first: {still[0]}); "
            "run the same command again to score them"
        )


def _refuse_another_model(run: Run, model: ModelSpec) -> None:
    from biaseval.models import fingerprint_model

    recorded = json.loads(run.read_text("environment.json")).get("model")
    found = fingerprint_model(model.path, revision=model.revision, adapter=model.adapter)
    if recorded is not None and json.loads(_json(found)) != recorded:
        raise InputError(
            f"{model.path}: is not the model that {run.uri} was planned with; restore it, or choose another --run-dir"
        )


def _record_scorer(run: Run, facts: dict[str, Any]) -> None:
    environment = json.loads(run.read_text("environment.json"))
    if environment.get("scorer") != facts:
        run.write_text("environment.json", _json({**environment, "scorer": facts}))


def _read_plan(run: Run) -> dict[str, Any]:
    if not run.has("plan.json"):
        raise InputError(f"{run.uri}: holds no planned run; check the path, or start one with biaseval run")
    plan: dict[str, Any] = json.loads(run.read_text("plan.json"))
    return plan


def _read_prompts(path: Path) -> pa.Table:
    """Return ``prompt_id``, ``text`` and ``labels`` of a Parquet or JSONL file, validated."""
    rows = list(_prompt_rows(path))
    problems = []
    seen: set[str] = set()
    for number, row in enumerate(rows, start=1):
        identifier, text, labels = row.get("prompt_id"), row.get("text"), row.get("labels")
        if not isinstance(identifier, str) or not identifier:
            problems.append(f"row {number}: prompt_id is missing or not a string")
        elif identifier in seen:
            problems.append(f"row {number}: prompt_id {identifier!r} stands there twice; make ids unique")
        else:
            seen.add(identifier)
        if not isinstance(text, str):
            problems.append(f"row {number}: text is missing or not a string")
        if not isinstance(labels, list) or not labels or not all(isinstance(x, str) and x.strip() for x in labels):
            problems.append(f"row {number}: labels must be a list of at least one label, each a string with a word")
        elif len(set(labels)) < len(labels):
            problems.append(f"row {number}: labels names a label twice")
    if not rows:
        problems.append("holds no row")
    if problems:
        shown = problems[:10] + ([f"{len(problems) - 10} more like these"] if len(problems) > 10 else [])
        raise InputError.of([f"{path}: {problem}" for problem in shown])
    schema = pa.schema([("prompt_id", pa.string()), ("text", pa.string()), ("labels", pa.list_(pa.string()))])
    return pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema=schema)


def _prompt_rows(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq

    try:
        if path.suffix == ".parquet":
            yield from pq.read_table(path).to_pylist()
            return
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise InputError(f"{path}: line {number} is not an object with prompt_id, text and labels")
                    yield row
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: line {number} is not JSON ({error.msg}); write one object a line") from error
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise InputError(f"{path}: cannot be read as Parquet or UTF-8 JSONL ({error}); check --prompts") from error


def _write_prompts(run: Run, prompts: pa.Table, execution: ExecutionSpec) -> None:
    for table in TABLES:
        run.drop_table(table)
    part_rows = 512 if execution.part_rows == "auto" else execution.part_rows
    # One empty context: the text is the prompt.
    run.write_part("contexts", 0, CONTEXTS.rows([{"context_id": "", "text": ""}]))
    parts = []
    for number, start in enumerate(range(0, prompts.num_rows, part_rows)):
        rows = [
            {
                "prompt_id": row["prompt_id"],
                "context_id": "",
                "labels": row["labels"],
                "input_text": row["text"],
            }
            for row in prompts.slice(start, part_rows).to_pylist()
        ]
        run.write_part("prompts", number, PROMPTS.rows(rows))
        characters = sum(len(row["input_text"]) for row in rows)
        parts.append(_part_entry(number, 0, len(rows), characters // 4))
    run.write_text("plan.json", _json({"n_prompts": prompts.num_rows, "n_parts": len(parts), "parts": parts}))


def _part_entry(part: int, contexts_part: int, n_prompts: int, tokens: int) -> dict[str, int]:
    return {"part": part, "contexts_part": contexts_part, "n_prompts": n_prompts, "tokens": tokens}


def _json(content: object) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False, sort_keys=False) + "\n"
