"""The heuristics of P3, as a table of records; a user's heuristic is such a record too.

A heuristic gives each question a number; whether a model's accuracy differs below and above a threshold of it is its
prediction bias. Definitions and quirks are those of protocol section 3. ``variant`` is ``paper``, or ``reference``
where the published code means something else (section 13). Imports nothing heavy: specs read the records.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from biaseval.qa_bias.heuristics.text import words

if TYPE_CHECKING:
    from biaseval.qa_bias.heuristics.annotation import SpacyAnnotator
    from biaseval.qa_bias.heuristics.similarity import Tfidf
    from biaseval.qa_bias.heuristics.text import EnglishText

UNDEFINED = -1
"""The value of a question for which a heuristic of P3 is not defined."""

Variant = Literal["paper", "reference"]

Need = Literal["text", "tfidf", "entities", "subjects"]

Resource = Literal["text", "tfidf", "annotator"]

_RESOURCES: dict[Need, Resource] = {"text": "text", "tfidf": "tfidf", "entities": "annotator", "subjects": "annotator"}

Values = tuple[Sequence[float | None], Sequence[str | None] | None]
"""A value for each question, and the word that it comes from where a heuristic has one."""


@dataclass(frozen=True)
class Questions:
    """Questions, each with an answer, and in whose meaning they are measured."""

    columns: Mapping[str, list[Any]]
    """Of ``QA_EXAMPLES``."""
    variant: Variant

    @property
    def contexts(self) -> list[str]:
        """``[n_questions]``."""
        return self.columns["context"]

    @property
    def texts(self) -> list[str]:
        """``[n_questions]``, the questions themselves."""
        return self.columns["question"]

    @property
    def answers(self) -> list[list[str]]:
        """``[n_questions]``, at least one each."""
        return self.columns["answers"]

    @property
    def first_answers(self) -> list[str]:
        """``[n_questions]``."""
        return [own[0] for own in self.answers]


@dataclass(frozen=True)
class Heuristic:
    """One heuristic."""

    id: str
    """In specs, tables and marts: a name, or ``module:function``."""
    meaning: str
    """What its values are."""
    values: Callable[[Questions, Any], Values]
    """Makes them of the questions and the resource that it needs."""
    needs: Need | None = None
    threshold: float | None = None
    """P3's, found for BERT-base-cased on SQuAD validation (``thresholds: mikula2024``)."""
    step: float | None = None
    """Between the thresholds that are tried; None: 1 if a value is above 1, else 0.1."""
    undefined: float | None = UNDEFINED
    """The value of questions for which the heuristic is not defined."""


def word_dist(asked: Questions, text: EnglishText) -> Values:
    """Return how many words lie between the answer and the nearest word of the question (P3 section 3.1).

    Measured from the first word of the answer's first occurrence as words, wherever the answer is said to start:
    neighbours have distance 1, and a word inside or at the start of the answer counts. Case matters, also for the
    lower-case stop words, which do not count.

    Returns:
        Distances in words, from 0, and the question's word at that distance: among equals the one latest in the
        question. -1 and None where the answer is no sequence of words of the context (also one cut from inside a word)
        or no word of the question is in the context.
    """
    places: dict[str, tuple[list[str], dict[str, list[int]]]] = {}
    distances: list[int] = []
    closest: list[str | None] = []
    for context, question, answer in zip(asked.contexts, asked.texts, asked.first_answers, strict=True):
        if context not in places:
            places[context] = _indexed(words(context))
        context_words, positions = places[context]
        start = _first_occurrence(words(answer), context_words, positions)
        distance: int | None = None
        word: str | None = None
        if start is not None:
            for candidate in words(question):
                if candidate in text.stop_words or candidate not in positions:
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


def sim_word(asked: Questions, text: EnglishText) -> Values:
    """Return how many different words question and context share (P3 section 3.2).

    Words are NLTK's tokens that are alphanumeric as a whole ("U.S." and "well-known" are not); case matters, and stop
    words count. Each distinct text is split once.
    """
    found: dict[str, set[str]] = {}
    for each in (*asked.contexts, *asked.texts):
        if each not in found:
            found[each] = {token for token in text.tokens(text.sentences(each)) if token.isalnum()}
    pairs = zip(asked.contexts, asked.texts, strict=True)
    return [len(found[context] & found[question]) for context, question in pairs], None


def ans_pos(asked: Questions, text: EnglishText) -> Values:
    """Return the number, from 0, of the context's first sentence that holds the first answer's text (P3 section 3.3).

    The text may be inside a word, and before the place where the answer is said to start. An answer in no sentence,
    because it spans two, has the number of sentences.
    """
    sentences: dict[str, list[str]] = {}
    positions = []
    for context, answer in zip(asked.contexts, asked.first_answers, strict=True):
        if context not in sentences:
            sentences[context] = text.sentences(context)
        own = sentences[context]
        positions.append(next((number for number, sentence in enumerate(own) if answer in sentence), len(own)))
    return positions, None


def cos_sim(asked: Questions, tfidf: Tfidf) -> Values:
    """Return the TF-IDF cosine of context and question, 0 to 1 (P3 section 3.4)."""
    return tfidf.cosines(asked.contexts, asked.texts).tolist(), None


def ans_len(asked: Questions, _: None) -> Values:
    """Return the mean number of words of each question's answers, duplicates included (P3 section 3.5)."""
    return [sum(len(words(answer)) for answer in own) / len(own) for own in asked.answers], None


def sim_ents(asked: Questions, annotator: SpacyAnnotator) -> Values:
    """Return how many entities of the context have the type of an entity of the answer (P3 section 3.6).

    For each entity type of the answer, alone and without its context: the number of entities of that type in the
    context, the answer itself included; the largest of these. 0 where the answer has no entity, or none of its types.
    ``paper`` takes the maximum over all answers, ``reference`` looks at the last one only.
    """
    considered = [[own[-1]] if asked.variant == "reference" else list(dict.fromkeys(own)) for own in asked.answers]
    in_contexts = _once_each(asked.contexts, annotator.entity_labels)
    in_answers = _once_each([answer for own in considered for answer in own], annotator.entity_labels)
    counts = {context: Counter(labels) for context, labels in in_contexts.items()}
    return [
        max((counts[context][label] for answer in own for label in in_answers[answer]), default=0)
        for context, own in zip(asked.contexts, considered, strict=True)
    ], None


def subj_pos(asked: Questions, annotator: SpacyAnnotator) -> Values:
    """Return how often the question's subject stands in the context up to the first answer's start (P3 section 3.7).

    A subject is a single token with the dependency ``nsubj``; its text is searched literally, also inside words, and
    occurrences do not overlap. Of several subjects the largest number counts, unless the last one is nowhere in the
    context: then -1. A question without a subject is undefined (-1), and 0 in ``reference``.
    """
    subjects = _once_each(asked.texts, annotator.subjects)
    values = []
    for context, question, starts in zip(asked.contexts, asked.texts, asked.columns["answer_starts"], strict=True):
        value = 0 if asked.variant == "reference" or subjects[question] else UNDEFINED
        most = 0
        for subject in subjects[question]:
            if subject in context:
                # Left to right, without overlap; one at the answer's start counts.
                most = max(most, context.count(subject, 0, starts[0] + len(subject)))
                value = most
            else:
                value = UNDEFINED
        values.append(value)
    return values, None


def _once_each(
    texts: Sequence[str], annotate: Callable[[Sequence[str]], Sequence[Sequence[str]]]
) -> dict[str, Sequence[str]]:
    distinct = list(dict.fromkeys(texts))
    return dict(zip(distinct, annotate(distinct), strict=True))


HEURISTICS = {heuristic.id: heuristic for heuristic in (
    Heuristic("word_dist", "words from the start of the answer to the nearest word of the question in the context",
              word_dist, "text", 7, 1),
    Heuristic("sim_word", "different words that question and context share", sim_word, "text", 3, 1),
    # P3 finds no significant threshold of ans_pos and prints none; this is that of its released trials.
    Heuristic("ans_pos", "number, from 0, of the context's sentence that holds the answer", ans_pos, "text", 0, 1),
    Heuristic("cos_sim", "TF-IDF similarity of question and context, 0 to 1", cos_sim, "tfidf", 0.1, 0.1),
    Heuristic("ans_len", "words of the answer, mean over the gold answers", ans_len, None, 4, 1),
    Heuristic("sim_ents", "named entities in the context that are of the answer's kind", sim_ents, "entities", 0, 1),
    Heuristic("subj_pos", "occurrences of the question's subject in the context up to the answer", subj_pos,
              "subjects", 1, 1),
)}  # fmt: skip
"""P3's, by id, in its order."""


def heuristic_of(name: str) -> Heuristic:
    """Return the heuristic that a spec names: one of P3's, or the user's ``module:function``, not yet imported."""
    if name in HEURISTICS:
        return HEURISTICS[name]

    def values(asked: Questions, _: None) -> Values:
        from biaseval.qa_bias.heuristics.user_heuristics import QUESTION, user_values

        columns = [asked.columns[key] for key in QUESTION]
        return user_values(name, [dict(zip(QUESTION, row, strict=True)) for row in zip(*columns, strict=True)]), None

    module, _, function = name.partition(":")
    meaning = f"the user's function {function} of the module {module}"
    return Heuristic(id=name, meaning=meaning, values=values, undefined=None)


def resources_of(heuristics: Iterable[str]) -> set[Resource]:
    """Return what these heuristics need."""
    needs = [heuristic_of(name).needs for name in heuristics]
    return {_RESOURCES[need] for need in needs if need is not None}


def annotated(heuristics: Iterable[str]) -> list[str]:
    """Return those of these heuristics for which a spaCy pipeline finds entities or subjects."""
    return [name for name in heuristics if "annotator" in resources_of([name])]
