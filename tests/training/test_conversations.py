"""Conversations: what is read of real and small files, and which of their tokens count."""

import gzip
import json
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from biaseval.errors import InputError
from biaseval.spec import ConversationsSpec
from biaseval.training.conversations import Conversation, Conversations, Turn, read_conversations
from biaseval.training.templates import EncodedConversations, encode_conversations
from tests.tinymodels import make_tokenizer

CHATML = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def read(path: Path, **settings: Any) -> Conversations:
    return read_conversations(ConversationsSpec(path=str(path), **settings))


def write(folder: Path, rows: list[Any], name: str = "data.jsonl") -> Path:
    path = folder / name
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def texts(found: Conversations) -> list[list[str]]:
    return [[turn.text for turn in conversation.turns] for conversation in found.kept]


def walk(message: dict[str, Any]) -> list[dict[str, Any]]:
    return [message, *(below for reply in message["replies"] for below in walk(reply))]


@pytest.mark.parametrize(("name", "n_trees", "left_out"), [
    ("oasst1_en_validation_messages", 104, {"deleted": 14, "not accepted in review": 24}),
    ("open_assistant_en_100_tree", 95, {"synthetic": 5}),
])  # fmt: skip
def test_real_trees_give_the_replies_that_people_ranked_first(
    shared: Path, name: str, n_trees: int, left_out: dict[str, int]
) -> None:
    path = shared / "data" / "instruct" / f"{name}.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    messages = rows if "parent_id" in rows[0] else [message for row in rows for message in walk(row["prompt"])]
    by_id = {message["message_id"]: message for message in messages}

    def is_kept(message: dict[str, Any]) -> bool:
        is_good = not message["deleted"] and not message["synthetic"] and message["review_result"] is True
        parent = message.get("parent_id")
        return is_good and (parent is None or is_kept(by_id[parent]))

    kept = [message for message in messages if is_kept(message)]
    answers = {message["message_id"]: message for message in kept if message["role"] == "assistant"}
    found, every = read(path), read(path, replies="all")
    assert found.left_out == every.left_out == left_out
    assert len(found.kept) == len({one.group for one in found.kept}) == n_trees
    # All paths end where no answer to a question on the answer follows.
    followed = {
        by_id[by_id[one["parent_id"]]["parent_id"]]["message_id"]
        for one in answers.values()
        if by_id[one["parent_id"]].get("parent_id")
    }
    assert Counter(one.id for one in every.kept) == Counter(answers.keys() - followed)
    assert {one.id for one in found.kept} <= {one.id for one in every.kept}
    for one in every.kept:
        assert [turn.role for turn in one.turns] == ["user", "assistant"] * (len(one.turns) // 2)
    for one in found.kept:
        own: str | None = one.id
        while own is not None:
            siblings = [other for other in kept if other.get("parent_id") == by_id[own].get("parent_id")]
            if by_id[own]["role"] == "assistant":
                ranks = [other["rank"] for other in siblings if other.get("rank") is not None]
                assert not ranks or by_id[own]["rank"] == min(ranks)
            own = by_id[own].get("parent_id")


def message(identifier: str, parent: str | None, text: str, **more: Any) -> dict[str, Any]:
    depth = 0 if parent is None else 1 + identifier.count(".")
    role = "prompter" if depth % 2 == 0 else "assistant"
    kept = {"lang": "en", "deleted": False, "review_result": True, "message_tree_id": "t"}
    return {"message_id": identifier, "parent_id": parent, "text": text, "role": role, **kept, **more}


def tree() -> list[dict[str, Any]]:
    return [
        message("a", None, "question"), message("b", "a", "second", rank=1), message("c", "a", "first", rank=0),
        message("d", "a", "gone", rank=None, deleted=True), message("c.e", "c", "and nobody answered"),
        message("c.f", "c", "and then"), message("c.f.g", "c.f", "then this"),
        message("c.f.h", "c.f", "worse", review_result=False),
    ]  # fmt: skip


def test_a_small_tree_by_hand(tmp_path: Path) -> None:
    flat = write(tmp_path, tree()[::-1])
    assert texts(read(flat)) == [["question", "first", "and then", "then this"]]
    every = read(flat, replies="all")
    assert sorted(texts(every)) == [["question", "first", "and then", "then this"], ["question", "second"]]
    assert {one.group for one in every.kept} == {"a"}
    assert every.left_out == {"deleted": 1, "not accepted in review": 1}
    by_id = {own["message_id"]: {**own, "replies": []} for own in tree()}
    for own in by_id.values():
        if own["parent_id"]:
            by_id[own["parent_id"]]["replies"].append(own)
    nested = write(tmp_path, [{"message_tree_id": "t", "tree_state": "ready_for_export", "prompt": by_id["a"]}])
    assert texts(read(nested)) == texts(read(flat)) == [["question", "first", "and then", "then this"]]


def test_trees_lose_other_languages_unfinished_trees_and_orphans(tmp_path: Path) -> None:
    rows = [
        *tree(), message("x", None, "pregunta", lang="es"), message("y", None, "nobody"),
        message("z", "missing", "lost"), message("w", None, "early", tree_state="growing"),
        message("p", "q.", "around"), message("q.", "p", "and around"),
    ]  # fmt: skip
    found = read(write(tmp_path, rows), languages=["en"])
    assert len(found.kept) == 1
    assert found.left_out == {
        "deleted": 1, "not accepted in review": 1, "in another language": 1, "without an answer": 1,
        "replies to messages that are not in the file": 1, "of unfinished trees": 1,
        "in or below a circle of replies": 2,
    }  # fmt: skip
    with pytest.raises(InputError, match=r"no conversation is left \(.*3 in another language.*check data.languages"):
        read(write(tmp_path, rows), languages=["fr"])


def test_other_formats_are_told_apart_and_read(tmp_path: Path) -> None:
    alpaca = [
        {"instruction": "Add.", "input": "1 and 2", "output": "3"},
        {"instruction": "Hello", "input": "", "output": "Hi"},
        {"instruction": "Nothing", "input": "", "output": " "},
    ]
    (tmp_path / "alpaca.json").write_text(json.dumps(alpaca, indent=2))
    found = read(tmp_path / "alpaca.json")
    assert texts(found) == [["Add.\n\n1 and 2", "3"], ["Hello", "Hi"]]
    assert found.left_out == {"without an answer": 1}
    dolly = {"instruction": "Who?", "context": "Ann came.", "response": "Ann", "category": "qa"}
    (tmp_path / "dolly.jsonl.gz").write_bytes(gzip.compress(json.dumps(dolly).encode()))
    assert texts(read(tmp_path / "dolly.jsonl.gz")) == [["Who?\n\nAnn came.", "Ann"]]
    said = [("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello"), ("user", "Bye")]
    chat = {"messages": [{"role": role, "content": text} for role, text in said]}
    [one] = read(write(tmp_path, [chat])).kept
    assert [(turn.role, turn.text) for turn in one.turns] == said[:3]


@pytest.mark.parametrize(("content", "expected"), [
    ("", "is empty; JSON lines"), ('{"instruction": "a", "output": "b"}\n{', "line 2, column 2: is not JSON"),
    ("[]", "holds no row"), ("[1]", "row 1 is no JSON object"),
    ('{"question": "a", "answer": "b"}', "is of no known format, its first row has the keys answer, question"),
    ('{"instruction": "a", "output": 3}\n{"instruction": 1, "output": "b"}', "2 problems:"),
    ('{"instruction": "", "output": "x"}', "row 1: instruction is empty"),
    ('{"messages": [{"role": "assistant", "content": "x"}]}', "message 1 has the role 'assistant', not system or"),
    ('{"messages": [{"role": "user", "content": "x"}, {"role": "user", "content": "y"}]}', "not assistant"),
    ('{"messages": [{"role": "user", "content": " "}, {"role": "assistant", "content": "y"}]}', "message is empty"),
    ('{"message_id": "a", "role": "robot", "text": "x"}', "role is 'robot', not prompter or assistant"),
    ('{"message_id": "a", "role": [], "text": "x"}', "role is [], not prompter or assistant"),
    ('{"message_id": "a", "role": "assistant", "text": "x"}', "tree a begins with an answer"),
    ('{"message_id": "a", "role": "prompter", "text": "x"}\n' * 2, "message_id a stands there twice"),
    ('{"instruction": "a", "output": "\\ud800"}', "half a surrogate pair"),
])  # fmt: skip
def test_bad_rows_are_named(tmp_path: Path, content: str, expected: str) -> None:
    (tmp_path / "bad.jsonl").write_text(content)
    with pytest.raises(InputError, match=re.escape(expected)) as caught:
        read(tmp_path / "bad.jsonl")
    assert "bad.jsonl" in str(caught.value)


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^data.path: .*none.jsonl: cannot be read \(.*No such file or directory"):
        read(tmp_path / "none.jsonl")
    (tmp_path / "half.jsonl.gz").write_bytes(gzip.compress(b"{}" * 100)[:20])
    with pytest.raises(InputError, match=r"is no complete gzip file \(Compressed file ended"):
        read(tmp_path / "half.jsonl.gz")


def conversation(*said: str, system: str | None = None) -> Conversation:
    turns = [Turn("user" if number % 2 == 0 else "assistant", text) for number, text in enumerate(said)]
    return Conversation("c", "c", (*([Turn("system", system)] if system else []), *turns))


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return make_tokenizer()


def encode(
    tokenizer: Any, *conversations: Conversation, template: str = "plain", n: int = 2048
) -> EncodedConversations:
    return encode_conversations(tokenizer, conversations, template, n)


def parts(tokenizer: Any, encoded: EncodedConversations) -> list[tuple[bool, str]]:
    """Return the runs of tokens that count, and of those that do not, as texts."""
    [(_, one)] = encoded.kept
    edges = [0, *(np.flatnonzero(np.diff(one.is_answer)) + 1), len(one.token_ids)]
    return [
        (bool(one.is_answer[start]), tokenizer.decode(one.token_ids[start:stop])) for start, stop in pairwise(edges)
    ]


def test_the_plain_template_counts_answers_and_eos(tokenizer: PreTrainedTokenizerFast) -> None:
    encoded = encode(tokenizer, conversation("Say yes.", "yes", "And no?", "not sure"))
    assert parts(tokenizer, encoded) == [
        (False, "<s>User: Say yes.\n\nAssistant:"), (True, " yes</s>"), (False, "User: And no?\n\nAssistant:"),
        (True, " not sure</s>"),
    ]  # fmt: skip
    ids = encoded.kept[0][1].token_ids
    whole = "User: Say yes.\n\nAssistant: yes</s>User: And no?\n\nAssistant: not sure</s>"
    assert ids.tolist() == tokenizer(whole)["input_ids"]
    with_system = encode(tokenizer, conversation("a", "b", system="Be brief."))
    assert parts(tokenizer, with_system)[0] == (False, "<s>Be brief.\n\nUser: a\n\nAssistant:")


def test_the_chat_template_counts_answers_and_their_end(tokenizer: PreTrainedTokenizerFast) -> None:
    chat = make_tokenizer()
    chat.chat_template = CHATML
    assert parts(chat, encode(chat, conversation("Say yes.", "yes", "no?", "no"), template="chat")) == [
        (False, "<|user|>Say yes.</s>\n<|assistant|>"), (True, "yes</s>"), (False, "\n<|user|>no?</s>\n<|assistant|>"),
        (True, "no</s>"),
    ]  # fmt: skip
    with pytest.raises(InputError, match="has no chat template; use template: plain"):
        encode(tokenizer, conversation("a", "b"), template="chat")
    # One that marks the last answer renders a beginning otherwise when more follows.
    chat.chat_template = CHATML.replace("<|{{", "{% if loop.last %}!{% endif %}<|{{")
    with pytest.raises(InputError, match="renders the first turns of conversation c otherwise when more follow"):
        encode(chat, conversation("a", "b", "c", "d"), template="chat")
    # And one that renders no answers at all.
    chat.chat_template = "{% for m in messages if m['role'] == 'user' %}{{ m['content'] }}</s>{% endfor %}"
    with pytest.raises(InputError, match="so that its answers cannot be found"):
        encode(chat, conversation("a", "b"), template="chat")
    chat.chat_template = "{{ raise_exception('no system') }}"
    with pytest.raises(InputError, match=r"the tokenizer's template fails \(no system\)"):
        encode(chat, conversation("a", "b"), template="chat")


def test_tokens_that_merge_across_the_border_belong_to_the_answer() -> None:
    tokenizer = make_tokenizer()
    # "no not" has a merge that begins in the question's text.
    turns = "{% for m in messages %}{{ m['content'] }}{% if m['role'] == 'assistant' %}</s>{% endif %}{% endfor %}"
    tokenizer.chat_template = turns
    encoded = encode(tokenizer, conversation("ye", "s no"), template="chat")
    assert "yes" in tokenizer.convert_ids_to_tokens(tokenizer("yes", add_special_tokens=False)["input_ids"])
    assert parts(tokenizer, encoded)[0] == (True, "yes no</s>")
    tokenizer.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    with pytest.raises(InputError, match=r"the end of an answer is no special token .* would not learn to end"):
        encode(tokenizer, conversation("Say yes", "yes"), template="chat")


def test_long_conversations_are_cut_at_a_turn_or_left_out(tokenizer: PreTrainedTokenizerFast) -> None:
    long = conversation("Say yes, yes, yes.", "yes", "And?", "no " * 50)
    first = encode(tokenizer, conversation("Say yes, yes, yes.", "yes")).kept[0][1]
    cut = encode(tokenizer, long, n=len(first.token_ids))
    assert cut.n_cut == 1
    assert cut.kept[0][1].token_ids.tolist() == first.token_ids.tolist()
    assert cut.kept[0][1].is_answer.tolist() == first.is_answer.tolist()
    assert encode(tokenizer, long).n_cut == 0
    found = encode(tokenizer, long, conversation("a", "b"), n=len(first.token_ids) - 1)
    left_out = {f"whose first answer does not fit max_tokens {len(first.token_ids) - 1}": 1}
    assert (len(found.kept), found.left_out) == (1, left_out)
    with pytest.raises(InputError, match="no conversation is left: 1 whose first answer does not fit max_tokens 3"):
        encode(tokenizer, long, n=3)


def test_a_text_that_spells_a_special_token_is_left_out(tokenizer: PreTrainedTokenizerFast) -> None:
    found = encode(tokenizer, conversation("What is </s>?", "an end"), conversation("a", "b"))
    assert (len(found.kept), found.left_out) == (1, {"with the text of a special token": 1})
