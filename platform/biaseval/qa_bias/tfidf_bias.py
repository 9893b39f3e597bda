"""A bias model without training of a network: answers are where a sentence shares words with the question.

After Clark et al. 2019 ("Don't Take the Easy Way Out", appendix), whose bias for adversarial SQuAD is the TF-IDF score
of question and sentence: the probability of a sentence is the softmax of a fitted weight times its cosine with the
question, and its tokens share it.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from biaseval.qa_bias.heuristics.text import EnglishText

Floats = npt.NDArray[np.float64]

UNIFORM_SHARE = 0.01
"""Of the probability that all tokens of a window share alike, so that none is impossible: not even the first one, which
is the label of windows without an answer."""

_LARGEST_WEIGHT = 1000.0


Sentences = Sequence[tuple[int, int]]
"""Where each sentence of a context starts, and where it has ended, in characters."""


class SentenceCosines:
    """Cosines of a question with the sentences of its context, by the TF-IDF of these sentences alone."""

    def __init__(self, text: EnglishText) -> None:
        self._text = text
        self._fitted = lru_cache(maxsize=256)(self._fit)

    def of(self, question: str, context: str) -> tuple[Sentences, Floats]:
        """Return the sentences of a context, and the cosine of each with the question, in [0, 1]."""
        sentences, vectorizer, vectors = self._fitted(context)
        if vectorizer is None:  # no sentence has a word
            return sentences, np.zeros(len(sentences))
        products = vectors @ vectorizer.transform([question]).T
        return sentences, np.asarray(products.todense(), dtype=np.float64).ravel()

    def _fit(self, context: str) -> tuple[Sentences, Any, Any]:
        from sklearn.feature_extraction.text import TfidfVectorizer

        sentences, place = [], 0
        for sentence in self._text.sentences(context):
            place = context.index(sentence, place)
            sentences.append((place, place + len(sentence)))
            place += len(sentence)
        vectorizer = TfidfVectorizer(stop_words="english")
        try:
            vectors = vectorizer.fit_transform([context[start:stop] for start, stop in sentences])
        except ValueError:  # an empty vocabulary
            return sentences, None, None
        return sentences, vectorizer, vectors


def fitted_weight(cosines: SentenceCosines, questions: Sequence[tuple[str, str, int]]) -> float:
    """Return the weight under which the sentences of the answers are the most probable.

    A question comes with its context and the character where its answer starts.
    """
    from scipy.optimize import minimize_scalar  # type: ignore[import-untyped]

    found: list[tuple[Floats, int]] = []
    for question, context, start in questions:
        sentences, values = cosines.of(question, context)
        of_answer = [number for number, (first, stop) in enumerate(sentences) if first <= start < stop]
        if of_answer and len(sentences) > 1:
            found.append((values, of_answer[0]))
    if not found:
        return 0.0
    width = max(len(values) for values, _ in found)
    padded = np.full((len(found), width), -np.inf)
    for row, (values, _) in enumerate(found):
        padded[row, : len(values)] = values
    is_sentence = np.isfinite(padded)
    padded[~is_sentence] = 0.0
    answers = np.array([answer for _, answer in found])

    def loss(weight: float) -> float:
        scaled = np.where(is_sentence, weight * padded, -np.inf)
        largest = scaled.max(axis=1, keepdims=True)
        totals = largest[:, 0] + np.log(np.exp(scaled - largest).sum(axis=1))
        return float((totals - scaled[np.arange(len(found)), answers]).mean())

    best = minimize_scalar(loss, bounds=(0.0, _LARGEST_WEIGHT), method="bounded")
    return float(best.x)


def token_log_probabilities(
    sentences: Sentences, cosines: Floats, weight: float, characters: npt.NDArray[np.int64], n_tokens: int, place: int
) -> npt.NDArray[np.float32]:
    """Return the log-probability of each token of a window to be where an answer starts, or ends.

    Args:
        sentences: of the whole context.
        cosines: of each with the question.
        weight: as fitted.
        characters: ``[n, 2]`` where in the context each token of the window's part starts and stops.
        n_tokens: of the window.
        place: of its context's first token.

    Returns:
        ``[n_tokens]``, which as probabilities add up to 1.
    """
    probabilities = np.full(n_tokens, 1.0 / n_tokens)
    starts = np.array([start for start, _ in sentences], dtype=np.int64)
    of_token = np.searchsorted(starts, characters[:, 0], side="right") - 1
    is_in = of_token >= 0
    if is_in.any():
        there, sizes = np.unique(of_token[is_in], return_counts=True)
        scores = np.exp(weight * (cosines[there] - cosines[there].max()))
        shares = dict(zip(there.tolist(), (scores / scores.sum() / sizes).tolist(), strict=True))
        own = np.zeros(n_tokens)
        own[place : place + len(characters)] = [shares.get(sentence, 0.0) for sentence in of_token.tolist()]
        probabilities = UNIFORM_SHARE / n_tokens + (1 - UNIFORM_SHARE) * own
    logs: npt.NDArray[np.float32] = np.log(probabilities).astype(np.float32)
    return logs
