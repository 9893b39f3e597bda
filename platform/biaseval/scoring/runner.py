"""Runs texts through a model in the fastest way that is right for it: checks the ways, bounds memory."""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from transformers import PreTrainedModel

from biaseval.errors import BiasevalError, InputError
from biaseval.models import attention_window, model_window, refuse_looking_ahead
from biaseval.scoring.batched import batched_predictions, chains_to_cache, takes_cached_prefixes
from biaseval.scoring.memory import SMALLEST_BUDGET, cache_budget_of, is_out_of_memory, token_budget_of
from biaseval.scoring.packed import PathCache, packed_predictions, rotary_limit, why_no_packs, write_continuations
from biaseval.scoring.prepare import prepare_texts
from biaseval.scoring.readout import Logprobs, Predictions, largest_logit, logits_at, write_likeliest, write_logprobs
from biaseval.scoring.trie import Integers, TokenTrie, common_chain

logger = logging.getLogger(__name__)

Path = Literal["packed", "prefix_cache", "full_text", "one_by_one"]

TOLERANCE = {torch.float32: 1e-4, torch.float16: 0.1, torch.bfloat16: 0.5}
"""Nats by which scores may differ from the plain forward pass at most: the rounding of a deep model in that dtype.

In 16 bits the root mean square counts, or a fifth of the largest: rounding alone changes single tokens by 0.5 nats.
"""

_NOISE, _N_BEHIND = 3, 17
"""In 16 bits scores may differ by 3 times what 17 tokens after a text change, and by a fifth of ``TOLERANCE``,
and by half the dtype's epsilon at the largest logit, whatever else: target and normalizer are rounded.
"""

_N_SELF_TEST = 3

_LEAST_MEASURED_S = 1.0
"""Seconds of batches from which on their speed is told."""

_MAY_BE_WRONG: dict[Path, tuple[str, ...]] = {
    "packed": ("shared",),
    "prefix_cache": ("shared", "padded"),
    "full_text": ("padded",),
}
"""What texts that run together have in common where a text alone has none of it; a text alone cannot be wrong."""


@dataclass(frozen=True)
class Texts:
    """What runs in one call: a trie, and which of its targets belong to which text."""

    trie: TokenTrie
    offsets: Integers
    """``[n_texts + 1]`` the first slot of each text."""
    lengths: Integers
    """``[n_texts]`` tokens."""
    prompt_ids: pa.ChunkedArray
    labels: pa.ChunkedArray | None = None

    def subset(self, is_kept: npt.NDArray[np.bool_]) -> TokenTrie:
        """Return the trie of the texts for which ``[n_texts]`` says so."""
        return self.trie if is_kept.all() else self.trie.subset(np.repeat(is_kept, np.diff(self.offsets)))

    def alone(self, is_kept: npt.NDArray[np.bool_]) -> Iterator[TokenTrie]:
        """Yield the trie of each of the texts for which ``[n_texts]`` says so, with the text's last token.

        Nothing is predicted there, but what a model computes may follow the length of the text.
        """
        for row in np.flatnonzero(is_kept):
            trie = self.subset(np.arange(len(is_kept)) == row)
            yield trie.with_last_token() if trie.n_nodes < self.lengths[row] else trie

    def owner(self, slot: int) -> int:
        """Return the text that a slot belongs to."""
        return int(np.searchsorted(self.offsets, slot, side="right")) - 1

    def name(self, row: int) -> str:
        """Return a text in words."""
        label = "" if self.labels is None else f", label {self.labels[row].as_py()!r}"
        return f"prompt {self.prompt_ids[row].as_py()!r}{label}"


class _PathFailedError(Exception):
    """A way to run texts was found to be wrong for this model, and is no longer used."""


class Runner:
    """Runs texts, and remembers facts about the model: working paths, memory limits, the last shared prefix.

    Arguments are as for `LabelScorer`.
    """

    def __init__(
        self, model: PreTrainedModel, token_budget: int | None, cache_budget: int | None, path: Path | None
    ) -> None:
        self.model = model
        self.token_budget = token_budget if token_budget is not None else token_budget_of(model)
        self.cache_budget = cache_budget if cache_budget is not None else cache_budget_of(model)
        self.left: dict[Path, str] = {}
        """The paths that this model does not take, and why."""
        self.paths: list[Path] = ["packed", "prefix_cache", "full_text", "one_by_one"]
        if not takes_cached_prefixes(model):
            self.paths.remove("prefix_cache")
        if reason := why_no_packs(model):
            self.paths.remove("packed")
            self.left["packed"] = f"was not tried: the model {reason}"
        if path is not None:
            if path not in self.paths:
                raise InputError(f"path {path!r}: a {model.config.model_type} model takes {', '.join(self.paths)}")
            self.paths = self.paths[self.paths.index(path) :]
        self.hear_pace: Callable[[int, float], None] | None = None
        """Is told once how many tokens of texts some batches took, and how many seconds; not of the first batch."""
        self._rotary_limit = rotary_limit(model)
        self.path_beyond_window: Path | None = "one_by_one" if self._rotary_limit is not None else None
        """How texts run that are too long to run with others; None where none is."""
        self.forget()

    def forget(self) -> None:
        """Reset to the model as it is now: test the paths again, and drop all keys and values."""
        self._is_known_causal = False
        self._n_to_test = {(path, what): _N_SELF_TEST for path in self.paths for what in _MAY_BE_WRONG.get(path, ())}
        self._longest_tested = 0
        self._differences: dict[Path, float] = {}
        self._cache = PathCache()
        self._state = _state(self.model)

    def _renew(self) -> None:
        """Reset if the model changed since the last call; refuse a model whose tokens see later tokens."""
        if _state(self.model) != self._state:
            self.forget()
        if not self._is_known_causal:
            try:
                refuse_looking_ahead(name_of(self.model), self.model)
                self._is_known_causal = True
            except RuntimeError as error:
                if not is_out_of_memory(error):  # which the first pass meets, too, and says with its text
                    raise

    def test_again(self) -> None:
        """Test the paths again on the next texts; the recorded differences stay."""
        differences = self._differences
        self.forget()
        self._differences = differences

    def forget_texts(self) -> None:
        """Drop all keys and values, because an adapter came or went. The tested paths stay."""
        self._cache = PathCache()
        self._state = _state(self.model)

    @property
    def difference(self) -> float | None:
        """The largest difference in nats from the plain forward pass that the self-test saw; None before it ran."""
        return max(self._differences.values(), default=None)

    def logprobs(self, texts: Texts) -> Logprobs:
        """Return the log-probability of each target by slot; leave a path that the self-test finds wrong.

        Raises:
            BiasevalError: a score is not a finite number, or memory does not suffice.
        """
        scores = self._scores(texts)
        self._settle_broken(texts, scores)
        return scores

    def _scores(self, texts: Texts, n_more: int = 0) -> Logprobs:
        """Return scores before broken ones are settled; ``n_more`` tokens will follow, which may need another path."""
        self._renew()
        scores = np.full(int(texts.offsets[-1]), np.nan, dtype=np.float32)
        for path, is_own in list(self._by_path(texts, n_more)):
            try:
                is_few = self._few(path, texts, is_own)
                if is_few.any():
                    self._n_to_test[path, "shared"] += int(is_few.sum())
                for is_now in (is_few, is_own):
                    is_padded = self._run(path, texts, is_now, scores)
                    self._self_test(path, texts, is_now, is_padded, scores)
            except _PathFailedError:
                return self._scores(texts, n_more)
        return scores

    def continuations(self, texts: Texts, sequences: list[Integers], n_tokens: int) -> Integers:
        """Return the greedy tokens that follow each text, ``[n_texts, n_tokens]``; -1 where logits are no numbers.

        The texts are those of ``sequences``, token ids, as ``prepare_texts`` makes them.
        """
        self._renew()
        if any(self._is_to_be_tested(path, texts, is_own) for path, is_own in self._by_path(texts, n_tokens)):
            self._scores(texts, n_tokens)  # compares with the plain forward pass
        found = np.empty((len(sequences), n_tokens), dtype=np.int64)
        for path, is_own in self._by_path(texts, n_tokens):
            if path == "packed":
                self._packed_continuations(texts, is_own, found)
            else:
                self._step_by_step(path, sequences, is_own, found, texts)
        return found

    def _packed_continuations(self, texts: Texts, is_own: npt.NDArray[np.bool_], found: Integers) -> None:
        trie = texts.subset(is_own)
        self._forget_longest()
        self._within_memory(lambda: write_continuations(self.model, trie, self.token_budget, self._cache, found), texts)

    def _step_by_step(
        self, path: Path, sequences: list[Integers], is_own: npt.NDArray[np.bool_], found: Integers, texts: Texts
    ) -> None:
        rows = np.flatnonzero(is_own)
        growing = [sequences[row] for row in rows.tolist()]
        for step in range(found.shape[1]):
            together = [[ids] for ids in growing] if path == "one_by_one" else [growing]
            newest = np.concatenate([self._next_tokens(path, prepare_texts(own), texts) for own in together])
            found[rows, step] = newest
            growing = [np.append(ids, [max(token, 0)]) for ids, token in zip(growing, newest.tolist(), strict=True)]

    def _next_tokens(self, path: Path, trie: TokenTrie, texts: Texts) -> Integers:
        tokens = np.empty(len(trie.target_slot), dtype=np.int64)
        self._within_memory(lambda: write_likeliest(trie, self._predictions(path, trie), tokens), texts)
        return tokens

    def _by_path(self, texts: Texts, n_more: int) -> Iterator[tuple[Path, npt.NDArray[np.bool_]]]:
        """Yield how texts run, and which: those too long to run with others go alone."""
        lengths = texts.lengths + n_more
        is_alone = lengths > (np.inf if self._rotary_limit is None else self._rotary_limit)
        if not is_alone.all():
            yield self.paths[0], ~is_alone
        if is_alone.any():
            yield "one_by_one", is_alone

    def _predictions(self, path: Path, trie: TokenTrie) -> Iterator[Predictions]:
        self._forget_longest()
        if path == "packed":
            return packed_predictions(self.model, trie, self.token_budget, self._cache)
        budget = 1 if path == "one_by_one" else self.token_budget
        has_prefixes = path == "prefix_cache"
        return batched_predictions(self.model, trie, budget, self.cache_budget, has_prefixes=has_prefixes)

    def _forget_longest(self) -> None:
        """Run one token where rotary embeddings follow the longest text so far, so that they follow the next text."""
        if self._rotary_limit is not None:
            one = torch.zeros((1, 1), dtype=torch.long, device=self.model.device)
            logits_at(self.model, np.zeros(1, dtype=np.int64), input_ids=one)

    def _run(self, path: Path, texts: Texts, is_own: npt.NDArray[np.bool_], scores: Logprobs) -> npt.NDArray[np.bool_]:
        """Write the scores of some texts, and return by slot which ran filled up to the length of a longer one."""
        is_padded = np.zeros(len(scores), dtype=np.bool_)
        if not is_own.any():
            return is_padded

        def noted(trie: TokenTrie) -> Iterator[Predictions]:
            for each in self._paced(path, self._predictions(path, trie)):
                if each.is_padded is not None:
                    is_padded[trie.target_slot[each.targets]] = each.is_padded
                yield each

        try:
            for trie in texts.alone(is_own) if path == "one_by_one" else [texts.subset(is_own)]:
                self._within_memory(partial(lambda trie: write_logprobs(trie, noted(trie), scores), trie), texts)
        except Exception as error:
            is_untested = any(self._n_to_test.get((path, what)) for what in _MAY_BE_WRONG.get(path, ()))
            if isinstance(error, BiasevalError) or not (is_untested or path == "packed"):
                raise
            self._leave(path, f"fails with {type(error).__name__}: {error}")
            raise _PathFailedError from error
        return is_padded

    def _paced(self, path: Path, predictions: Iterator[Predictions]) -> Iterator[Predictions]:
        """Yield predictions, and measure the time of batches with their use, until the pace is reported.

        It does not measure whole texts: the first batch of a shared beginning has most new tokens, the others few.
        """
        started, n_nodes = None, 0
        for each in predictions:
            yield each
            if self.hear_pace is None or path not in ("packed", "prefix_cache"):
                continue
            each.logits[0, 0].item()  # waits for a GPU
            now = time.monotonic()
            if started is None:
                started = now  # the first batch starts kernels and threads
                continue
            n_nodes += each.n_nodes
            if now - started >= _LEAST_MEASURED_S:
                hear, self.hear_pace = self.hear_pace, None
                hear(n_nodes, now - started)

    def _is_to_be_tested(self, path: Path, texts: Texts, is_own: npt.NDArray[np.bool_]) -> bool:
        """Return whether texts run together in a way that was not compared yet with texts that run alone."""
        is_untested = self._n_to_test.get((path, "shared")) or self._few(path, texts, is_own).any()
        if is_untested and self._shared(path, texts, is_own).any():
            return True
        return bool(self._n_to_test.get((path, "padded"))) and bool(np.ptp(texts.lengths[is_own]))

    def _few(self, path: Path, texts: Texts, is_own: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return which texts to test before others run in packs: the longest, its prompt's next labels, the shortest.

        There are none where packs of such length were tested: half as long, and beyond the sliding window, if they are.
        """
        is_few, rows = np.zeros(len(is_own), dtype=np.bool_), np.flatnonzero(is_own)
        longest = int(rows[texts.lengths[rows].argmax()])
        length, window = int(texts.lengths[longest]), attention_window(self.model.config) or np.inf
        if path == "packed" and (length > 2 * self._longest_tested or self._longest_tested <= window < length):
            prompt = texts.prompt_ids[longest]
            beside = [row for row in (longest - 1, longest + 1) if row in rows and texts.prompt_ids[row] == prompt]
            is_few[[longest, *beside, rows[texts.lengths[rows].argmin()]]] = True
            is_few &= self._shared(path, texts, is_few)
        return is_few

    def _shared(self, path: Path, texts: Texts, is_own: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return which of some texts share a pass or a cached prefix on this path."""
        trie = texts.subset(is_own)
        if path != "prefix_cache":
            return is_own & (common_chain(trie) < trie.n_nodes)
        chains = [trie.targets(start, int(trie.end[start])) for start in chains_to_cache(self.model, trie)]
        behind = np.concatenate([trie.target_slot[each] for each in (slice(0, 0), *chains)])
        return _has_any(texts, np.isin(np.arange(texts.offsets[-1]), behind))

    def _plain(self, texts: Texts, rows: Integers, n_more: int = 0) -> tuple[Logprobs, float]:
        """Return log-probabilities by slot, of some texts, from plain forward passes, and the largest logit in them."""
        trie = texts.subset(np.isin(np.arange(len(texts.lengths)), rows))
        for _ in range(n_more):
            trie = trie.with_last_token()
        scores = np.full(int(texts.offsets[-1]), np.nan, dtype=np.float32)
        predictions = list(self._predictions("full_text", trie))
        write_logprobs(trie, predictions, scores)
        return scores, largest_logit(trie, predictions)

    def _self_test(
        self,
        path: Path,
        texts: Texts,
        is_own: npt.NDArray[np.bool_],
        is_padded: npt.NDArray[np.bool_],
        scores: Logprobs,
    ) -> None:
        """Compare scores of a few texts with plain forward passes, each text alone; on a difference, leave the path.

        Where nothing was shared, or filled up, there is nothing to be wrong about: such texts do not count.
        """
        is_testable = is_own & ~_has_any(texts, ~np.isfinite(scores))
        chosen: dict[str, Integers] = {}
        for what in _MAY_BE_WRONG.get(path, ()):
            if n_left := self._n_to_test[path, what]:
                padded = _has_any(texts, is_padded)
                among = padded if what == "padded" else self._shared(path, texts, is_own)
                meant = np.flatnonzero(is_testable & among)
                chosen[what] = meant[np.linspace(0, len(meant) - 1, min(n_left, len(meant))).astype(np.int64)]
        rows = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *chosen.values()]))
        if not len(rows):
            return
        slots = np.concatenate([np.arange(texts.offsets[row], texts.offsets[row + 1]) for row in rows])
        try:
            plain, largest = np.full_like(scores, np.nan), 0.0
            for row in rows:
                alone, own = self._plain(texts, np.array([row]))
                plain, largest = np.where(np.isnan(alone), plain, alone), max(largest, own)
            tolerance = TOLERANCE.get(self.model.dtype, 1e-4)
            off = np.abs(scores[slots] - plain[slots])
            size = difference = float(off.max())
            if self.model.dtype.itemsize == 2:
                room = min(model_window(self.model.config) or np.inf, self._rotary_limit or np.inf) - texts.lengths
                behind = np.minimum(room, _N_BEHIND).astype(np.int64)
                longer = [self._plain(texts, np.array([row]), behind[row])[0] - plain for row in rows]
                noises = np.concatenate([own[~np.isnan(own)] for own in longer])
                rms, noise = (float(np.sqrt((own**2).mean())) for own in (off, noises))
                size = max(rms, difference / 5)
                tolerance = min(max(_NOISE * noise, tolerance / 5), tolerance)
                tolerance = max(tolerance, torch.finfo(self.model.dtype).eps / 2 * largest)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            torch.cuda.empty_cache()  # whole texts may need more than packs do; another part will have shorter ones
            return
        for what, own_rows in chosen.items():
            self._n_to_test[path, what] -= len(own_rows)
        self._longest_tested = max(self._longest_tested, int(texts.lengths[rows].max()))
        self._differences[path] = max(difference, self._differences.get(path, 0.0))
        if not size <= tolerance:
            self._leave(path, f"is {size:.2g} nats off the plain forward pass ({tolerance:.2g} allowed)")
            raise _PathFailedError

    def _settle_broken(self, texts: Texts, scores: Logprobs) -> None:
        """Find out which text the model gives no finite score: in a pack, one that has none can spoil others."""
        rows = np.flatnonzero(_has_any(texts, ~np.isfinite(scores)))
        if not len(rows):
            return
        self._run("one_by_one", texts, np.isin(np.arange(len(texts.lengths)), rows), scores)
        broken = np.flatnonzero(_has_any(texts, ~np.isfinite(scores)))
        if len(broken):
            raise BiasevalError(
                f"{texts.name(int(broken[0]))}: the model gives a log-probability that is not finite "
                f"({len(broken)} of {len(texts.lengths)} texts); "
                f"try another dtype than {str(self.model.dtype).removeprefix('torch.')}"
            )
        if self.paths[0] != "one_by_one":
            self._leave(self.paths[0], "gives scores that are not finite where the plain forward pass does not")

    def _leave(self, path: Path, reason: str) -> None:
        self.paths.remove(path)
        self._differences.pop(path, None)
        self._cache = PathCache()
        self.left[path] = reason
        logger.warning("%s: the %s path %s; it is used no longer", self.model.config.model_type, path, reason)

    def _within_memory(self, run: Callable[[], None], texts: Texts) -> None:
        """Call ``run``, and again with half of the budgets each time that memory runs out."""
        while True:
            try:
                run()
                return
            except BaseException as error:
                self._cache = PathCache()
                if not is_out_of_memory(error):
                    raise
                if self.token_budget // 2 < SMALLEST_BUDGET:
                    longest = int(texts.lengths.argmax())
                    raise BiasevalError(
                        f"memory runs out with {self.token_budget} tokens in a pass; the longest text is "
                        f"{texts.name(longest)} ({texts.lengths[longest]} tokens): use a GPU with more memory, "
                        "several GPUs, or quantization 8bit, or shorten it"
                    ) from error
            self.token_budget //= 2
            self.cache_budget //= 2
            torch.cuda.empty_cache()
            logger.warning("memory ran out; going on with at most %d tokens in a pass", self.token_budget)


def name_of(model: PreTrainedModel) -> str:
    """Return a model's path, or its class where it has none, for messages."""
    return str(model.name_or_path) or type(model).__name__


def _state(model: PreTrainedModel) -> tuple[object, ...]:
    """Return what changes when the model's weights, dtype, place or active adapters do."""
    parameters = list(model.parameters())
    # A tensor made in inference mode counts no changes.
    versions = sum(0 if parameter.is_inference() else parameter._version for parameter in parameters)
    layers: list[Any] = [m for m in model.modules() if isinstance(getattr(type(m), "disable_adapters", None), property)]
    adapters = tuple((tuple(layer.active_adapters), layer.disable_adapters) for layer in layers)
    return model.dtype, model.device, len(parameters), versions, adapters


def _has_any(texts: Texts, is_slot: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return which texts have a slot of this sort."""
    n_slots = np.concatenate([[0], np.cumsum(is_slot)])
    has_any: npt.NDArray[np.bool_] = n_slots[texts.offsets[1:]] > n_slots[texts.offsets[:-1]]
    return has_any
