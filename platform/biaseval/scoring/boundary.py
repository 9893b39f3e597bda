"""The first token of a label in its text, independent of the other labels of the prompt.

The context is the tokens of the prompt, as far as the tokens of the text agree. White space at the end of a prompt is
context if it is a token by itself. It belongs to the label if tokenizers join it to the next word, as they join a
space: ``Output: `` has the scores of ``Output:``. Letters and words decide whether they join, not the label alone, so
all labels have the same context even if one of them does not join. A label that joins with more than white space begins
at the first token in which its text and the prompt differ.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from biaseval.prompting.labels import separator

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Ids = npt.NDArray[np.int32]

_SPACED_WORD = re.compile("[ Ġ▁]([A-Za-z]{2,})")
_N_WORDS = 32
_LONGEST_TAIL = 32
"""The checked white space at a prompt's end, in characters; earlier characters are context in any case."""


def parted(text: str) -> tuple[str, str]:
    """Return a prompt without the white space at its end, and that white space, of which the last 32 characters."""
    n_tail = min(len(text) - len(text.rstrip()), _LONGEST_TAIL)
    return text[: len(text) - n_tail], text[len(text) - n_tail :]


def beginnings(tail: str) -> list[str]:
    """Return the white space by which each prompt that ends in ``tail`` goes on, from one character to all."""
    return [tail[:n] for n in range(1, len(tail) + 1)]


@lru_cache(maxsize=256)
def n_staying(tokenizer: PreTrainedTokenizerBase, n_tokens: int, tail: str) -> int:
    """Return how many characters of the white space at a prompt's end are tokens of their own before words.

    ``n_tokens`` is the size of the vocabulary, so that adding tokens to a tokenizer asks again.
    """
    if not tail:
        return 0
    prompts = [":", *(f":{own}" for own in beginnings(tail))]
    wholes = [f":{tail}{separator(tail, word)}{word}" for word in _words(tokenizer, n_tokens)]
    encoded = tokenizer([*prompts, *wholes], return_attention_mask=False, verbose=False)["input_ids"]
    ids = [np.asarray(own, dtype=np.int32) for own in encoded]
    staying = min(max(_kept(ids[: len(prompts)], whole), 0) for whole in ids[len(prompts) :])
    # Unknown characters may be one token together, so that white space which is unknown may be the label's, too.
    while staying and tokenizer.unk_token_id in ids[staying][-1:]:
        staying -= 1
    return staying


@lru_cache(maxsize=8)
def _words(tokenizer: PreTrainedTokenizerBase, n_tokens: int) -> list[str]:
    """Return letters, and words that the tokenizer knows with a space before them."""
    known = filter(None, map(_SPACED_WORD.fullmatch, tokenizer.get_vocab()))
    return [*string.ascii_letters, *sorted(word[1] for word in known)[:_N_WORDS]]


def n_context(prompts: Sequence[Ids], whole: Ids) -> int:
    """Return how many tokens of a text, the ids of prompt, label and EOS, stand before its label.

    ``prompts`` has the ids of the prompt without the white space at its end, then with one character more each.
    """
    kept = _kept(prompts, whole)
    if kept >= 0:
        return len(prompts[kept])
    n = min(len(prompts[0]), len(whole))
    return int(np.argmin(np.append(prompts[0][:n] == whole[:n], False)))


def _kept(prompts: Sequence[Ids], whole: Ids) -> int:
    """Return the last of the prompts that the text begins with; -1 where it begins with none."""
    return next((n for n in reversed(range(len(prompts))) if np.array_equal(prompts[n], whole[: len(prompts[n])])), -1)
