"""From what a model says to a label: outputs of free generation, and decoding that never leaves the label set."""

from __future__ import annotations

import string
from collections.abc import Sequence

N_NEW_TOKENS = 2
"""Of free generation (P2 section 4)."""


def match_label(output: str, labels: Sequence[str]) -> str | None:
    """Return the label that a generated text stands for, or None where it is no label (section 11.3 of the protocol).

    White space around the text and upper and lower case do not count. The text stands for a label that starts with
    its first word: two tokens need not spell a long label. Where no label starts with the word as it stands, what
    punctuation it ends with is left out (``True.``). Of several such labels, in this order: the one that is the text;
    the one that starts with the text; the longest that the text starts with, in whole words. What leaves a choice
    stands for none. By this rule ``no`` stands for ``none`` where there is no label ``no``.

    Args:
        output: new text only, without special tokens.
        labels: the label set.
    """
    words = output.casefold().split()
    if not words:
        return None
    folded = {label: " ".join(label.casefold().split()) for label in labels}
    stem = words[0].rstrip(string.punctuation)
    if stem and not any(label.startswith(words[0]) for label in folded.values()):
        words = [stem]
    candidates = [label for label, text in folded.items() if text.startswith(words[0])]
    if len(candidates) <= 1:
        return candidates[0] if candidates else None
    text = " ".join(words)
    for chosen in (
        [label for label in candidates if folded[label] == text],
        [label for label in candidates if folded[label].startswith(text)],
        _longest([label for label in candidates if f"{text} ".startswith(f"{folded[label]} ")], folded),
    ):
        if chosen:
            return chosen[0] if len(chosen) == 1 else None
    return None


def constrained_choice(tokens: Sequence[Sequence[int]], logprobs: Sequence[Sequence[float]]) -> int:
    """Return which label greedy decoding gives that may only write one of the labels and EOS.

    At each place where the labels' token sequences part, the likeliest of their next tokens is taken, as a decoder
    would that masks all others: their log-probabilities are those of scoring. A label that begins another competes
    by its EOS. Of equally likely tokens the earliest label's is taken.

    Args:
        tokens: the token ids of each label behind the same prompt, EOS last; no two the same.
        logprobs: of each of these tokens, in nats.
    """
    candidates = list(range(len(tokens)))
    position = 0
    while len(candidates) > 1:
        best = max(candidates, key=lambda label: logprobs[label][position])
        candidates = [label for label in candidates if tokens[label][position] == tokens[best][position]]
        position += 1
    return candidates[0]


def _longest(labels: Sequence[str], folded: dict[str, str]) -> list[str]:
    n_characters = max((len(folded[label]) for label in labels), default=0)
    return [label for label in labels if len(folded[label]) == n_characters]
