"""The token that some tokenizers put before every text; a prompt that already begins with it keeps only one."""

from collections.abc import Iterable
from typing import Any


def adds_bos(tokenizer: Any) -> bool:
    """Return whether the tokenizer itself puts its first token before a text, so that a second one would follow."""
    bos = getattr(tokenizer, "bos_token", None)
    return bool(bos) and bool(tokenizer("x", verbose=False)["input_ids"][:1] == [tokenizer.bos_token_id])


def has_second_bos(tokenizer: Any, text: str) -> bool:
    """Return whether a text begins with the token that the tokenizer also adds."""
    bos = getattr(tokenizer, "bos_token", None)
    return bool(bos) and text.startswith(str(bos)) and adds_bos(tokenizer)


def without_second_bos(tokenizer: Any, text: str) -> str:
    """Return a text without leading copies of the token that the tokenizer adds."""
    if not has_second_bos(tokenizer, text):
        return text
    bos = str(tokenizer.bos_token)
    while text.startswith(bos):
        text = text.removeprefix(bos)
    return text


def bos_cautions(tokenizer: Any, texts: Iterable[str]) -> list[str]:
    """Return a caution if prompts begin with the token that the tokenizer also adds; else nothing."""
    if not any(has_second_bos(tokenizer, text) for text in texts):
        return []
    return [
        f"prompts begin with {tokenizer.bos_token!r}, which the tokenizer puts before every text itself; it is read "
        "once: leave it out of the prompts"
    ]
