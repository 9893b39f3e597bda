"""Rows that readers are trained on have the windows and the labels of the published preparation."""

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from transformers import PreTrainedTokenizerFast

from biaseval.errors import InputError
from biaseval.training.features import FEATURES, question_features
from tests.qa_models.families import CONTEXTS, QUESTIONS, bpe, features, left_padding, unigram, wordpiece

TOKENIZERS = {"wordpiece": wordpiece, "bpe": bpe, "unigram": unigram, "left padding": left_padding}


def questions(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows)


def asked(question: str, context: str, answer: tuple[int, int] | None) -> dict[str, Any]:
    start, stop = answer or (0, 0)
    return {
        "example_id": f"{question}/{context}/{answer}", "question": question, "context": context,
        "answers": [context[start:stop], "not this one"] if answer else [],
        "answer_starts": [start, 0] if answer else [],
    }  # fmt: skip


def published_labels(feature: dict[str, Any], cls: int, start: int, stop: int) -> tuple[int, int]:
    """Return the labels as Hugging Face's examples make them, from which the published code has its own."""
    offsets = feature["offsets"]
    inside = [place for place, own in enumerate(offsets) if own is not None]
    first, last = inside[0], inside[-1]
    if not (offsets[first][0] <= start and offsets[last][1] >= stop):
        return cls, cls
    while first < len(offsets) and offsets[first] is not None and offsets[first][0] <= start:
        first += 1
    while last >= inside[0] and offsets[last][1] >= stop:
        last -= 1
    return first - 1, last + 1


@pytest.mark.parametrize("make", TOKENIZERS.values(), ids=TOKENIZERS)
def test_labels_are_those_of_the_published_preparation(make: Callable[[], PreTrainedTokenizerFast]) -> None:
    tokenizer = make()
    longest = max(len(tokenizer(question)["input_ids"]) for question in QUESTIONS)
    max_tokens, stride = longest + 26, 7
    draw = random.Random(5)
    rows = []
    for context in CONTEXTS:
        words = [place for place, letter in enumerate(context) if letter != " "]
        for _ in range(12):
            start = draw.choice(words)
            stop = min(len(context), start + draw.randint(1, 40))
            rows.append(asked(draw.choice(QUESTIONS), context, (start, stop)))
    rows.append(asked(QUESTIONS[0], CONTEXTS[0], None))
    found = question_features(tokenizer, questions(rows), max_tokens=max_tokens, stride=stride)
    assert found.schema == FEATURES
    expected = []
    for row in rows:
        for window, feature in enumerate(features(tokenizer, row["question"], row["context"], max_tokens, stride)):
            ids = feature["ids"]
            cls = ids.index(tokenizer.cls_token_id) if tokenizer.cls_token_id in ids else 0
            labels = (cls, cls)
            if row["answers"]:
                start = row["answer_starts"][0]
                labels = published_labels(feature, cls, start, start + len(row["answers"][0]))
            expected.append((row["example_id"], window, ids, feature["types"], *labels))
    names = ("example_id", "window", "token_ids", "token_types", "start_position", "end_position")
    assert [tuple(one[name] for name in names) for one in found.to_pylist()] == expected
    held = [one["has_answer"] for one in found.to_pylist()]
    assert 20 < sum(held) < len(held) - 20


def test_a_window_that_holds_half_an_answer_has_none() -> None:
    """By hand: words are tokens, [CLS] who [SEP] and three of the context's four words, [SEP]."""
    tokenizer = wordpiece()
    context = "Yes Yes Yes Yes"
    [question] = tokenizer.tokenize("Why?")[:1]
    n_around = len(tokenizer(question, context)["input_ids"]) - 4
    rows = questions([{**asked(question, context, (8, 15)), "example_id": "q"}])
    first, second = question_features(tokenizer, rows, max_tokens=n_around + 3, stride=2).to_pylist()
    place = n_around - 1  # of the context's first word
    assert (first["start_position"], first["end_position"], first["has_answer"]) == (0, 0, False)
    assert (second["start_position"], second["end_position"], second["has_answer"]) == (place + 1, place + 2, True)
    assert (first["window"], second["window"]) == (0, 1)
    assert len(first["token_ids"]) == len(second["token_ids"]) == n_around + 3


def test_questions_that_leave_no_room_are_refused() -> None:
    rows = questions([{**asked("Why? " * 40, CONTEXTS[3], (0, 6)), "example_id": "long one"}])
    with pytest.raises(InputError, match="1 question is too long for windows of 60 tokens"):
        question_features(wordpiece(), rows, max_tokens=60, stride=16)
