"""Labels after prompts: the separator, and whether a tokenizer and people can distinguish the labels."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

_WHITESPACE = (" ", "\n", "\t")
_UNSEEN = re.compile("[\u034f\u115f\u1160\u180b-\u180d\u2800\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Invisible characters, in addition to those that Unicode calls format characters."""
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?(e[+-]?\d{1,2})?")
_QUOTED = re.compile("[\"\uff02“”„‟«»].*|['‘’‚‛‹›].+['‘’‚‛‹›]", re.DOTALL)
"""Text from a double quote on; a single quote may be an apostrophe unless another one ends the label."""
_MISSING = ("None", "nan", "NaN", "null", "NULL")
"""Texts that programs write for a missing value."""
_SHOWN = 3


def separator(prompt: str, label: str) -> str:
    """Return the text between prompt and label: a space, unless one side already has white space (P1's code)."""
    return "" if prompt.endswith(_WHITESPACE) or label.startswith(_WHITESPACE) else " "


def flipped(own: Sequence[str], labels: Sequence[str], share: float, generator: np.random.Generator) -> list[str]:
    """Return labels, each replaced by any other of ``labels`` with probability ``share`` (0 to 1)."""
    draws = zip(own, generator.random((len(own), 2)), strict=True)
    others = {label: [other for other in labels if other != label] for label in own}
    return [
        others[label][int(place * len(others[label]))] if chance < share else label for label, (chance, place) in draws
    ]


def label_problem(tokenizer: Any, prompt: str, labels: Sequence[str]) -> str | None:
    """Return the reason why the tokenizer cannot distinguish these labels after ``prompt``, or None.

    Prompt, separator, label and EOS are tokenised together, as for scoring (P1's code). A label must add a token to the
    prompt, and no two texts may have the same tokens. Texts share their tokens if a tokenizer drops characters,
    lower-cases them or maps them to its unknown token. Of the prompt, as much of its end suffices as tokens may depend
    on.
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


def same_number(text: str) -> str | None:
    """Return one spelling for all spellings of a number, true or false (``1`` for ``1.0``); None for other texts."""
    word = text.strip().casefold()
    if _NUMBER.fullmatch(word):
        return format((Decimal(word) + 0).normalize(), "f")
    return word if word in ("true", "false") else None


def looks(label: str) -> str:
    """Return a label without case, spaces and invisible characters, with one spelling for each number."""
    text = " ".join(unicodedata.normalize("NFKC", _visible(label).casefold()).split())
    return same_number(text) or text


def label_cautions(labels: Iterable[str]) -> Iterator[str]:
    """Yield a sentence per kind of odd label: labels that look alike, mean a missing value, or are quoted."""
    by_look: dict[str, list[str]] = {}
    for label in labels:
        by_look.setdefault(looks(label), []).append(label)
    for same in by_look.values():
        if len(same) > 1:
            yield f"the labels {shown_apart(same)} look alike and count as different; if they mean the same, mend them"
    if unseen := [label for label in by_look.get("", []) if label]:
        yield f"the label {unseen[0]!a} cannot be seen; write a word for it"
    for label in (own for same in by_look.values() for own in same if own in _MISSING):
        yield f"the label {label!r} may be a missing value; where it is, leave its cells empty"
    if quoted := [label for same in by_look.values() for label in same if _QUOTED.fullmatch(label)]:
        shown = ", ".join(map(repr, quoted[:_SHOWN])) + (", …" if len(quoted) > _SHOWN else "")
        yield f"the quotes of {shown} count as part of the label; where they are only the file's, take them out"


def shown_apart(labels: Sequence[str]) -> str:
    """Return labels that look alike in a form that shows their difference, for messages."""
    is_unseen = len(set(map(_visible, labels))) < len(labels)
    return " and ".join(map(ascii if is_unseen else repr, labels))


def _visible(label: str) -> str:
    """Return a label without invisible characters, in Unicode's KC form."""
    seen = (each for each in unicodedata.normalize("NFKC", label) if unicodedata.category(each) != "Cf")
    return unicodedata.normalize("NFKC", _UNSEEN.sub("", "".join(seen)))
