"""What a run is, from spec to report. Read this first.

spec → claim the run directory → plan (Parquet parts) → score the missing parts on Ray → marts by SQL → report
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import yaml

from biaseval.environment import describe_environment
from biaseval.errors import BiasevalError, InputError
from biaseval.label_bias.plan import PlannedPart, label_problem, plan_tasks
from biaseval.label_bias.prompts import TokenCounter
from biaseval.label_bias.tasks import select_tasks
from biaseval.majority_bias.data import read_dataset
from biaseval.majority_bias.plan import plan_settings
from biaseval.progress import say, scoring_progress
from biaseval.spec import (
    ExecutionSpec,
    LabelBiasSpec,
    MajorityBiasSpec,
    ModelSpec,
    Prediction,
    Spec,
    differences,
    dump_spec,
)
from biaseval.store import Run
from biaseval.tables import CONTEXTS, PROMPTS, TABLES, output_tables

if TYPE_CHECKING:
    from biaseval.execute.label_scores import ScoredPart

_SHOWN_PROBLEMS = 10
_END_CHARACTERS = 16
_PATHS = (None, "packed", "prefix_cache", "full_text", "one_by_one")  # from the fastest to the slowest

_LIKELIHOOD: tuple[Prediction, ...] = ("likelihood",)


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
    n_shortened: int
    """Prompts that hold fewer demonstrations than asked for."""
    n_cut: int
    """Prompts that are too long without demonstrations and lose their end."""
    notes: list[str]
    left_out: dict[str, str]
    n_settings: int | None = None
    """Label proportions of a majority-bias run."""

    def __add__(self, other: PlanSummary) -> PlanSummary:
        """Return the summary of both, which are of the same kind of run."""
        counts = [name for name, value in asdict(self).items() if isinstance(value, int)]
        return PlanSummary(
            **{name: getattr(self, name) + getattr(other, name) for name in counts},
            notes=[*self.notes, *other.notes],
            left_out={**self.left_out, **other.left_out},
        )

    def facts(self) -> dict[str, Any]:
        """Return the fields that say something of this kind of run."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class _Planned:
    """What one task, or one setting of label proportions, adds to a run."""

    tables: dict[str, pa.Table]
    """Its part of each table, prompts left out."""
    parts: list[PlannedPart]
    summary: PlanSummary
    sha256: dict[str, str]
    """Of its files, by name."""


@dataclass(frozen=True)
class _Inputs:
    """What planning starts from, validated; no weights are loaded for it."""

    subject: str
    facts: Any
    """The model's."""
    sha256: dict[str, str]
    """Of the input files that are read whole before planning, by key of the spec."""
    start: PlanSummary
    """Of the run before any of ``planned``."""
    planned: Iterator[_Planned]
    """The plan, one task or setting in memory at a time; it can be gone through once."""


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


def run_label_bias(spec: LabelBiasSpec, run_uri: str) -> Run:
    """Plan, score, analyse and report a label-bias run; see `run_spec`."""
    return run_spec(spec, run_uri)


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
    _refuse_foreign(run)
    inputs = None if run.has("plan.json") else _inputs(spec)
    run.create()
    with run.lock():
        run.sweep()
        if run.has("plan.json"):
            _refuse_another(run, spec)
        else:
            _plan(run, spec, inputs or _inputs(spec))
        _score_missing(run, spec.model, spec.execution, _ways(spec))
        say("computing the metrics")
        build_marts(run.uri)
        write_report([run.uri])
    return run


def summarize_plan(spec: Spec) -> tuple[PlanSummary, dict[str, Any]]:
    """Return what the spec would score, and the facts of its model; writes nothing and loads no weights."""
    inputs = _inputs(spec)
    return sum((planned.summary for planned in inputs.planned), inputs.start), asdict(inputs.facts)


def run_status(run_uri: str) -> Status:
    """Return how far the run at ``run_uri`` is, from its directory alone.

    Raises:
        InputError: there is no planned run.
    """
    run = Run.open(run_uri)
    plan = _read_plan(run)
    spec = yaml.safe_load(run.read_text("spec.yaml"))
    done = set(range(plan["n_parts"])) - _missing(run, plan, spec.get("predict", _LIKELIHOOD))
    return Status(
        n_parts=plan["n_parts"],
        n_parts_done=len(done),
        n_prompts=plan["n_prompts"],
        n_prompts_done=sum(part["n_prompts"] for part in plan["parts"] if part["part"] in done),
        kind=str(spec.get("kind")),
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
    from biaseval.models import fingerprint_model

    prompts = _read_prompts(prompts_file)
    facts, tokenizer = _model_inputs(model)
    _refuse_indistinct_labels(prompts_file, prompts, tokenizer)
    _refuse_long_prompts(prompts_file, prompts, TokenCounter(tokenizer), facts.window)
    run = Run.open(out_uri)
    _refuse_foreign(run)
    fingerprint = fingerprint_model(model.path, revision=model.revision, adapter=model.adapter)
    content_hash = hashlib.sha256(repr(prompts.to_pylist()).encode()).hexdigest()
    claim = {"kind": "score", "model": model.model_dump(), "prompts_sha256": content_hash}
    run.create()
    with run.lock():
        run.sweep()
        claimed = yaml.safe_load(run.read_text("spec.yaml")) if run.has("plan.json") else None
        if claimed == claim:
            _refuse_another_model(run, model)
        elif claimed is not None and (claimed.get("kind") != "score" or run.parts("label_scores")):
            raise InputError(f"{run.uri}: holds scores of other prompts or another model; choose another --out")
        else:
            run.write_text("environment.json", _json({**describe_environment(), "model": fingerprint}))
            run.write_text("spec.yaml", yaml.safe_dump(claim, sort_keys=False, allow_unicode=True))
            _write_prompts(run, prompts, execution)
        _score_missing(run, model, execution, _LIKELIHOOD)
    return run


def _refuse_foreign(run: Run) -> None:
    """Make sure that the directory is new, or a run: nothing else is ever written over.

    Raises:
        InputError: it holds files and none says that they are a run's.
    """
    if not set(run.names()) - run.leftovers():
        return
    # The first file that a run writes.
    if run.has("environment.json"):
        try:
            if "versions" in json.loads(run.read_text("environment.json")):
                return
        except (ValueError, TypeError):
            pass
    raise InputError(f"{run.uri}: is not empty and not a run directory; choose another, nothing is written over")


def _refuse_another(run: Run, spec: Spec) -> None:
    """Make sure that a planned run is this spec's, on the same model and data.

    Raises:
        InputError: it belongs to another spec, or an input changed since it was planned.
    """
    different = differences(run.read_text("spec.yaml"), spec)
    if different:
        lines = "".join(f"\n  - {line}" for line in different)
        raise InputError(
            f"{run.uri}: belongs to another spec; choose another --run-dir, or undo the difference:{lines}"
        )
    environment = json.loads(run.read_text("environment.json"))
    problems = []
    if isinstance(spec, LabelBiasSpec):
        folder = Path(spec.tasks.path)
        for name, sha256 in environment["data"].items():
            path = folder / name if folder.is_dir() else folder
            if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
                problems.append(f"{path}: changed")
    for key, digest in _file_digests(spec).items():
        if environment["inputs"].get(key) != digest:
            problems.append(f"{key}: the file changed")
    if problems:
        raise InputError.of(
            [f"{problem} since {run.uri} was planned; restore it, or choose another --run-dir" for problem in problems]
        )
    _refuse_another_model(run, spec.model)


def _refuse_another_model(run: Run, model: ModelSpec) -> None:
    from biaseval.models import fingerprint_model

    recorded = json.loads(run.read_text("environment.json"))["model"]
    found = fingerprint_model(model.path, revision=model.revision, adapter=model.adapter)
    if found["digest"] != recorded["digest"]:
        raise InputError(
            f"{model.path}: is not the model that {run.uri} was planned with; restore it, or choose another --run-dir"
        )


def _file_digests(spec: Spec) -> dict[str, str]:
    """Return the SHA-256 of each input file of a spec that is no task file of its folder, by its key."""
    if isinstance(spec, MajorityBiasSpec):
        uris = {"data.train": spec.data.train, "data.test": spec.data.test}
    else:
        uris = {
            "tasks.table": spec.tasks.table,
            "tasks.templates": spec.tasks.templates,
            "tasks.splits": spec.tasks.splits,
        }
    return {key: _digest(uri) for key, uri in uris.items() if uri is not None}


def _digest(uri: str) -> str:
    """Return the SHA-256 of a file, or of the Parquet files of a folder in the order of their names."""
    folder = Run.open(uri)
    digest = hashlib.sha256()
    for path in [folder.path(name) for name in folder.names() if name.endswith(".parquet")] or [folder.root]:
        try:
            with folder.fs.open_input_stream(path) as stream:
                digest.update(stream.read())
        except OSError as error:
            raise InputError(f"{uri}: cannot be read ({error}); check the spec's paths") from error
    return digest.hexdigest()


def _ways(spec: Spec) -> tuple[Prediction, ...]:
    """Return how a run's predictions are made."""
    return tuple(spec.predict) if isinstance(spec, MajorityBiasSpec) else _LIKELIHOOD


def _plan(run: Run, spec: Spec, inputs: _Inputs) -> None:
    from biaseval.models import fingerprint_model

    environment = {
        **describe_environment(),
        "seed": spec.seed,
        "model": fingerprint_model(spec.model.path, revision=spec.model.revision, adapter=spec.model.adapter),
        "model_facts": asdict(inputs.facts),
        "inputs": inputs.sha256,
        "data": {},
    }
    # First of all: it is what tells a run from other people's files.
    run.write_text("environment.json", _json(environment))
    run.write_text("spec.yaml", dump_spec(spec))
    for table in TABLES:
        run.delete(table)
    say(f"planning {inputs.subject}")
    try:
        _write_plan(run, spec, inputs, environment)
    except InputError:
        # Nothing of a plan that cannot be is left behind; what marks the directory as a run goes last.
        for name in (*TABLES, "spec.yaml", "environment.json"):
            run.delete(name)
        raise


def _write_plan(run: Run, spec: Spec, inputs: _Inputs, environment: dict[str, Any]) -> None:
    summary = inputs.start
    parts: list[dict[str, int]] = []
    for number, planned in enumerate(inputs.planned):
        for table, rows in planned.tables.items():
            run.write_part(table, number, rows)
        for part in planned.parts:
            run.write_part("prompts", len(parts), part.prompts)
            parts.append(_part_entry(len(parts), number, part.prompts.num_rows, part.tokens))
        summary += planned.summary
        environment["data"] |= planned.sha256
    run.write_text("environment.json", _json(environment))
    if isinstance(spec, LabelBiasSpec) and (summary.n_cut or summary.n_shortened):
        say(
            f"prompt.max_tokens {spec.prompt.max_tokens}: of {summary.n_prompts:,} prompts {summary.n_shortened:,} "
            f"keep fewer demonstrations than asked for, {summary.n_cut:,} lose their end"
        )
    # The plan's final name is what says that planning is complete.
    run.write_text("plan.json", _json({**summary.facts(), "n_parts": len(parts), "parts": parts}))


def _inputs(spec: Spec) -> _Inputs:
    """Return what planning starts from, all validated; loads no weights."""
    return _label_bias_inputs(spec) if isinstance(spec, LabelBiasSpec) else _majority_bias_inputs(spec)


def _label_bias_inputs(spec: LabelBiasSpec) -> _Inputs:
    selection = select_tasks(spec.tasks)
    facts, tokenizer = _model_inputs(spec.model)
    planned = (
        _Planned(
            tables={"tasks": plan.tasks, "splits": plan.splits, "contexts": plan.contexts},
            parts=plan.parts,
            summary=PlanSummary(
                n_tasks=1,
                n_prompts=plan.n_prompts,
                n_scores=plan.n_scores,
                tokens=sum(part.tokens for part in plan.parts),
                tokens_unshared=sum(part.tokens_unshared for part in plan.parts),
                n_shortened=plan.n_shortened,
                n_cut=plan.n_cut,
                notes=plan.notes,
                left_out={},
            ),
            sha256={f"{plan.task}.json": plan.sha256},
        )
        for plan in plan_tasks(spec, selection.files, tokenizer, facts.window)
    )
    return _Inputs(
        subject=f"{len(selection.files)} tasks",
        facts=facts,
        sha256=_file_digests(spec),
        start=PlanSummary(0, 0, 0, 0, 0, n_shortened=0, n_cut=0, notes=[], left_out=selection.left_out),
        planned=planned,
    )


def _majority_bias_inputs(spec: MajorityBiasSpec) -> _Inputs:
    dataset = read_dataset(spec)
    facts, tokenizer = _model_inputs(spec.model)
    is_scored = "label_scores" in output_tables(spec.predict)
    n_passes = is_scored + ("generate" in spec.predict)
    n_texts = is_scored * len(dataset.labels) + ("generate" in spec.predict)
    planned = (
        _Planned(
            tables={"settings": plan.settings, "contexts": plan.contexts},
            parts=plan.parts,
            summary=PlanSummary(
                n_tasks=0,
                n_prompts=plan.n_prompts,
                n_scores=is_scored * plan.n_scores,
                # A prompt that is continued too is read twice.
                tokens=n_passes * sum(part.tokens for part in plan.parts),
                tokens_unshared=n_texts * sum(part.tokens_unshared for part in plan.parts) // len(dataset.labels),
                n_shortened=0,
                n_cut=0,
                notes=plan.notes,
                left_out={},
                n_settings=1,
            ),
            sha256={},
        )
        for plan in plan_settings(spec, dataset, tokenizer, facts.window)
    )
    return _Inputs(
        subject=f"{len(dataset.test):,} test rows, demonstrations from {len(dataset.train):,}",
        facts=facts,
        sha256=dataset.sha256,
        start=PlanSummary(1, 0, 0, 0, 0, n_shortened=0, n_cut=0, notes=dataset.notes, left_out={}, n_settings=0),
        planned=planned,
    )


def _model_inputs(model: ModelSpec) -> tuple[Any, Any]:
    """Return the model's facts and its tokenizer."""
    from biaseval.models import describe_model, load_tokenizer

    return (
        describe_model(model.path, revision=model.revision, trust_remote_code=model.trust_remote_code),
        load_tokenizer(model.path, revision=model.revision, trust_remote_code=model.trust_remote_code),
    )


def _missing(run: Run, plan: dict[str, Any], predict: Sequence[str]) -> set[int]:
    """Return the parts that lack one of the tables of outputs."""
    return {part for table in output_tables(predict) for part in run.missing_parts(table, plan["n_parts"])}


def _score_missing(run: Run, model: ModelSpec, execution: ExecutionSpec, predict: tuple[Prediction, ...]) -> None:
    from biaseval.execute.label_scores import PartToScore, score_parts

    plan = _read_plan(run)
    missing = _missing(run, plan, predict)
    if not missing:
        say(f"all {plan['n_prompts']:,} rows are scored already")
        return
    n_done = plan["n_prompts"] - sum(part["n_prompts"] for part in plan["parts"] if part["part"] in missing)
    if n_done:
        say(f"resuming: {n_done:,} of {plan['n_prompts']:,} rows are scored")
    record = _ScorerRecord(run)
    try:
        with scoring_progress(plan["n_prompts"], n_done) as progress:

            def on_scored(part: ScoredPart) -> None:
                progress.advance(part.n_prompts, part.tokens)
                record.add(part)

            parts = [PartToScore(**part) for part in plan["parts"] if part["part"] in missing]
            score_parts(run, parts, model, execution, on_scored, known=record.facts, predict=predict)
    finally:
        record.close()
    say(f"the scorer was busy {record.busy_share:.0%} of the time")
    still = _missing(run, plan, predict)
    if still:
        raise BiasevalError(
            f"{run.uri}: {len(still)} of {plan['n_parts']} parts are missing (first: {min(still)}); "
            "run the same command again to score them"
        )


class _ScorerRecord:
    """How a run is scored, in its ``environment.json``: over all actors, and over all sittings of a resumed run.

    Of several actors the slowest path, the smallest budgets (on one kind of device) and the largest difference count.
    An actor's time goes from the arrival of its first part to the end of its last; ``busy_share`` is the part of all
    actors' time in which they scored and wrote.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._scoring_s = 0.0
        self._spans: dict[str, tuple[float, float]] = {}
        self.facts: dict[str, Any] = self._environment().get("scorer", {})

    @property
    def busy_share(self) -> float:
        """Which part of their time the actors of this sitting were busy, in [0, 1]."""
        return self._scoring_s / (self._elapsed_s or 1.0)

    @property
    def _elapsed_s(self) -> float:
        return sum(ended - arrived for arrived, ended in self._spans.values())

    def add(self, part: ScoredPart) -> None:
        """Count a finished part."""
        first, last = self._spans.get(part.actor, (part.arrived_s, part.ended_s))
        self._spans[part.actor] = (min(first, part.arrived_s), max(last, part.ended_s))
        self._scoring_s += part.scoring_s
        for path, reason in part.facts["paths_left"].items():
            if path not in self.facts.get("paths_left", {}):
                say(f"the scorer's {path} path {reason}; scoring goes on with {part.facts['path']}")
        self._write(_combined(self.facts, part.facts))

    def close(self) -> None:
        """Add this sitting's times to the record."""
        if self._spans:
            scoring_s = self.facts.get("scoring_s", 0.0) + self._scoring_s
            elapsed_s = self.facts.get("elapsed_s", 0.0) + self._elapsed_s
            times = {"scoring_s": scoring_s, "elapsed_s": elapsed_s, "busy_share": scoring_s / elapsed_s}
            self._write({**self.facts, **{name: round(value, 3) for name, value in times.items()}})

    def _write(self, facts: dict[str, Any]) -> None:
        if facts != self.facts:
            self.facts = facts
            self._run.write_text("environment.json", _json({**self._environment(), "scorer": facts}))

    def _environment(self) -> dict[str, Any]:
        environment: dict[str, Any] = json.loads(self._run.read_text("environment.json"))
        return environment


def _combined(known: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of a run's scorers so far and of one more."""
    from biaseval.execute.label_scores import BUDGETS, device_kind

    if not known:
        return facts
    combined = {**known, **facts, "paths_left": known.get("paths_left", {}) | facts["paths_left"]}
    for key in ("path", "path_beyond_window"):
        combined[key] = max(known.get(key), facts[key], key=_PATHS.index)
    found = [each["self_test_difference"] for each in (known, facts)]
    combined["self_test_difference"] = max((each for each in found if each is not None), default=None)
    if device_kind(known["device"]) == device_kind(facts["device"]):
        for name in BUDGETS:
            if known.get(name) is not None and facts.get(name) is not None:
                combined[name] = min(known[name], facts[name])
    return combined


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
        elif _has_half_surrogate(text):
            problems.append(f"row {number}: text holds half a surrogate pair, which is no character; take it out")
        if not isinstance(labels, list) or not labels or not all(isinstance(x, str) and x.strip() for x in labels):
            problems.append(f"row {number}: labels must be a list of at least one label, each a string with a word")
        elif len(set(labels)) < len(labels):
            problems.append(f"row {number}: labels names a label twice")
    if not rows:
        problems.append("holds no row")
    if problems:
        n_more = len(problems) - _SHOWN_PROBLEMS
        shown = problems[:_SHOWN_PROBLEMS] + ([f"{n_more} more like these"] if n_more > 0 else [])
        raise InputError.of([f"{path}: {problem}" for problem in shown])
    schema = pa.schema([("prompt_id", pa.string()), ("text", pa.string()), ("labels", pa.list_(pa.string()))])
    return pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema=schema)


def _has_half_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _refuse_indistinct_labels(path: Path, prompts: pa.Table, tokenizer: Any) -> None:
    """Make sure that the tokenizer tells the labels of each prompt apart."""
    problems = []
    seen = set()
    for row in prompts.to_pylist():
        # What stands further ahead does not change how a label is tokenised.
        key = (row["text"][-_END_CHARACTERS:], tuple(row["labels"]))
        if key not in seen:
            seen.add(key)
            if problem := label_problem(tokenizer, *key):
                problems.append(f"{path}: prompt {row['prompt_id']!r}: {problem}; change its labels")
    if problems:
        raise InputError.of(problems[:_SHOWN_PROBLEMS])


def _refuse_long_prompts(path: Path, prompts: pa.Table, counter: TokenCounter, window: int | None) -> None:
    """Make sure that each text with its longest label and EOS fits the model's window."""
    problems = []
    for row in prompts.to_pylist() if window is not None else ():
        longest = max(row["labels"], key=len)
        # A token is at least a byte: most texts need not be tokenised to be known to fit.
        if window is not None and len(row["text"].encode()) + len(longest.encode()) + 8 > window:
            n_tokens = counter.count(f"{row['text']} {longest}") + 1
            if n_tokens > window:
                problems.append(
                    f"{path}: prompt {row['prompt_id']!r} needs {n_tokens} tokens with label and EOS and the model's "
                    f"window has {window}; shorten it"
                )
    if problems:
        raise InputError.of(problems[:_SHOWN_PROBLEMS])


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
        run.delete(table)
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
