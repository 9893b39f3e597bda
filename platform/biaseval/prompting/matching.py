"""Find the label that a model's output means: after free generation, and after decoding restricted to the labels."""

import string
from collections.abc import Sequence

N_NEW_TOKENS = 2
"""New tokens in free generation (P2 section 4)."""


def match_label(output: str, labels: Sequence[str]) -> str | None:
    """Return the label that a generated text means, or None if it means no label (section 11.3 of the protocol).

    White space around the text and case do not count. The text means a label that starts with its first word, because
    two tokens may not spell a long label. If no label starts with that word, its final punctuation is removed
    (``True.``). If several labels fit, the label equal to the text comes first, then the label that starts with the
    text. The last choice is the longest label, in whole words, that starts the text. A text that still fits several
    labels means none. By this rule ``no`` means ``none`` if there is no label ``no``. The output is new text only,
    without special tokens.
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
    """Return the label of greedy decoding that may only write one of the labels and EOS.

    Where the labels' token sequences part, the function takes their most likely next token, as a decoder that masks all
    other tokens would. A label that begins another one competes by its EOS. Of equally likely tokens, the earliest
    label's token wins. ``tokens`` has the ids of each label after the same prompt, EOS last, no two the same, and
    ``logprobs`` the log-probability of each, in nats, as in scoring.
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
