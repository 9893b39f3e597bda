"""Labels behind prompts: what stands between the two, and whether a tokenizer tells the labels apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_WHITESPACE = (" ", "\n", "\t")


def separator(prompt: str, label: str) -> str:
    """Return what stands between prompt and label: a space, unless one side already brings whitespace (P1's code)."""
    return "" if prompt.endswith(_WHITESPACE) or label.startswith(_WHITESPACE) else " "


def label_problem(tokenizer: Any, prompt: str, labels: Sequence[str]) -> str | None:
    """Return why these labels cannot be told apart behind ``prompt``, or None.

    Prompt, separator, label and EOS are tokenised together, as for scoring (P1's code): a label must add a token to the
    prompt, and no two texts may have the same tokens, as they do where a tokenizer drops characters, maps them to its
    unknown token or lower-cases.

    Args:
        tokenizer: the model's Hugging Face tokenizer.
        prompt: a prompt, or as much of its end as tokens may depend on.
        labels: at least one.
    """
    texts = [f"{prompt}{separator(prompt, label)}{label}{tokenizer.eos_token}" for label in labels]
    before, *endings = map(tuple, tokenizer([prompt, *texts], verbose=False)["input_ids"])
    by_tokens: dict[tuple[int, ...], list[str]] = {}
    for label, (*ids, _) in zip(labels, endings, strict=True):
        if tuple(ids) == before[: len(ids)]:
            return f"the model's tokenizer gives the label {label!r} no token"
        by_tokens.setdefault(tuple(ids), []).append(label)
    for same in by_tokens.values():
        if len(same) > 1:
            return f"the model's tokenizer gives the labels {' and '.join(map(repr, same))} the same tokens"
    return None
