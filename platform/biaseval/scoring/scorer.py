"""LabelScorer: from prompts to log-probabilities of labels, and to greedy continuations."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from biaseval import models
from biaseval.errors import BiasevalError, InputError, refuse
from biaseval.prompting.beginnings import bos_cautions, without_second_bos
from biaseval.scoring.encoding import check_prompts
from biaseval.scoring.memory import device_name, vocabulary_of
from biaseval.scoring.prepare import Prepared, prepare, prepare_texts
from biaseval.scoring.runner import Path, Runner, Texts, name_of
from biaseval.scoring.trie import Integers

logger = logging.getLogger(__name__)

SCORES = pa.schema(
    [
        ("prompt_id", pa.string()),
        ("label", pa.string()),
        ("token_logprobs", pa.list_(pa.float32())),
        ("n_label_tokens", pa.int32()),
    ]
)

CONTINUATIONS = pa.schema([("prompt_id", pa.string()), ("text", pa.string()), ("token_ids", pa.list_(pa.int32()))])


class LabelScorer:
    """Scores labels, and continues texts, with one causal language model.

    Texts with a common prefix, such as few-shot prompts, run as a trie of tokens on one of four paths:

    ``packed`` computes each shared prefix once, with many inputs and labels after it in one row. ``prefix_cache``
    computes long shared prefixes once and the rest in padded batches. ``full_text`` runs whole texts in padded batches.
    ``one_by_one`` runs each text alone, for models that ignore the mask of a batch, and for texts so long that rotary
    embeddings would depend on the longest text of a batch.

    The scorer compares the first three with the plain forward pass of single texts, on the first texts that share a
    prefix or need padding. If a path differs or fails, the scorer takes the next. It repeats the test after the model's
    weights or adapters change. Every path gives the scores of the plain forward pass up to the rounding of the dtype,
    independent of the other texts of the call and of their order.

    Args:
        model: a causal language model in eval mode.
        tokenizer: its tokenizer.
        token_budget: the maximum of tokens in one forward pass; the scorer halves it when CUDA memory runs out. By
            default it follows from the device's free memory.
        cache_budget: the maximum of tokens whose keys and values a padded batch holds; likewise.
        path: the fastest path to use; by default the fastest for the model.

    Raises:
        InputError: the model is not causal, or does not support the path.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        token_budget: int | None = None,
        cache_budget: int | None = None,
        path: Path | None = None,
    ) -> None:
        models.check_causal(name_of(model), model.config)
        self.model = model
        self.tokenizer = tokenizer
        self._runner = Runner(model, token_budget, cache_budget, path)
        self._slot: models.AdapterSlot | None = None

    def tell_pace(self, hear: Callable[[int, float], None]) -> None:
        """Call a function once during scoring with the tokens of some batches and their seconds."""
        self._runner.hear_pace = hear

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
        cache_budget: int | None = None,
    ) -> LabelScorer:
        """Load model and tokenizer (see ``models.ModelSource`` and ``models.Loading``) and return their scorer.

        Raises:
            InputError: ``models.load_tokenizer`` or ``models.load_model`` refuses the model.
        """
        source = models.ModelSource(path, revision, adapter, trust_remote_code)
        models.check_source(source)
        tokenizer = models.load_tokenizer(source)
        model = models.load_model(source, models.Loading(dtype, device, quantization, max_memory))
        return cls(model, tokenizer, token_budget=token_budget, cache_budget=cache_budget)

    def put_adapter(self, name: str, config: bytes, weights: bytes) -> None:
        """Put a LoRA adapter on the model, in place of the previous adapter; later calls score with it.

        The scorer tests its paths again with the first adapter. Further adapters change numbers only, so they need no
        test. ``config`` is the adapter's ``adapter_config.json``, in PEFT's layout, and ``weights`` its
        ``adapter_model.safetensors``; messages use ``name``.

        Raises:
            InputError: the adapter does not fit the model.
        """
        if self._slot is None:
            self._slot = models.AdapterSlot(self.model, name_of(self.model))
            self._slot.put(name, config, weights)
            self._runner.test_again()
        else:
            self._slot.put(name, config, weights)
            self._runner.forget_texts()

    def use_adapter(self, is_on: bool) -> None:
        """Score with the last adapter of `put_adapter`, or with the model as loaded."""
        if self._slot is not None:
            self._slot.use(is_on=is_on)
            self._runner.forget_texts()
        elif is_on:
            raise InputError("use_adapter: no adapter was put on the model; call put_adapter first")

    @property
    def path(self) -> Path:
        """The path in use: ``packed``, ``prefix_cache``, ``full_text`` or ``one_by_one``."""
        return self._runner.paths[0]

    @property
    def path_beyond_window(self) -> Path | None:
        """The path of texts that are too long for ``path``; None if no text is."""
        return self._runner.path_beyond_window

    @property
    def token_budget(self) -> int:
        """The maximum of tokens in one forward pass."""
        return self._runner.token_budget

    def facts(self) -> dict[str, Any]:
        """Return the settings of scoring for the record: paths, attention, dtype, device, budgets, self-test."""
        return {
            "path": self.path, "path_beyond_window": self.path_beyond_window, "paths_left": dict(self._runner.left),
            "attention": self.model.config._attn_implementation, "dtype": _name(self.model.dtype),
            "device": device_name(self.model.device), "token_budget": self._runner.token_budget,
            "cache_budget": self._runner.cache_budget, "self_test_difference": self._runner.difference,
        }  # fmt: skip

    def score(self, prompts: pa.Table) -> pa.Table:
        """Score every label of every prompt.

        Args:
            prompts: ``prompt_id``, ``text``, ``labels`` (list of strings).

        Returns:
            One row per (prompt, label) in the order of ``prompts`` and its labels: ``prompt_id``, ``label``,
            ``token_logprobs`` (nats; label tokens, then EOS), ``n_label_tokens`` (without EOS).

        Raises:
            InputError: ``encode`` refuses the table, or a text is longer than the model's window.
            BiasevalError: a score is not a finite number, or memory does not suffice.
        """
        prepared = prepare(self.tokenizer, prompts)
        for caution in bos_cautions(self.tokenizer, prompts["text"].to_pylist()):
            logger.warning("%s", caution)
        return self.score_prepared(prepared)

    @torch.inference_mode()
    def score_prepared(self, prepared: Prepared) -> pa.Table:
        """Score what ``prepare`` returned; see ``score``."""
        rows, offsets = prepared.rows, prepared.offsets
        lengths = rows["n_tokens"].to_numpy()
        texts = Texts(prepared.trie, offsets, lengths, rows["prompt_id"], rows["label"])
        self._refuse_unfit(texts)
        scores = self._runner.logprobs(texts)
        return pa.table(
            {
                "prompt_id": rows["prompt_id"],
                "label": rows["label"],
                "token_logprobs": pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(scores)),
                "n_label_tokens": rows["n_label_tokens"],
            },
            schema=SCORES,
        )

    @torch.inference_mode()
    def generate(self, prompts: pa.Table, max_new_tokens: int) -> pa.Table:
        """Continue every prompt greedily, as ``model.generate`` does without sampling.

        Of the model's generation settings only the end-of-sequence tokens count: no penalty, no suppressed token.

        Args:
            prompts: ``prompt_id`` (unique), ``text``.
            max_new_tokens: at least 1; a text also ends with the model's end-of-sequence token.

        Returns:
            One row per prompt, in order: ``prompt_id``, ``text`` (the new text without special tokens), ``token_ids``
            (the new tokens, the end-of-sequence token included).

        Raises:
            InputError: columns or values missing, a repeated ``prompt_id``, ``max_new_tokens`` below 1, an empty
                prompt, or one that does not fit the model's window with the new tokens.
            BiasevalError: the model gives logits that are not numbers, or memory does not suffice.
        """
        if max_new_tokens < 1:
            raise InputError(f"max_new_tokens: {max_new_tokens}; ask for at least one")
        written = [without_second_bos(self.tokenizer, text) for text in check_prompts(prompts)[1]]
        encoded = self.tokenizer(written, return_attention_mask=False, verbose=False)["input_ids"] if written else []
        sequences = [np.asarray(ids, dtype=np.int64) for ids in encoded]
        empty = [prompts["prompt_id"][row].as_py() for row, ids in enumerate(sequences) if not len(ids)]
        refuse([f"prompt {name!r}: no token to continue; give the prompt a text" for name in empty])
        lengths = np.array([len(ids) for ids in sequences], dtype=np.int64)
        texts = Texts(prepare_texts(sequences), np.arange(len(sequences) + 1), lengths, prompts["prompt_id"])
        self._refuse_unfit(texts, n_more=max_new_tokens)
        found = self._runner.continuations(texts, sequences, max_new_tokens)
        unknown = np.flatnonzero((found < 0).any(axis=1))
        if len(unknown):
            raise BiasevalError(
                f"{texts.name(int(unknown[0]))}: the model gives logits that are not numbers; "
                f"try another dtype than {_name(self.model.dtype)}"
            )
        ends = self._end_tokens()
        tokens = [own[: _length(own, ends)].tolist() for own in found]
        return pa.table(
            {
                "prompt_id": prompts["prompt_id"],
                "text": [self.tokenizer.decode(own, skip_special_tokens=True) for own in tokens],
                "token_ids": pa.array(tokens, pa.list_(pa.int32())),
            },
            schema=CONTINUATIONS,
        )

    def _end_tokens(self) -> set[int]:
        config = getattr(self.model, "generation_config", None)
        ends = getattr(config, "eos_token_id", None)
        if ends is None:
            ends = self.tokenizer.eos_token_id
        return set(ends if isinstance(ends, list) else [ends])

    def _refuse_unfit(self, texts: Texts, n_more: int = 0) -> None:
        window, vocabulary = models.model_window(self.model.config), vocabulary_of(self.model)
        problems = []
        for row in np.flatnonzero(texts.lengths + n_more > window) if window is not None else ():
            problems.append(
                f"{texts.name(int(row))}: {texts.lengths[row] + n_more} tokens in all, "
                f"the model takes {window}; shorten the prompt"
            )
        trie = texts.trie
        foreign = np.flatnonzero(trie.target_token >= vocabulary)
        largest = max(trie.token.max(initial=-1), trie.target_token.max(initial=-1))
        if largest >= vocabulary:
            slot = trie.target_slot[foreign[0]] if len(foreign) else trie.target_slot[0]
            problems.append(
                f"{texts.name(texts.owner(int(slot)))}: token {largest} is outside the model's vocabulary of "
                f"{vocabulary}; use the tokenizer that belongs to the model"
            )
        refuse(problems[:20])


def _length(tokens: Integers, ends: set[int]) -> int:
    """Return how many tokens there are up to the first end token, that included."""
    return next((place + 1 for place, token in enumerate(tokens.tolist()) if token in ends), len(tokens))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
