"""The best spans of windows from start and end logits. Protocol section 7, for all windows of a batch at once."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from biaseval.qa_models.windows import WindowSettings


class Answer(NamedTuple):
    """A span of a context."""

    text: str
    score: float
    """Start logit plus end logit."""


@dataclass(frozen=True)
class Spans:
    """Spans that may be answers, best first."""

    n: npt.NDArray[np.int64]
    """``[n_windows]`` how many there are."""
    first: npt.NDArray[np.int32]
    """``[n_windows, n_best ** 2]`` their first token, counted from the first of the context; after ``n``, nothing."""
    last: npt.NDArray[np.int32]
    """``[n_windows, n_best ** 2]`` their last token, inclusive."""
    score: npt.NDArray[np.float32]
    """``[n_windows, n_best ** 2]`` start logit plus end logit."""


def best_spans(
    start_logits: torch.Tensor,
    end_logits: torch.Tensor,
    settings: WindowSettings,
    *,
    n_tokens: torch.Tensor,
    context_place: torch.Tensor,
    n_context: torch.Tensor,
) -> Spans:
    """Rank the spans of each window that start at one of its best start tokens and end at one of its best end tokens.

    As in the published code, the best tokens are those of the whole window: question and special tokens take places
    among them, and fall out after that, so that there is no null answer. Padding takes none; the published code, which
    pads to the full length, lets it.

    Equal logits: the earlier token first. Equal scores: the higher start logit first, then the higher end logit.

    Args:
        start_logits: ``[n_windows, width]`` float32.
        end_logits: likewise.
        settings: how many start and end tokens to combine, and the longest span.
        n_tokens: ``[n_windows]`` tokens of each window; padding follows.
        context_place: ``[n_windows]`` where its context starts.
        n_context: ``[n_windows]`` tokens of its context.
    """
    is_padding = torch.arange(start_logits.shape[1], device=start_logits.device) >= n_tokens[:, None]
    start_logit, start = _highest(start_logits.masked_fill(is_padding, -torch.inf), settings.n_best)
    end_logit, end = _highest(end_logits.masked_fill(is_padding, -torch.inf), settings.n_best)
    first = (start - context_place[:, None])[:, :, None]
    last = (end - context_place[:, None])[:, None, :]
    is_in_context = (first >= 0) & (last < n_context[:, None, None])
    is_span = is_in_context & (last >= first) & (last - first < settings.max_answer_tokens)
    score = (start_logit[:, :, None] + end_logit[:, None, :]).masked_fill(~is_span, -torch.inf).flatten(1)
    score, order = score.sort(dim=1, descending=True, stable=True)
    shape = is_span.shape
    return Spans(
        n=is_span.flatten(1).sum(dim=1).cpu().numpy(),
        first=first.expand(shape).flatten(1).gather(1, order).int().cpu().numpy(),
        last=last.expand(shape).flatten(1).gather(1, order).int().cpu().numpy(),
        score=score.cpu().numpy(),
    )


def _highest(logits: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    values, places = logits.sort(dim=1, descending=True, stable=True)
    return values[:, :n], places[:, :n]


def window_answers(
    spans: Spans, row: int, context: str, characters: npt.NDArray[np.int64], n_best: int
) -> list[Answer]:
    """Return a window's best answers with different texts, at most ``n_best``, best first.

    Args:
        spans: of a batch, in which ``row`` is the window.
        row: 0-based.
        context: the whole context.
        characters: ``[n_context, 2]`` where in it each token of the window's part starts and stops.
        n_best: how many.
    """
    first_character, last_character = characters[:, 0], characters[:, 1]
    n = int(spans.n[row])
    starts = first_character[spans.first[row, :n]].tolist()
    stops = last_character[spans.last[row, :n]].tolist()
    texts = (context[start:stop] for start, stop in zip(starts, stops, strict=True))
    return _different(map(Answer, texts, spans.score[row, :n].tolist()), n_best)


def merged(answers: Iterable[list[Answer]], n_best: int) -> list[Answer]:
    """Return the best answers of a question's windows with different texts; of equal scores the first window's."""
    found = list(answers)
    if len(found) == 1:
        return found[0]
    everything = [answer for own in found for answer in own]
    return _different(sorted(everything, key=lambda answer: -answer.score), n_best)


def _different(answers: Iterable[Answer], n: int) -> list[Answer]:
    """Return the first answer of each text, up to ``n`` of them."""
    found: dict[str, Answer] = {}
    for answer in answers:
        found.setdefault(answer.text, answer)
        if len(found) == n:
            break
    return list(found.values())
