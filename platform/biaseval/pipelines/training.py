"""Training the adapters of a run: what they cost, and training those that are missing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from biaseval.errors import BiasevalError, InputError
from biaseval.pipelines.claim import as_json, read_plan
from biaseval.pipelines.label_outputs import check_lora
from biaseval.progress import say
from biaseval.spec import CausalSpec, InstructSpec, LoraSpec, QaBiasSpec, Spec
from biaseval.store import Run, part_name
from biaseval.tables import ADAPTED
from biaseval.training.estimate import (
    PUBLISHED_SHAPES,
    Memory,
    ModelShape,
    gpus_needed,
    memory_of,
    training_flops,
)
from biaseval.training.rows import trained_adapters
from biaseval.training.schedule import n_steps_of

if TYPE_CHECKING:
    from biaseval.execute.training import AdapterOutcome


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


def train_missing_adapters(
    run: Run, spec: CausalSpec, lora: LoraSpec, needed: Collection[str] | None = None
) -> TrainingSummary:
    """Train the adapters that a planned run lacks.

    An adapter that is trained anew need not be the same to the last bit: outputs of a lost one are deleted.

    Args:
        run: a planned run.
        spec: its spec.
        lora: the spec's section ``lora``.
        needed: the adapters to train if they are missing; all of the run's if not given.

    Raises:
        InputError: the section ``lora`` does not fit the model or its DeepSpeed file; before anything is trained.
        BiasevalError: training failed; what is complete stays.
    """
    from biaseval.execute.training import AdapterToTrain, train_missing

    check_lora(spec, lora)
    plan = read_plan(run)
    if "adapters" not in plan:
        raise InputError(f"{run.uri}: was planned by a version that trained adapters alone; choose another --run-dir")
    planned = [
        AdapterToTrain(**{name: adapter[name] for name in ("part", "rows_part", "adapter", "tokens")})
        for adapter in plan["adapters"]
        if needed is None or adapter["adapter"] in needed
    ]
    complete = trained_adapters(run)
    missing = [adapter for adapter in planned if adapter.adapter not in complete]
    lost = {adapter.adapter for adapter in missing}
    for part in (part["part"] for part in plan["parts"] if part["adapter"] in lost):
        for table in ADAPTED.values():
            run.delete(f"{table}/{part_name(part)}")
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

        outcomes = train_missing(run, spec, lora, missing, on_progress)
        _record(run, lora, outcomes)
    return _summary(run, [adapter.adapter for adapter in planned], outcomes)


def refuse_stopped(summary: TrainingSummary) -> None:
    """Make sure that no adapter was given up.

    Raises:
        BiasevalError: some were; the message names each with its step.
    """
    if summary.stopped:
        raise BiasevalError(
            f"{len(summary.stopped)} adapters stopped because loss or gradient was not finite: "
            f"{'; '.join(summary.stopped)}; their steps are in the table training; lower lora.learning_rate, or set "
            "lora.precision to float32, in another --run-dir"
        )


def training_cost(
    spec: CausalSpec, lora: LoraSpec, adapters: Iterable[Mapping[str, Any]], facts: Mapping[str, Any]
) -> TrainingCost:
    """Return what training would cost; loads no weights.

    Args:
        spec: of the run.
        lora: its section ``lora``.
        adapters: those of the run, as `biaseval.training.rows.adapters_of` describes them; at least one.
        facts: the model's.
    """
    adapters = list(adapters)
    own = ModelShape(
        facts["family"],
        facts["n_parameters"],
        facts["hidden_size"],
        facts["n_layers"],
        check_lora(spec, lora),
    )
    shapes = [own, *PUBLISHED_SHAPES]
    stages = {"none": None, "1": 1, "2": 2, "3": 3}
    tokens = sum(adapter["tokens"] for adapter in adapters)
    longest = max(adapter["longest"] for adapter in adapters)
    return TrainingCost(
        n_adapters=len(adapters),
        n_steps=sum(n_steps_of(adapter["n_rows"], lora) for adapter in adapters),
        tokens=tokens,
        longest=longest,
        flops=training_flops(own.n_parameters, tokens, lora),
        shapes=shapes,
        n_trainable=[shape.n_trainable(lora.r) for shape in shapes],
        memory=[
            {name: memory_of(shape, lora, longest, stage, lora.workers) for name, stage in stages.items()}
            for shape in shapes
        ],
        gpus=[gpus_needed(shape, lora, longest) for shape in shapes],
    )


def lora_of(spec: Spec) -> tuple[CausalSpec, LoraSpec]:
    """Return a spec that trains adapters, and how it does.

    Raises:
        InputError: it trains none.
    """
    if isinstance(spec, QaBiasSpec | InstructSpec):
        raise InputError(
            f"kind: {spec.kind} has no adapters to train; name a label_bias or majority_bias spec with a section lora"
        )
    if spec.lora is None:
        raise InputError("lora: the spec has no such section, which says how to train; add lora: {preset: reif2024}")
    return spec, spec.lora


def _record(run: Run, lora: LoraSpec, outcomes: list[AdapterOutcome]) -> None:
    """Add a sitting of training to ``environment.json``."""
    environment = run.read_json("environment.json")
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
