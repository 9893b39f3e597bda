"""The null distribution of the bias significance at a searched threshold.

The largest of many differences is large by chance. So exact match is permuted, the whole search is repeated each time,
and its results are the scale for the observed one (maximally selected statistics: Lausen & Schumacher 1992). The same
holds for a model that is measured at a threshold chosen on another model's answers, because models err alike.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from biaseval.qa_bias.splits.significance import by_heuristic, seeded_generator
from biaseval.tables import QA_SEARCH_NULLS

N_PERMUTATIONS = 999
"""The smallest p-value is 0.001."""

_N_PER_TEST = 50
"""Permutations for each test of a family, so that the smallest p-value that counts all of them is 0.02."""

_EXPECTED_QUANTILE = 187.77
"""In points: the expected upper quantile (97.5 %) of 100 normal trials; as in ``expected_significance``."""

_TOLERANCE = 1e-9
_N_DIGITS = 9

_N_DRAWN = 2_000_000
"""Places that are filled at a time, which bounds the memory at about 50 MB."""

Variant = Literal["paper", "reference"]
Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Hits = npt.NDArray[np.int8]


def enough_permutations(n_tests: int) -> int:
    """Return how many permutations it takes for one of so many tests to be significant (Holm)."""
    return max(N_PERMUTATIONS, _N_PER_TEST * n_tests - 1)


def search_nulls(
    answers: pa.Table,
    thresholds: pa.Table,
    searches: pa.Table,
    *,
    seed: int,
    sample: int,
    replacement: bool,
    variant: Variant,
    permutations: int = N_PERMUTATIONS,
) -> pa.Table:
    """Return the significance that the search finds in each model, and those that it finds with permuted answers.

    Answers are permuted within articles, so that articles that are easier stay so: under the null, a question's value
    says nothing about its answers within its article. Questions that are alone in theirs are permuted among each other.
    The answers of all models to a question move together, for models err alike: a threshold that one model's answers
    choose suits another's. Each time the threshold is searched again, on the answers of the model that it was searched
    on; where they choose none at which the measured model has two segments, on its own. Significances are the closed
    form's, without the noise of trials (``expected_significance``).

    Questions that not all models answered are permuted among those that the same models answered.

    Each data set has a generator of its own; heuristics that are measured on the same questions share permutations.

    Args:
        answers: to the questions that take part: ``model``, ``dataset``, ``heuristic``, ``question`` and ``article``
            (numbers within the data set), ``value``, ``exact_match``.
        thresholds: that are tried: ``dataset``, ``heuristic``, ``threshold``.
        searches: a row for each model, data set and heuristic: ``model``, ``dataset``, ``heuristic``, ``threshold`` at
            which it is measured, ``searched_on``: the model on whose answers that was searched. Null where no search
            found any, or none was made.
        seed: the run's.
        sample: questions of a trial; thresholds with fewer in a segment are not tried.
        replacement: whether trials draw a question more than once.
        variant: whose rule chooses.
        permutations: draws beside the observed one.

    Returns:
        The rows of `biaseval.tables.QA_SEARCH_NULLS`, 1 + ``permutations`` for each search that can be made: of a model
        and heuristic that have a threshold with two segments of the sample's size. Draw 0 is the observed one, at the
        threshold at which another model's answers chose to measure.
    """
    tables = [QA_SEARCH_NULLS.empty()]
    groups: dict[tuple[str, bytes], list[_Search]] = {}
    for dataset, heuristic, candidates in by_heuristic(thresholds):
        is_place = (pc.field("dataset") == dataset) & (pc.field("heuristic") == heuristic)
        own = answers.filter(is_place)
        if own.num_rows:
            search = _search(heuristic, own, np.unique(candidates), searches.filter(is_place).to_pylist(), sample)
            groups.setdefault((dataset, search.key), []).append(search)
    for (dataset, _), group in groups.items():
        right = group[0].right
        observed = {model: hits[None] for model, hits in right.items()}
        found = [
            {model: [drawn] for model, drawn in search.found(observed, sample, replacement, variant, True).items()}
            for search in group
        ]
        if any(found):
            for rows in _permutations(group[0].strata, seeded_generator(seed, dataset, "search"), permutations):
                permuted = {model: hits[rows] for model, hits in right.items()}
                for search, own_found in zip(group, found, strict=True):
                    for model, drawn in search.found(permuted, sample, replacement, variant, False).items():
                        own_found[model].append(drawn)
        for search, own_found in zip(group, found, strict=True):
            for model, draws in own_found.items():
                column = np.concatenate(draws)
                columns = [pa.repeat(pa.scalar(value), len(column)) for value in (model, dataset, search.heuristic)]
                columns += [pa.array(np.arange(len(column), dtype=np.int32)), pa.array(column)]
                tables.append(pa.table(columns, schema=QA_SEARCH_NULLS.schema))
    return pa.concat_tables(tables).combine_chunks()


@dataclass(frozen=True)
class _Tried:
    """The thresholds of a model; only those with a sample of questions on either side are tried."""

    below: Counts
    """Questions at or below each threshold, answered by the model or not."""
    n_lower: Counts
    n_higher: Counts
    """Answered by the model; no permutation changes them."""
    source: str | None
    """The other model on whose answers the threshold was searched."""
    measured_at: int
    """The place of the threshold that those answers chose."""

    @property
    def smaller(self) -> Counts:
        """Questions of the smaller segment."""
        return np.minimum(self.n_lower, self.n_higher)

    def distances(self, right: Hits, sample: int, replacement: bool) -> Floats:
        """Return the significances of each draw, ``[draws, thresholds]``; 0 where a threshold is not tried.

        ``right`` says which questions are answered right, in the order of their values, ``[draws, questions]``.
        """
        is_tried = self.smaller >= sample
        n_lower, n_higher = self.n_lower[is_tried], self.n_higher[is_tried]
        lower = _up_to(right, self.below[is_tried])
        higher = np.count_nonzero(right[0]) - lower
        found = np.zeros((len(right), len(is_tried)))
        found[:, is_tried] = closed_form(lower / n_lower, n_lower, higher / n_higher, n_higher, sample, replacement)
        return found


@dataclass(frozen=True)
class _Search:
    """The searches of all models for the threshold of a heuristic."""

    heuristic: str
    right: Mapping[str, Hits]
    """By model: which questions it answered right; 0 also without an answer."""
    tried: Mapping[str, _Tried]
    """Of each model that can be measured."""
    order: Counts
    """Of questions, by their values."""
    strata: Counts
    """By question: they are permuted within a stratum."""
    key: bytes
    """Of the questions and who answered them: the same ones are permuted alike for all heuristics."""

    def found(
        self, right: Mapping[str, Hits], sample: int, replacement: bool, variant: Variant, is_observed: bool
    ) -> dict[str, Floats]:
        """Return the significance in each model and draw, from its permuted right answers."""
        rule = _of_paper if variant == "paper" else _of_reference
        distances = {
            model: own.distances(right[model][:, self.order], sample, replacement) for model, own in self.tried.items()
        }
        chosen = {model: rule(distances[model], own.smaller, sample) for model, own in self.tried.items()}
        found = {}
        for model, own in self.tried.items():
            places = chosen[model]
            if own.source is not None and is_observed:
                places = np.array([own.measured_at])
            elif own.source in chosen:
                theirs = chosen[own.source]
                places = np.where((theirs >= 0) & (own.smaller[theirs] >= sample), theirs, places)
            found[model] = np.where(places >= 0, distances[model][np.arange(len(places)), places], 0)
        return found


def _search(
    heuristic: str, answers: pa.Table, thresholds: Floats, searches: Sequence[Mapping[str, Any]], sample: int
) -> _Search:
    questions, first, question = np.unique(answers["question"].to_numpy(), return_index=True, return_inverse=True)
    models = pa.array([row["model"] for row in searches], pa.string())
    number = pc.index_in(answers["model"], value_set=models).to_numpy()
    is_right = np.zeros((len(models), len(first)), dtype=np.int8)
    is_answered = np.zeros((len(models), len(first)), dtype=np.bool_)
    is_right[number, question] = answers["exact_match"].to_numpy() == 1
    is_answered[number, question] = True
    values, article = (answers[name].to_numpy()[first] for name in ("value", "article"))
    order = np.argsort(values, kind="stable")
    below = np.searchsorted(values[order], thresholds, side="right")
    n_lower = _up_to(is_answered[:, order], below)
    n_higher = np.count_nonzero(is_answered, axis=1)[:, None] - n_lower
    tried = {}
    for place, row in enumerate(searches):
        is_own = row["searched_on"] is None or row["threshold"] is None or row["searched_on"] == row["model"]
        at = -1 if is_own else int(np.searchsorted(thresholds, row["threshold"]))
        source = None if is_own else row["searched_on"]
        own = _Tried(below, n_lower[place], n_higher[place], source, at)
        if (own.smaller if is_own else own.smaller[[at]]).max() >= sample:
            tried[row["model"]] = own
    right = dict(zip(models.to_pylist(), is_right, strict=True))
    key = questions.tobytes() + is_answered.tobytes()
    return _Search(heuristic, right, tried, order, _strata(article, is_answered), key)


def _up_to(hits: npt.NDArray[Any], ends: Counts) -> Counts:
    """Return how many hits are among the first so many of each row, ``[rows, ends]``."""
    sums = np.cumsum(hits, axis=1, dtype=np.int32)
    return np.where(ends > 0, sums[:, ends - 1], 0)


def _strata(article: Counts, is_answered: npt.NDArray[np.bool_]) -> Counts:
    """Return the number of the stratum of each question."""
    pattern = np.unique(is_answered, axis=1, return_inverse=True)[1].ravel()
    _, stratum, size = np.unique(article * (pattern.max() + 1) + pattern, return_inverse=True, return_counts=True)
    return np.where(size[stratum] == 1, -1 - pattern, stratum)


def _permutations(strata: Counts, generator: np.random.Generator, permutations: int) -> Iterator[Counts]:
    """Yield whose answers each question has, ``[some draws, questions]``."""
    order = np.argsort(strata, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(strata[order])) + 1)
    block = max(1, _N_DRAWN // len(strata))
    for start in range(0, permutations, block):
        rows = np.tile(np.arange(len(strata)), (min(block, permutations - start), 1))
        for places in groups:
            rows[:, places] = generator.permuted(rows[:, places], axis=1)
        yield rows


def closed_form(
    lower: Floats, n_lower: Counts, higher: Floats, n_higher: Counts, sample: int, replacement: bool
) -> Floats:
    """Return ``expected_significance`` of many segments: points, from shares of exact matches and sizes."""
    gap = 100 * np.abs(lower - higher)
    for share, size in ((lower, n_lower), (higher, n_higher)):
        part = 1.0 if replacement else (size - sample) / np.maximum(1, size - 1)
        gap -= _EXPECTED_QUANTILE * np.sqrt(np.maximum(0, share * (1 - share)) / sample * part)
    return np.where(gap > _TOLERANCE, gap, 0)


def _of_paper(distances: Floats, smaller: Counts, sample: int) -> Counts:
    """Return which threshold ``paper_threshold`` chooses in each draw: the largest of large segments, else of all.

    -1 where none is significant.
    """
    rounded = np.round(distances, _N_DIGITS)
    among_large = np.where(smaller >= 2 * sample, rounded, 0)
    has_large = among_large.max(axis=1) > 0
    chosen = np.where(has_large, among_large.argmax(axis=1), rounded.argmax(axis=1))
    return np.where(rounded.max(axis=1) > 0, chosen, -1)


def _of_reference(distances: Floats, smaller: Counts, sample: int) -> Counts:
    """Return which threshold ``reference_threshold`` chooses in each draw, going through them; -1: none."""
    chosen = np.full(len(distances), -1)
    distance_of_chosen = np.zeros(len(distances))
    size_of_chosen = np.zeros(len(distances), dtype=np.int64)
    for place, (distance, size) in enumerate(zip(distances.T, smaller, strict=True)):
        is_next = (distance > distance_of_chosen + _TOLERANCE) | (size_of_chosen < 2 * sample)
        takes = (distance > 0) & ((chosen < 0) | ((size > 2 * sample) & is_next))
        chosen = np.where(takes, place, chosen)
        distance_of_chosen = np.where(takes, distance, distance_of_chosen)
        size_of_chosen = np.where(takes, size, size_of_chosen)
    return chosen
