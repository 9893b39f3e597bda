"""Training the adapters of a label-bias run: which they are, what they cost, and training those that are missing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from biaseval.errors import BiasevalError, InputError
from biaseval.label_bias.prompts import PromptFitter, TokenCounter
from biaseval.pipelines.claim import as_json, read_plan
from biaseval.pipelines.label_outputs import model_inputs
from biaseval.progress import say
from biaseval.spec import LabelBiasSpec, LoraSpec, Spec
from biaseval.store import Run
from biaseval.training.estimate import (
    PUBLISHED_SHAPES,
    Memory,
    ModelShape,
    gpus_needed,
    memory_of,
    training_flops,
)
from biaseval.training.rows import AdapterKey, TaskPool, adapter_keys, trained_adapters, training_rows
from biaseval.training.schedule import n_steps_of

if TYPE_CHECKING:
    from biaseval.execute.training import AdapterOutcome, AdapterToTrain


@dataclass(frozen=True)
class TrainingSummary:
    """What a sitting of training did, and what the run's adapters are."""

    uri: str
    n_adapters: int
    """Complete, of the whole run."""
    n_planned: int
    n_trained: int
    """In this sitting."""
    n_steps: int
    """Of the complete adapters."""
    first_loss: float | None
    """Mean over the complete adapters of the loss at their first step, in nats; None where there is none."""
    last_loss: float | None
    """The same at their last step."""
    seconds: float
    """Sum over the adapters of this sitting, without starting workers and loading the model."""
    overhead_share: float | None
    """Part of these seconds outside optimizer steps, in [0, 1]; None if nothing was trained."""
    stopped: list[str]
    """Adapters of this sitting whose loss or gradient was not finite, each with its step."""


@dataclass(frozen=True)
class TrainingCost:
    """What training is going to cost, about."""

    n_adapters: int
    n_steps: int
    tokens: int
    """Of all training rows, each once."""
    longest: int
    """Tokens of the longest training row."""
    flops: int
    shapes: list[ModelShape]
    """The spec's model, then those of P1."""
    n_trainable: list[int]
    """Parameters of an adapter, for each shape."""
    memory: list[dict[str, Memory]]
    """Of one worker, by ZeRO stage, for each shape."""
    gpus: list[int]
    """Needed for each shape; 0 where none will do."""


def train_missing_adapters(run: Run, spec: LabelBiasSpec, lora: LoraSpec) -> TrainingSummary:
    """Train the adapters that a planned run lacks.

    Raises:
        InputError: the section ``lora`` does not fit the model or its DeepSpeed file; before anything is trained.
        BiasevalError: training failed; what is complete stays.
    """
    from biaseval.execute.training import train_missing
    from biaseval.training.adapters import target_shapes

    check_lora(lora)
    target_shapes(spec.model, lora)
    planned = list(_planned_adapters(run, spec, lora))
    complete = trained_adapters(run)
    missing = [adapter for adapter in planned if adapter.key.name not in complete]
    outcomes: list[AdapterOutcome] = []
    if not missing:
        say(f"all {len(planned):,} adapters are trained already")
    else:
        if len(missing) < len(planned):
            say(f"resuming: {len(planned) - len(missing):,} of {len(planned):,} adapters are trained")
        heard = -1

        def on_progress(n_done: int) -> None:
            nonlocal heard
            if n_done != heard:
                heard = n_done
                say(f"trained {len(planned) - len(missing) + n_done:,} of {len(planned):,} adapters")

        outcomes = train_missing(run, spec, missing, on_progress)
        _record(run, lora, outcomes)
    return _summary(run, [adapter.key.name for adapter in planned], outcomes)


def training_cost(rows: TrainingTokens, facts: Mapping[str, Any]) -> TrainingCost:
    """Return what training would cost; loads no weights.

    Args:
        rows: the tokens of the training rows of all adapters.
        facts: the model's.
    """
    from biaseval.training.adapters import target_shapes

    lora = rows.lora
    own = ModelShape(
        facts["family"],
        facts["n_parameters"],
        facts["hidden_size"],
        facts["n_layers"],
        target_shapes(rows.spec.model, lora),
    )
    shapes = [own, *PUBLISHED_SHAPES]
    stages = {"none": None, "1": 1, "2": 2, "3": 3}
    return TrainingCost(
        n_adapters=rows.n_adapters,
        n_steps=rows.n_adapters * n_steps_of(lora.n_examples, lora),
        tokens=rows.tokens,
        longest=rows.longest,
        flops=training_flops(own.n_parameters, rows.tokens, lora),
        shapes=shapes,
        n_trainable=[shape.n_trainable(lora.r) for shape in shapes],
        memory=[
            {name: memory_of(shape, lora, rows.longest, stage, lora.workers) for name, stage in stages.items()}
            for shape in shapes
        ],
        gpus=[gpus_needed(shape, lora, rows.longest) for shape in shapes],
    )


@dataclass
class TrainingTokens:
    """Counts the training rows of a run's adapters, one task at a time."""

    spec: LabelBiasSpec
    lora: LoraSpec
    tokenizer: Any
    window: int | None
    n_adapters: int = 0
    tokens: int = 0
    longest: int = 0

    def add(self, tasks: pa.Table, splits: pa.Table) -> list[tuple[AdapterKey, int]]:
        """Count a task's rows; return its adapters' keys, each with the tokens of its rows.

        Raises:
            InputError: a row is longer than ``lora.max_tokens`` or the model's window.
        """
        from biaseval.training.batches import encode_rows

        pool = TaskPool.of(tasks, splits)
        fitter = PromptFitter(TokenCounter(self.tokenizer), self.spec.prompt.max_tokens)
        found = []
        for key in adapter_keys(pool.task, self.spec):
            rows = training_rows(pool, key, self.lora.n_examples, fitter)
            try:
                encoded = encode_rows(self.tokenizer, rows, pool.labels, self.lora.max_tokens)
            except InputError as error:
                raise InputError(f"{key.name}: {error}") from error
            lengths = [len(row.token_ids) for row in encoded]
            if self.window is not None and max(lengths) > self.window:
                raise InputError(
                    f"{key.name}: a training row has {max(lengths)} tokens and the model's window {self.window}; lower "
                    "prompt.max_tokens, or choose a model with a longer window"
                )
            found.append((key, sum(lengths)))
            self.n_adapters += 1
            self.tokens += sum(lengths)
            self.longest = max(self.longest, *lengths)
        return found


def check_lora(lora: LoraSpec) -> None:
    """Make sure that a DeepSpeed file does not contradict the spec.

    Raises:
        InputError: it does.
    """
    from biaseval.training.deepspeed_config import deepspeed_config

    if lora.zero is not None:
        deepspeed_config(lora, n_trainable=1)


def lora_of(spec: Spec) -> tuple[LabelBiasSpec, LoraSpec]:
    """Return a spec that trains adapters, and how it does.

    Raises:
        InputError: it trains none.
    """
    if not isinstance(spec, LabelBiasSpec):
        raise InputError(f"kind: {spec.kind} has no adapters to train; name a label_bias spec with a section lora")
    if spec.lora is None:
        raise InputError("lora: the spec has no such section, which says how to train; add lora: {preset: reif2024}")
    return spec, spec.lora


def _planned_adapters(run: Run, spec: LabelBiasSpec, lora: LoraSpec) -> Iterator[AdapterToTrain]:
    """Yield the run's adapters, task by task, in the order of their parts."""
    from biaseval.execute.training import AdapterToTrain

    facts, tokenizer = model_inputs(spec.model)
    counted = TrainingTokens(spec, lora, tokenizer, facts.window)
    number = 0
    for task_part in range(read_plan(run)["n_tasks"]):
        tables = (run.read_part(table, task_part) for table in ("tasks", "splits"))
        for key, tokens in counted.add(*tables):
            yield AdapterToTrain(number, task_part, key.task, key.n_demos, key.demo_set, tokens)
            number += 1


def _record(run: Run, lora: LoraSpec, outcomes: list[AdapterOutcome]) -> None:
    """Add a sitting of training to ``environment.json``."""
    environment = json.loads(run.read_text("environment.json"))
    seconds = sum(outcome.seconds for outcome in outcomes)
    step_seconds = sum(outcome.step_seconds for outcome in outcomes)
    sitting = {
        "n_adapters": sum(outcome.is_complete for outcome in outcomes),
        "workers": lora.workers,
        "zero": lora.zero,
        "seconds": round(seconds, 3),
        "step_seconds": round(step_seconds, 3),
    }
    environment["training"] = [*environment.get("training", []), sitting]
    run.write_text("environment.json", as_json(environment))


def _summary(run: Run, planned: list[str], outcomes: list[AdapterOutcome]) -> TrainingSummary:
    complete = trained_adapters(run) & set(planned)
    losses: dict[str, list[float]] = {}
    for number in sorted(run.parts("training")):
        rows = run.read_part("training", number).select(["adapter", "loss"]).to_pylist()
        if rows[0]["adapter"] in complete:
            losses[rows[0]["adapter"]] = [row["loss"] for row in rows]
    unknown = complete - set(losses)
    if unknown:
        raise BiasevalError(
            f"{run.uri}: {len(unknown)} adapters have no part in training (first: {min(unknown)}); delete their "
            "folders and run the same command again"
        )
    seconds = sum(outcome.seconds for outcome in outcomes)
    step_seconds = sum(outcome.step_seconds for outcome in outcomes)
    return TrainingSummary(
        uri=run.uri,
        n_adapters=len(complete),
        n_planned=len(planned),
        n_trained=sum(outcome.is_complete for outcome in outcomes),
        n_steps=sum(map(len, losses.values())),
        first_loss=sum(own[0] for own in losses.values()) / len(losses) if losses else None,
        last_loss=sum(own[-1] for own in losses.values()) / len(losses) if losses else None,
        seconds=seconds,
        overhead_share=1 - step_seconds / seconds if outcomes else None,
        stopped=[
            f"{outcome.name} (step {outcome.n_steps - 1}, loss {outcome.loss:.4g})"
            for outcome in outcomes
            if not outcome.is_complete
        ],
    )
