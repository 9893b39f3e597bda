"""Turns training rows into token ids and batches. Only label and EOS count in the loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from biaseval.scoring.encoding import encode

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TrainingRow:
    """One training example of a few-shot adapter."""

    prompt: str
    label: str
    labels: tuple[str, ...]
    """The label set: where a label merges with its prompt, scoring looks at all of them."""


@dataclass(frozen=True)
class EncodedRow:
    """A training row in tokens."""

    token_ids: Integers
    """``[n]`` the whole text: prompt, label, EOS."""
    n_context: int
    """Tokens before the targets."""

    @property
    def n_targets(self) -> int:
        """Tokens of the label, and EOS."""
        return len(self.token_ids) - self.n_context


@dataclass(frozen=True)
class Batch:
    """Rows that go through the model together, padded on the right."""

    input_ids: Integers
    """``[rows, longest]``; 0 where a row has ended."""
    attention_mask: Integers
    """``[rows, longest]``; 1 for a token, 0 for padding."""
    positions: Integers
    """``[p]`` the positions whose logits predict a target of any row, ascending."""
    target_ids: Integers
    """``[rows, p]`` the token that each position predicts; 0 where it predicts none of the row's targets."""
    target_weights: npt.NDArray[np.float32]
    """``[rows, p]`` what each target adds to the loss; the weights of a row sum to the row's weight."""


def encode_rows(tokenizer: PreTrainedTokenizerBase, rows: Sequence[TrainingRow]) -> list[EncodedRow]:
    """Return the rows in tokens; a label has the very tokens that scoring it behind the same prompt has.

    Args:
        tokenizer: one that ``models.load_tokenizer`` accepts.
        rows: at least one.

    Raises:
        InputError: a label cannot be scored behind its prompt.
    """
    prompts = pa.table(
        {
            "prompt_id": [str(number) for number in range(len(rows))],
            "text": [row.prompt for row in rows],
            "labels": pa.array([[*dict.fromkeys([*row.labels, row.label])] for row in rows], pa.list_(pa.string())),
        }
    )
    by_row = {
        int(each["prompt_id"]): EncodedRow(np.asarray(each["token_ids"], dtype=np.int64), each["n_context_tokens"])
        for each in encode(tokenizer, prompts).to_pylist()
        if each["label"] == rows[int(each["prompt_id"])].label
    }
    return [by_row[number] for number in range(len(rows))]


def collate(rows: Sequence[EncodedRow], weights: Sequence[float]) -> Batch:
    """Return rows as a batch.

    Args:
        rows: at least one.
        weights: of each row's mean loss in the batch's loss.
    """
    width = max(len(row.token_ids) for row in rows)
    input_ids, mask = np.zeros((2, len(rows), width), dtype=np.int64)
    for number, row in enumerate(rows):
        input_ids[number, : len(row.token_ids)] = row.token_ids
        mask[number, : len(row.token_ids)] = 1
    # A target is predicted one position before its own.
    predicting = [np.arange(row.n_context - 1, len(row.token_ids) - 1) for row in rows]
    positions = np.unique(np.concatenate(predicting))
    target_ids = np.zeros((len(rows), len(positions)), dtype=np.int64)
    target_weights = np.zeros((len(rows), len(positions)), dtype=np.float32)
    for number, (row, own, weight) in enumerate(zip(rows, predicting, weights, strict=True)):
        columns = np.searchsorted(positions, own)
        target_ids[number, columns] = row.token_ids[row.n_context :]
        target_weights[number, columns] = weight / row.n_targets
    return Batch(input_ids, mask, positions, target_ids, target_weights)


def step_batches(rows: Sequence[EncodedRow], batch_size: int, rank: int = 0, n_workers: int = 1) -> list[Batch]:
    """Return what one worker computes of an optimizer step whose loss is the mean over ``rows``.

    The rows are dealt to the workers, ``batch_size`` at a time. All workers get the same number of batches, of a weight
    of zero where no row is left: forward passes of several workers may depend on each other (ZeRO 3).

    Args:
        rows: of the whole step.
        batch_size: rows in a batch.
        rank: of the worker.
        n_workers: that share the step.

    Returns:
        The batches, whose losses over all workers add up to the mean over the rows.
    """
    per_round = batch_size * n_workers
    batches = []
    for start in range(rank * batch_size, -(-len(rows) // per_round) * per_round, per_round):
        own = rows[start : start + batch_size]
        batches.append(collate(own, [1 / len(rows)] * len(own)) if own else collate(rows[:1], [0.0]))
    return batches
