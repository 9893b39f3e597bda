"""Instruction tuning: what a model is tuned on and what that costs, and making the steps that are missing."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from biaseval.environment import describe_environment
from biaseval.errors import InputError
from biaseval.models import CONFIG_FILE
from biaseval.pipelines.claim import as_json, file_digests, read_plan
from biaseval.pipelines.label_outputs import model_inputs
from biaseval.progress import say
from biaseval.spec import InstructSpec, dump_spec
from biaseval.store import Run
from biaseval.tables import CONVERSATIONS, TABLES
from biaseval.training.estimate import PUBLISHED_SHAPES, Memory, ModelShape, fewest_gpus, tuning_flops, tuning_memory
from biaseval.training.schedule import step_rows

if TYPE_CHECKING:
    from biaseval.training.conversations import Conversation
    from biaseval.training.templates import EncodedConversation

_PART_ROWS = 4096


@dataclass(frozen=True)
class InstructCost:
    """What tuning is going to cost, about."""

    flops: int
    row_tokens: int
    """Of a row: ``max_tokens`` where rows are packed, else those of the longest conversation."""
    shapes: list[ModelShape]
    """The spec's model, then those of P1."""
    n_trainable: list[int]
    memory: list[dict[str, Memory]]
    """Of one worker, by ZeRO stage, for each shape."""
    gpus: list[int]
    """Needed for each shape; 0 where none will do."""


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
    cost: InstructCost


@dataclass(frozen=True)
class InstructInputs:
    """What planning starts from, validated."""

    plan: InstructPlan
    facts: Any
    """The model's."""
    sha256: dict[str, str]
    """Of the input files, by key of the spec."""
    conversations: list[tuple[str, Conversation, EncodedConversation]]
    """Each with its role, in the order of the file."""


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


def read_instruct_inputs(spec: InstructSpec) -> InstructInputs:
    """Return what a model would be tuned on; loads no weights.

    Raises:
        InputError: the data, the template, the model or the DeepSpeed file will not do.
    """
    from biaseval.training.conversations import read_conversations
    from biaseval.training.templates import encode_conversations

    _check_deepspeed(spec)
    found = read_conversations(spec.data)
    held_out = _held_out(spec, [conversation.group for conversation in found.kept])
    facts, tokenizer = model_inputs(spec.model)
    if facts.window is not None and spec.max_tokens > facts.window:
        raise InputError(
            f"max_tokens {spec.max_tokens}: {spec.model.path} takes {facts.window} tokens; lower it, or choose a model "
            "with a longer window"
        )
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
    plan = _plan(spec, asdict(facts), train, len(rows) - len(train), notes)
    return InstructInputs(plan, facts, file_digests(spec), rows)


def write_instruct_plan(run: Run, spec: InstructSpec, inputs: InstructInputs) -> None:
    """Write the plan of a tuning: its conversations, in tokens; ``plan.json`` comes last."""
    from biaseval.models import ModelSource, fingerprint_model

    environment = {
        **describe_environment(),
        "seed": spec.seed,
        "model": fingerprint_model(ModelSource.of(spec.model)),
        "model_facts": asdict(inputs.facts),
        "inputs": inputs.sha256,
    }
    # First of all: it is what tells a run from other people's files.
    run.write_text("environment.json", as_json(environment))
    run.write_text("spec.yaml", dump_spec(spec))
    for table in TABLES:
        run.delete(table)
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
    content = asdict(inputs.plan)
    del content["cost"]
    run.write_text("plan.json", as_json(content))


def tune_planned(run: Run, spec: InstructSpec) -> InstructSummary:
    """Make the steps that a planned run lacks.

    Raises:
        InputError: the model cannot be trained as the spec says, or resources are missing.
        BiasevalError: training failed, or a loss or gradient was not finite; the last checkpoint stays.
    """
    from biaseval.execute.instruct import PROGRESS, TuningOutcome, tune
    from biaseval.training.checkpoints import CHECKPOINTS, newest_checkpoint

    n_steps = read_plan(run)["n_steps"]
    outcome: TuningOutcome | None = None
    if tuned_folder(run) is not None:
        say(f"all {n_steps:,} steps are made already")
    else:
        _check_deepspeed(spec)
        run.delete(PROGRESS)  # of a sitting that was killed
        checkpoint = newest_checkpoint(run)
        if checkpoint is not None:
            say(f"resuming: {checkpoint.n_steps:,} of {n_steps:,} steps are made")
        heard = -1

        def on_progress(said: dict[str, Any]) -> None:
            nonlocal heard
            if said["n_steps"] != heard:
                heard = said["n_steps"]
                say(f"step {heard:,} of {n_steps:,}, loss {said['loss']:.4f}, {said['seconds']:.1f} s a step")

        outcome = tune(run, spec, on_progress)
        if outcome.why_not_packed is not None:
            say(f"rows are not packed: {outcome.why_not_packed}")
        _record(run, spec, outcome)
    run.delete(CHECKPOINTS)
    return _summary(run, outcome)


def tuned_folder(run: Run) -> str | None:
    """Return the folder of a complete result; None where there is none yet."""
    return next((name for name, last in _RESULTS.items() if run.has(f"{name}/{last}")), None)


_RESULTS = {"model": "config.json", "adapter": CONFIG_FILE}
"""Folder of a result to its last file."""


def n_steps_done(run: Run) -> int:
    """Return how many steps a tuning has made, those behind its last checkpoint included."""
    from biaseval.execute.instruct import PROGRESS

    norms = [
        norm for part in run.parts("training") for norm in run.read_part("training", part)["grad_norm"].to_pylist()
    ]
    kept = sum(norm is not None and math.isfinite(norm) for norm in norms)  # where it is not, no step was made
    said = run.read_json(PROGRESS)["n_steps"] if run.has(PROGRESS) else 0
    return max(kept, int(said))


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
    from biaseval.models import ModelSource, bare_model, target_shapes
    from biaseval.training.packing import pack, why_not_packed
    from biaseval.training.tuning import n_tuning_steps

    lengths = [len(one.token_ids) for one in train]
    bare = bare_model(ModelSource.of(spec.model))
    problem = why_not_packed(bare, spec.max_tokens) if spec.packing else None
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
        [] if spec.lora is None else target_shapes(bare, spec.lora),
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


def _record(run: Run, spec: InstructSpec, outcome: Any) -> None:
    """Add a sitting of training to ``environment.json``."""
    environment = json.loads(run.read_text("environment.json"))
    sitting = {
        "first_step": outcome.first_step,
        "n_steps": outcome.n_steps,
        "workers": spec.training.workers,
        "zero": spec.training.zero,
        "packing": spec.packing and outcome.why_not_packed is None,
        "seconds": round(outcome.seconds, 3),
        "step_seconds": round(outcome.step_seconds, 3),
    }
    environment["training"] = [*environment.get("training", []), sitting]
    run.write_text("environment.json", as_json(environment))


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
