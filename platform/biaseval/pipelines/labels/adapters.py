"""The stage that trains the few-shot adapters of a run, its cost and its summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from biaseval.errors import BiasevalError, InputError
from biaseval.models import CONFIG_FILE
from biaseval.pipelines.cost_lines import cost_lines
from biaseval.pipelines.kind import Deferred, Plan, Stage, Trained
from biaseval.spec import AnySpec, CausalSpec, ExecutionSpec, LoraSpec
from biaseval.store import Run, part_name
from biaseval.tables import ADAPTED
from biaseval.training.estimate import PUBLISHED_SHAPES, ModelShape, TrainingCost, cost_of, training_flops
from biaseval.training.recipe import adapters_recipe
from biaseval.training.rows import ADAPTERS, trained_adapters
from biaseval.training.schedule import n_steps_of
from biaseval.units import Done, Unit

if TYPE_CHECKING:
    from biaseval.models.causal import ModelFacts


def adapter_stage(run: Run, spec: CausalSpec, lora: LoraSpec, plan: Plan, scored: Sequence[Unit]) -> Stage:
    """Return the stage that trains the adapters of a run.

    The units of ``scored`` need the adapters: an adapter that is trained again may differ in the last bits, so its
    outputs are made again too.

    Raises:
        InputError: the run was planned without adapters.
    """
    from biaseval.execute.training import Training

    if "adapters" not in plan:
        raise InputError(f"{run.uri}: was planned by a version that trained adapters alone; choose another --run-dir")
    outputs: dict[str | None, list[str]] = {}
    for unit in scored:
        adapted = [name for name in unit.files if name.partition("/")[0] in ADAPTED.values()]
        outputs.setdefault(unit.work.get("adapter"), []).extend(adapted)
    units = [
        Unit(
            number=adapter["part"],
            size=1,
            files=(f"{ADAPTERS}/{adapter['adapter']}/{CONFIG_FILE}",),
            work=adapter,
            products=tuple(outputs.get(adapter["adapter"], ())),
            beside=(f"training/{part_name(adapter['part'])}",),
        )
        for adapter in plan["adapters"]
    ]
    return Training(
        name="training", verb="trained", noun="adapters", units=units, execution=spec.execution,
        recipe=adapters_recipe(spec.model, lora), work=train_adapter, arguments={"name": spec.name},
    )  # fmt: skip


train_adapter = Deferred("biaseval.training.work:few_shot_adapter")
"""Returns what a worker trains for an adapter."""


def adapter_cost(
    spec: CausalSpec, lora: LoraSpec, adapters: Sequence[Mapping[str, Any]], model: ModelFacts
) -> TrainingCost:
    """Return what training adapters would cost, at least one, as `adapters_of` describes them; loads no weights."""
    recipe, shape = adapters_recipe(spec.model, lora), ModelShape.of(asdict(model), check_lora(spec, lora))
    step_tokens = lora.epochs * sum(adapter["tokens"] for adapter in adapters)
    flops = training_flops(shape.n_parameters, step_tokens, recipe)
    row_tokens = max(adapter["longest"] for adapter in adapters)
    return cost_of([shape, *PUBLISHED_SHAPES], recipe, row_tokens=row_tokens, flops=flops)


def adapter_lines(
    cost: TrainingCost, adapters: Sequence[Mapping[str, Any]], lora: LoraSpec, execution: ExecutionSpec
) -> list[tuple[str, str]]:
    """Return what a plan says of training its adapters."""
    tokens = sum(adapter["tokens"] for adapter in adapters)
    return [
        ("adapters to train", f"{len(adapters):,}"),
        ("optimizer steps", f"{sum(n_steps_of(adapter['n_rows'], lora) for adapter in adapters):,}"),
        ("tokens of training rows", f"{tokens:,} (longest row {cost.row_tokens:,})"),
        *cost_lines("training FLOPs", cost.flops, execution),
    ]


def check_lora(spec: CausalSpec, lora: LoraSpec) -> list[tuple[int, int]]:
    """Make sure that adapters of the spec's model can be trained as it says.

    Returns:
        Inputs and outputs of every layer that an adapter changes.

    Raises:
        InputError: the model lacks a layer that is to be changed, or a DeepSpeed file contradicts the spec.
    """
    from biaseval.models import ModelSource, bare_model, target_shapes
    from biaseval.training.deepspeed_config import deepspeed_config

    if lora.zero is not None:
        deepspeed_config(lora, n_trainable=1)
    return target_shapes(bare_model(ModelSource.of(spec.model)), lora)


def lora_of(spec: AnySpec) -> LoraSpec:
    """Return how a spec trains adapters; Raises InputError: it trains none."""
    lora = getattr(spec, "lora", None)
    if "lora" not in type(spec).model_fields or not isinstance(lora, LoraSpec | None):
        raise InputError(
            f"kind: {spec.kind} has no adapters to train; name a label_bias or majority_bias spec with a section lora"
        )
    if lora is None:
        raise InputError("lora: the spec has no such section, which says how to train; add lora: {preset: reif2024}")
    return lora


def training_summary(run: Run, stage: Stage, made: Sequence[Done]) -> Trained:
    """Return what a person reads of the adapters of a run, and of this process's training.

    Losses are means over the complete adapters, in nats. Seconds do not count starting workers and loading the model.

    Raises:
        BiasevalError: an adapter's steps are lost.
    """
    planned = {unit.work["adapter"] for unit in stage.units}
    complete = trained_adapters(run) & planned
    losses: dict[str, list[float]] = {}
    for number in sorted(run.parts("training")):
        rows = run.read_part("training", number).select(["adapter", "loss"]).to_pylist()
        if rows[0]["adapter"] in complete:
            losses[rows[0]["adapter"]] = [row["loss"] for row in rows]
    if unknown := complete - set(losses):
        raise BiasevalError(
            f"{run.uri}: {len(unknown)} adapters have no part in training (first: {min(unknown)}); delete their "
            "folders and run the same command again"
        )
    n_trained = sum(done.is_complete for done in made)
    lines = [
        ("adapters", f"{len(complete):,} of {len(planned):,} ({n_trained:,} trained now)"),
        ("steps", f"{sum(map(len, losses.values())):,}"),
    ]
    if losses:
        first, last = (sum(own[place] for own in losses.values()) / len(losses) for place in (0, -1))
        lines.append(("loss, first to last step", f"{first:.4f} to {last:.4f}"))
    if made:
        seconds, step_seconds = (sum(done.facts[name] for done in made) for name in ("seconds", "step_seconds"))
        lines.append(("seconds", f"{seconds:,.1f}"))
        lines.append(("outside optimizer steps", f"{1 - step_seconds / seconds:.1%} of them"))
    return Trained(run.uri, ADAPTERS, lines, partial(refuse_given_up, made))


def refuse_given_up(made: Sequence[Done]) -> None:
    """Make sure that no adapter was given up; Raises BiasevalError: some were; the message names each with its step."""
    if stopped := [
        f"{done.unit.work['adapter']} (step {done.facts['n_steps'] - 1}, loss {done.facts['loss']:.4g})"
        for done in sorted(made, key=lambda done: done.unit.number)
        if not done.is_complete
    ]:
        raise BiasevalError(
            f"{len(stopped)} adapters stopped because loss or gradient was not finite: {'; '.join(stopped)}; their "
            "steps are in the table training; lower lora.learning_rate, or set lora.precision to float32, in another "
            "--run-dir"
        )
