"""Runs whole texts in padded batches: right for every causal model, and the yardstick of the packed path."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel

from biaseval.scoring.packed import Logprobs, target_logprobs


def full_text_logprobs(
    model: PreTrainedModel,
    sequences: Sequence[npt.NDArray[np.integer]],
    n_context: Sequence[int],
    budget: int,
) -> list[Logprobs]:
    """Return, per sequence, the log-probabilities in nats of its tokens from ``n_context`` on.

    Sequences run sorted by length, padded on the right under a 2-D mask, with at most ``budget`` tokens in a batch (or
    one sequence, where that is longer).
    """
    results: list[Logprobs] = [np.empty(0, dtype=np.float32)] * len(sequences)
    for batch in _batches([len(sequence) for sequence in sequences], budget):
        scores = _batch_logprobs(model, [sequences[i] for i in batch], [n_context[i] for i in batch])
        for index, own in zip(batch, scores, strict=True):
            results[index] = own
    return results


def _batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Group indices, longest first: the first batch is the largest, so memory runs out early or not at all."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > budget:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _batch_logprobs(
    model: PreTrainedModel, sequences: Sequence[npt.NDArray[np.integer]], n_context: Sequence[int]
) -> list[Logprobs]:
    width = max(map(len, sequences)) - 1
    ids = torch.zeros((len(sequences), width), dtype=torch.long)
    mask = torch.zeros((len(sequences), width), dtype=torch.long)
    for row, sequence in enumerate(sequences):
        n = len(sequence) - 1  # the last token is only predicted
        ids[row, :n] = torch.from_numpy(np.asarray(sequence[:-1], dtype=np.int64))
        mask[row, :n] = 1
    options = {}
    first = min(n_context) - 1
    if "logits_to_keep" in inspect.signature(type(model).forward).parameters:
        options["logits_to_keep"] = width - first
    logits = model(
        input_ids=ids.to(model.device), attention_mask=mask.to(model.device), use_cache=False, **options
    ).logits
    if logits.shape[1] == width:
        logits = logits[:, first:]
    elif logits.shape[1] != width - first:
        raise RuntimeError(f"{type(model).__name__} returned {logits.shape[1]} positions of {width}")
    results = []
    for row, (sequence, n) in enumerate(zip(sequences, n_context, strict=True)):
        positions = np.arange(n - 1, len(sequence) - 1) - first
        results.append(target_logprobs(logits[row, positions[0] : positions[-1] + 1], positions - positions[0],
                                       np.asarray(sequence[n:], dtype=np.int64)))  # fmt: skip
    return results
