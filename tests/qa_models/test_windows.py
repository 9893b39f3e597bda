"""Windows are those that the tokenizer itself cuts."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from biaseval.errors import InputError
from biaseval.qa_models.windows import cut_windows
from tests.qa_models.families import CONTEXTS, QUESTIONS, bpe, features, left_padding, unigram, wordpiece

TOKENIZERS = {"wordpiece": wordpiece, "bpe": bpe, "unigram": unigram, "left padding": left_padding}
MADE = {name: make() for name, make in TOKENIZERS.items()}
PAIRS = [(question, context) for question in QUESTIONS for context in CONTEXTS]


def assert_as_the_tokenizer(
    tokenizer: PreTrainedTokenizerFast, pairs: list[tuple[str, str]], max_tokens: int, stride: int
) -> None:
    windows = cut_windows(
        tokenizer, pairs, [str(row) for row in range(len(pairs))], max_tokens=max_tokens, stride=stride
    )
    for pair, (question, context) in enumerate(pairs):
        expected = [
            feature
            for feature in features(tokenizer, question, context, max_tokens, stride)
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
    longest = max(len(tokenizer(question)["input_ids"]) for question in QUESTIONS)
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


def test_a_stored_truncation_and_padding_change_nothing() -> None:
    tokenizer = wordpiece()
    tokenizer.backend_tokenizer.enable_truncation(5)
    tokenizer.backend_tokenizer.enable_padding(length=50)
    windows = cut_windows(tokenizer, PAIRS, [""] * len(PAIRS), max_tokens=100, stride=8)
    expected = cut_windows(wordpiece(), PAIRS, [""] * len(PAIRS), max_tokens=100, stride=8)
    assert windows.n_tokens.tolist() == expected.n_tokens.tolist()
    assert windows.start.tolist() == expected.start.tolist()


def test_questions_too_long_are_counted_and_named() -> None:
    tokenizer = wordpiece()
    long_question, long_context = "a " * 40, "b " * 60
    pairs = [("a", long_context), (long_question, long_context), (long_question, "b"), (long_question + "a", "b " * 41)]
    names = ["short", "long", "fits", "longer"]
    with pytest.raises(
        InputError, match=r"2 questions are too long for windows of 54 .*'long', 'longer'; .* 41 tokens"
    ):
        cut_windows(tokenizer, pairs, names, max_tokens=54, stride=11)
    # 3 special tokens, 40 of the question: 11 remain, one more than neighbours share
    assert cut_windows(tokenizer, pairs[:3], names, max_tokens=54, stride=10).stop.max() == 60
