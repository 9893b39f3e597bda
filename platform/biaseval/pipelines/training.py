"""Training the adapters of a run: what they cost, and training those that are missing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from biaseval.errors import BiasevalError, InputError
from biaseval.pipelines.claim import read_plan
from biaseval.pipelines.label_outputs import check_lora
from biaseval.progress import say
from biaseval.spec import CausalSpec, InstructSpec, LoraSpec, QaBiasSpec, Spec
from biaseval.store import Run, part_name
from biaseval.tables import ADAPTED
from biaseval.training.estimate import ModelShape, TrainingCost, training_cost
from biaseval.training.recipe import adapters_recipe
from biaseval.training.rows import ADAPTERS, CONFIG_FILE, trained_adapters
from biaseval.training.schedule import n_steps_of
from biaseval.units import Done, Unit, missing_units


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
class AdaptersCost(TrainingCost):
    """What training adapters is going to cost, about."""

    n_adapters: int
    n_steps: int
    tokens: int
    """Of all training rows, each once."""

    @property
    def longest(self) -> int:
        """Tokens of the longest training row."""
        return self.row_tokens


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
    check_lora(spec, lora)
    plan = read_plan(run)
    if "adapters" not in plan:
        raise InputError(f"{run.uri}: was planned by a version that trained adapters alone; choose another --run-dir")
    units = [
        Unit(adapter["part"], 1, (f"{ADAPTERS}/{adapter['adapter']}/{CONFIG_FILE}",), adapter)
        for adapter in plan["adapters"]
        if needed is None or adapter["adapter"] in needed
    ]
    missing = missing_units(run, units)
    lost = {unit.work["adapter"] for unit in missing}
    for part in (part["part"] for part in plan["parts"] if part["adapter"] in lost):
        for table in ADAPTED.values():
            run.delete(f"{table}/{part_name(part)}")
    done: list[Done] = []
    if not missing:
        say(f"all {len(units):,} adapters are trained already")
    else:
        if len(missing) < len(units):
            say(f"resuming: {len(units) - len(missing):,} of {len(units):,} adapters are trained")
        done = _trained(run, spec, lora, units, missing)
    return _summary(run, [unit.work["adapter"] for unit in units], done)


def _trained(run: Run, spec: CausalSpec, lora: LoraSpec, units: list[Unit], missing: list[Unit]) -> list[Done]:
    from biaseval.execute.cluster import Cluster
    from biaseval.execute.training import Training
    from biaseval.training.work import few_shot_adapter

    stage = Training(
        name="training",
        verb="trained",
        noun="adapters",
        units=units,
        execution=spec.execution,
        recipe=adapters_recipe(spec.model, lora),
        work=few_shot_adapter,
        arguments={"name": spec.name},
    )
    done: list[Done] = []
    with Cluster(spec.execution) as cluster:
        for one in stage.make(run, missing, cluster):
            done.append(one)
            say(f"trained {len(units) - len(missing) + len(done):,} of {len(units):,} adapters")
    return done


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


def adapters_cost(
    spec: CausalSpec, lora: LoraSpec, adapters: Iterable[Mapping[str, Any]], facts: Mapping[str, Any]
) -> AdaptersCost:
    """Return what training would cost; loads no weights.

    Args:
        spec: of the run.
        lora: its section ``lora``.
        adapters: those of the run, as `biaseval.training.rows.adapters_of` describes them; at least one.
        facts: the model's.
    """
    adapters = list(adapters)
    recipe = adapters_recipe(spec.model, lora)
    tokens = sum(adapter["tokens"] for adapter in adapters)
    cost = training_cost(
        ModelShape.of(facts, check_lora(spec, lora)),
        recipe,
        row_tokens=max(adapter["longest"] for adapter in adapters),
        step_tokens=tokens * lora.epochs,
    )
    return AdaptersCost(
        **vars(cost),
        n_adapters=len(adapters),
        n_steps=sum(n_steps_of(adapter["n_rows"], lora) for adapter in adapters),
        tokens=tokens,
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


def _summary(run: Run, planned: list[str], done: list[Done]) -> TrainingSummary:
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
    seconds = sum(one.facts["seconds"] for one in done)
    step_seconds = sum(one.facts["step_seconds"] for one in done)
    return TrainingSummary(
        uri=run.uri,
        n_adapters=len(complete),
        n_planned=len(planned),
        n_trained=sum(one.facts["is_complete"] for one in done),
        n_steps=sum(map(len, losses.values())),
        first_loss=sum(own[0] for own in losses.values()) / len(losses) if losses else None,
        last_loss=sum(own[-1] for own in losses.values()) / len(losses) if losses else None,
        seconds=seconds,
        overhead_share=1 - step_seconds / seconds if done else None,
        stopped=[
            f"{one.unit.work['adapter']} (step {one.facts['n_steps'] - 1}, loss {one.facts['loss']:.4g})"
            for one in sorted(done, key=lambda one: one.unit.number)
            if not one.facts["is_complete"]
        ],
    )
