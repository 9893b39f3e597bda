"""The kind instruct: a model is tuned on conversations (P2 section 4 tunes its models on OASST1 first)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from biaseval.errors import InputError, Problems
from biaseval.pipelines.causal import model_inputs
from biaseval.pipelines.kind import Description, Kind, Plan, Stage
from biaseval.pipelines.words import cost_lines
from biaseval.progress import say
from biaseval.spec import InstructSpec
from biaseval.store import Run
from biaseval.tables import CONVERSATIONS
from biaseval.training.estimate import TrainingCost
from biaseval.units import Done, Unit

if TYPE_CHECKING:
    from biaseval.models import ModelFacts
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
    """What was left out or cut."""


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
        """What is planned."""
        return f"{self.plan.n_conversations:,} conversations"

    @property
    def facts(self) -> dict[str, Any]:
        """What ``environment.json`` says of it."""
        return {"model_facts": asdict(self.model)}


@dataclass(frozen=True)
class InstructSummary:
    """What a finished tuning is."""

    uri: str
    folder: str
    """That loads: ``model`` by ``model.path``, ``adapter`` by ``model.adapter``."""
    n_steps: int
    first_loss: float
    """Of the first step, in nats an answer token."""
    last_loss: float
    eval_losses: list[float]
    """Of what is held out, epoch by epoch."""
    n_made: int
    """Steps of this sitting."""
    seconds: float
    """Of this sitting, without starting workers."""


def _read(spec: InstructSpec) -> InstructInputs:
    from biaseval.training.conversations import read_conversations
    from biaseval.training.templates import encode_conversations

    problems = Problems()
    with problems.noted():
        _check_deepspeed(spec)
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
        *cost_lines("training FLOPs", cost.flops),
    ]
    notes = [f"note: {note}" for note in plan.notes]
    if plan.why_not_packed is not None:
        notes.append(f"note: rows are not packed: {plan.why_not_packed}")
    return Description(lines, notes, {**asdict(plan), "model": asdict(inputs.model)}, training=cost)


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


def _check_deepspeed(spec: InstructSpec) -> None:
    """Make sure that a DeepSpeed file does not contradict the spec, and that checkpoints can hold what it asks for."""
    from biaseval.training.deepspeed_config import deepspeed_config, deepspeed_file

    if spec.training.zero is None:
        return
    deepspeed_config(spec.training, n_trainable=1)
    section = deepspeed_file(spec.training).get("zero_optimization", {})
    problems = []
    for key in ("offload_optimizer", "offload_param"):
        own = section.get(key) or {}
        if not isinstance(own, dict):
            problems.append(f"{spec.training.deepspeed_config}: zero_optimization.{key} {own!r}: write an object")
        elif own.get("device", "none") not in ("none", "cpu") or own.get("ratio", 1) != 1:
            problems.append(
                f"{spec.training.deepspeed_config}: zero_optimization.{key} {own}: checkpoints are made of what is in "
                "memory; use the device cpu, and no ratio"
            )
    if problems:
        raise InputError.of(problems)


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


def _plan(
    spec: InstructSpec, facts: dict[str, Any], train: list[EncodedConversation], n_held_out: int, notes: list[str]
) -> InstructPlan:
    from biaseval.training.adapters import bare_model, target_shapes
    from biaseval.training.packing import pack, why_not_packed
    from biaseval.training.tuning import n_tuning_steps

    lengths = [len(one.token_ids) for one in train]
    problem = why_not_packed(bare_model(spec.model), spec.max_tokens) if spec.packing else None
    is_packed = spec.packing and problem is None
    n_steps = n_tuning_steps(len(train), spec)
    epochs = list(step_rows(len(train), spec.training, spec.seed))
    steps = epochs[:n_steps]
    n_rows = sum(
        len(pack([lengths[number] for number in chosen], spec.max_tokens)) if is_packed else len(chosen)
        for epoch, chosen in epochs
        if epoch == 0
    )
    own = ModelShape(
        facts["family"],
        facts["n_parameters"],
        facts["hidden_size"],
        facts["n_layers"],
        [] if spec.lora is None else target_shapes(spec.model, spec.lora),
    )
    n_step_tokens = sum(lengths[number] for _, chosen in steps for number in chosen)
    row_tokens = spec.max_tokens if is_packed else max(lengths)
    return InstructPlan(
        n_conversations=len(train),
        n_held_out=n_held_out,
        n_tokens=sum(lengths),
        n_answer_tokens=sum(int(one.is_answer.sum()) for one in train),
        longest=max(lengths),
        n_rows=n_rows,
        n_steps=n_steps,
        why_not_packed=problem,
        notes=notes,
        cost=_cost(spec, own, n_step_tokens, row_tokens),
    )


def _cost(spec: InstructSpec, own: ModelShape, n_step_tokens: int, row_tokens: int) -> InstructCost:
    from biaseval.training.deepspeed_config import deepspeed_file

    section = deepspeed_file(spec.training).get("zero_optimization", {})
    keys = {"optimizer": "offload_optimizer", "weights": "offload_param"}
    named = [name for name, key in keys.items() if (section.get(key) or {}).get("device") == "cpu"]

    def memory(shape: ModelShape, zero: int | None, n_workers: int) -> Memory:
        offloaded = [name for name in named if (zero or 0) >= (1 if name == "optimizer" else 3)]
        if zero == 3 and "optimizer" in offloaded:
            offloaded.append("gradients")  # DeepSpeed keeps them beside the optimizer
        return tuning_memory(shape, spec, row_tokens, zero, n_workers, offloaded)

    shapes = [own, *PUBLISHED_SHAPES]
    stages = {"none": None, "1": 1, "2": 2, "3": 3}
    return InstructCost(
        flops=tuning_flops(own.n_parameters, n_step_tokens, spec),
        row_tokens=row_tokens,
        shapes=shapes,
        n_trainable=[shape.n_parameters if spec.lora is None else shape.n_trainable(spec.lora.r) for shape in shapes],
        memory=[
            {name: memory(shape, stage, spec.training.workers) for name, stage in stages.items()} for shape in shapes
        ],
        gpus=[fewest_gpus(partial(memory, shape)) for shape in shapes],
    )


def _summary(run: Run, outcome: Any) -> InstructSummary:
    rows = run.read_table("training").select(["loss", "eval_loss"]).to_pylist()
    return InstructSummary(
        uri=run.uri,
        folder=str(tuned_folder(run)),
        n_steps=len(rows),
        first_loss=rows[0]["loss"],
        last_loss=rows[-1]["loss"],
        eval_losses=[row["eval_loss"] for row in rows if row["eval_loss"] is not None],
        n_made=0 if outcome is None else outcome.n_steps - outcome.first_step,
        seconds=0.0 if outcome is None else outcome.seconds,
    )
