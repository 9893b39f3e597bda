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
    """Rows that go through the model together, each of one text or several, padded on the right."""

    input_ids: Integers
    """``[rows, longest]``; 0 where a row has ended."""
    text_numbers: Integers
    """``[rows, longest]``; which text of its row a token is of, from 1 on, 0 for padding. A token sees its own alone.

    Of rows with one text each this is the attention mask.
    """
    positions: Integers
    """``[p]`` the positions whose logits predict a target of any row, ascending."""
    target_ids: Integers
    """``[rows, p]`` the token that each position predicts; 0 where it predicts none of the row's targets."""
    target_weights: npt.NDArray[np.float32]
    """``[rows, p]`` what each target adds to the loss; the weights of a row sum to the row's weight."""


WeighedText = tuple[Integers, npt.NDArray[np.float32]]
"""The tokens of a text, ``[n]``, and what each adds to the loss as a target: 0 where it is none, as the first is."""


def encode_rows(tokenizer: PreTrainedTokenizerBase, rows: pa.Table) -> list[EncodedRow]:
    """Return rows (``prompt``, ``label``) in tokens; a label has those that scoring it after the prompt has.

    Raises:
        InputError: a label cannot be scored after its prompt.
    """
    prompts = pa.table(
        {
            "prompt_id": [str(number) for number in range(len(rows))],
            "text": rows["prompt"],
            "labels": [[label] for label in rows["label"].to_pylist()],
        }
    )
    return [
        EncodedRow(np.asarray(each["token_ids"], dtype=np.int64), each["n_context_tokens"])
        for each in encode(tokenizer, prompts).to_pylist()
    ]


def collate(rows: Sequence[EncodedRow], weights: Sequence[float]) -> Batch:
    """Return rows, at least one, as a batch in whose loss each row's mean loss has its weight."""
    texts = []
    for row, weight in zip(rows, weights, strict=True):
        of_tokens = np.zeros(len(row.token_ids), dtype=np.float32)
        of_tokens[row.n_context :] = weight / row.n_targets
        texts.append([(row.token_ids, of_tokens)])
    return lay_out(texts)


def lay_out(rows: Sequence[Sequence[WeighedText]]) -> Batch:
    """Return a batch of at least one row, each of at least one text, one behind the other."""
    width = max(sum(len(token_ids) for token_ids, _ in row) for row in rows)
    input_ids, text_numbers = np.zeros((2, len(rows), width), dtype=np.int64)
    # A target is predicted one position before its own.
    weights = np.zeros((len(rows), width), dtype=np.float32)
    for place, row in enumerate(rows):
        start = 0
        for number, (token_ids, of_tokens) in enumerate(row, start=1):
            stop = start + len(token_ids)
            input_ids[place, start:stop] = token_ids
            text_numbers[place, start:stop] = number
            weights[place, start : stop - 1] = of_tokens[1:]
            start = stop
    # The model runs, and its backward pass too, where nothing counts: other workers may wait for its part in both.
    positions = np.flatnonzero(weights.any(axis=0)) if weights.any() else np.zeros(1, dtype=np.int64)
    target_ids = np.roll(input_ids, -1, axis=1)[:, positions]
    target_weights = weights[:, positions]
    target_ids[target_weights == 0] = 0
    return Batch(input_ids, text_numbers, positions, target_ids, target_weights)
