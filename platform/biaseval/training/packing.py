"""Lays out the conversations of an optimizer step: several in a row where the model allows it.

A step and its loss are the same either way. A row is attended in blocks: no conversation sees another, and each has the
positions that it would have alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from transformers import PreTrainedModel

from biaseval.scoring.packed import rotary_limit, sliding_window, takes_packs
from biaseval.training.batches import Batch, WeighedText, lay_out
from biaseval.training.templates import EncodedConversation


def why_not_packed(model: PreTrainedModel, max_tokens: int) -> str | None:
    """Return why conversations of up to ``max_tokens`` cannot share rows of this model; None if they can.

    The model may be without storage (torch's meta device).
    """
    if not takes_packs(model):
        return f"{model.config.model_type} is not known to be right on packed rows"
    window = sliding_window(model)
    if window is not None and max_tokens > window:
        return f"max_tokens {max_tokens} is beyond the sliding window {window}"
    limit = rotary_limit(model)
    if limit is not None and max_tokens > limit:
        return f"max_tokens {max_tokens} is beyond {limit}, where positions depend on the longest text of a batch"
    return None


def pack(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Return rows of indices whose lengths fit ``capacity``: first fit, the longest first.

    Args:
        lengths: none above ``capacity``.
        capacity: of a row.
    """
    rows: list[list[int]] = []
    free: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        place = next((number for number, left in enumerate(free) if left >= lengths[index]), len(rows))
        if place == len(rows):
            rows.append([])
            free.append(capacity)
        rows[place].append(index)
        free[place] -= lengths[index]
    return rows


def conversation_batches(
    conversations: Sequence[EncodedConversation],
    batch_size: int,
    *,
    capacity: int | None,
    rank: int = 0,
    n_workers: int = 1,
) -> list[Batch]:
    """Return what one worker computes of the mean loss over all answer tokens of ``conversations``.

    Rows are dealt to the workers from the longest on, ``batch_size`` at a time. All workers get the same number of
    batches, of a weight of zero where no row is left: forward passes of several workers may depend on each other
    (ZeRO 3).

    Args:
        conversations: of a whole step, at least one.
        batch_size: rows in a batch.
        capacity: tokens of a packed row; None puts each conversation in a row of its own.
        rank: of the worker.
        n_workers: that share the conversations.

    Returns:
        The batches, whose losses over all workers add up to the mean.
    """
    n_answer_tokens = sum(int(one.is_answer.sum()) for one in conversations)
    lengths = [len(one.token_ids) for one in conversations]
    rows = pack(lengths, max(lengths) if capacity is None else capacity)
    if capacity is None:
        rows = [[index] for row in rows for index in row]
    rows.sort(key=lambda row: -sum(lengths[index] for index in row))
    texts = [[_weighed(conversations[index], 1 / n_answer_tokens) for index in row] for row in rows]
    per_round = batch_size * n_workers
    batches = []
    for start in range(rank * batch_size, -(-len(texts) // per_round) * per_round, per_round):
        own = texts[start : start + batch_size]
        batches.append(lay_out(own or [[_weighed(conversations[rows[-1][-1]], 0.0)]]))
    return batches


def _weighed(one: EncodedConversation, weight: float) -> WeighedText:
    return WeighedText(one.token_ids, one.is_answer.astype(np.float32) * np.float32(weight))
