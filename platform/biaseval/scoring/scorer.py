"""LabelScorer: log-probabilities of labels, and greedy continuations, the fastest way that is right for the model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from biaseval.errors import BiasevalError, InputError
from biaseval.models import load_model, load_tokenizer, model_window
from biaseval.scoring.batched import batched_predictions, takes_cached_prefixes
from biaseval.scoring.packed import (
    PathCache,
    packed_predictions,
    packed_window,
    takes_packs,
    write_continuations,
)
from biaseval.scoring.prepare import Prepared, prepare, prepare_texts
from biaseval.scoring.readout import Logprobs, Predictions, write_likeliest, write_logprobs
from biaseval.scoring.trie import Integers, TokenTrie

logger = logging.getLogger(__name__)

T = TypeVar("T")

Path = Literal["packed", "prefix_cache", "full_text"]

SCORES = pa.schema(
    [
        ("prompt_id", pa.string()),
        ("label", pa.string()),
        ("token_logprobs", pa.list_(pa.float32())),
        ("n_label_tokens", pa.int32()),
    ]
)

CONTINUATIONS = pa.schema(
    [
        ("prompt_id", pa.string()),
        ("text", pa.string()),
        ("token_ids", pa.list_(pa.int32())),
    ]
)

TOLERANCE = {torch.float32: 1e-4, torch.float16: 0.1, torch.bfloat16: 0.5}
"""Nats by which a score may differ from the plain forward pass: the rounding of a deep model in that dtype."""

_N_SELF_TEST = 3
_SMALLEST_BUDGET = 32
_CPU_BUDGET = 512
_LARGEST_CUDA_BUDGET = 4096
_CPU_CACHE_BYTES = 1 << 30


@dataclass(frozen=True)
class _Texts:
    """What runs in one call: a trie, and which of its targets belong to which text."""

    trie: TokenTrie
    offsets: Integers
    """``[n_texts + 1]`` the first slot of each text."""
    lengths: Integers
    """``[n_texts]`` tokens."""
    prompt_ids: pa.ChunkedArray

    def subset(self, is_kept: npt.NDArray[np.bool_]) -> TokenTrie:
        """Return the trie of the texts for which ``[n_texts]`` says so."""
        return self.trie if is_kept.all() else self.trie.subset(np.repeat(is_kept, np.diff(self.offsets)))

    def longest(self) -> str:
        """Return the longest text in words."""
        longest = int(self.lengths.argmax())
        return f"prompt {self.prompt_ids[longest].as_py()!r} ({self.lengths[longest]} tokens)"


class _PathFailedError(Exception):
    """A way to run texts was found to be wrong for this model, and is no longer used."""


class LabelScorer:
    """Scores labels, and continues texts, with one causal language model.

    Texts that share a beginning, as few-shot prompts do, are run as a trie of tokens, in one of three ways:

    ``packed``: each shared prefix once, many inputs and labels behind it in one row; for the families that are known
    to take that. ``prefix_cache``: long shared prefixes once, the rest in padded batches; for every other model whose
    cache is keys and values, and for texts beyond a sliding window. ``full_text``: whole texts in padded batches.

    The first two are compared with the plain forward pass on the first texts, and left for the next where they differ
    or fail. All give the plain forward pass's scores up to rounding of the dtype, whatever else is in the call and in
    whatever order.

    Args:
        model: a causal language model in eval mode.
        tokenizer: its tokenizer.
        token_budget: most tokens in one forward pass; halved for good when CUDA memory runs out. By default found from
            the device's free memory.
        cache_budget: most tokens whose keys and values a padded batch holds; likewise.
        path: the fastest way to use; by default whatever is fastest for the model.
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
        self.model = model
        self.tokenizer = tokenizer
        self.token_budget = token_budget if token_budget is not None else default_token_budget(model)
        self.cache_budget = cache_budget if cache_budget is not None else default_cache_budget(model)
        self._paths = _paths(model)
        if path is not None:
            if path not in self._paths:
                raise InputError(f"path {path!r}: a {model.config.model_type} model takes {', '.join(self._paths)}")
            self._paths = self._paths[self._paths.index(path) :]
        self._packed_window = packed_window(model)
        self._n_to_test: dict[Path, int] = {each: _N_SELF_TEST for each in self._paths if each != "full_text"}
        self._differences: dict[Path, float] = {}
        self._cache = PathCache()

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
        return cls(model, tokenizer, token_budget=token_budget, cache_budget=cache_budget)

    @property
    def path(self) -> Path:
        """How texts run: ``packed``, ``prefix_cache`` or ``full_text``."""
        return self._paths[0]

    @property
    def path_beyond_window(self) -> Path | None:
        """How texts run that are too long to pack; None where no text is."""
        return self._paths[1] if self.path == "packed" and self._packed_window is not None else None

    def facts(self) -> dict[str, Any]:
        """Return how scores were made, for the record: paths, attention, dtype, device, budgets, self-test."""
        return {
            "path": self.path,
            "path_beyond_window": self.path_beyond_window,
            "attention": self.model.config._attn_implementation,
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "device": _device_name(self.model.device),
            "token_budget": self.token_budget,
            "cache_budget": self.cache_budget,
            "self_test_difference": max(self._differences.values(), default=None),
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
        return self.score_prepared(prepare(self.tokenizer, prompts))

    @torch.inference_mode()
    def score_prepared(self, prepared: Prepared) -> pa.Table:
        """Score what ``prepare`` returned; see ``score``."""
        rows, offsets = prepared.rows, prepared.offsets
        texts = _Texts(prepared.trie, offsets, rows["n_tokens"].to_numpy(), rows["prompt_id"])
        self._refuse_unfit(texts)
        scores = self._scores(texts)
        self._settle_broken(texts, rows["label"], scores)
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

        Args:
            prompts: ``prompt_id``, ``text``.
            max_new_tokens: at least 1; a text also ends with the model's end-of-sequence token.

        Returns:
            One row per prompt, in order: ``prompt_id``, ``text`` (the new text without special tokens), ``token_ids``
            (the new tokens, the end-of-sequence token included).

        Raises:
            InputError: an empty prompt, or one that does not fit the model's window with the new tokens.
            BiasevalError: the model gives logits that are not numbers, or memory does not suffice.
        """
        prompt_ids, texts = prompts["prompt_id"].combine_chunks(), prompts["text"].to_pylist()
        encoded = self.tokenizer(texts, return_attention_mask=False, verbose=False)["input_ids"] if texts else []
        sequences = [np.asarray(ids, dtype=np.int64) for ids in encoded]
        empty = [prompt_ids[row].as_py() for row, ids in enumerate(sequences) if not len(ids)]
        if empty:
            raise InputError.of([f"prompt {name!r}: no token to continue; give the prompt a text" for name in empty])
        trie, lengths = prepare_texts(sequences), np.array([len(ids) for ids in sequences], dtype=np.int64)
        texts_now = _Texts(trie, np.arange(len(sequences) + 1), lengths, prompt_ids)
        self._refuse_unfit(texts_now, n_more=max_new_tokens)
        if any(self._n_to_test.get(path) for path, _ in self._by_path(texts_now, max_new_tokens)):
            self._scores(texts_now, n_more=max_new_tokens)  # compares with the plain forward pass
        found = np.empty((len(sequences), max_new_tokens), dtype=np.int64)
        for path, is_own in self._by_path(texts_now, max_new_tokens):
            if path == "packed":
                self._packed_continuations(texts_now, is_own, found)
            else:
                self._step_by_step(path, sequences, is_own, found, texts_now)
        ends = self._end_tokens()
        if (found < 0).any():
            row = int(np.flatnonzero((found < 0).any(axis=1))[0])
            raise BiasevalError(
                f"prompt {prompt_ids[row].as_py()!r}: the model gives logits that are not numbers; "
                f"try another dtype than {self.facts()['dtype']}"
            )
        tokens = [own[: _length(own, ends)].tolist() for own in found]
        return pa.table(
            {
                "prompt_id": prompt_ids,
                "text": [self.tokenizer.decode(own, skip_special_tokens=True) for own in tokens],
                "token_ids": pa.array(tokens, pa.list_(pa.int32())),
            },
            schema=CONTINUATIONS,
        )

    def _packed_continuations(self, texts: _Texts, is_own: npt.NDArray[np.bool_], found: Integers) -> None:
        trie = texts.subset(is_own)
        self._within_memory(lambda: write_continuations(self.model, trie, self.token_budget, self._cache, found), texts)

    def _step_by_step(
        self,
        path: Path,
        sequences: list[Integers],
        is_own: npt.NDArray[np.bool_],
        found: Integers,
        texts: _Texts,
    ) -> None:
        rows = np.flatnonzero(is_own)
        growing = [sequences[row] for row in rows.tolist()]
        for step in range(found.shape[1]):
            newest = self._next_tokens(path, prepare_texts(growing), texts)
            found[rows, step] = newest
            growing = [np.append(ids, [max(token, 0)]) for ids, token in zip(growing, newest.tolist(), strict=True)]

    def _next_tokens(self, path: Path, trie: TokenTrie, texts: _Texts) -> Integers:
        tokens = np.empty(len(trie.target_slot), dtype=np.int64)
        self._within_memory(lambda: write_likeliest(trie, self._predictions(path, trie), tokens), texts)
        return tokens

    def _end_tokens(self) -> set[int]:
        config = getattr(self.model, "generation_config", None)
        ends = getattr(config, "eos_token_id", None)
        if ends is None:
            ends = self.tokenizer.eos_token_id
        return set(ends if isinstance(ends, list) else [ends])

    def _refuse_unfit(self, texts: _Texts, n_more: int = 0) -> None:
        window, vocabulary = model_window(self.model.config), _vocabulary(self.model)
        problems = []
        for row in np.flatnonzero(texts.lengths + n_more > window) if window is not None else ():
            problems.append(
                f"prompt {texts.prompt_ids[int(row)].as_py()!r}: {texts.lengths[row] + n_more} tokens with what comes "
                f"after it, the model takes {window}; shorten the prompt"
            )
        trie = texts.trie
        foreign = np.flatnonzero(trie.target_token >= vocabulary)
        largest = max(trie.token.max(initial=-1), trie.target_token.max(initial=-1))
        if largest >= vocabulary:
            slots = trie.target_slot[foreign] if len(foreign) else trie.target_slot[:1]
            owner = int(np.searchsorted(texts.offsets, slots[0], side="right")) - 1
            problems.append(
                f"prompt {texts.prompt_ids[owner].as_py()!r}: token {largest} is outside the model's vocabulary of "
                f"{vocabulary}; use the tokenizer that belongs to the model"
            )
        if problems:
            raise InputError.of(problems[:20])

    def _by_path(self, texts: _Texts, n_more: int = 0) -> Iterator[tuple[Path, npt.NDArray[np.bool_]]]:
        """Yield how texts run, and which: those too long to pack go the next way."""
        is_short = np.ones(len(texts.lengths), dtype=np.bool_)
        if self.path == "packed" and self._packed_window is not None:
            is_short = texts.lengths + n_more <= self._packed_window
        if is_short.any():
            yield self.path, is_short
        if not is_short.all():
            yield self._paths[1], ~is_short

    def _scores(self, texts: _Texts, n_more: int = 0) -> Logprobs:
        """Return the log-probability of each target by slot; leave a path that the self-test finds wrong."""
        scores = np.full(int(texts.offsets[-1]), np.nan, dtype=np.float32)
        for path, is_own in list(self._by_path(texts, n_more)):
            try:
                self._run(path, texts, is_own, scores)
                self._self_test(path, texts, is_own, scores)
            except _PathFailedError:
                return self._scores(texts, n_more)
        return scores

    def _settle_broken(self, texts: _Texts, labels: pa.ChunkedArray, scores: Logprobs) -> None:
        """Find out which texts the model gives no finite score: in a pack, one that has none can spoil others."""
        is_broken = _any_by_text(~np.isfinite(scores), texts.offsets)
        if not is_broken.any():
            return
        for row in np.flatnonzero(is_broken):
            plain = self._plain(texts, int(row))
            if not np.isfinite(plain).all():
                raise BiasevalError(
                    f"prompt {texts.prompt_ids[int(row)].as_py()!r}, label {labels[int(row)].as_py()!r}: the model "
                    f"gives a log-probability that is not finite; try another dtype than {self.facts()['dtype']}"
                )
            scores[texts.offsets[row] : texts.offsets[row + 1]] = plain
        self._leave(self.path, "gives scores that are not finite where the plain forward pass does not")

    def _plain(self, texts: _Texts, row: int) -> Logprobs:
        """Return the log-probabilities of one text by a forward pass of its own."""
        is_row = np.arange(len(texts.lengths)) == row
        trie = texts.subset(is_row)
        scores = np.full(int(texts.offsets[-1]), np.nan, dtype=np.float32)
        self._within_memory(lambda: write_logprobs(trie, self._predictions("full_text", trie), scores), texts)
        return scores[texts.offsets[row] : texts.offsets[row + 1]]

    def _run(self, path: Path, texts: _Texts, is_own: npt.NDArray[np.bool_], scores: Logprobs) -> None:
        trie = texts.subset(is_own)
        try:
            self._within_memory(lambda: write_logprobs(trie, self._predictions(path, trie), scores), texts)
        except (RuntimeError, ValueError, TypeError, AttributeError, NotImplementedError) as error:
            if not self._n_to_test.get(path):
                raise
            self._leave(path, f"fails with {type(error).__name__}: {error}")
            raise _PathFailedError from error

    def _predictions(self, path: Path, trie: TokenTrie) -> Iterator[Predictions]:
        if path == "packed":
            return packed_predictions(self.model, trie, self.token_budget, self._cache)
        has_prefixes = path == "prefix_cache"
        return batched_predictions(self.model, trie, self.token_budget, self.cache_budget, has_prefixes=has_prefixes)

    def _self_test(self, path: Path, texts: _Texts, is_own: npt.NDArray[np.bool_], scores: Logprobs) -> None:
        """Compare scores of a few texts with plain forward passes; on a difference, leave the path."""
        testable = np.flatnonzero(is_own & ~_any_by_text(~np.isfinite(scores), texts.offsets))
        n = min(self._n_to_test.get(path, 0), len(testable))
        for row in testable[np.linspace(0, len(testable) - 1, n).astype(np.int64)] if n else ():
            plain = self._plain(texts, int(row))
            difference = float(np.abs(scores[texts.offsets[row] : texts.offsets[row + 1]] - plain).max())
            self._n_to_test[path] -= 1
            self._differences[path] = max(difference, self._differences.get(path, 0.0))
            tolerance = TOLERANCE[self.model.dtype]
            if not difference <= tolerance:
                self._leave(path, f"is {difference:.2g} nats off the plain forward pass ({tolerance:.2g} allowed)")
                raise _PathFailedError

    def _leave(self, path: Path, reason: str) -> None:
        if path == "full_text":
            return
        self._paths.remove(path)
        self._differences.pop(path, None)
        self._cache = PathCache()
        logger.warning(
            "%s: the %s path %s; going on with %s", self.model.config.model_type, path, reason, self._paths[0]
        )

    def _within_memory(self, run: Callable[[], None], texts: _Texts) -> None:
        """Call ``run``, and again with half of the budgets each time that CUDA memory runs out."""
        while True:
            try:
                run()
                return
            except torch.OutOfMemoryError as error:
                if self.token_budget // 2 < _SMALLEST_BUDGET:
                    raise BiasevalError(
                        f"GPU memory runs out with {self.token_budget} tokens in a pass; the longest text is "
                        f"{texts.longest()}: use a GPU with more memory, several GPUs, or quantization 8bit, "
                        "or shorten it"
                    ) from error
            except BaseException:
                self._cache = PathCache()
                raise
            self.token_budget //= 2
            self.cache_budget //= 2
            self._cache = PathCache()
            torch.cuda.empty_cache()
            logger.warning("GPU memory ran out; going on with at most %d tokens in a pass", self.token_budget)


def _paths(model: PreTrainedModel) -> list[Path]:
    """Return how texts can run through this model, the fastest first."""
    paths: list[Path] = ["full_text"]
    if takes_cached_prefixes(model):
        paths.insert(0, "prefix_cache")
    if takes_packs(model):
        paths.insert(0, "packed")
    return paths


def default_token_budget(model: PreTrainedModel) -> int:
    """Return how many tokens a forward pass should take at most.

    CPU: measured; larger packs are no faster. CUDA: what a third of the free memory holds, by a generous estimate of
    activations, keys and values and logits per token.
    """
    if model.device.type != "cuda":
        return _CPU_BUDGET
    config = model.config.get_text_config()
    free, _ = torch.cuda.mem_get_info(model.device)
    widest = max(getattr(config, "intermediate_size", None) or 4 * config.hidden_size, config.hidden_size)
    per_token = _cache_bytes(model) + model.dtype.itemsize * 8 * widest
    per_token += 2 * (model.dtype.itemsize + 4) * _vocabulary(model) // 8
    return int(min(max(free // 3 // per_token, _SMALLEST_BUDGET), _LARGEST_CUDA_BUDGET))


def default_cache_budget(model: PreTrainedModel) -> int:
    """Return of how many tokens a batch may hold keys and values: a third of a GPU's free memory, 1 GiB of RAM."""
    is_cuda = model.device.type == "cuda"
    size = torch.cuda.mem_get_info(model.device)[0] // 3 if is_cuda else _CPU_CACHE_BYTES
    return max(size // _cache_bytes(model), 1)


def _cache_bytes(model: PreTrainedModel) -> int:
    """Return the bytes of one token's keys and values, were there no grouped queries."""
    config = model.config.get_text_config()
    return int(2 * config.num_hidden_layers * config.hidden_size * model.dtype.itemsize)


def _any_by_text(is_so: npt.NDArray[np.bool_], offsets: Integers) -> npt.NDArray[np.bool_]:
    """Return for which texts it is so at any of their slots."""
    n_so = np.concatenate([[0], np.cumsum(is_so)])
    return n_so[offsets[1:]] > n_so[offsets[:-1]]


def _length(tokens: Integers, ends: set[int]) -> int:
    """Return how many tokens there are up to the first end token, that included."""
    return next((place + 1 for place, token in enumerate(tokens.tolist()) if token in ends), len(tokens))


def _device_name(device: torch.device) -> str:
    return f"{device}: {torch.cuda.get_device_name(device)}" if device.type == "cuda" else str(device)


def _vocabulary(model: PreTrainedModel) -> int:
    embeddings: Any = model.get_input_embeddings()
    return int(embeddings.weight.shape[0])
