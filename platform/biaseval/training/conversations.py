"""Reads the conversations that a model is tuned on: OASST1 message trees, Alpaca, Dolly, and chat messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from biaseval.errors import InputError, first_of, refuse
from biaseval.records import json_values, read_file
from biaseval.spec import ConversationsSpec

Role = Literal["system", "user", "assistant"]
Row = dict[str, Any]

_OASST_ROLES: dict[object, Role] = {"prompter": "user", "assistant": "assistant"}
_COMPLETE_TREE = "ready_for_export"


@dataclass(frozen=True)
class Turn:
    """What one side says."""

    role: Role
    text: str


@dataclass(frozen=True)
class Conversation:
    """A conversation: perhaps a system turn, then user and assistant by turns, an assistant last."""

    id: str
    group: str
    """The identifier of its tree, or its own; conversations that share turns have the same."""
    turns: tuple[Turn, ...]


@dataclass(frozen=True)
class Conversations:
    """What a file holds."""

    kept: list[Conversation]
    left_out: Counter[str] = field(default_factory=Counter)
    """How many messages or rows, by the reason."""


def read_conversations(data: ConversationsSpec) -> Conversations:
    """Return the conversations of a file, in its order.

    Of OASST1 trees, messages that are deleted, synthetic, not accepted in review, of another language or of an
    unfinished tree are left out, each with the replies below it, and questions that nobody answered.

    Raises:
        InputError: the file cannot be read, is of no known format, has rows that are no conversation (all are named,
            up to ten), or nothing is left of it.
    """
    rows = _numbered_rows(data.path)
    if not rows:
        raise InputError(f"{data.path}: holds no row; give conversations")
    form = _format_of(data, rows[0][1])
    found = _oasst(data, rows) if form == "oasst" else _flat(data.path, form, rows)
    if not found.kept:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in found.left_out.items()) or "none has an answer"
        raise InputError(f"{data.path}: no conversation is left ({reasons}); check data.languages and the file")
    return found


def _numbered_rows(path: str) -> list[tuple[int, Row]]:
    """Return each row with its number, 1-based: of a line, or of an element of the array."""
    rows: list[tuple[int, Row]] = []
    try:
        for place, value in json_values(path, read_file(path), known_formats="JSON lines and a JSON array are read"):
            own = value if isinstance(value, list) and not place else [value]
            rows += enumerate(own, int(place.removeprefix("line ") or 1))
    except InputError as error:
        raise InputError(f"data.path: {error}") from error
    refuse(first_of([f"{path}: row {n} is no JSON object; write one" for n, row in rows if not isinstance(row, dict)]))
    return rows


def _format_of(data: ConversationsSpec, row: Row) -> str:
    if data.format != "auto":
        return data.format
    if isinstance(row.get("prompt"), dict) or {"message_id", "role", "text"} <= row.keys():
        return "oasst"
    if "messages" in row:
        return "messages"
    if "instruction" in row:
        return "dolly" if "response" in row else "alpaca"
    raise InputError(
        f"{data.path}: is of no known format, its first row has the keys {', '.join(sorted(row))}; set data.format to "
        "oasst, alpaca, dolly or messages, and give rows of that form"
    )


class _RowError(Exception):
    """A row is no conversation."""


def _flat(path: str, form: str, rows: Sequence[tuple[int, Row]]) -> Conversations:
    """Read one conversation a row."""
    turns_of = _TURNS[form]
    found = Conversations([])
    problems = []
    for number, row in rows:
        try:
            turns = _up_to_last_answer(turns_of(row))
        except _RowError as error:
            problems.append(f"{path}: row {number}: {error}")
            continue
        if turns:
            identifier = str(row.get("id", number))
            found.kept.append(Conversation(identifier, str(number), turns))
        else:
            found.left_out["without an answer"] += 1
    refuse(first_of(problems))
    return found


def _instruction(row: Row, extra: str, answer: str) -> list[Turn]:
    """Return a question and its answer; the text that the instruction is about follows it after an empty line."""
    about = _text(row, extra) if row.get(extra) is not None else ""
    question = "\n\n".join(part for part in (_text(row, "instruction"), about) if part.strip())
    if not question:
        raise _RowError("instruction is empty; write one")
    response = _text(row, answer)
    return [Turn("user", question), *([Turn("assistant", response)] if response.strip() else [])]


def _message_turns(row: Row) -> list[Turn]:
    messages = row.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _RowError("messages is no list with a message; write a list of {role, content}")
    turns: list[Turn] = []
    for message in messages:
        if not isinstance(message, dict):
            raise _RowError("a message is no object; write {role, content}")
        expected = ("system", "user") if not turns else ("assistant",) if turns[-1].role == "user" else ("user",)
        role: Any = message.get("role")
        if role not in expected:
            raise _RowError(
                f"message {len(turns) + 1} has the role {role!r}, not {' or '.join(expected)}; an optional system "
                "message comes first, then user and assistant by turns"
            )
        turns.append(Turn(role, _text(message, "content")))
    if any(turn.role != "system" and not turn.text.strip() for turn in turns):
        raise _RowError("a message is empty; write its text, or take the conversation out")
    return turns


_TURNS: dict[str, Callable[[Row], list[Turn]]] = {
    "alpaca": lambda row: _instruction(row, "input", "output"),
    "dolly": lambda row: _instruction(row, "context", "response"),
    "messages": _message_turns,
}


def _text(row: Row, key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str):
        raise _RowError(f"{key} is missing or no text")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise _RowError(f"{key} holds half a surrogate pair, which is no character; take it out")
    return value


def _up_to_last_answer(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    n_kept = max((number for number, turn in enumerate(turns, start=1) if turn.role == "assistant"), default=0)
    return tuple(turns[:n_kept])


@dataclass
class _Message:
    """A message of a tree."""

    id: str
    turn: Turn
    reason: str | None
    """Why it is left out."""
    rank: float
    replies: list[_Message] = field(default_factory=list)


def _oasst(data: ConversationsSpec, rows: Sequence[tuple[int, Row]]) -> Conversations:
    problems: list[str] = []
    nested = [(number, row) for number, row in rows if isinstance(row.get("prompt"), dict)]
    if nested and len(nested) < len(rows):
        raise InputError(f"{data.path}: mixes trees and single messages; give one of the two forms")
    found = Conversations([])
    roots = _nested_roots(data, nested, problems) if nested else _flat_roots(data, rows, problems, found.left_out)
    problems += [
        f"{data.path}: tree {tree_id} begins with an answer; its first message must be a prompter's"
        for tree_id, root in roots
        if root.turn.role != "user"
    ]
    refuse(first_of(problems))
    for tree_id, root in roots:
        _count_left_out(root, found.left_out)
        if root.reason:
            continue
        for path in _paths(root, data.replies):
            if len(path) == 1:
                found.left_out["without an answer"] += 1
            else:
                turns = tuple(message.turn for message in path)
                found.kept.append(Conversation(path[-1].id, tree_id, turns))
    return found


def _nested_roots(
    data: ConversationsSpec, rows: Sequence[tuple[int, Row]], problems: list[str]
) -> list[tuple[str, _Message]]:
    roots = []
    for number, row in rows:
        state = row.get("tree_state")

        def built(message: Row, number: int = number, state: object = state) -> _Message:
            own = _message(data, message, state)
            replies = message.get("replies") or []
            if not isinstance(replies, list):
                raise _RowError(f"replies holds {replies!r}, not a list")
            own.replies = [built(reply) for reply in replies]
            _refuse_same_role(own)
            return own

        try:
            root = built(row["prompt"])
        except _RowError as error:
            problems.append(f"{data.path}: row {number}: {error}")
            continue
        roots.append((str(row.get("message_tree_id", root.id)), root))
    return roots


def _flat_roots(
    data: ConversationsSpec, rows: Sequence[tuple[int, Row]], problems: list[str], left_out: Counter[str]
) -> list[tuple[str, _Message]]:
    messages: dict[str, _Message] = {}
    parents: dict[str, object] = {}
    for number, row in rows:
        try:
            message = _message(data, row, row.get("tree_state"))
            if not isinstance(row.get("parent_id"), str | None):
                raise _RowError(f"parent_id holds {row['parent_id']!r}, not a text")
            if message.id in messages:
                raise _RowError(f"message_id {message.id} stands there twice")
        except _RowError as error:
            problems.append(f"{data.path}: row {number}: {error}")
            continue
        messages[message.id] = message
        parents[message.id] = row.get("parent_id")
    roots, reached = [], []
    for identifier, parent in parents.items():
        if parent in messages:
            messages[str(parent)].replies.append(messages[identifier])
            continue
        reached.append(messages[identifier])
        if parent is None:
            roots.append((identifier, messages[identifier]))
        else:
            left_out["replies to messages that are not in the file"] += 1
    for message in reached:
        reached += message.replies
    left_out += Counter({"in or below a circle of replies": len(messages) - len(reached)})
    for message in messages.values():
        try:
            _refuse_same_role(message)
        except _RowError as error:
            problems.append(f"{data.path}: {error}")
    return roots


def _message(data: ConversationsSpec, row: Any, tree_state: object) -> _Message:
    if not isinstance(row, dict):
        raise _RowError(f"holds {row!r} where a message should be")
    if row.get("role") not in [*_OASST_ROLES]:  # a list has no hash
        raise _RowError(f"role is {row.get('role')!r}, not prompter or assistant; set data.format if this is no OASST1")
    identifier = _text(row, "message_id")
    text = _text(row, "text")
    rank = row.get("rank")
    return _Message(
        id=identifier,
        turn=Turn(_OASST_ROLES[row["role"]], text),
        reason=_reason(data, row, text, tree_state),
        rank=rank if isinstance(rank, int | float) else float("inf"),
    )


def _reason(data: ConversationsSpec, row: Mapping[str, Any], text: str, tree_state: object) -> str | None:
    """Return why a message is left out, if it is."""
    if tree_state not in (None, _COMPLETE_TREE):
        return "of unfinished trees"
    if row.get("deleted"):
        return "deleted"
    if row.get("synthetic"):
        return "synthetic"
    if row.get("review_result", True) is not True:
        return "not accepted in review"
    if data.languages is not None and row.get("lang") not in data.languages:
        return "in another language"
    return None if text.strip() else "empty"


def _refuse_same_role(message: _Message) -> None:
    for reply in message.replies:
        if reply.turn.role == message.turn.role:
            raise _RowError(f"message {reply.id} answers one of the same role; check the file")


def _count_left_out(root: _Message, left_out: Counter[str]) -> None:
    """Count the messages that are left out for themselves; those below them are not counted."""
    waiting = [root]
    while waiting:
        message = waiting.pop()
        if message.reason:
            left_out[message.reason] += 1
        else:
            waiting += message.replies


def _paths(root: _Message, replies: str) -> Iterator[list[_Message]]:
    """Yield the paths from the prompt to a last answer: the best-ranked one, or all in the order of the file.

    Ranks are the people's order of the replies to one message, 0 the best. Where there is none, the first reply is
    taken. Questions that nobody answered end no path.
    """
    waiting = [[root]]
    while waiting:
        path = waiting.pop()
        kept = [reply for reply in path[-1].replies if not reply.reason and not _is_open(reply)]
        if not kept:
            yield path
        elif replies == "best":
            waiting.append([*path, min(kept, key=lambda reply: reply.rank)])
        else:
            waiting += [[*path, reply] for reply in reversed(kept)]


def _is_open(message: _Message) -> bool:
    return message.turn.role == "user" and all(reply.reason for reply in message.replies)
