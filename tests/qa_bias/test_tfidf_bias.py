"""The bias model that is fitted, not trained: sentences by their words in common with the question."""

import math

import numpy as np
import pytest

from biaseval.qa_bias.text import load_text
from biaseval.qa_bias.tfidf_bias import UNIFORM_SHARE, Sentence, SentenceCosines, fitted_weight, token_log_probabilities

CONTEXT = "The old mill burned down. Bears eat honey in spring. Nothing else happened."


@pytest.fixture(scope="module")
def cosines() -> SentenceCosines:
    return SentenceCosines(load_text(None))


def test_a_sentence_with_the_words_of_the_question_is_nearest(cosines: SentenceCosines) -> None:
    sentences, values = cosines.of("What do bears eat in spring?", CONTEXT)
    assert [CONTEXT[own.start : own.stop] for own in sentences] == [
        "The old mill burned down.", "Bears eat honey in spring.", "Nothing else happened."
    ]  # fmt: skip
    assert values.argmax() == 1
    # Of four words of the sentence (bears, eat, honey, spring), each in no other sentence, the question has three.
    assert values[1] == pytest.approx(math.sqrt(3 / 4))
    assert values[0] == values[2] == 0


def test_a_context_without_words_has_cosines_of_zero(cosines: SentenceCosines) -> None:
    sentences, values = cosines.of("What?", "1. 2. 3.")
    assert len(sentences) == len(values)
    assert not values.any()


def test_the_weight_is_the_most_probable_one(cosines: SentenceCosines) -> None:
    """Two questions: one answer is in the nearest sentence, one in another; a third has no sentence to choose."""
    right, wrong = CONTEXT.index("honey"), CONTEXT.index("Nothing")
    asked = "What do bears eat in spring?"
    questions = [(asked, CONTEXT, right)] * 3 + [(asked, CONTEXT, wrong), ("Who?", "One sentence.", 0)]
    weight = fitted_weight(cosines, questions)
    # Probability of the nearest at the maximum is its share, 3/4: e^(w c) / (e^(w c) + 2) with c = sqrt(3 / 4).
    assert weight == pytest.approx(math.log(6) / math.sqrt(3 / 4), abs=1e-3)
    assert fitted_weight(cosines, [("Who?", "One sentence.", 0)]) == 0


def test_tokens_share_the_probability_of_their_sentence() -> None:
    sentences = [Sentence(0, 10), Sentence(11, 20)]
    characters = np.array([[0, 4], [5, 10], [11, 15], [16, 18], [18, 20]])
    logs = token_log_probabilities(sentences, np.array([1.0, 0.0]), math.log(3), characters, n_tokens=8, place=2)
    found = np.exp(logs)
    uniform = UNIFORM_SHARE / 8
    expected = [0, 0, *[0.75 / 2] * 2, *[0.25 / 3] * 3, 0]
    np.testing.assert_allclose(found, uniform + (1 - UNIFORM_SHARE) * np.array(expected), rtol=1e-6)
    assert found.sum() == pytest.approx(1)


def test_a_window_holds_the_sentences_that_are_in_it_alone() -> None:
    sentences = [Sentence(0, 10), Sentence(11, 20)]
    logs = token_log_probabilities(sentences, np.array([5.0, 0.0]), 1.0, np.array([[11, 15], [16, 20]]), 3, 1)
    np.testing.assert_allclose(np.exp(logs)[1:], UNIFORM_SHARE / 3 + (1 - UNIFORM_SHARE) / 2, rtol=1e-6)
    nothing = token_log_probabilities([], np.zeros(0), 1.0, np.zeros((0, 2), dtype=np.int64), 4, 1)
    np.testing.assert_allclose(np.exp(nothing), 0.25)
