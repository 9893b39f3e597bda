"""LabelScorer: log-probabilities of labels, by the packed path where that is safe and by whole texts elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from biaseval.errors import BiasevalError, InputError
from biaseval.models import load_model, load_tokenizer, model_window
from biaseval.scoring.encoding import ENCODED, encode
from biaseval.scoring.full_text import full_text_logprobs
from biaseval.scoring.packed import Logprobs, packed_logprobs, takes_packs
from biaseval.scoring.trie import build_trie

logger = logging.getLogger(__name__)

T = TypeVar("T")

SCORES = pa.schema(
    [
        ("prompt_id", pa.string()),
        ("label", pa.string()),
        ("token_logprobs", pa.list_(pa.float32())),
        ("n_label_tokens", pa.int32()),
    ]
)

TOLERANCE = {torch.float32: 1e-4, torch.float16: 0.1, torch.bfloat16: 0.5}
"""Nats by which a packed score may differ from the plain forward pass: the rounding of a deep model in that dtype."""

_N_SELF_TEST = 3
_SMALLEST_BUDGET = 32
_CPU_BUDGET = 512
_LARGEST_CUDA_BUDGET = 4096


class LabelScorer:
    """Scores labels with one causal language model.

    Texts that share a beginning, as few-shot prompts do, are run as a trie of tokens: each shared prefix once, many
    inputs and labels behind it in one row. This ``packed`` path serves the families for which it is known to be right
    and is compared with the plain forward pass on the first texts; every other model, and one that fails the
    comparison, gets whole texts in padded batches (``full_text``). Both give the plain forward pass's scores up to
    rounding of the dtype, whatever else is in the call and in whatever order.

    Attributes:
        path: ``packed`` or ``full_text``.
        token_budget: most tokens in one forward pass; halved for good when CUDA memory runs out.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, *, token_budget: int | None = None
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.path = "packed" if takes_packs(model) else "full_text"
        self.token_budget = token_budget if token_budget is not None else default_token_budget(model)
        self._self_test_difference: float | None = None
        self._n_to_test = _N_SELF_TEST if self.path == "packed" else 0

    @classmethod
    def load(
        cls,
        path: str,
        *,
        revision: str | None = None,
        dtype: str = "float32",
        device: str = "cpu",
        quantization: str | None = None,
        adapter: str | None = None,
        max_memory: Mapping[int | str, int | str] | None = None,
        trust_remote_code: bool = False,
        token_budget: int | None = None,
    ) -> LabelScorer:
        """Load model and tokenizer (see ``models.load_model``) and return their scorer."""
        tokenizer = load_tokenizer(path, revision=revision, trust_remote_code=trust_remote_code)
        model = load_model(
            path,
            revision=revision,
            dtype=dtype,
            device=device,
            quantization=quantization,
            adapter=adapter,
            max_memory=max_memory,
            trust_remote_code=trust_remote_code,
        )
        return cls(model, tokenizer, token_budget=token_budget)

    def facts(self) -> dict[str, Any]:
        """Return how scores were made, for the record: path, attention, dtype, device, budget, self-test difference."""
        return {
            "path": self.path,
            "attention": self.model.config._attn_implementation,
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "device": _device_name(self.model.device),
            "token_budget": self.token_budget,
            "self_test_difference": self._self_test_difference,
        }

    def score(self, prompts: pa.Table) -> pa.Table:
        """Score every label of every prompt.

        Args:
            prompts: ``prompt_id``, ``text``, ``labels`` (list of strings).

        Returns:
            One row per (prompt, label) in the order of ``prompts`` and its labels: ``prompt_id``, ``label``,
            ``token_logprobs`` (nats; label tokens, then EOS), ``n_label_tokens`` (without EOS).

        Raises:
            InputError: a table that ``encode`` refuses, or a text longer than the model's window.
            BiasevalError: the model gives a score that is not a finite number, or memory does not suffice.
        """
        return self.score_encoded(encode(self.tokenizer, prompts))

    @torch.inference_mode()
    def score_encoded(self, encoded: pa.Table) -> pa.Table:
        """Score what ``encode`` returned; see ``score``."""
        sequences, n_context = _sequences(encoded)
        self._check(encoded, sequences)
        scores = self._logprobs(sequences, n_context)
        broken = [row for row, own in enumerate(scores) if not np.isfinite(own).all()]
        if broken:
            row = broken[0]
            raise BiasevalError(
                f"prompt {encoded['prompt_id'][row].as_py()!r}, label {encoded['label'][row].as_py()!r}: the model "
                f"gives a log-probability that is not finite ({len(broken)} of {len(scores)} rows); "
                f"try another dtype than {self.facts()['dtype']}"
            )
        offsets = np.concatenate([[0], np.cumsum([len(own) for own in scores])]).astype(np.int32)
        values = np.concatenate(scores) if scores else np.empty(0, dtype=np.float32)
        return pa.table(
            {
                "prompt_id": encoded["prompt_id"],
                "label": encoded["label"],
                "token_logprobs": pa.ListArray.from_arrays(pa.array(offsets), pa.array(values, pa.float32())),
                "n_label_tokens": encoded["n_label_tokens"],
            },
            schema=SCORES,
        )

    def _check(self, encoded: pa.Table, sequences: Sequence[npt.NDArray[np.int32]]) -> None:
        window = model_window(self.model.config)
        vocabulary = _vocabulary(self.model)
        problems = []
        for row, sequence in enumerate(sequences):
            if window is not None and len(sequence) > window:
                problems.append(
                    f"prompt {encoded['prompt_id'][row].as_py()!r}: {len(sequence)} tokens with label "
                    f"{encoded['label'][row].as_py()!r}, the model takes {window}; shorten the prompt"
                )
            elif sequence.max(initial=0) >= vocabulary:
                problems.append(
                    f"prompt {encoded['prompt_id'][row].as_py()!r}: token {sequence.max()} is outside the model's "
                    f"vocabulary of {vocabulary}; use the tokenizer that belongs to the model"
                )
        if problems:
            raise InputError.of(problems[:20])

    def _logprobs(self, sequences: Sequence[npt.NDArray[np.int32]], n_context: Sequence[int]) -> list[Logprobs]:
        """Return the log-probabilities of each sequence's targets."""
        window = getattr(self.model.config, "sliding_window", None)
        is_packed = [self.path == "packed" and (window is None or len(own) <= window) for own in sequences]
        packed, whole = ([i for i, own in enumerate(is_packed) if own is kind] for kind in (True, False))
        scores: list[Logprobs] = [np.empty(0, dtype=np.float32)] * len(sequences)
        if packed:
            trie = build_trie([sequences[i] for i in packed], [n_context[i] for i in packed])
            flat = self._within_memory(lambda budget: packed_logprobs(self.model, trie, budget))
            stops = np.cumsum([len(sequences[i]) - n_context[i] for i in packed])
            for i, own in zip(packed, np.split(flat, stops[:-1]), strict=True):
                scores[i] = own
            if self._n_to_test and not self._passes_self_test(packed, sequences, n_context, scores):
                return self._logprobs(sequences, n_context)
        if whole:
            for i, own in zip(whole, self._full_text(whole, sequences, n_context), strict=True):
                scores[i] = own
        return scores

    def _full_text(
        self, rows: Sequence[int], sequences: Sequence[npt.NDArray[np.int32]], n_context: Sequence[int]
    ) -> list[Logprobs]:
        chosen, contexts = [sequences[i] for i in rows], [n_context[i] for i in rows]
        return self._within_memory(lambda budget: full_text_logprobs(self.model, chosen, contexts, budget))

    def _passes_self_test(
        self,
        rows: Sequence[int],
        sequences: Sequence[npt.NDArray[np.int32]],
        n_context: Sequence[int],
        scores: Sequence[Logprobs],
    ) -> bool:
        """Compare packed scores of a few texts with plain forward passes; on a difference, leave the packed path."""
        n = min(self._n_to_test, len(rows))
        sample = [rows[i * (len(rows) - 1) // max(n - 1, 1)] for i in range(n)]
        plain = [self._full_text([row], sequences, n_context)[0] for row in sample]
        difference = max(float(np.abs(scores[row] - own).max()) for row, own in zip(sample, plain, strict=True))
        self._n_to_test -= n
        self._self_test_difference = max(difference, self._self_test_difference or 0.0)
        tolerance = TOLERANCE[self.model.dtype]
        if difference <= tolerance:
            return True
        logger.warning(
            "packed scores of this %s are %.2g nats off the plain forward pass (%.2g allowed); scoring whole texts",
            self.model.config.model_type,
            difference,
            tolerance,
        )
        self.path = "full_text"
        self._n_to_test = 0
        return False

    def _within_memory(self, run: Callable[[int], T]) -> T:
        """Call ``run`` with the token budget, and with half of it each time that CUDA memory runs out."""
        while True:
            try:
                return run(self.token_budget)
            except torch.OutOfMemoryError as error:
                if self.token_budget // 2 < _SMALLEST_BUDGET:
                    raise BiasevalError(
                        f"GPU memory runs out with {self.token_budget} tokens in a pass; use a GPU with more memory, "
                        "several GPUs, or quantization 8bit"
                    ) from error
            self.token_budget //= 2
            torch.cuda.empty_cache()
            logger.warning("GPU memory ran out; going on with at most %d tokens in a pass", self.token_budget)


def default_token_budget(model: PreTrainedModel) -> int:
    """Return how many tokens a forward pass should take at most.

    CPU: measured, larger packs only add masked attention. CUDA: what a third of the free memory holds, by a generous
    estimate of activations, keys and values and logits per token.
    """
    if model.device.type != "cuda":
        return _CPU_BUDGET
    config = model.config.get_text_config()
    free, _ = torch.cuda.mem_get_info(model.device)
    widest = max(getattr(config, "intermediate_size", None) or 4 * config.hidden_size, config.hidden_size)
    per_token = model.dtype.itemsize * (2 * config.num_hidden_layers * config.hidden_size + 8 * widest)
    per_token += 2 * (model.dtype.itemsize + 4) * _vocabulary(model) // 8
    return int(min(max(free // 3 // per_token, _SMALLEST_BUDGET), _LARGEST_CUDA_BUDGET))


def _device_name(device: torch.device) -> str:
    return f"{device}: {torch.cuda.get_device_name(device)}" if device.type == "cuda" else str(device)


def _vocabulary(model: PreTrainedModel) -> int:
    embeddings: Any = model.get_input_embeddings()
    return int(embeddings.weight.shape[0])


def _sequences(encoded: pa.Table) -> tuple[list[npt.NDArray[np.int32]], list[int]]:
    missing = [name for name in ENCODED.names if name not in encoded.column_names]
    if missing:
        raise InputError(f"encoded prompts: column {', '.join(missing)} missing; pass what encode returned")
    ids = encoded["token_ids"].combine_chunks()
    if isinstance(ids, pa.ChunkedArray):
        ids = pa.concat_arrays(ids.chunks) if ids.num_chunks else pa.array([], ids.type)
    values = ids.values.to_numpy(zero_copy_only=False)
    offsets = ids.offsets.to_numpy()
    sequences = [values[start:stop] for start, stop in pairwise(offsets)]
    return sequences, encoded["n_context_tokens"].to_pylist()
