"""The seven heuristics of P3, as values per question, and heuristics of the user's own.

A heuristic gives each question a number; whether a model's accuracy differs below and above a threshold of it is its
prediction bias. Definitions and quirks are those of protocol section 3. ``variant`` is ``paper``, or ``reference``
where the published code means something else (section 13).
"""

from __future__ import annotations

import hashlib
import importlib
import math
import sys
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Literal, TypeVar, cast

import numpy as np
import pyarrow as pa

from biaseval.errors import InputError
from biaseval.qa_bias.annotation import Annotator
from biaseval.qa_bias.similarity import Tfidf
from biaseval.qa_bias.text import EnglishText, words
from biaseval.spec import HEURISTICS
from biaseval.tables import QA_ATTRIBUTES

UNDEFINED = -1
"""The value of a question for which a heuristic is not defined."""

NEEDS_TEXT = frozenset({"word_dist", "sim_word", "ans_pos"})
NEEDS_TFIDF = frozenset({"cos_sim"})
NEEDS_ANNOTATOR = frozenset({"sim_ents", "subj_pos"})
"""Which heuristics use what :func:`attributes` is given; none of the others does."""

Variant = Literal["paper", "reference"]

UserHeuristic = Callable[[dict[str, object]], object]

_Resource = TypeVar("_Resource")


def word_dist(
    contexts: Sequence[str], questions: Sequence[str], answers: Sequence[str], stop_words: frozenset[str]
) -> tuple[list[int], list[str | None]]:
    """Return how many words lie between the answer and the nearest word of the question (P3 section 3.1).

    Measured from the first word of the answer's first occurrence as words, wherever the answer is said to start:
    neighbours have distance 1, and a word inside or at the start of the answer counts. Case matters, also for stop
    words.

    Args:
        contexts: ``[n_questions]``.
        questions: ``[n_questions]``.
        answers: ``[n_questions]``, the first answer of each question.
        stop_words: lower-case words of the question that do not count.

    Returns:
        Distances in words, from 0, and the question's word at that distance: among equals the one latest in the
        question. -1 and None where the answer is no sequence of words of the context (also one cut from inside a word)
        or no word of the question is in the context.
    """
    places: dict[str, tuple[list[str], dict[str, list[int]]]] = {}
    distances: list[int] = []
    closest: list[str | None] = []
    for context, question, answer in zip(contexts, questions, answers, strict=True):
        if context not in places:
            places[context] = _indexed(words(context))
        context_words, positions = places[context]
        start = _first_occurrence(words(answer), context_words, positions)
        distance: int | None = None
        word: str | None = None
        if start is not None:
            for candidate in words(question):
                if candidate in stop_words or candidate not in positions:
                    continue
                candidate_distance = _distance(positions[candidate], start)
                if distance is None or candidate_distance <= distance:
                    distance, word = candidate_distance, candidate
        distances.append(UNDEFINED if distance is None else distance)
        closest.append(word)
    return distances, closest


def _indexed(context_words: list[str]) -> tuple[list[str], dict[str, list[int]]]:
    positions: dict[str, list[int]] = defaultdict(list)
    for position, word in enumerate(context_words):
        positions[word].append(position)
    return context_words, dict(positions)


def _first_occurrence(
    answer_words: list[str], context_words: list[str], positions: Mapping[str, list[int]]
) -> int | None:
    if not answer_words:
        return None
    length = len(answer_words)
    starts = positions.get(answer_words[0], [])
    return next((start for start in starts if context_words[start : start + length] == answer_words), None)


def _distance(positions: list[int], start: int) -> int:
    right = bisect_left(positions, start)
    return min(abs(position - start) for position in positions[max(right - 1, 0) : right + 1])


def sim_word(contexts: Sequence[str], questions: Sequence[str], text: EnglishText) -> list[int]:
    """Return how many different words question and context share (P3 section 3.2).

    Words are NLTK's tokens that are alphanumeric as a whole ("U.S." and "well-known" are not); case matters, and stop
    words count. Each distinct text is split once.
    """
    found: dict[str, set[str]] = {}
    for each in (*contexts, *questions):
        if each not in found:
            found[each] = {token for token in text.tokens(text.sentences(each)) if token.isalnum()}
    return [len(found[context] & found[question]) for context, question in zip(contexts, questions, strict=True)]


def ans_pos(contexts: Sequence[str], answers: Sequence[str], text: EnglishText) -> list[int]:
    """Return the number, from 0, of the first sentence of the context that holds the answer's text (P3 section 3.3).

    The text may be inside a word, and before the place where the answer is said to start. An answer in no sentence,
    because it spans two, has the number of sentences.

    Args:
        contexts: ``[n_questions]``.
        answers: ``[n_questions]``, the first answer of each question.
        text: splits sentences.
    """
    sentences: dict[str, list[str]] = {}
    positions = []
    for context, answer in zip(contexts, answers, strict=True):
        if context not in sentences:
            sentences[context] = text.sentences(context)
        own = sentences[context]
        positions.append(next((number for number, sentence in enumerate(own) if answer in sentence), len(own)))
    return positions


def cos_sim(contexts: Sequence[str], questions: Sequence[str], tfidf: Tfidf) -> list[float]:
    """Return the TF-IDF cosine of context and question, 0 to 1 (P3 section 3.4)."""
    return cast("list[float]", tfidf.cosines(contexts, questions).tolist())


def ans_len(answers: Sequence[Sequence[str]]) -> list[float]:
    """Return the mean number of words of each question's answers, duplicates included (P3 section 3.5).

    Raises:
        ValueError: a question has no answer, which the reading of questions has refused.
    """
    _require_answers(answers)
    return [sum(len(words(answer)) for answer in own) / len(own) for own in answers]


def sim_ents(
    contexts: Sequence[str], answers: Sequence[Sequence[str]], annotator: Annotator, variant: Variant
) -> list[int]:
    """Return how many entities of the context have the type of an entity of the answer (P3 section 3.6).

    For each entity type of the answer, alone and without its context: the number of entities of that type in the
    context, the answer itself included; the largest of these. 0 where the answer has no entity, or none of its types.
    ``paper`` takes the maximum over all answers, ``reference`` looks at the last one only.

    Raises:
        ValueError: a question has no answer.
    """
    _require_answers(answers)
    considered = [[own[-1]] if variant == "reference" else list(dict.fromkeys(own)) for own in answers]
    in_contexts = _once_each(contexts, annotator.entity_labels)
    in_answers = _once_each([answer for own in considered for answer in own], annotator.entity_labels)
    counts = {context: Counter(labels) for context, labels in in_contexts.items()}
    return [
        max((counts[context][label] for answer in own for label in in_answers[answer]), default=0)
        for context, own in zip(contexts, considered, strict=True)
    ]


def subj_pos(
    contexts: Sequence[str],
    questions: Sequence[str],
    answer_starts: Sequence[int],
    annotator: Annotator,
    variant: Variant,
) -> list[int]:
    """Return how often the question's subject stands in the context up to the answer's start (P3 section 3.7).

    A subject is a single token with the dependency ``nsubj``; its text is searched literally, also inside words, and
    occurrences do not overlap. Of several subjects the largest number counts, unless the last one is nowhere in the
    context: then -1. A question without a subject is undefined (-1), and 0 in ``reference``.

    Args:
        contexts: ``[n_questions]``.
        questions: ``[n_questions]``.
        answer_starts: ``[n_questions]``, the first answer's first character in the context.
        annotator: finds the subjects.
        variant: the meaning of a question without a subject.
    """
    subjects = _once_each(questions, annotator.subjects)
    values = []
    for context, question, answer_start in zip(contexts, questions, answer_starts, strict=True):
        value = 0 if variant == "reference" or subjects[question] else UNDEFINED
        most = 0
        for subject in subjects[question]:
            if subject in context:
                most = max(most, _n_occurrences(subject, context, answer_start))
                value = most
            else:
                value = UNDEFINED
        values.append(value)
    return values


def _n_occurrences(subject: str, context: str, last_start: int) -> int:
    """Return the number of occurrences, left to right without overlap, that start at ``last_start`` or before."""
    return context.count(subject, 0, last_start + len(subject))


def _once_each(
    texts: Sequence[str], annotate: Callable[[Sequence[str]], Sequence[Sequence[str]]]
) -> dict[str, Sequence[str]]:
    distinct = list(dict.fromkeys(texts))
    return dict(zip(distinct, annotate(distinct), strict=True))


def _require_answers(answers: Sequence[Sequence[str]]) -> None:
    for row, own in enumerate(answers):
        if not own:
            raise ValueError(f"row {row} has no answer")


def load_user_heuristic(name: str) -> UserHeuristic:
    """Return the function that ``module:function`` in a spec names.

    Raises:
        InputError: the module cannot be imported, or has no such function.
    """
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a user's module may fail in any way
        raise InputError(
            f"heuristics: {name}: module {module_name!r} cannot be imported ({type(error).__name__}: {error}); "
            f"put its folder on PYTHONPATH"
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        found = "has no" if function is None else "has no function"
        raise InputError(f"heuristics: {name}: module {module_name!r} {found} {function_name!r}; write module:function")
    return cast("UserHeuristic", function)


def source_digest(name: str) -> str:
    """Return the SHA-256 of the source of the module that ``module:function`` names; its name where it has none.

    Raises:
        InputError: see `load_user_heuristic`.
    """
    module = sys.modules[load_user_heuristic(name).__module__]
    source = getattr(module, "__file__", None)
    return hashlib.sha256(Path(source).read_bytes()).hexdigest() if source else module.__name__


def user_values(name: str, questions: Sequence[dict[str, object]]) -> list[float | None]:
    """Return a user's heuristic of each question; None where it says that the question is not measured.

    Args:
        name: ``module:function``; the function takes one question and returns a finite number, a bool or None.
        questions: dicts of ``example_id``, ``title``, ``question``, ``context``, ``answers``, ``answer_starts``.

    Raises:
        InputError: the function cannot be imported, fails, or returns something else.
    """
    function = load_user_heuristic(name)
    return [_user_value(name, function, question) for question in questions]


def _user_value(name: str, function: UserHeuristic, question: dict[str, object]) -> float | None:
    place = f"heuristics: {name}: question {question['example_id']!r}"
    try:
        value = function(question)
    except Exception as error:  # a user's function may fail in any way
        raise InputError(f"{place}: failed with {type(error).__name__}: {error}; mend the function") from error
    if value is None:
        return None
    if not isinstance(value, Real | np.bool_) or not math.isfinite(value):
        raise InputError(f"{place}: returned {value!r}; return a finite number, or None for a question to leave out")
    return float(value)


def attributes(
    examples: pa.Table,
    heuristics: Sequence[str],
    *,
    variant: Variant,
    text: EnglishText | None = None,
    annotator: Annotator | None = None,
    tfidf: Tfidf | None = None,
) -> pa.Table:
    """Return every heuristic of every question.

    Args:
        examples: a table of ``QA_EXAMPLES``; every question has an answer.
        heuristics: ids of ``biaseval.spec.HEURISTICS``, or ``module:function``.
        variant: the meaning where P3's text and its code differ.
        text: for the heuristics of ``NEEDS_TEXT``.
        annotator: for those of ``NEEDS_ANNOTATOR``.
        tfidf: for those of ``NEEDS_TFIDF``.

    Returns:
        A table of ``QA_ATTRIBUTES``: the heuristics in the order asked for, each with the questions in their order.
        ``is_measured`` is false where ``word_dist``, ``subj_pos`` or a user's function is undefined (value -1).

    Raises:
        InputError: a user's function is not to be had, or fails.
        ValueError: something that a heuristic needs is not given, or a question has no answer.
    """
    columns = {name: examples[name].to_pylist() for name in examples.column_names}
    contexts, questions, answers = columns["context"], columns["question"], columns["answers"]
    _require_answers(answers)
    first_answers = [own[0] for own in answers]
    tables = []
    for heuristic in heuristics:
        values: Sequence[float | None]
        closest: Sequence[str | None] = [None] * len(questions)
        if heuristic == "word_dist":
            values, closest = word_dist(contexts, questions, first_answers, _given(text, heuristic).stop_words)
        elif heuristic == "sim_word":
            values = sim_word(contexts, questions, _given(text, heuristic))
        elif heuristic == "ans_pos":
            values = ans_pos(contexts, first_answers, _given(text, heuristic))
        elif heuristic == "cos_sim":
            values = cos_sim(contexts, questions, _given(tfidf, heuristic))
        elif heuristic == "ans_len":
            values = ans_len(answers)
        elif heuristic == "sim_ents":
            values = sim_ents(contexts, answers, _given(annotator, heuristic), variant)
        elif heuristic == "subj_pos":
            first_starts = [own[0] for own in columns["answer_starts"]]
            values = subj_pos(contexts, questions, first_starts, _given(annotator, heuristic), variant)
        else:
            names = ("example_id", "title", "question", "context", "answers", "answer_starts")
            rows = [dict(zip(names, row, strict=True)) for row in zip(*(columns[name] for name in names), strict=True)]
            values = user_values(heuristic, rows)
        tables.append(_table(columns["dataset"], columns["example_id"], heuristic, values, closest))
    return pa.concat_tables(tables) if tables else QA_ATTRIBUTES.empty()


def _given(resource: _Resource | None, heuristic: str) -> _Resource:
    if resource is None:
        raise ValueError(
            f"{heuristic} needs a resource that was not given: see NEEDS_TEXT, NEEDS_ANNOTATOR, NEEDS_TFIDF"
        )
    return resource


def _table(
    datasets: Sequence[str],
    example_ids: Sequence[str],
    heuristic: str,
    values: Sequence[float | None],
    closest: Sequence[str | None],
) -> pa.Table:
    # A user's -1 is a value like any other: only None says that a question is not measured.
    undefined = None if heuristic not in HEURISTICS else UNDEFINED
    return pa.table(
        {
            "dataset": pa.array(datasets, pa.string()),
            "example_id": pa.array(example_ids, pa.string()),
            "heuristic": pa.array([heuristic] * len(values), pa.string()),
            "value": pa.array([UNDEFINED if value is None else value for value in values], pa.float64()),
            "is_measured": pa.array([value != undefined for value in values], pa.bool_()),
            "closest_word": pa.array(closest, pa.string()),
        },
        schema=QA_ATTRIBUTES.schema,
    )
