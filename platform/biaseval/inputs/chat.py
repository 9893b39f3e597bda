"""Prompts as turns of a chat: the user says each item, and the assistant answers with its label.

A chat template renders whole conversations. biaseval renders three short ones and takes the text around their turns,
which is the same in every prompt. So the inputs of a context share it, as in other formats. Templates that write the
position of a turn into its text are refused.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from biaseval.errors import InputError
from biaseval.inputs.template import PromptFormat, TextFormat
from biaseval.prompting.beginnings import adds_bos
from biaseval.spec import ModelSpec

_USER, _ASSISTANT = "QxUSERxQ", "QxASSISTANTxQ"
"""Placeholders for the texts of turns."""

Demonstration = tuple[Mapping[str, str], str]
"""The fields of an example and its label."""


@dataclass(frozen=True)
class ChatFormat:
    """Turns around the items of another format."""

    inner: PromptFormat
    head: str
    """The text up to the first turn, including the instruction."""
    answered: str
    """The text between an item and its label."""
    following: str
    """The text between a label and the next item, unless that is the last one."""
    before_last: str
    """Text that a template adds before the last item; some templates put the system message there."""
    asked: str
    """The text after the last item, where the assistant's answer begins."""
    cautions: tuple[str, ...]
    """Cautions about the scoring of labels after this format, for readers of the results."""

    def demonstration(self, fields: Mapping[str, str], label: str) -> str:
        """Return an example as two turns."""
        return self._user(fields) + self.answered + label.strip() + self.following

    def test(self, fields: Mapping[str, str]) -> str:
        """Return an example as a turn, up to its answer."""
        return self.before_last + self._user(fields) + self.asked

    def _user(self, fields: Mapping[str, str]) -> str:
        """Return the text of a turn without white space around it, which templates treat differently."""
        return self.inner.test(fields).strip()


def has_chat_template(tokenizer: Any) -> bool:
    """Return whether a tokenizer has a chat template."""
    return bool(getattr(tokenizer, "chat_template", None))


def chat_cautions(form: PromptFormat) -> Sequence[str]:
    """Return the cautions of a chat format for readers of the results; nothing for other formats."""
    return form.cautions if isinstance(form, ChatFormat) else ()


def chat_notes(model: ModelSpec, tokenizer: Any) -> list[str]:
    """Return notes about a model's chat template for readers of the results."""
    if model.chat == "off" and has_chat_template(tokenizer):
        return [
            f"{model.path} has a chat template and was given plain text; model.chat: auto makes prompts the turns of a "
            "chat"
        ]
    if model.chat == "auto" and not has_chat_template(tokenizer):
        return [f"{model.path} has no chat template: prompts are plain text"]
    return []


def asked_format(model: ModelSpec, inner: TextFormat, tokenizer: Any, sample: Demonstration) -> PromptFormat:
    """Return the format that a spec's section ``model`` asks for; ``chat: auto`` makes chats where the model can.

    ``inner`` is the format of plain text; for ``sample`` see `chat_format`.

    Raises:
        InputError: see `chat_format`; or the spec has a system message and there is no chat to hold it.
    """
    if model.chat == "off":
        return inner
    if has_chat_template(tokenizer):
        return chat_format(inner, tokenizer, model.system, sample)
    if model.system is not None:
        raise InputError(f"model.system: {model.path} has no chat template to hold it; write prompt.instruction_text")
    return inner


def chat_format(inner: TextFormat, tokenizer: Any, system: str | None, sample: Demonstration) -> ChatFormat:
    """Return the format of a model's chats.

    The instruction and the system message form the system turn. If a template has no system turn, they begin the first
    turn.

    Args:
        inner: gives the instruction and the texts of the user's turns.
        tokenizer: a tokenizer with a chat template.
        system: the system message, if any.
        sample: an example to compare the format with the template's output. Texts that templates are known to change
            are also compared.

    Raises:
        InputError: the template fails, writes turns in different ways, or changes their text.
    """
    chat = _Chat(tokenizer, "\n\n".join(filter(None, (system, inner.instruction))))
    try:
        none, one, two = (chat.parts([(_USER, _ASSISTANT)] * n, _USER) for n in range(3))
    except _ChangedTextError as error:
        raise InputError(f"the model's chat template changes the text of turns ({error}); {_REMEDY}") from error
    head, answered, following, answered_again, last, asked = two
    before_last = last.removeprefix(following)
    is_alike = answered_again == answered and last.startswith(following)
    if not is_alike or one != [head, answered, last, asked] or none != [head + before_last, asked]:
        raise InputError(f"the model's chat template writes turns by their places; {_REMEDY}")
    cautions = tuple(_cautions(answered, following, asked=asked, end=tokenizer.eos_token))
    fields, label = sample[0], sample[1].strip()
    own = (inner.test(fields), inner.test(dict.fromkeys(fields, "")))
    markers = (head, answered, following, asked, tokenizer.bos_token, tokenizer.eos_token)
    for text in map(str.strip, (*own, *_TELLING_TEXTS, " ".join(filter(None, ("as in", *markers))))):
        turns = head + (text + answered + label + following) * 2 + before_last + text + asked
        if turns != chat.render([(text, label)] * 2, text):
            shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
            raise InputError(f"the model's chat template changes the text of turns, as of {shown!r}; {_REMEDY}")
    return ChatFormat(inner, head, answered, following, before_last, asked=asked, cautions=cautions)


def _cautions(answered: str, following: str, *, asked: str, end: str | None) -> Iterator[str]:
    """Yield one sentence for each difference between the scored labels and the template's text."""
    if not asked[-1:].isspace() and not answered[-1:].isspace():
        yield (
            f"the chat template writes no white space before an answer ({answered[-12:]!r}), and labels are scored "
            "after a space"
        )
    if end and not following.startswith(end):
        yield (
            f"the chat template ends an answer with {following[:16]!r}, and the end that is scored after a label is "
            f"{end!r}; scoring.eos: false leaves it out"
        )


_REMEDY = "mend the template, or set model.chat: off"


_SHOWN = 40
"""The most characters of a text in a message."""

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
"""Texts that some templates change although they leave other texts unchanged."""


class _ChangedTextError(Exception):
    """A conversation does not hold the text of each turn exactly once."""


class _Chat:
    """Renders conversations."""

    def __init__(self, tokenizer: Any, opening: str) -> None:
        self._tokenizer = tokenizer
        self._opening = opening
        self._has_system = bool(opening) and self._takes_system()
        self._prefix = tokenizer.bos_token if adds_bos(tokenizer) else ""

    def render(self, turns: Sequence[tuple[str, str]], last: str) -> str:
        """Return a conversation up to the assistant's answer to ``last``, without the tokens that the tokenizer adds.

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
        """Return the text around the turns; Raises _ChangedTextError: the conversation lacks the text of a turn."""
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
        except Exception as error:  # a template is a program of its author
            raise InputError(f"the model's chat template fails ({' '.join(str(error).split())}); {_REMEDY}") from error
        return str(text)
