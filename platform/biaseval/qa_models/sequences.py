"""Greedy answers of sequence-to-sequence models (T5, BART...), in batches. Protocol section 12."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from transformers import LogitsProcessor, LogitsProcessorList, PreTrainedModel, PreTrainedTokenizerBase

from biaseval.errors import BiasevalError, InputError
from biaseval.models import encoder_window
from biaseval.qa_models.batches import Batches, token_budget_of
from biaseval.qa_models.questions import Integers, distinct, named

_ONLY_WITH_SAMPLES_OR_BEAMS = (
    "temperature", "top_p", "top_k", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff", "early_stopping",
    "length_penalty",
)  # fmt: skip


class SequenceWriter:
    """Answers prompts with a sequence-to-sequence model as ``model.generate`` does one prompt at a time.

    Args:
        model: in eval mode.
        tokenizer: its tokenizer.
        max_tokens: most tokens of an answer, the decoder's start token included.
        token_budget: most tokens in a batch, those of answers included; halved for good when CUDA memory runs out. By
            default found from the device's free memory.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        max_tokens: int,
        token_budget: int | None = None,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.max_tokens = max_tokens
        self.batches = Batches(token_budget if token_budget is not None else token_budget_of(model, 512))

    def facts(self) -> dict[str, Any]:
        """Return how answers were made, for the record."""
        return {
            "attention": self.model.config._attn_implementation,
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "device": str(self.model.device),
            "token_budget": self.batches.token_budget,
        }

    @torch.inference_mode()
    def write(self, prompts: Sequence[str], names: Sequence[str]) -> list[str]:
        """Return the answer to each prompt, without special tokens.

        Of the model's generation settings those of samples and beams do not count: answers are greedy.

        Args:
            prompts: ``[n_prompts]``.
            names: ``[n_prompts]`` what errors call them.

        Raises:
            InputError: prompts longer than the model's window (where it has one), or without a token.
            BiasevalError: the model gives logits that are not numbers, or memory does not suffice.
        """
        if not prompts:
            return []
        encoded: Any = self.tokenizer(
            list(prompts), truncation=False, padding=False, return_attention_mask=False, verbose=False
        )
        rows, prompt_of_row = distinct([(prompt,) for prompt in prompts])
        ids = [np.array(encoded["input_ids"][row], dtype=np.int64) for row in rows]
        lengths = np.array([len(own) for own in ids], dtype=np.int64)
        own_names = [names[row] for row in rows]
        self._refuse_unfit(lengths, own_names)
        answers = [""] * len(ids)

        def run(batch: Integers) -> None:
            written = self._generate([ids[row] for row in batch], [own_names[row] for row in batch])
            for row, answer in zip(batch.tolist(), written, strict=True):
                answers[row] = answer

        with self._greedy():
            self.batches.run(lengths + self.max_tokens, run, lambda row: f"question {own_names[row]!r}")
        return [answers[row] for row in prompt_of_row]

    def _generate(self, ids: list[Integers], names: list[str]) -> list[str]:
        width = max(len(own) for own in ids)
        pad_id = self.tokenizer.pad_token_id if self.tokenizer.pad_token_id is not None else 0
        batch = torch.full((len(ids), width), pad_id, dtype=torch.long)
        mask = torch.zeros_like(batch)
        for row, own in enumerate(ids):
            batch[row, : len(own)] = torch.from_numpy(own)
            mask[row, : len(own)] = 1
        model: Any = self.model
        written = model.generate(
            input_ids=batch.to(model.device),
            attention_mask=mask.to(model.device),
            logits_processor=LogitsProcessorList([_RefuseNan(names, str(model.dtype).removeprefix("torch."))]),
        )
        texts: list[str] = self.tokenizer.batch_decode(written, skip_special_tokens=True)
        return texts

    @contextmanager
    def _greedy(self) -> Iterator[None]:
        """Give the model greedy settings for a while; as an argument they would be mixed with its own."""
        model: Any = self.model
        own = model.generation_config
        settings = copy.deepcopy(own)
        for name in _ONLY_WITH_SAMPLES_OR_BEAMS:
            setattr(settings, name, None)
        settings.num_beams, settings.do_sample = 1, False
        settings.max_length, settings.max_new_tokens = self.max_tokens, None
        model.generation_config = settings
        try:
            yield
        finally:
            model.generation_config = own

    def _refuse_unfit(self, lengths: Integers, names: list[str]) -> None:
        if empty := [names[row] for row in np.flatnonzero(lengths == 0)]:
            raise InputError(f"{len(empty)} prompts have no token ({named(empty)}); give the prompt a text")
        window = encoder_window(self.model)
        too_long = [] if window is None else [names[row] for row in np.flatnonzero(lengths > window)]
        if too_long:
            raise InputError(
                f"{len(too_long)} prompts are longer than the {window} tokens that the model takes ({named(too_long)}; "
                f"the longest has {lengths.max()}): leave them out, or shorten their contexts"
            )


class _RefuseNan(LogitsProcessor):
    def __init__(self, names: list[str], dtype: str) -> None:
        self._names = names
        self._dtype = dtype

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        is_broken = torch.isnan(scores).any(dim=1)
        if is_broken.any():
            raise BiasevalError(
                f"question {self._names[int(is_broken.int().argmax())]!r}: the model gives logits that are not "
                f"numbers; try another dtype than {self._dtype}"
            )
        return scores
