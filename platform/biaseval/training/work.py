"""What a worker trains for a unit, from the tables of its run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from biaseval.store import Run
from biaseval.training.batches import encode_rows
from biaseval.training.checkpoints import CHECKPOINTS
from biaseval.training.evaluation import Watch
from biaseval.training.objectives import Conversations, LabelledPrompts, Objective
from biaseval.training.packing import why_not_packed
from biaseval.training.preparation import Base
from biaseval.training.rows import rows_of
from biaseval.training.templates import EncodedConversation

_KEY = ["adapter", "task", "n_demos", "demo_set", "setting", "instruction"]


@dataclass(frozen=True)
class Work:
    """The training of one unit."""

    objective: Objective
    key: Mapping[str, Any]
    """The columns of the table ``training`` that identify the unit."""
    part: int = 0
    """Of that table."""
    checkpoints: str = CHECKPOINTS
    """The folder of the run for them, where they are kept."""
    watch: Watch | None = None
    """How it is watched; None: the weights of the last step are kept."""
    folder: str | None = None
    """The folder for the trained weights; None for the folder of the unit's last file."""
    row: Mapping[str, Any] | None = None
    """The known columns of a reader's row of ``trained_models``; None for other units."""
    hint: str | None = None
    """What a loss that is not finite may come of, beside the learning rate and the precision."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """How, beside what the spec says; JSON values."""


def few_shot_adapter(run: Run, unit: Mapping[str, Any], base: Base, *, name: str) -> Work:
    """Return the training examples of an adapter.

    Args:
        run: the run directory.
        unit: ``adapter``, its name; ``rows_part``, the part of ``training_rows`` that holds its examples; ``part``, its
            place among all adapters of the run.
        base: the base model.
        name: of the spec.
    """
    rows = rows_of(unit["adapter"], run.read_part("training_rows", unit["rows_part"]))
    [key] = rows.select(_KEY).slice(0, 1).to_pylist()
    return Work(LabelledPrompts(encode_rows(base.tokenizer, rows)), {"model": name, **key}, unit["part"])


def tuned_model(
    run: Run, unit: Mapping[str, Any], base: Base, *, name: str, adapter: str | None, max_tokens: int, packing: bool
) -> Work:
    """Return the conversations that a model is tuned on, and those that are held out.

    Args:
        run: the run directory, which holds them in tokens.
        unit: nothing.
        base: the base model, which decides whether rows are packed.
        name: of the spec.
        adapter: what the table ``training`` calls the adapter; None where all parameters are trained.
        max_tokens: of a packed row.
        packing: whether it is asked for.
    """
    problem = why_not_packed(base.model, max_tokens) if packing else None
    is_packed = packing and problem is None
    capacity = max_tokens if is_packed else None
    table = run.read_table("conversations")
    held_out = _encoded(table, "held_out")
    objective = Conversations(
        _encoded(table, "train"), capacity, Conversations(held_out, capacity) if held_out else None
    )
    facts = {"packing": is_packed, "why_not_packed": problem}
    return Work(objective, {"model": name, "adapter": adapter}, facts=facts)


def _encoded(conversations: pa.Table, role: str) -> list[EncodedConversation]:
    """Return the conversations of a role in tokens."""
    chosen = conversations.filter(pc.equal(conversations["role"], role)).combine_chunks()
    return [
        EncodedConversation(
            ids.values.to_numpy().astype("int64"), is_answer.values.to_numpy(zero_copy_only=False).astype(bool)
        )
        for ids, is_answer in zip(chosen["token_ids"], chosen["is_answer"], strict=True)
    ]
