"""Turns conversations into token ids by a template, and finds the tokens that count: answers, each with its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from biaseval.errors import InputError
from biaseval.scoring.trie import common_length
from biaseval.training.batches import Integers
from biaseval.training.conversations import Conversation, Turn

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_PLAIN = {"system": "{text}\n\n", "user": "User: {text}\n\nAssistant:", "assistant": " {text}{eos}"}


@dataclass(frozen=True)
class EncodedConversation:
    """A conversation in tokens, up to the last answer that fits."""

    token_ids: Integers
    """``[n]``."""
    is_answer: npt.NDArray[np.bool_]
    """``[n]`` whether a token is part of an answer or its end, and so counts in the loss."""


@dataclass(frozen=True)
class EncodedConversations:
    """Conversations as tokens, and the counts of omitted ones."""

    kept: list[tuple[Conversation, EncodedConversation]]
    left_out: Counter[str] = field(default_factory=Counter)
    """How many conversations, by the reason."""
    n_cut: int = 0
    """How many lost their last turns."""


def encode_conversations(
    tokenizer: PreTrainedTokenizerBase, conversations: Sequence[Conversation], template: str, max_tokens: int
) -> EncodedConversations:
    """Return the conversations in tokens.

    A conversation is tokenized as one text. Its answers are found by rendering it up to each of them: tokens that the
    text before an answer has in common with the whole are no part of it. White space that a template puts after the
    end of an answer does not count.

    ``plain`` needs no new token: ``User: {text}``, an empty line, ``Assistant: {text}``, EOS, and so on, a system text
    and an empty line before it; what the tokenizer puts first (BOS) stands there once. ``chat`` is the tokenizer's.

    Args:
        tokenizer: one that ``models.load_tokenizer`` accepts.
        conversations: as read.
        template: ``plain`` or ``chat``.
        max_tokens: longer ones lose their last turns; those whose first answer does not fit are left out.

    Raises:
        InputError: there is no such chat template; it fails, or renders the beginning of a conversation other than
            the same beginning of a longer one; or no conversation fits.
    """
    render = _chat_renderer(tokenizer) if template == "chat" else _plain_renderer(tokenizer)
    added = (str(token) for token in tokenizer.added_tokens_decoder.values() if token.special)
    reserved = {text for text in (*tokenizer.all_special_tokens, *added) if text}
    found = EncodedConversations([])
    n_cut = 0
    for conversation in conversations:
        if any(text in turn.text for turn in conversation.turns for text in reserved):
            # The tokenizer would read it as the special token, such as the end of the answer.
            found.left_out["with the text of a special token"] += 1
            continue
        encoded, is_cut = _encoded(tokenizer, conversation, render, template, max_tokens)
        if encoded is None:
            found.left_out[f"whose first answer does not fit max_tokens {max_tokens}"] += 1
            continue
        found.kept.append((conversation, encoded))
        n_cut += is_cut
    if conversations and not found.kept:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in found.left_out.items())
        raise InputError(f"no conversation is left: {reasons}; raise max_tokens, or give other data")
    return EncodedConversations(found.kept, found.left_out, n_cut)


_Renderer = Callable[[Sequence[Turn], bool], str]
"""Renders turns; the flag adds the text before the next answer."""


def _encoded(
    tokenizer: PreTrainedTokenizerBase, conversation: Conversation, render: _Renderer, template: str, max_tokens: int
) -> tuple[EncodedConversation | None, bool]:
    turns = conversation.turns
    whole = render(turns, False)
    ids = _token_ids(tokenizer, whole, template)
    is_answer = np.zeros(len(ids), dtype=np.bool_)
    end = 0
    for number in (number for number, turn in enumerate(turns) if turn.role == "assistant"):
        before, behind = render(turns[:number], True), render(turns[: number + 1], False).rstrip()
        if not (whole.startswith(before) and whole.startswith(behind) and len(before) < len(behind)):
            raise InputError(
                f"template: chat: the tokenizer's template renders the first turns of conversation {conversation.id} "
                "otherwise when more follow, so that its answers cannot be found; use template: plain, or a model with "
                "another chat template"
            )
        start = common_length(_token_ids(tokenizer, before, template), ids)
        stop = common_length(_token_ids(tokenizer, behind, template), ids)
        if stop > max_tokens:
            break
        if int(ids[stop - 1]) not in _end_ids(tokenizer):
            raise InputError(
                f"template: {template}: the end of an answer is no special token of the tokenizer (conversation "
                f"{conversation.id}), so that a model would not learn to end; use template: plain, or a model with "
                "another chat template"
            )
        is_answer[start:stop] = True
        end = stop
    if not end:
        return None, False
    return EncodedConversation(ids[:end], is_answer[:end]), stop > max_tokens


def _end_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    return {
        *tokenizer.all_special_ids,
        *(number for number, token in tokenizer.added_tokens_decoder.items() if token.special),
    }


def _plain_renderer(tokenizer: PreTrainedTokenizerBase) -> _Renderer:
    def render(turns: Sequence[Turn], is_before_answer: bool) -> str:
        texts = (_PLAIN[turn.role].replace("{eos}", str(tokenizer.eos_token)) for turn in turns)
        return "".join(text.replace("{text}", turn.text) for text, turn in zip(texts, turns, strict=True))

    return render


def _chat_renderer(tokenizer: PreTrainedTokenizerBase) -> _Renderer:
    if not tokenizer.chat_template:
        raise InputError(
            f"template: chat: the tokenizer of {tokenizer.name_or_path} has no chat template; use template: plain"
        )
    import jinja2

    def render(turns: Sequence[Turn], is_before_answer: bool) -> str:
        messages = [{"role": turn.role, "content": turn.text} for turn in turns]
        untyped: Any = tokenizer
        try:
            rendered: str = untyped.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=is_before_answer
            )
        except (jinja2.TemplateError, TypeError, ValueError) as error:
            raise InputError(
                f"template: chat: the tokenizer's template fails ({' '.join(str(error).split())}); use template: plain"
            ) from error
        return rendered

    return render


def _token_ids(tokenizer: PreTrainedTokenizerBase, text: str, template: str) -> Integers:
    # A chat template writes BOS itself.
    ids = tokenizer(text, add_special_tokens=template == "plain", verbose=False)["input_ids"]
    return np.asarray(ids, dtype=np.int64)
