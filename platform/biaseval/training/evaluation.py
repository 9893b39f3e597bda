"""How a reader does while it trains: its loss, exact match and F1 on sets of questions, and which steps were the best.

Protocol section 7: answers are those of prediction, the loss is the cross-entropy of start and end, whatever the
method's own is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
import torch.distributed as dist
from torch.nn import functional as F

from biaseval.qa_bias.squad_metric import exact_match, f1
from biaseval.reading.questions import Integers
from biaseval.reading.spans import Answer, best_spans, merged, window_answers
from biaseval.reading.windows import Windows, WindowSettings
from biaseval.training.features import cut_questions, labelled
from biaseval.training.objectives import Share
from biaseval.training.optimization import Optimization
from biaseval.training.preparation import Base
from biaseval.training.questions import Questions, answer_logits

Criterion = Literal["loss", "exact_match", "f1"]


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
        """Return questions as they are shown.

        Args:
            dataset: its name.
            questions: ``example_id``, ``question``, ``context``, ``answers`` and ``answer_starts``; each has an answer.
            base: whose tokenizer cuts them.
            inputs: what the model takes, as in `Questions`.
            settings: how contexts are read, and which spans may be answers.

        Raises:
            InputError: questions that leave too little of the window to their contexts.
        """
        windows = cut_questions(base.tokenizer, questions, max_tokens=settings.max_tokens, stride=settings.stride)
        shown = Questions(labelled(windows, questions, base.tokenizer), inputs, base.tokenizer.pad_token_id or 0)
        contexts, answers = (questions[name].to_pylist() for name in ("context", "answers"))
        return cls(dataset, windows, shown, contexts, answers, settings)

    def scores(self, optimization: Optimization, share: Share) -> Scores:
        """Return how the reader does; workers of a group call this at once, and each returns the same."""
        n_questions = len(self.contexts)
        starts = np.searchsorted(self.windows.pair, np.arange(n_questions + 1))
        longest = np.zeros(n_questions, dtype=np.int64)
        np.maximum.at(longest, self.windows.pair, self.windows.n_tokens)
        order = np.argsort(-longest, kind="stable").tolist()
        sums = np.zeros(3)  # of losses over windows, of exact match and F1 over questions
        for own in share.batches_of(order):
            # A worker with nothing left goes on with another's question: passes may depend on each other.
            questions = own or order[:1]
            rows = [row for question in questions for row in range(starts[question], starts[question + 1])]
            logits = optimization.ask(self.shown.batch(rows or [0]), answer_logits)
            if own and rows:  # a context without a token is answered by nothing
                sums += self._of(rows, logits)
        if share.n_workers > 1:
            total = torch.from_numpy(sums).to(logits.device)
            dist.all_reduce(total)
            sums = total.cpu().numpy()
        return Scores(self.dataset, sums[0] / self.shown.n_rows, sums[1] / n_questions, sums[2] / n_questions)

    def _of(self, rows: Sequence[int], logits: torch.Tensor) -> npt.NDArray[np.float64]:
        """Return the sums over some windows and their questions, of which all windows are there."""
        start_logits, end_logits = self._without_padding(rows, logits)
        losses = [
            F.cross_entropy(side, self._on(logits, self._labels(name)[rows]), reduction="sum")
            for name, side in (("start_position", start_logits), ("end_position", end_logits))
        ]
        windows, chosen = self.windows, np.array(rows)
        spans = best_spans(
            start_logits,
            end_logits,
            self.settings,
            n_tokens=self._on(logits, windows.n_tokens[chosen]),
            context_place=self._on(logits, windows.context_place[chosen]),
            n_context=self._on(logits, (windows.stop - windows.start)[chosen]),
        )
        found: dict[int, list[list[Answer]]] = {}
        for number, row in enumerate(rows):
            question = int(windows.pair[row])
            best = window_answers(spans, number, self.contexts[question], windows.characters(row), 1)
            found.setdefault(question, []).append(best)
        matches = overlaps = 0.0
        for question, of_windows in found.items():
            answers = merged(of_windows, 1)
            text = answers[0].text if answers else ""
            matches += exact_match(text, self.answers[question])
            overlaps += f1(text, self.answers[question])
        return np.array([float(torch.stack(losses).mean()), matches, overlaps])

    def _without_padding(self, rows: Sequence[int], logits: torch.Tensor) -> torch.Tensor:
        n_tokens = self._on(logits, self.windows.n_tokens[np.array(rows)])
        is_padding = torch.arange(logits.shape[-1], device=logits.device) >= n_tokens[:, None]
        return logits.masked_fill(is_padding, -torch.inf)

    def _labels(self, name: str) -> Integers:
        labels: Integers = self.shown.windows[name].to_numpy().astype(np.int64)
        return labels

    @staticmethod
    def _on(like: torch.Tensor, values: Integers) -> torch.Tensor:
        return torch.from_numpy(values).to(like.device)


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

    def selection(self) -> Selection:
        """Return what hears of the evaluations of a training."""
        return Selection(self.criterion, self.deciding, self.patience, self.against)


@dataclass
class Selection:
    """Which evaluation was the best so far, and whether it is time to stop."""

    criterion: Criterion
    datasets: frozenset[str]
    patience: int | None
    against: frozenset[str] = frozenset()
    best_step: int | None = None
    """0-based; None before the first finite evaluation."""
    _best: float = field(default=-math.inf, init=False)
    _n_worse: int = field(default=0, init=False)

    def add(self, step: int, scores: Sequence[Mapping[str, float | str]]) -> bool:
        """Hear of an evaluation behind a step; return whether it is the best so far.

        Of equal ones the first is; none is whose loss on some set is not finite.
        """
        value = self._mean(scores, self.datasets) - (self._mean(scores, self.against) if self.against else 0.0)
        value *= -1 if self.criterion == "loss" else 1
        is_finite = all(math.isfinite(float(own["loss"])) for own in scores)  # else answers mean nothing
        if is_finite and value > self._best:
            self._best, self.best_step, self._n_worse = value, step, 0
            return True
        self._n_worse += 1
        return False

    def _mean(self, scores: Sequence[Mapping[str, float | str]], datasets: frozenset[str]) -> float:
        values = [float(own[self.criterion]) for own in scores if own["dataset"] in datasets]
        return sum(values) / len(values)

    @property
    def is_over(self) -> bool:
        """Whether patience is exhausted."""
        return self.patience is not None and self._n_worse >= self.patience
