"""Prompts as the turns of a chat: each item is what the user says, each label what the assistant answers.

A chat template renders whole conversations. Here it is asked for three short ones, and what stands around their turns
is what stands around all: so a context is shared by the inputs behind it as any other. Templates that put a turn's
place into its text are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from biaseval.errors import InputError
from biaseval.inputs.template import PromptFormat
from biaseval.prompting.beginnings import adds_bos
from biaseval.spec import ModelSpec

_USER, _ASSISTANT = "QxUSERxQ", "QxASSISTANTxQ"
"""What stands for the texts of turns."""

Demonstration = tuple[Mapping[str, str], str]
"""The fields of an example, and its label."""


@dataclass(frozen=True)
class ChatFormat:
    """Turns around the items of another format."""

    inner: PromptFormat
    head: str
    """Up to the text of the first turn, the instruction included."""
    answered: str
    """Between an item and its label."""
    following: str
    """Between a label and the next item, but for the last."""
    before_last: str
    """What a template adds before the last item: some put the system's text there."""
    asked: str
    """Behind the last item, where the assistant's answer begins."""
    cautions: tuple[str, ...]
    """What a reader of the results should know of how labels are scored behind it, in words."""

    def demonstration(self, fields: Mapping[str, str], label: str) -> str:
        """Return an example as two turns."""
        return self._user(fields) + self.answered + label.strip() + self.following

    def test(self, fields: Mapping[str, str]) -> str:
        """Return an example as a turn, up to its answer."""
        return self.before_last + self._user(fields) + self.asked

    def _user(self, fields: Mapping[str, str]) -> str:
        """Return the text of a turn; without white space around it, which templates treat in ways of their own."""
        return self.inner.test(fields).strip()


def has_chat_template(tokenizer: Any) -> bool:
    """Return whether a tokenizer knows how to write a chat."""
    return bool(getattr(tokenizer, "chat_template", None))


def is_chat(form: PromptFormat) -> bool:
    """Return whether prompts of a format are chats."""
    return isinstance(form, ChatFormat)


def chat_cautions(form: PromptFormat) -> Sequence[str]:
    """Return what a reader of the results should know of a format's chats, in words; nothing of other formats."""
    return form.cautions if isinstance(form, ChatFormat) else ()


def chat_notes(model: ModelSpec, tokenizer: Any) -> list[str]:
    """Return what a reader of the results should know of a model's chat template, in words."""
    if model.chat == "off" and has_chat_template(tokenizer):
        return [
            f"{model.path} has a chat template and was given plain text; model.chat: auto makes prompts the turns of a "
            "chat"
        ]
    if model.chat == "auto" and not has_chat_template(tokenizer):
        return [f"{model.path} has no chat template: prompts are plain text"]
    return []


def asked_format(
    model: ModelSpec, inner: PromptFormat, instruction: str | None, tokenizer: Any, sample: Demonstration
) -> PromptFormat:
    """Return the format that a spec's section ``model`` asks for; ``chat: auto`` makes chats where it can.

    Args:
        model: the section.
        inner: the format of plain text.
        instruction: what it begins with, bare.
        tokenizer: of the model.
        sample: see `chat_format`.

    Raises:
        InputError: see `chat_format`; a system's text is asked for and there is no chat to hold it.
    """
    if model.chat == "off":
        return inner
    if has_chat_template(tokenizer):
        return chat_format(inner, instruction, tokenizer, model.system, sample)
    if model.system is not None:
        raise InputError(f"model.system: {model.path} has no chat template to hold it; write prompt.instruction_text")
    return inner


def chat_format(
    inner: PromptFormat, instruction: str | None, tokenizer: Any, system: str | None, sample: Demonstration
) -> ChatFormat:
    """Return the format of a model's chats.

    Instruction and system's text are the system's turn; where a template has none, they begin the first turn.

    Args:
        inner: gives the texts of the users' turns.
        instruction: what stands before all items, if anything.
        tokenizer: with a chat template.
        system: the system's text, if any.
        sample: an example, on which the format is compared with what the template makes of it; it is compared, too, on
            texts that templates are known to change.

    Raises:
        InputError: the template fails, or does not write turns alike, or changes their text.
    """
    chat = _Chat(tokenizer, "\n\n".join(filter(None, (system, instruction))))
    try:
        none, one, two = (chat.parts([(_USER, _ASSISTANT)] * n, _USER) for n in range(3))
    except _ChangedTextError as error:
        raise InputError(f"the model's chat template changes the text of turns ({error}); {_REMEDY}") from error
    head, answered, following = two[0], two[1], two[2]
    before_last = two[4].removeprefix(following)
    is_alike = (
        two[3] == answered
        and two[4].startswith(following)
        and one == [head, answered, two[4], two[5]]
        and none == [head + before_last, two[5]]
    )
    if not is_alike:
        raise InputError(f"the model's chat template writes turns by their places; {_REMEDY}")
    cautions = tuple(_cautions(answered, following, asked=two[5], end=tokenizer.eos_token))
    fields, label = sample[0], sample[1].strip()
    own = (inner.test(fields), inner.test(dict.fromkeys(fields, "")))
    markers = (head, answered, following, two[5], tokenizer.bos_token, tokenizer.eos_token)
    for text in map(str.strip, (*own, *_TELLING_TEXTS, " ".join(filter(None, ("as in", *markers))))):
        turns = head + (text + answered + label + following) * 2 + before_last + text + two[5]
        if turns != chat.render([(text, label)] * 2, text):
            shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
            raise InputError(f"the model's chat template changes the text of turns, as of {shown!r}; {_REMEDY}")
    return ChatFormat(inner, head, answered, following, before_last, asked=two[5], cautions=cautions)


def _cautions(answered: str, following: str, *, asked: str, end: str | None) -> Iterator[str]:
    """Yield in what scores of labels differ from what the template writes, a sentence each."""
    if not asked[-1:].isspace() and not answered[-1:].isspace():
        yield (
            f"the chat template writes no white space before an answer ({answered[-12:]!r}), and labels are scored "
            "behind a space"
        )
    if end and not following.startswith(end):
        yield (
            f"the chat template ends an answer with {following[:16]!r}, and the end that is scored behind a label is "
            f"{end!r}; scoring.eos: false leaves it out"
        )


_REMEDY = "mend the template, or set model.chat: off"


_SHOWN = 40
"""Characters of a text in a message."""

_TELLING_TEXTS = (
    "two  spaces,   three\tand a tab ",
    "lines\n\n\n  apart \r\n\rand indented\n",
    "<b>bold</b> & <br/> \"quoted\" 'twice' &amp; <unknown>",
    "tags </s> <s> <|im_start|>user <|im_end|> <|eot_id|> [INST] [/INST] <start_of_turn> <think>so</think> ###",
    "{{ braces }} {% raw %} {# no comment #} \\n \\",
    "Größe 你好 🙂 e\u0301 \u00a0\u200b\u2028… ﬁ",
    "UPPER lower Title 3.50 1,000 https://a.b/c?d=e",
    "a long text of many words, " * 400,
)
"""Texts that some templates change although they leave others as they are."""


class _ChangedTextError(Exception):
    """A conversation does not hold the texts of its turns, each once."""


class _Chat:
    """Renders conversations."""

    def __init__(self, tokenizer: Any, opening: str) -> None:
        self._tokenizer = tokenizer
        self._opening = opening
        self._has_system = bool(opening) and self._takes_system()
        self._prefix = tokenizer.bos_token if adds_bos(tokenizer) else ""

    def render(self, turns: Sequence[tuple[str, str]], last: str) -> str:
        """Return a conversation up to the assistant's answer to ``last``, without what the tokenizer adds itself.

        Raises:
            InputError: the template fails.
        """
        users = [user for user, _ in turns] + [last]
        if self._opening and not self._has_system:
            users[0] = f"{self._opening}\n\n{users[0]}"
        messages = [{"role": "system", "content": self._opening}] if self._has_system else []
        for number, user in enumerate(users):
            messages.append({"role": "user", "content": user})
            if number < len(turns):
                messages.append({"role": "assistant", "content": turns[number][1]})
        return self._rendered(messages).removeprefix(self._prefix)

    def parts(self, turns: Sequence[tuple[str, str]], last: str) -> list[str]:
        """Return what stands around the texts of turns.

        Raises:
            _ChangedTextError: they are not all there.
        """
        rest = self.render(turns, last)
        parts = []
        for text in [*(text for turn in turns for text in turn), last]:
            before, found, rest = rest.partition(text)
            if not found:
                raise _ChangedTextError(f"{text!r} is not in it")
            parts.append(before)
        return [*parts, rest]

    def _takes_system(self) -> bool:
        turns = [{"role": "system", "content": _ASSISTANT}, {"role": "user", "content": _USER}]
        try:
            return _ASSISTANT in self._rendered(turns)
        except InputError:
            return False

    def _rendered(self, messages: Sequence[Mapping[str, str]]) -> str:
        try:
            text = self._tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
        except Exception as error:  # a template is a program of its author's
            raise InputError(f"the model's chat template fails ({' '.join(str(error).split())}); {_REMEDY}") from error
        return str(text)
