"""How a reader does while it trains: its loss, exact match and F1 on sets of questions, and which steps were the best.

Protocol section 7: answers are those of prediction, the loss is the cross-entropy of start and end, whatever the
method's own is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
import torch.distributed as dist
from torch.nn import functional as F

from biaseval.qa_bias.squad_metric import exact_match, f1
from biaseval.qa_models.spans import best_spans
from biaseval.qa_models.windows import Windows, WindowSettings
from biaseval.training.features import cut_questions, labelled
from biaseval.training.objectives import Share
from biaseval.training.optimization import Optimization
from biaseval.training.preparation import Base
from biaseval.training.questions import Questions, answer_logits

Criterion = Literal["loss", "exact_match", "f1"]

_N_FOUND = 4
"""Numbers that are found of a window, see `Evaluated._of`."""


@dataclass(frozen=True)
class Scores:
    """What a reader makes of a set of questions."""

    dataset: str
    loss: float
    """Mean over windows and over start and end, in nats."""
    exact_match: float
    """0 to 1."""
    f1: float
    """0 to 1."""
    seconds: float | None = None
    """To ask it; None where a version asked that did not say."""


@dataclass(frozen=True)
class Evaluated:
    """A set of questions that a reader is asked while it trains."""

    dataset: str
    windows: Windows
    shown: Questions
    """The same windows, with their labels."""
    contexts: Sequence[str]
    answers: Sequence[Sequence[str]]
    settings: WindowSettings

    @classmethod
    def of(
        cls, dataset: str, questions: pa.Table, base: Base, inputs: Sequence[str], settings: WindowSettings
    ) -> Evaluated:
        """Return questions, each with an answer, as they are shown; ``inputs`` are those of `Questions`.

        Raises:
            InputError: questions that leave too little of the window to their contexts.
        """
        windows = cut_questions(base.tokenizer, questions, max_tokens=settings.max_tokens, stride=settings.stride)
        shown = Questions(labelled(windows, questions, base.tokenizer), inputs, base.tokenizer.pad_token_id or 0)
        contexts, answers = (questions[name].to_pylist() for name in ("context", "answers"))
        return cls(dataset, windows, shown, contexts, answers, settings)

    def scores(self, optimization: Optimization, share: Share) -> Scores:
        """Return how the reader does; workers of a group call this at once, and each returns the same.

        At most ``batch_size`` windows go through it at once, those of a question not necessarily together.
        """
        started = time.perf_counter()
        lengths = self.windows.n_tokens
        found = np.zeros((len(lengths), _N_FOUND))
        for own in share.batches_of_like_length(range(len(lengths)), lengths.tolist()):
            # A worker with nothing left goes on with another's window: passes may depend on each other.
            logits = optimization.ask(self.shown.batch(own or [int(lengths.argmin())]), answer_logits)
            if own:
                found[own] = self._of(own, logits)
        if share.n_workers > 1:
            total = torch.from_numpy(found).to(logits.device)
            dist.all_reduce(total)
            found = total.cpu().numpy()
        texts = self._texts(found)
        matches, overlaps = (
            sum(float(metric(text, own)) for text, own in zip(texts, self.answers, strict=True)) / len(texts)
            for metric in (exact_match, f1)
        )
        seconds = time.perf_counter() - started
        return Scores(self.dataset, float(found[:, 0].mean()), matches, overlaps, seconds)

    def _of(self, rows: Sequence[int], logits: torch.Tensor) -> npt.NDArray[np.float64]:
        """Return of each of some windows its loss, and of its best span the score, the first and the last token.

        The score is minus infinity where it has none; tokens are counted from the first of the window's context.
        """
        places = self.windows.places(np.array(rows), logits.device)
        is_padding = torch.arange(logits.shape[-1], device=logits.device) >= places["n_tokens"][:, None]
        sides = logits.masked_fill(is_padding, -torch.inf)
        labels = (self.shown.windows[name].to_numpy()[rows] for name in ("start_position", "end_position"))
        losses = [
            F.cross_entropy(side, torch.from_numpy(own).to(side.device, torch.long), reduction="none")
            for side, own in zip(sides, labels, strict=True)
        ]
        spans = best_spans(sides[0], sides[1], self.settings, **places)
        score = np.where(spans.n > 0, spans.score[:, 0], -np.inf)
        loss = torch.stack(losses).mean(dim=0).cpu().numpy()
        return np.stack([loss, score, spans.first[:, 0], spans.last[:, 0]], axis=1, dtype=np.float64)

    def _texts(self, found: npt.NDArray[np.float64]) -> list[str]:
        """Return the answer to each question: that of its windows with the best score, the first of equal ones."""
        windows, texts = self.windows, []
        bounds = np.searchsorted(windows.pair, np.arange(len(self.contexts) + 1)).tolist()
        for context, (start, stop) in zip(self.contexts, pairwise(bounds), strict=True):
            # A context without a token has no window, and is answered by nothing.
            row = start + int(found[start:stop, 1].argmax()) if start < stop else None
            if row is None or not found[row, 1] > -np.inf:
                texts.append("")
                continue
            first, last = found[row, 2:].astype(np.int64)
            characters = windows.characters(row)
            texts.append(context[characters[first, 0] : characters[last, 1]])
        return texts


@dataclass(frozen=True)
class Watch:
    """How a reader is watched while it trains, and which of its weights are kept."""

    sets: Sequence[Evaluated]
    every: int
    """Optimizer steps between evaluations; the last step has one, too."""
    criterion: Criterion
    """What decides which weights are kept: the mean over the sets that do; the smallest loss, else the largest."""
    deciding: frozenset[str]
    """Names of the sets that decide."""
    patience: int | None = None
    """Evaluations without a better one after which training ends; None: it goes on to its last step."""
    against: frozenset[str] = frozenset()
    """Names of the sets whose mean is subtracted, where what counts is a difference."""
    cutoffs: Mapping[int, float] = field(default_factory=dict)
    """Optimizer steps to the F1 on the sets that decide that must be reached at the first evaluation after so many;
    where it is not, training ends without a result."""

    def stops(self, before: int, n_steps: int, scores: Sequence[Scores]) -> str | None:
        """Return why training ends at an evaluation that misses a cutoff, or None.

        ``n_steps`` were made, and ``before`` at the evaluation before, 0 where there was none.
        """
        due = [cutoff for rung, cutoff in self.cutoffs.items() if before < rung <= n_steps]
        f1 = _mean(scores, self.deciding, "f1")
        if not due or f1 >= max(due):
            return None
        return (
            f"stopped early after {n_steps:,} steps: F1 {f1:.4f} on validation, and the search asks for {max(due):.4f}"
        )


@dataclass
class Selection:
    """Which evaluation was the best so far, and whether it is time to stop."""

    watch: Watch
    best_step: int | None = None
    """0-based; None before the first finite evaluation."""
    _best: float = field(default=-math.inf, init=False)
    _n_worse: int = field(default=0, init=False)

    def add(self, step: int, scores: Sequence[Scores]) -> bool:
        """Hear of an evaluation after a step; return whether it is the best so far.

        Of equal ones the first is; none is whose loss on some set is not finite.
        """
        means = [
            _mean(scores, datasets, self.watch.criterion) for datasets in (self.watch.deciding, self.watch.against)
        ]
        value = (means[0] - means[1]) * (-1 if self.watch.criterion == "loss" else 1)
        is_finite = all(math.isfinite(own.loss) for own in scores)  # else answers mean nothing
        if is_finite and value > self._best:
            self._best, self.best_step, self._n_worse = value, step, 0
            return True
        self._n_worse += 1
        return False

    @property
    def is_over(self) -> bool:
        """Whether patience is exhausted."""
        return self.watch.patience is not None and self._n_worse >= self.watch.patience


def _mean(scores: Sequence[Scores], datasets: Collection[str], criterion: Criterion) -> float:
    """Return the mean over these sets, 0 without any."""
    found = [float(getattr(own, criterion)) for own in scores if own.dataset in datasets]
    return sum(found) / max(1, len(found))
