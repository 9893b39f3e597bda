"""The kind instruct: a model is tuned on conversations (P2 section 4 tunes its models on OASST1 first)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from biaseval.errors import InputError, Problems
from biaseval.models import CONFIG_FILE
from biaseval.pipelines.cost_lines import cost_lines, costs, reference_hours
from biaseval.pipelines.kind import Deferred, Description, Kind, Need, Plan, Stage, Trained
from biaseval.pipelines.labels.causal import model_inputs
from biaseval.pipelines.optional_packages import TRAINING
from biaseval.progress import say
from biaseval.spec import InstructSpec
from biaseval.store import Run
from biaseval.tables import CONVERSATIONS
from biaseval.training.deepspeed_config import check_deepspeed
from biaseval.training.estimate import PUBLISHED_SHAPES, ModelShape, TrainingCost, cost_of, training_flops
from biaseval.training.recipe import tuning_recipe
from biaseval.training.rows import MODEL_CONFIG
from biaseval.training.schedule import planned_steps, step_rows
from biaseval.units import Done, Unit

if TYPE_CHECKING:
    from biaseval.models.causal import ModelFacts
    from biaseval.training.conversations import Conversation
    from biaseval.training.templates import EncodedConversation

_PART_ROWS = 4096


@dataclass(frozen=True)
class InstructPlan:
    """What a model is going to be tuned on."""

    n_conversations: int
    """That it is trained on."""
    n_held_out: int
    n_tokens: int
    """Of the conversations that it is trained on, each once."""
    n_answer_tokens: int
    """Of these, in the loss."""
    longest: int
    """Tokens of the longest conversation."""
    n_rows: int
    """Rows of an epoch as they go through the model."""
    n_steps: int
    why_not_packed: str | None
    notes: list[str]
    """Conversations that were left out or cut, with their counts."""


@dataclass(frozen=True)
class InstructInputs:
    """What planning starts from, validated."""

    plan: InstructPlan
    model: ModelFacts
    cost: TrainingCost
    conversations: list[tuple[str, Conversation, EncodedConversation]]
    """Each with its role, in the order of the file."""

    @property
    def subject(self) -> str:
        """The planned work."""
        return f"{self.plan.n_conversations:,} conversations"

    @property
    def facts(self) -> dict[str, Any]:
        """What ``environment.json`` says of it."""
        return {"model_facts": asdict(self.model)}


def _read(spec: InstructSpec) -> InstructInputs:
    from biaseval.training.conversations import read_conversations
    from biaseval.training.templates import encode_conversations

    problems = Problems()
    with problems.noted():
        check_deepspeed(tuning_recipe(spec))
    with problems.noted():
        found = read_conversations(spec.data)
        held_out = _held_out(spec, [conversation.group for conversation in found.kept])
    with problems.noted():
        facts, tokenizer = model_inputs(spec.model)
        if facts.window is not None and spec.max_tokens > facts.window:
            raise InputError(
                f"max_tokens {spec.max_tokens}: {spec.model.path} takes {facts.window} tokens; lower it, or choose a "
                "model with a longer window"
            )
    problems.refuse()
    encoded = encode_conversations(tokenizer, found.kept, spec.template, spec.max_tokens)
    rows = [("held_out" if kept[0].group in held_out else "train", *kept) for kept in encoded.kept]
    notes = [f"left out {n:,} {reason}" for reason, n in [*found.left_out.items(), *encoded.left_out.items()]]
    if encoded.n_cut:
        notes.append(f"cut {encoded.n_cut:,} conversations at a turn to fit max_tokens {spec.max_tokens}")
    train = [own for role, _, own in rows if role == "train"]
    if not train or (held_out and len(train) == len(rows)):
        raise InputError(
            f"data.held_out {spec.data.held_out}: nothing is left on one side ({'; '.join(notes)}); choose another "
            "share, or raise max_tokens"
        )
    plan, cost = _planned(spec, facts, train, len(rows) - len(train), notes)
    return InstructInputs(plan, facts, cost, rows)


def _describe(spec: InstructSpec, inputs: InstructInputs) -> Description:
    plan, cost = inputs.plan, inputs.cost
    is_packed = plan.n_rows != plan.n_conversations
    lines = [
        ("conversations", f"{plan.n_conversations:,} ({plan.n_held_out:,} more held out)"),
        ("tokens", f"{plan.n_tokens:,} (longest conversation {plan.longest:,})"),
        ("answer tokens", f"{plan.n_answer_tokens:,}, which the loss is of"),
        (
            "rows of an epoch",
            f"{plan.n_rows:,}, {f'of {cost.row_tokens:,} tokens' if is_packed else 'one conversation each'}",
        ),
        ("optimizer steps", f"{plan.n_steps:,}"),
        *cost_lines("training FLOPs", cost.flops, spec.execution),
    ]
    notes = [f"note: {note}" for note in plan.notes]
    if plan.why_not_packed is not None:
        notes.append(f"note: rows are not packed: {plan.why_not_packed}")
    facts = {
        **asdict(plan),
        "model": asdict(inputs.model),
        "gpu_hours_at_100_tflops": reference_hours(cost.flops),
        "costs": costs(cost.flops, spec.execution),
    }
    return Description(lines, notes, facts, training=cost)


def _write(run: Run, spec: InstructSpec, inputs: InstructInputs) -> Plan:
    rows = [
        {
            "number": number,
            "conversation_id": conversation.id,
            "role": role,
            "turns": [asdict(turn) for turn in conversation.turns],
            "token_ids": own.token_ids,
            "is_answer": own.is_answer,
        }
        for number, (role, conversation, own) in enumerate(inputs.conversations)
    ]
    for part, start in enumerate(range(0, len(rows), _PART_ROWS)):
        run.write_part("conversations", part, CONVERSATIONS.rows(rows[start : start + _PART_ROWS]))
    for note in inputs.plan.notes:
        say(note)
    return asdict(inputs.plan)


def _held_out(spec: InstructSpec, groups: Sequence[str]) -> set[str]:
    """Return the groups that are held out: of a file and seed the same, whatever is cut or left out later."""
    distinct = list(dict.fromkeys(groups))
    n_held_out = round(spec.data.held_out * len(distinct))
    if spec.data.held_out and not 0 < n_held_out < len(distinct):
        raise InputError(
            f"data.held_out {spec.data.held_out}: of {len(distinct):,} trees or rows {n_held_out:,} would be held out; "
            "choose a share that leaves some on both sides"
        )
    drawn = np.random.default_rng(spec.seed).permutation(len(distinct))[:n_held_out]
    return {distinct[number] for number in drawn}


def _planned(
    spec: InstructSpec, model: ModelFacts, train: list[EncodedConversation], n_held_out: int, notes: list[str]
) -> tuple[InstructPlan, TrainingCost]:
    from biaseval.models import ModelSource, bare_model, target_shapes
    from biaseval.training.packing import pack, why_not_packed

    source, recipe = ModelSource.of(spec.model), tuning_recipe(spec)
    lengths = [len(one.token_ids) for one in train]
    bare = bare_model(source)
    problem = why_not_packed(bare, spec.max_tokens) if spec.packing else None
    is_packed = spec.packing and problem is None
    epochs = step_rows(len(train), spec.training, spec.seed)
    steps = planned_steps(len(train), recipe)
    n_rows = sum(
        len(pack([lengths[number] for number in chosen], spec.max_tokens)) if is_packed else len(chosen)
        for epoch, chosen in epochs
        if epoch == 0
    )
    shape = ModelShape.of(asdict(model), [] if spec.lora is None else target_shapes(bare, spec.lora))
    step_tokens = sum(lengths[number] for _, chosen in steps for number in chosen)
    flops = training_flops(shape.n_parameters, step_tokens, recipe)
    row_tokens = spec.max_tokens if is_packed else max(lengths)
    cost = cost_of([shape, *PUBLISHED_SHAPES], recipe, row_tokens=row_tokens, flops=flops)
    plan = InstructPlan(
        n_conversations=len(train), n_held_out=n_held_out, n_tokens=sum(lengths),
        n_answer_tokens=sum(int(one.is_answer.sum()) for one in train), longest=max(lengths), n_rows=n_rows,
        n_steps=len(steps), why_not_packed=problem, notes=notes,
    )  # fmt: skip
    return plan, cost


def _stages(run: Run, spec: InstructSpec, plan: Plan) -> list[Stage]:
    from biaseval.execute.training import Training

    folder = _folder(spec)
    unit = Unit(0, plan["n_steps"], (f"{folder}/{_RESULTS[folder]}",), beside=("training/part-00000.parquet",))
    adapter = None if spec.lora is None else folder
    told = {"name": spec.name, "adapter": adapter, "max_tokens": spec.max_tokens, "packing": spec.packing}
    return [
        Training(
            name="training", verb="made", noun="steps", units=[unit], execution=spec.execution,
            recipe=tuning_recipe(spec), work=tune_model, arguments=told,
        )
    ]  # fmt: skip


tune_model = Deferred("biaseval.training.work:tuned_model")
"""Returns what a worker tunes."""


def _folder(spec: InstructSpec) -> str:
    return "model" if spec.lora is None else "adapter"


_RESULTS = {"model": MODEL_CONFIG, "adapter": CONFIG_FILE}
"""Folder of a result to its last file."""


def instruct_summary(run: Run, spec: InstructSpec, made: Sequence[Done]) -> Trained:
    """Return what a person reads of a finished tuning and of this process's units, and delete its checkpoints.

    Nothing can be given up: a tuning that is not finite is an error at once, as its checkpoints stay.
    """
    from biaseval.training.checkpoints import CHECKPOINTS

    run.delete(CHECKPOINTS)
    facts: Mapping[str, Any] = made[0].facts if made else {"n_steps": 0, "first_step": 0}
    if facts.get("why_not_packed") is not None:
        say(f"rows are not packed: {facts['why_not_packed']}")
    rows = run.read_table("training").select(["loss", "eval_loss"]).to_pylist()
    n_made = facts["n_steps"] - facts["first_step"]
    lines = [
        ("steps", f"{len(rows):,} ({n_made:,} made now)"),
        ("loss, first to last step", f"{rows[0]['loss']:.4f} to {rows[-1]['loss']:.4f}"),
    ]
    if held_out := [f"{row['eval_loss']:.4f}" for row in rows if row["eval_loss"] is not None]:
        lines.append(("held-out loss, by epoch", ", ".join(held_out)))
    if n_made:
        lines.append(("seconds", f"{facts['seconds']:,.1f}"))
    return Trained(run.uri, _folder(spec), lines)


INSTRUCT = Kind(
    read=_read,
    needs=lambda spec: [Need("kind: instruct needs", *TRAINING)],
    describe=_describe,
    write=_write,
    stages=_stages,
)
