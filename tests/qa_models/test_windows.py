"""Readers: spans, windows and loading."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from biaseval.errors import InputError
from biaseval.models import Loading, ModelSource
from biaseval.qa_models import ExtractiveReader, WindowSettings
from biaseval.qa_models.spans import best_spans, merged, window_answers
from biaseval.qa_models.windows import cut_windows
from tests.qa_models import families


def test_an_encoder_reads_spans_with_the_settings_asked_for(bert: Path) -> None:
    settings = WindowSettings(max_tokens=64, stride=8, n_best=3, max_answer_tokens=5)
    source = ModelSource(str(bert))
    reader = ExtractiveReader.load(source, Loading(dtype="bfloat16"), settings)
    assert reader.settings == settings
    assert reader.facts()["dtype"] == "bfloat16"


WINDOWS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 12), st.integers(0, 3)), min_size=1, max_size=4)


def vectorised(windows: list[Any], context: str, n_best: int, max_answer_tokens: int) -> list[tuple[str, float]]:
    """Search windows of one context, padded, as one batch."""
    width = max(len(offsets) for _, _, offsets in windows) + 2
    logits = torch.full((2, len(windows), width), 99.0)  # padding must not win
    places, n_context, characters = [], [], []
    for row, (start_logits, end_logits, offsets) in enumerate(windows):
        logits[0, row, : len(offsets)] = torch.from_numpy(start_logits)
        logits[1, row, : len(offsets)] = torch.from_numpy(end_logits)
        own = [offset for offset in offsets if offset is not None]
        places.append(next((place for place, offset in enumerate(offsets) if offset is not None), 0))
        n_context.append(len(own))
        characters.append(np.array(own, dtype=np.int64).reshape(-1, 2))
    spans = best_spans(
        logits[0], logits[1], WindowSettings(n_best=n_best, max_answer_tokens=max_answer_tokens),
        n_tokens=torch.tensor([len(offsets) for _, _, offsets in windows]), context_place=torch.tensor(places),
        n_context=torch.tensor(n_context),
    )  # fmt: skip
    found = [window_answers(spans, row, context, characters[row], n_best) for row in range(len(windows))]
    return [(answer.text, answer.score) for answer in merged(found, n_best)]


@settings(max_examples=150, deadline=None)
@given(
    shapes=WINDOWS,
    seed=st.integers(0, 2**32 - 1),
    n_values=st.sampled_from([2, 4, 1000]),
    n_best=st.integers(1, 20),
    max_answer_tokens=st.integers(1, 30),
)
def test_the_search_equals_brute_force_on_any_logits(
    shapes: list[tuple[int, int, int]], seed: int, n_values: int, n_best: int, max_answer_tokens: int
) -> None:
    draw = np.random.default_rng(seed)  # few different values: ties
    context = "".join(draw.choice(list("ab "), 40))
    windows = []
    for n_before, n_context, n_after in shapes:
        n = max(n_before + n_context + n_after, 1)
        logits = draw.integers(0, n_values, (2, n)).astype(np.float32) / 7
        first = int(draw.integers(0, 10))
        offsets: list[Any] = [None] * n
        for place in range(n_context):
            offsets[n_before + place] = (first + place * 2, first + place * 2 + 2)
        windows.append((logits[0], logits[1], offsets))
    expected = families.by_brute_force(windows, context, n_best, max_answer_tokens)
    assert vectorised(windows, context, n_best, max_answer_tokens) == expected


def one_window(start: list[float], end: list[float], n_before: int = 1) -> list[Any]:
    n = len(start) - n_before - 1
    offsets: list[Any] = [None] * n_before + [(place, place + 1) for place in range(n)] + [None]
    return [(np.array(start, dtype=np.float32), np.array(end, dtype=np.float32), offsets)]


Logits = list[float]


def best(start: Logits, end: Logits, context: str, n_best: int = 20, longest: int = 30, n_before: int = 1) -> list[Any]:
    return vectorised(one_window(start, end, n_before), context, n_best, longest)


def test_spans_by_hand() -> None:
    # The first token is never an answer.
    assert best([9, 1, 0, 0, 0], [9, 0, 2, 0, 0], "abc")[0] == ("ab", 3.0)
    # Question and special tokens take places among the best.
    assert best([9, 8, 0, -1], [9, 8, 1, -1], "x", n_best=2, n_before=2) == []
    assert best([9, 8, 0, -1], [9, 8, 1, -1], "x", n_best=3, n_before=2) == [("x", 1.0)]
    # A span has at most the given tokens.
    assert best([0, 5, 0, 0, 0], [0, 0, 0, 5, 0], "abc", longest=3)[0] == ("abc", 10.0)
    assert best([0, 5, 0, 0, 0], [0, 0, 0, 5, 0], "abc", longest=2)[0][0] == "a"
    # Of equal scores the higher start logit comes first, then the earlier token, then the first window.
    assert best([0, 1, 2, 0], [0, 2, 1, 0], "ab")[:2] == [("b", 3.0), ("a", 3.0)]
    assert best([0, 1, 1, 0], [0, 1, 1, 0], "ab")[0] == ("a", 2.0)
    same = (np.zeros(3, dtype=np.float32), np.zeros(3, dtype=np.float32))
    windows = [(*same, [None, (2, 3), None]), (*same, [None, (0, 1), None])]
    assert vectorised(windows, "abc", 20, 30) == [("c", 0.0), ("a", 0.0)]


TOKENIZERS = {
    "wordpiece": families.wordpiece, "bpe": families.bpe, "unigram": families.unigram,
    "left padding": families.left_padding,
}  # fmt: skip
MADE = {name: make() for name, make in TOKENIZERS.items()}
PAIRS = [(question, context) for question in families.QUESTIONS for context in families.CONTEXTS]


def assert_as_the_tokenizer(
    tokenizer: PreTrainedTokenizerFast, pairs: list[tuple[str, str]], max_tokens: int, stride: int
) -> None:
    windows = cut_windows(
        tokenizer, pairs, [str(row) for row in range(len(pairs))], max_tokens=max_tokens, stride=stride
    )
    for pair, (question, context) in enumerate(pairs):
        expected = [
            feature
            for feature in families.features(tokenizer, question, context, max_tokens, stride)
            if any(own is not None for own in feature["offsets"])  # no context, no window
        ]
        rows = np.flatnonzero(windows.pair == pair)
        assert len(rows) == len(expected)
        for row, feature in zip(rows, expected, strict=True):
            batch = windows.padded(np.array([row]), 0)
            assert batch["input_ids"][0].tolist() == feature["ids"]
            assert batch["token_type_ids"][0].tolist() == feature["types"]
            assert batch["attention_mask"].all()
            place, n = windows.context_place[row], windows.stop[row] - windows.start[row]
            offsets = [None] * place + [tuple(own) for own in windows.characters(row).tolist()]
            assert offsets + [None] * (len(feature["ids"]) - place - n) == feature["offsets"]


@pytest.mark.parametrize("stride", [0, 7, 20])
@pytest.mark.parametrize("truncation_side", ["right", "left"])
@pytest.mark.parametrize("make", TOKENIZERS.values(), ids=TOKENIZERS)
def test_windows_are_those_of_the_tokenizer(
    make: Callable[[], PreTrainedTokenizerFast], truncation_side: str, stride: int
) -> None:
    tokenizer = make()
    tokenizer.truncation_side = truncation_side
    longest = max(len(tokenizer(question)["input_ids"]) for question in families.QUESTIONS)
    for room in (26, 50, 384):
        assert_as_the_tokenizer(tokenizer, PAIRS, longest + room, stride)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(TOKENIZERS)),
    question=st.text(alphabet="ab ?é東🙂\t", max_size=8),
    context=st.text(alphabet="ab .é東🙂\n\u0301“", max_size=60),
    room=st.integers(8, 30),
    stride=st.integers(0, 6),
)
def test_windows_of_any_text_are_those_of_the_tokenizer(
    name: str, question: str, context: str, room: int, stride: int
) -> None:
    tokenizer = MADE[name]
    n_question = len(tokenizer(question.lstrip(), add_special_tokens=False)["input_ids"])
    assert_as_the_tokenizer(tokenizer, [(question, context)], n_question + 4 + room, stride)


def test_questions_too_long_are_counted_and_named() -> None:
    tokenizer = families.wordpiece()
    long_question, long_context = "a " * 40, "b " * 60
    pairs = [("a", long_context), (long_question, long_context), (long_question, "b"), (long_question + "a", "b " * 41)]
    names = ["short", "long", "fits", "longer"]
    with pytest.raises(
        InputError, match=r"2 questions are too long for windows of 54 .*'long', 'longer'; .* 41 tokens"
    ):
        cut_windows(tokenizer, pairs, names, max_tokens=54, stride=11)
    # 3 special tokens, 40 of the question: 11 remain, one more than neighbours share
    assert cut_windows(tokenizer, pairs[:3], names, max_tokens=54, stride=10).stop.max() == 60
