"""Prompt lengths in tokens: counted for the whole text, or as the sum over its pieces, each counted once."""

from collections.abc import Iterable, Sequence
from typing import Any

from biaseval.prompting.beginnings import without_second_bos

JOINT_MARGIN = 8
"""The largest change of the token count where two pieces meet."""


def merge_margin(n_demos: int) -> int:
    """Return the largest error of a token count summed over pieces: a few tokens where two pieces meet."""
    return 4 * (n_demos + 3)


class TokenCounter:
    """Token counts of texts, by a Hugging Face tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def count(self, text: str) -> int:
        """Return the number of tokens of ``text`` with special tokens; the tokenizer's first token counts once."""
        return len(self._tokenizer(without_second_bos(self._tokenizer, text), verbose=False)["input_ids"])

    def count_bare(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text, without special tokens."""
        if not texts:
            return []
        encoded = self._tokenizer(list(texts), add_special_tokens=False, verbose=False)
        return [len(ids) for ids in encoded["input_ids"]]

    def cut(self, text: str, max_tokens: int) -> str:
        """Return the text of the first ``max_tokens`` ids of ``text``, without special tokens."""
        own = without_second_bos(self._tokenizer, text)
        ids = self._tokenizer(own, verbose=False)["input_ids"][:max_tokens]
        return str(self._tokenizer.decode(ids, skip_special_tokens=True))


class PieceLengths:
    """Tokens of the pieces of prompts, without special tokens; each piece is counted once."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._known: dict[str, int] = {"": 0}
        self.n_special = counter.count("x") - counter.count_bare(["x"])[0]

    def measure(self, pieces: Iterable[str]) -> None:
        """Tokenise pieces in one batch, so that later look-ups are free."""
        new = [piece for piece in dict.fromkeys(pieces) if piece not in self._known]
        self._known.update(zip(new, self._counter.count_bare(new), strict=True))

    def of(self, piece: str) -> int:
        """Return the number of tokens of a piece."""
        if piece not in self._known:
            self.measure([piece])
        return self._known[piece]

    def with_eos(self, labels: Iterable[str]) -> int:
        """Return the tokens of all these labels after a prompt, each with its EOS."""
        return sum(self.of(f" {label}") + 1 for label in labels)
