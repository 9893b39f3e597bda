"""Questions and contexts as token ids; a context too long for the model is cut into overlapping windows.

Each different question and context is tokenised once. A window is a pair as the tokenizer itself would make it with
``truncation="only_second", return_overflowing_tokens=True``, without padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from biaseval.errors import InputError
from biaseval.models import ModelSource, load_reader_tokenizer
from biaseval.qa_bias.data import Question
from biaseval.qa_models.questions import Integers, distinct, named

_PROBE = ("Who was it?", "It was nobody, or so they said.")


@dataclass(frozen=True)
class WindowSettings:
    """How long contexts are read, and which spans may be answers."""

    max_tokens: int = 384
    """Most tokens of a window, special ones included."""
    stride: int = 128
    """Tokens of the context that two neighbouring windows share."""
    n_best: int = 20
    """Start and end tokens that are combined per window, and answers returned per question."""
    max_answer_tokens: int = 30
    """Of the longest answer."""


AS_PUBLISHED = WindowSettings()
"""Those of P3's code."""


@dataclass(frozen=True)
class PairForm:
    """What a tokenizer puts around the two texts of a pair."""

    before: Integers
    between: Integers
    after: Integers
    types: tuple[Integers, int, Integers, int, Integers]
    """``token_type_ids`` of the special tokens before, the first text, those between, the second text, those after."""
    has_context_first: bool
    """True for tokenizers that pad on the left; then the context is the first text (protocol section 7's code)."""

    @property
    def n_special(self) -> int:
        """Tokens that belong to neither text."""
        return len(self.before) + len(self.between) + len(self.after)


def pair_form(tokenizer: PreTrainedTokenizerBase) -> PairForm:
    """Find out what a tokenizer puts around a pair.

    Raises:
        InputError: in a pair it reads texts in another way than alone, so that they cannot be put together.
    """
    question, context = _PROBE
    has_context_first = tokenizer.padding_side == "left"
    pair = (context, question) if has_context_first else (question, context)
    encoded = tokenizer(*pair, truncation=False, padding=False)
    ids = np.array(encoded["input_ids"], dtype=np.int64)
    types = np.array(encoded.encodings[0].type_ids, dtype=np.int64)
    text = np.array([-1 if own is None else own for own in encoded.sequence_ids(0)])
    places = [np.flatnonzero(text == 0), np.flatnonzero(text == 1)]
    alone = [tokenizer(own, add_special_tokens=False, truncation=False)["input_ids"] for own in pair]
    if not all(len(own) for own in places) or any(
        own[-1] - own[0] + 1 != len(own) or ids[own].tolist() != expected
        for own, expected in zip(places, alone, strict=True)
    ):
        raise InputError(
            f"{tokenizer.name_or_path}: the tokenizer reads a pair of texts in another way than each alone; "
            "give a model whose tokenizer only puts special tokens around them"
        )
    (first, first_stop), (second, second_stop) = ((own[0], own[-1] + 1) for own in places)
    return PairForm(
        before=ids[:first],
        between=ids[first_stop:second],
        after=ids[second_stop:],
        types=(types[:first], int(types[first]), types[first_stop:second], int(types[second]), types[second_stop:]),
        has_context_first=has_context_first,
    )


@dataclass(frozen=True)
class Tokens:
    """Texts as token ids, and where in its text each token stands."""

    ids: list[Integers]
    """Per text, ``[n_tokens]``."""
    characters: list[Integers]
    """Per text, ``[n_tokens, 2]`` where a token starts and stops."""

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> Tokens:
        """Tokenise texts, without special tokens."""
        if not texts:
            return cls([], [])
        encoded: Any = tokenizer(
            list(texts), add_special_tokens=False, truncation=False, padding=False, return_attention_mask=False,
            return_token_type_ids=False, return_offsets_mapping=True, verbose=False,
        )  # fmt: skip
        return cls(
            [np.array(own, dtype=np.int64) for own in encoded["input_ids"]],
            [np.array(own, dtype=np.int64).reshape(-1, 2) for own in encoded["offset_mapping"]],
        )

    def lengths(self) -> Integers:
        """Return the number of tokens of each text."""
        return np.array([len(own) for own in self.ids], dtype=np.int64)


@dataclass(frozen=True)
class Windows:
    """What a model reads: a question and a part of its context. Windows of a pair follow on each other."""

    form: PairForm
    questions: Tokens
    contexts: Tokens
    question: Integers
    """``[n_windows]`` index into ``questions``."""
    context: Integers
    """``[n_windows]`` index into ``contexts``."""
    pair: Integers
    """``[n_windows]`` index of the pair."""
    start: Integers
    """``[n_windows]`` first token of the context's part."""
    stop: Integers
    """``[n_windows]`` end of the context's part, exclusive."""
    n_tokens: Integers
    """``[n_windows]`` tokens of a window, special ones included."""
    context_place: Integers
    """``[n_windows]`` where in the window the context's part starts."""

    def padded(self, rows: Integers, pad_id: int) -> dict[str, torch.Tensor]:
        """Return windows as a batch padded on the right: input_ids, attention_mask, token_type_ids.

        Padding stands on the right whatever side the tokenizer prefers, so that no token's position depends on the
        other windows of a batch.
        """
        width = int(self.n_tokens[rows].max())
        ids = np.full((len(rows), width), pad_id, dtype=np.int64)
        types = np.zeros((len(rows), width), dtype=np.int64)
        for place, row in enumerate(rows.tolist()):
            n = self.n_tokens[row]
            ids[place, :n], types[place, :n] = self.tokens(row)
        mask = np.arange(width) < self.n_tokens[rows][:, None]
        return {
            "input_ids": torch.from_numpy(ids),
            "attention_mask": torch.from_numpy(mask.astype(np.int64)),
            "token_type_ids": torch.from_numpy(types),
        }

    def tokens(self, row: int) -> tuple[Integers, Integers]:
        """Return the token ids of a window, special ones included, and their types."""
        form = self.form
        question = self.questions.ids[self.question[row]]
        context = self.contexts.ids[self.context[row]][self.start[row] : self.stop[row]]
        first, second = (context, question) if form.has_context_first else (question, context)
        before, first_type, between, second_type, after = form.types
        types = (before, np.full(len(first), first_type), between, np.full(len(second), second_type), after)
        return np.concatenate([form.before, first, form.between, second, form.after]), np.concatenate(types)

    def places(self, rows: Integers, device: torch.device) -> dict[str, torch.Tensor]:
        """Return of windows what `spans.best_spans` must know, ``[n_rows]`` each, on a device."""
        found = {
            "n_tokens": self.n_tokens[rows],
            "context_place": self.context_place[rows],
            "n_context": (self.stop - self.start)[rows],
        }
        return {name: torch.from_numpy(values).to(device) for name, values in found.items()}

    def characters(self, row: int) -> Integers:
        """Return where in the context's text each token of the window's part starts and stops, ``[n, 2]``."""
        found: Integers = self.contexts.characters[self.context[row]][self.start[row] : self.stop[row]]
        return found


def cut_windows(
    tokenizer: PreTrainedTokenizerBase,
    pairs: Sequence[tuple[str, str]],
    names: Sequence[str],
    *,
    max_tokens: int,
    stride: int,
) -> Windows:
    """Tokenise pairs of question and context and cut them into windows. Protocol section 7.

    A context without tokens has no window.

    Args:
        tokenizer: one with character offsets.
        pairs: ``[n_pairs]`` question (left-stripped here) and context.
        names: ``[n_pairs]`` what errors call them.
        max_tokens: most tokens of a window, special ones included.
        stride: tokens of the context that two neighbouring windows share.

    Raises:
        InputError: questions that leave too little of the window to their contexts.
    """
    form = pair_form(tokenizer)
    asked = [question.lstrip() for question, _ in pairs]
    question_rows, question = distinct([(text,) for text in asked])
    context_rows, context = distinct([(text,) for _, text in pairs])
    questions = Tokens.of(tokenizer, [asked[row] for row in question_rows])
    contexts = Tokens.of(tokenizer, [pairs[row][1] for row in context_rows])
    n_question = questions.lengths()[question]
    n_context = contexts.lengths()[context]
    room = max_tokens - form.n_special - n_question
    _refuse_long_questions(n_question, n_context, room, names, max_tokens=max_tokens, stride=stride)
    parts = [
        _parts(int(n), int(own), stride, from_the_end=tokenizer.truncation_side == "left")
        for n, own in zip(n_context, room, strict=True)
    ]
    pair = np.repeat(np.arange(len(pairs)), [len(own) for own in parts])
    bounds = np.array([bound for own in parts for bound in own], dtype=np.int64).reshape(-1, 2)
    start, stop = bounds[:, 0], bounds[:, 1]
    before = np.full(len(pair), len(form.before), dtype=np.int64)
    return Windows(
        form=form, questions=questions, contexts=contexts, question=question[pair], context=context[pair],
        pair=pair, start=start, stop=stop, n_tokens=form.n_special + n_question[pair] + stop - start,
        context_place=before if form.has_context_first else before + n_question[pair] + len(form.between),
    )  # fmt: skip


def count_windows(
    source: ModelSource, questions: Sequence[Question], *, max_tokens: int, stride: int
) -> tuple[int, int]:
    """Return the number of windows that a model will read, and of the tokens in them, from its tokenizer alone.

    Raises:
        InputError: no usable tokenizer, or questions that are too long for the windows.
    """
    pairs = [(question.question, question.context) for question in questions]
    names = [question.example_id for question in questions]
    windows = cut_windows(load_reader_tokenizer(source), pairs, names, max_tokens=max_tokens, stride=stride)
    return len(windows.n_tokens), int(windows.n_tokens.sum())


def _refuse_long_questions(
    n_question: Integers, n_context: Integers, room: Integers, names: Sequence[str], *, max_tokens: int, stride: int
) -> None:
    too_long = np.flatnonzero((n_context > 0) & (room < n_context) & (room <= stride))
    if len(too_long):
        longest = n_question[too_long].max()
        count = "1 question is" if len(too_long) == 1 else f"{len(too_long)} questions are"
        raise InputError(
            f"{count} too long for windows of {max_tokens} tokens that share {stride} of their context "
            f"({named([names[row] for row in too_long.tolist()])}; the longest has {longest} tokens): raise "
            "max_tokens, lower stride, or take them out of the file"
        )


def _parts(n_tokens: int, room: int, stride: int, *, from_the_end: bool) -> list[tuple[int, int]]:
    """Return where the parts of a context start and stop, as the tokenizers library cuts overlong texts."""
    if n_tokens <= room:
        return [(0, n_tokens)] if n_tokens else []
    starts = range(0, n_tokens - stride, room - stride)
    parts = [(start, min(start + room, n_tokens)) for start in starts]
    return [(n_tokens - stop, n_tokens - start) for start, stop in parts] if from_the_end else parts
