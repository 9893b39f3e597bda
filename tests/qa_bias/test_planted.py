"""Questions with a planted shortcut, and a bias model of TF-IDF."""

import math
import re
from typing import Any

import numpy as np
import pytest

from biaseval.errors import InputError
from biaseval.qa_bias.data import QuestionSet, question_rows
from biaseval.qa_bias.heuristics.attributes import attributes
from biaseval.qa_bias.heuristics.text import load_text, words
from biaseval.qa_bias.planted import N_SENTENCES, SHORTCUTS, planted_questions
from biaseval.qa_bias.tfidf_bias import UNIFORM_SHARE, SentenceCosines, fitted_weight, token_log_probabilities

N_QUESTIONS = 2000
BY_CHANCE = {"ans_pos": 0.25, "word_dist": 0.5}
THRESHOLDS = {"ans_pos": 0, "word_dist": 3}  # values at or below it are those to which the shortcut leads


def planted(shortcut: str = "ans_pos", strength: float = 0.0, **options: Any) -> QuestionSet:
    return planted_questions(
        **{"shortcut": shortcut, "strength": strength, "name": "a", "n_questions": N_QUESTIONS, "seed": 3, **options}
    )


def values_of(questions: QuestionSet) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    """Return the values of heuristics, as a run computes them without data of NLTK."""
    heuristics = [*SHORTCUTS, "ans_len"]
    found = attributes(
        question_rows(questions, "in_distribution"), heuristics, variant="paper", text=load_text(None)
    ).to_pylist()
    assert all(row["is_measured"] for row in found)
    return {
        heuristic: np.array([row["value"] for row in found if row["heuristic"] == heuristic])
        for heuristic in heuristics
    }


def tolerance(share: float) -> float:
    """Return what a share of the questions may differ by, once in some ten thousand draws."""
    return 4 * math.sqrt(share * (1 - share) / N_QUESTIONS) + 1e-9


@pytest.mark.parametrize("strength", [0, 0.3, 1])
@pytest.mark.parametrize("shortcut", SHORTCUTS)
def test_one_shortcut_leads_to_as_many_answers_as_planted_and_the_other_to_as_many_as_by_chance(
    shortcut: str, strength: float
) -> None:
    found = values_of(planted(shortcut, strength))
    for heuristic in SHORTCUTS:
        chance = BY_CHANCE[heuristic]
        share = strength + (1 - strength) * chance if heuristic == shortcut else chance
        lower = found[heuristic] <= THRESHOLDS[heuristic]
        assert lower.mean() == pytest.approx(share, abs=tolerance(share))
    first, near = (found[heuristic] <= THRESHOLDS[heuristic] for heuristic in SHORTCUTS)
    assert (first & near).mean() == pytest.approx(first.mean() * near.mean(), abs=tolerance(0.5))


def test_values_of_heuristics_are_those_of_the_places() -> None:
    questions = planted()
    found = values_of(questions)
    assert {int(value) for value in found["ans_pos"]} == set(range(N_SENTENCES))
    for number in range(N_SENTENCES):
        assert (found["ans_pos"] == number).mean() == pytest.approx(0.25, abs=tolerance(0.25))
    assert {int(value) for value in found["word_dist"]} == {2, 3, 4, 5}
    assert (found["ans_len"] == 2).mean() == pytest.approx(0.5, abs=tolerance(0.5))
    for row, question in enumerate(questions.questions):
        sentences = question.context.removesuffix(".").split(". ")
        assert len(sentences) == N_SENTENCES
        [own] = [number for number, sentence in enumerate(sentences) if question.answers[0] in sentence]
        thing = question.question.removesuffix("?").split()[-1]
        is_near = sentences[own].index(question.answers[0]) < sentences[own].index(thing)
        assert found["ans_pos"][row] == own
        assert (found["word_dist"][row] <= THRESHOLDS["word_dist"]) == is_near
        if not is_near:
            # Whoever stands before the thing is nearer to it: the shortcut leads to somebody else.
            behind_the_opener = words(sentences[own])[1:]
            assert behind_the_opener.index(thing) < found["word_dist"][row]


@pytest.mark.parametrize("shortcut", SHORTCUTS)
def test_every_question_has_one_answer_that_stands_once_and_where_it_is_said_to(shortcut: str) -> None:
    questions = planted(shortcut, 0.5).questions
    assert [question.example_id for question in questions[:2]] == ["planted-00001", "planted-00002"]
    assert len({question.example_id for question in questions}) == N_QUESTIONS
    for question in questions:
        [answer], [start] = question.answers, question.answer_starts
        assert question.context[start : start + len(answer)] == answer
        assert question.context.count(answer) == 1
        n_tokens = len(words(question.question)) + len(words(question.context)) + N_SENTENCES + 4  # and punctuation
        assert n_tokens <= 60


def test_what_cannot_be_planted_is_refused() -> None:
    for options, message in (
        ({"shortcut": "cos_sim"}, "shortcut 'cos_sim': cannot be planted; use one of ans_pos, word_dist"),
        ({"strength": 1.5}, "strength 1.5: is no share; give a number from 0 to 1"),
        ({"strength": -0.1}, "strength -0.1: is no share"),
        ({"strength": math.nan}, "strength nan: is no share"),
        ({"n_questions": 0}, "n_questions 0: too few; give 1 or more"),
    ):
        with pytest.raises(InputError, match=f"^{re.escape(message)}"):
            planted(**options)
    assert len(planted(n_questions=1).questions) == 1


CONTEXT = "The old mill burned down. Bears eat honey in spring. Nothing else happened."


@pytest.fixture(scope="module")
def cosines() -> SentenceCosines:
    return SentenceCosines(load_text(None))


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
    two = "Bears eat honey in spring. Nothing else happens."
    (near, far) = cosines.of(asked, two)[1]
    assert (near > 0.5, far) == (True, 0)  # e^(w near) / (e^(w near) + 1) is 3/4
    weight = fitted_weight(cosines, [(asked, two, 0)] * 3 + [(asked, two, two.index("Nothing"))])
    assert weight == pytest.approx(math.log(3) / near, abs=1e-3)


def test_tokens_share_the_probability_of_their_sentence() -> None:
    sentences = [(0, 10), (11, 20)]
    characters = np.array([[0, 4], [5, 10], [11, 15], [16, 18], [18, 20]])
    logs = token_log_probabilities(sentences, np.array([1.0, 0.0]), math.log(3), characters, n_tokens=8, place=2)
    found = np.exp(logs)
    uniform = UNIFORM_SHARE / 8
    expected = [0, 0, *[0.75 / 2] * 2, *[0.25 / 3] * 3, 0]
    np.testing.assert_allclose(found, uniform + (1 - UNIFORM_SHARE) * np.array(expected), rtol=1e-6)
    assert found.sum() == pytest.approx(1)
