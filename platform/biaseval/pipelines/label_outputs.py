"""Runs of causal LMs: what they plan to score, and scoring what is missing of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from biaseval.environment import describe_environment
from biaseval.errors import BiasevalError, InputError
from biaseval.label_bias.plan import PlannedPart, plan_tasks
from biaseval.label_bias.tasks import select_tasks
from biaseval.majority_bias.data import read_dataset
from biaseval.majority_bias.plan import plan_settings
from biaseval.pipelines.claim import as_json, file_digests, read_plan
from biaseval.progress import say, scoring_progress
from biaseval.spec import (
    CausalSpec,
    ExecutionSpec,
    LabelBiasSpec,
    LoraSpec,
    MajorityBiasSpec,
    ModelSpec,
    Prediction,
    dump_spec,
)
from biaseval.store import Run
from biaseval.tables import ADAPTED, TABLES, output_tables, run_outputs
from biaseval.training.deepspeed_config import check_deepspeed
from biaseval.training.estimate import n_trainable
from biaseval.training.recipe import adapters_recipe
from biaseval.training.rows import adapters_of, with_tokens

if TYPE_CHECKING:
    from biaseval.execute.label_scores import ScoredPart

_PATHS = (None, "packed", "prefix_cache", "full_text", "one_by_one")  # from the fastest to the slowest

LIKELIHOOD: tuple[Prediction, ...] = ("likelihood",)


@dataclass(frozen=True)
class PlanSummary:
    """What a run is going to score, in numbers."""

    n_tasks: int
    n_prompts: int
    n_scores: int
    """(prompt, label) pairs; with adapters each counts twice."""
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
    problems: list[str] = field(default_factory=list)
    """What keeps its adapters from being trained."""

    @property
    def adapters(self) -> list[dict[str, Any]]:
        """Its adapters in their order: name, and tokens of their examples."""
        return adapters_of(self.tables["training_rows"]) if "training_rows" in self.tables else []


@dataclass(frozen=True)
class Inputs:
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


def read_inputs(spec: CausalSpec) -> Inputs:
    """Return what planning starts from, all validated; loads no weights."""
    return _label_bias_inputs(spec) if isinstance(spec, LabelBiasSpec) else _majority_bias_inputs(spec)


def write_plan(run: Run, spec: CausalSpec, inputs: Inputs) -> None:
    """Write the plan of a run, in Parquet parts; ``plan.json`` comes last and says that it is complete.

    Raises:
        InputError: the spec's inputs do not make a run; nothing of it is left.
    """
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
    run.write_text("environment.json", as_json(environment))
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


def _write_plan(run: Run, spec: CausalSpec, inputs: Inputs, environment: dict[str, Any]) -> None:
    summary = inputs.start
    parts: list[dict[str, Any]] = []
    adapters: list[dict[str, Any]] = []
    problems: list[str] = []
    for number, planned in enumerate(inputs.planned):
        for table, rows in planned.tables.items():
            run.write_part(table, number, rows)
        for part in planned.parts:
            run.write_part("prompts", len(parts), part.prompts)
            parts.append(part_entry(len(parts), number, part.prompts.num_rows, part.tokens, part.adapter))
        for adapter in planned.adapters:
            adapters.append({"part": len(adapters), "rows_part": number, **adapter})
        summary += planned.summary
        problems += planned.problems
        environment["data"] |= planned.sha256
    if problems:
        raise InputError.of(problems)
    if spec.lora is not None:
        environment["trained_parameters"] = n_trainable(check_lora(spec, spec.lora), spec.lora.r)
    run.write_text("environment.json", as_json(environment))
    if isinstance(spec, LabelBiasSpec) and (summary.n_cut or summary.n_shortened):
        say(
            f"prompt.max_tokens {spec.prompt.max_tokens}: of {summary.n_prompts:,} prompts {summary.n_shortened:,} "
            f"keep fewer demonstrations than asked for, {summary.n_cut:,} lose their end"
        )
    # The plan's final name is what says that planning is complete.
    plan = {**summary.facts(), "n_parts": len(parts), "parts": parts}
    run.write_text("plan.json", as_json(plan if spec.lora is None else {**plan, "adapters": adapters}))


def _label_bias_inputs(spec: LabelBiasSpec) -> Inputs:
    selection = select_tasks(spec.tasks)
    facts, tokenizer = model_inputs(spec.model)

    def planned() -> Iterator[_Planned]:
        for plan in plan_tasks(spec, selection.files, tokenizer, facts.window):
            training, problems = _training(spec, plan.training_rows, tokenizer, facts.window)
            yield _Planned(
                tables={"tasks": plan.tasks, "splits": plan.splits, "contexts": plan.contexts, **training},
                parts=plan.parts,
                summary=PlanSummary(
                    n_tasks=1,
                    n_prompts=plan.n_prompts,
                    n_scores=_n_models(spec) * plan.n_scores,
                    tokens=_n_models(spec) * sum(part.tokens for part in plan.parts),
                    tokens_unshared=_n_models(spec) * sum(part.tokens_unshared for part in plan.parts),
                    n_shortened=plan.n_shortened,
                    n_cut=plan.n_cut,
                    notes=plan.notes,
                    left_out={},
                ),
                sha256={f"{plan.task}.json": plan.sha256},
                problems=problems,
            )

    return Inputs(
        subject=f"{len(selection.files)} tasks",
        facts=facts,
        sha256=file_digests(spec),
        start=PlanSummary(0, 0, 0, 0, 0, n_shortened=0, n_cut=0, notes=[], left_out=selection.left_out),
        planned=planned(),
    )


def _majority_bias_inputs(spec: MajorityBiasSpec) -> Inputs:
    dataset = read_dataset(spec)
    facts, tokenizer = model_inputs(spec.model)
    is_scored = "label_scores" in output_tables(spec.predict)
    n_passes = _n_models(spec) * (is_scored + ("generate" in spec.predict))
    n_texts = _n_models(spec) * (is_scored * len(dataset.labels) + ("generate" in spec.predict))

    def planned() -> Iterator[_Planned]:
        for plan in plan_settings(spec, dataset, tokenizer, facts.window):
            training, problems = _training(spec, plan.training_rows, tokenizer, facts.window)
            yield _Planned(
                tables={"settings": plan.settings, "contexts": plan.contexts, **training},
                parts=plan.parts,
                summary=PlanSummary(
                    n_tasks=0,
                    n_prompts=plan.n_prompts,
                    n_scores=_n_models(spec) * is_scored * plan.n_scores,
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
                problems=problems,
            )

    return Inputs(
        subject=f"{len(dataset.test):,} test rows, demonstrations from {len(dataset.train):,}",
        facts=facts,
        sha256=dataset.sha256,
        start=PlanSummary(1, 0, 0, 0, 0, n_shortened=0, n_cut=0, notes=dataset.notes, left_out={}, n_settings=0),
        planned=planned(),
    )


def _n_models(spec: CausalSpec) -> int:
    """Return how often each prompt is scored: with adapters once by the model itself and once by the adapted model."""
    return 1 if spec.lora is None else 2


def _training(
    spec: CausalSpec, rows: pa.Table, tokenizer: Any, window: int | None
) -> tuple[dict[str, pa.Table], list[str]]:
    """Return the part of ``training_rows`` where the spec asks for adapters, and what keeps them from being trained."""
    if spec.lora is None:
        return {}, []
    counted, problems = with_tokens(tokenizer, rows, spec.lora, window)
    return {"training_rows": counted}, problems


def check_lora(spec: CausalSpec, lora: LoraSpec) -> list[tuple[int, int]]:
    """Make sure that adapters of the spec's model can be trained as it says, and return `target_shapes`.

    Raises:
        InputError: the model lacks a layer that is to be changed, or a DeepSpeed file contradicts the spec.
    """
    from biaseval.training.adapters import target_shapes

    check_deepspeed(adapters_recipe(spec.model, lora))
    return target_shapes(spec.model, lora)


def model_inputs(model: ModelSpec) -> tuple[Any, Any]:
    """Return the model's facts and its tokenizer."""
    from biaseval.models import describe_model, load_tokenizer

    return (
        describe_model(model.path, revision=model.revision, trust_remote_code=model.trust_remote_code),
        load_tokenizer(model.path, revision=model.revision, trust_remote_code=model.trust_remote_code),
    )


def ways_of(spec: CausalSpec) -> tuple[Prediction, ...]:
    """Return how a run's predictions are made."""
    return tuple(spec.predict) if isinstance(spec, MajorityBiasSpec) else LIKELIHOOD


def needed_adapters(run: Run, predict: Sequence[str]) -> set[str]:
    """Return the adapters that parts without adapted outputs are waiting for."""
    plan = read_plan(run)
    missing = missing_outputs(run, plan, predict)
    adapted = set(ADAPTED.values())
    return {part["adapter"] for part in plan["parts"] if not adapted.isdisjoint(missing.get(part["part"], ()))}


def missing_outputs(run: Run, plan: dict[str, Any], predict: Sequence[str]) -> dict[int, list[str]]:
    """Return the tables of outputs that each incomplete part lacks."""
    missing: dict[int, list[str]] = {}
    for table in run_outputs(predict, has_adapters="adapters" in plan):
        for part in run.missing_parts(table, plan["n_parts"]):
            missing.setdefault(part, []).append(table)
    return missing


def score_missing(run: Run, model: ModelSpec, execution: ExecutionSpec, predict: tuple[Prediction, ...]) -> None:
    """Score the parts of a planned run that lack outputs, and record how; adapters are trained already.

    Raises:
        InputError, BiasevalError: see `biaseval.execute.label_scores.score_parts`.
    """
    from biaseval.execute.label_scores import PartToScore, score_parts

    plan = read_plan(run)
    missing = missing_outputs(run, plan, predict)
    if not missing:
        say(f"all {plan['n_prompts']:,} rows are scored already")
        return
    n_done = plan["n_prompts"] - sum(part["n_prompts"] for part in plan["parts"] if part["part"] in missing)
    if n_done:
        say(f"resuming: {n_done:,} of {plan['n_prompts']:,} rows are scored")
    record = ScorerRecord(run)
    try:
        with scoring_progress(plan["n_prompts"], n_done) as progress:

            def on_scored(part: ScoredPart) -> None:
                progress.advance(part.n_prompts, part.tokens)
                record.add(part)

            parts = [
                PartToScore(**part, tables=tuple(missing[part["part"]]))
                for part in plan["parts"]
                if part["part"] in missing
            ]
            score_parts(run, parts, model, execution, on_scored, known=record.facts, predict=predict)
    finally:
        record.close()
    say(f"the scorer was busy {record.busy_share:.0%} of the time")
    still = missing_outputs(run, plan, predict)
    if still:
        raise BiasevalError(
            f"{run.uri}: {len(still)} of {plan['n_parts']} parts are missing (first: {min(still)}); "
            "run the same command again to score them"
        )


class ScorerRecord:
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
            self._run.write_text("environment.json", as_json({**self._environment(), "scorer": facts}))

    def _environment(self) -> dict[str, Any]:
        environment: dict[str, Any] = self._run.read_json("environment.json")
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


def part_entry(
    part: int, contexts_part: int, n_prompts: int, tokens: int, adapter: str | None = None
) -> dict[str, Any]:
    """Return what ``plan.json`` says of a part of ``prompts``; a part without adapter has no such key."""
    entry: dict[str, Any] = {"part": part, "contexts_part": contexts_part, "n_prompts": n_prompts, "tokens": tokens}
    return entry if adapter is None else {**entry, "adapter": adapter}
