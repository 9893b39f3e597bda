"""Exact match and F1 of one answer: SQuAD v1.1's own rules (P3 section 6), whose quirks are kept.

Punctuation is ASCII's (``“`` and ``–`` stay) and is deleted, not replaced: "a-b" is "ab", "1,204" is "1204", "U.S." is
"us". Articles are taken out after it, so "A.D." is "ad" and "a." is nothing. Half-compatible scripts (SQuAD v2's, those
of language-specific sets) differ in empty answers and in characters; their numbers are not these.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = dict.fromkeys(map(ord, string.punctuation))


def normalize_answer(text: str) -> str:
    """Return ``text`` in lower case without ASCII punctuation and articles, its words one space apart."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """Return 1 if the prediction equals any of the answers once both are normalised, else 0. Two empty texts are equal.

    Raises:
        ValueError: there is no answer.
    """
    _refuse_none(answers)
    predicted = normalize_answer(prediction)
    return float(any(normalize_answer(answer) == predicted for answer in answers))


def f1(prediction: str, answers: Sequence[str]) -> float:
    """Return the harmonic mean of precision and recall over tokens, for the answer that gives the most.

    Tokens are the words of the normalised texts; one that stands twice counts twice.

    Returns:
        0 to 1; 0 where no token is shared, also where both texts are empty (and :func:`exact_match` is 1).

    Raises:
        ValueError: there is no answer.
    """
    _refuse_none(answers)
    predicted = normalize_answer(prediction).split()
    return max(_token_f1(predicted, normalize_answer(answer).split()) for answer in answers)


def _token_f1(predicted: list[str], expected: list[str]) -> float:
    n_shared = (Counter(predicted) & Counter(expected)).total()
    if n_shared == 0:
        return 0.0
    precision = n_shared / len(predicted)
    recall = n_shared / len(expected)
    return 2 * precision * recall / (precision + recall)


def _refuse_none(answers: Sequence[str]) -> None:
    if not answers:
        raise ValueError("a question without an answer cannot be scored")
