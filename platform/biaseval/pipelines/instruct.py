"""Instruction tuning: what a model is tuned on and what that costs, and making the steps that are missing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from biaseval.environment import describe_environment
from biaseval.errors import InputError
from biaseval.pipelines.claim import as_json, file_digests, read_plan
from biaseval.pipelines.label_outputs import model_inputs
from biaseval.progress import say
from biaseval.spec import InstructSpec, dump_spec
from biaseval.store import Run
from biaseval.tables import CONVERSATIONS, TABLES
from biaseval.training.deepspeed_config import check_deepspeed
from biaseval.training.estimate import ModelShape, TrainingCost, training_cost
from biaseval.training.recipe import tuning_recipe
from biaseval.training.rows import CONFIG_FILE
from biaseval.training.schedule import planned_steps, step_rows
from biaseval.units import Done, Unit

if TYPE_CHECKING:
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
    cost: TrainingCost


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

    check_deepspeed(tuning_recipe(spec))
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
    from biaseval.models import fingerprint_model

    environment = {
        **describe_environment(),
        "seed": spec.seed,
        "model": fingerprint_model(spec.model.path, revision=spec.model.revision),
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
    from biaseval.training.checkpoints import CHECKPOINTS, newest_checkpoint

    n_steps = read_plan(run)["n_steps"]
    done: Done | None = None
    if tuned_folder(run) is not None:
        say(f"all {n_steps:,} steps are made already")
    else:
        check_deepspeed(tuning_recipe(spec))
        checkpoint = newest_checkpoint(run)
        if checkpoint is not None:
            say(f"resuming: {checkpoint.n_steps:,} of {n_steps:,} steps are made")
        done = _tuned(run, spec, n_steps)
        if done.facts["why_not_packed"] is not None:
            say(f"rows are not packed: {done.facts['why_not_packed']}")
    run.delete(CHECKPOINTS)
    return _summary(run, done)


def _tuned(run: Run, spec: InstructSpec, n_steps: int) -> Done:
    from biaseval.execute.cluster import Cluster
    from biaseval.execute.training import Training
    from biaseval.training.work import tuned_model

    folder = "model" if spec.lora is None else "adapter"
    unit = Unit(0, n_steps, (f"{folder}/{_RESULTS[folder]}",))
    stage = Training(
        name="training",
        verb="made",
        noun="steps",
        units=[unit],
        execution=spec.execution,
        recipe=tuning_recipe(spec),
        work=tuned_model,
        arguments={
            "name": spec.name,
            "adapter": None if spec.lora is None else folder,
            "max_tokens": spec.max_tokens,
            "packing": spec.packing,
        },
    )
    with Cluster(spec.execution) as cluster:
        [done] = stage.make(run, [unit], cluster)
    return done


def tuned_folder(run: Run) -> str | None:
    """Return the folder of a complete result; None where there is none yet."""
    return next((name for name, last in _RESULTS.items() if run.has(f"{name}/{last}")), None)


_RESULTS = {"model": "config.json", "adapter": CONFIG_FILE}
"""Folder of a result to its last file."""


def n_steps_done(run: Run) -> int:
    """Return how many steps a tuning has made, those behind its last checkpoint included."""
    from biaseval.execute.training import PROGRESS

    norms = [
        norm for part in run.parts("training") for norm in run.read_part("training", part)["grad_norm"].to_pylist()
    ]
    kept = sum(norm is not None and math.isfinite(norm) for norm in norms)  # where it is not, no step was made
    said = run.read_json(PROGRESS)["n_steps"] if run.has(PROGRESS) else 0
    return max(kept, int(said))


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

    lengths = [len(one.token_ids) for one in train]
    problem = why_not_packed(bare_model(spec.model), spec.max_tokens) if spec.packing else None
    is_packed = spec.packing and problem is None
    recipe = tuning_recipe(spec)
    epochs = list(step_rows(len(train), spec.training, spec.seed))
    steps = planned_steps(len(train), recipe)
    n_rows = sum(
        len(pack([lengths[number] for number in chosen], spec.max_tokens)) if is_packed else len(chosen)
        for epoch, chosen in epochs
        if epoch == 0
    )
    return InstructPlan(
        n_conversations=len(train),
        n_held_out=n_held_out,
        n_tokens=sum(lengths),
        n_answer_tokens=sum(int(one.is_answer.sum()) for one in train),
        longest=max(lengths),
        n_rows=n_rows,
        n_steps=len(steps),
        why_not_packed=problem,
        notes=notes,
        cost=training_cost(
            ModelShape.of(facts, [] if spec.lora is None else target_shapes(spec.model, spec.lora)),
            recipe,
            row_tokens=max(lengths) if not is_packed else spec.max_tokens,
            step_tokens=sum(lengths[number] for _, chosen in steps for number in chosen),
        ),
    )


def _summary(run: Run, done: Done | None) -> InstructSummary:
    rows = run.read_table("training").select(["loss", "eval_loss"]).to_pylist()
    return InstructSummary(
        uri=run.uri,
        folder=str(tuned_folder(run)),
        n_steps=len(rows),
        first_loss=rows[0]["loss"],
        last_loss=rows[-1]["loss"],
        eval_losses=[row["eval_loss"] for row in rows if row["eval_loss"] is not None],
        n_made=0 if done is None else done.facts["n_steps"] - done.facts["first_step"],
        seconds=0.0 if done is None else done.facts["seconds"],
    )
