"""What the search for a threshold finds where there is nothing: the null of the bias significance.

The largest of many differences is large by chance. So exact match is permuted, each time the whole search is done anew,
and what it finds is the scale for what it found (maximally selected statistics: Lausen & Schumacher 1992).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from biaseval.qa_bias.significance import by_heuristic, seeded_generator
from biaseval.tables import QA_SEARCH_NULLS

N_PERMUTATIONS = 999
"""The smallest p-value is 0.001."""

_N_PER_TEST = 50
"""Permutations for each test of a family, so that the smallest p-value that counts all of them is 0.02."""

_EXPECTED_QUANTILE = 187.77
"""In points: the expected upper quantile (97.5 %) of 100 normal trials; as in ``expected_significance``."""

_TOLERANCE = 1e-9

Variant = Literal["paper", "reference"]
Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


def enough_permutations(n_tests: int) -> int:
    """Return how many permutations it takes for one of so many tests to be significant (Holm)."""
    return max(N_PERMUTATIONS, _N_PER_TEST * n_tests - 1)


def search_nulls(
    model: str,
    measured: pa.Table,
    thresholds: pa.Table,
    *,
    seed: int,
    sample: int,
    replacement: bool,
    variant: Variant,
    permutations: int = N_PERMUTATIONS,
) -> pa.Table:
    """Return the significance that a model's search finds, and what it finds once exact match is permuted.

    Exact match is permuted within articles, so that articles that are easier stay so: under the null, a question's
    value says nothing about its answer within its article. Questions that are alone in theirs are permuted among each
    other. Significances are the closed form's, without the noise of trials (``expected_significance``). What a
    permutation changes is how many answers at or below each threshold are right, so these counts are what is drawn.

    Each (data set, heuristic) has a generator of its own, the same for every model.

    Args:
        model: its name.
        measured: the model's questions that take part: ``dataset``, ``heuristic``, ``article``, ``value``,
            ``exact_match``.
        thresholds: among which the model's is searched, a single one where none is: ``dataset``, ``heuristic``,
            ``threshold``.
        seed: the run's.
        sample: questions of a trial; thresholds with fewer in a segment are not tried.
        replacement: whether trials draw a question more than once.
        variant: whose rule chooses.
        permutations: draws beside the observed one.

    Returns:
        The rows of `biaseval.tables.QA_SEARCH_NULLS`, 1 + ``permutations`` for each heuristic that has a threshold with
        two segments of the sample's size. Draw 0 is the observed one.
    """
    tables = [QA_SEARCH_NULLS.empty()]
    for dataset, heuristic, candidates in by_heuristic(thresholds):
        rows = measured.filter((pc.field("dataset") == dataset) & (pc.field("heuristic") == heuristic))
        found = _significances(
            rows["value"].to_numpy(),
            rows["exact_match"].to_numpy() == 1,
            rows["article"].to_numpy(),
            np.unique(np.asarray(candidates)),
            generator=seeded_generator(seed, dataset, heuristic, "search"),
            sample=sample,
            replacement=replacement,
            variant=variant,
            permutations=permutations,
        )
        columns = [pa.repeat(pa.scalar(value), len(found)) for value in (model, dataset, heuristic)]
        columns += [pa.array(np.arange(len(found), dtype=np.int32)), pa.array(found)]
        tables.append(pa.table(columns, schema=QA_SEARCH_NULLS.schema))
    return pa.concat_tables(tables).combine_chunks()


def _significances(
    values: Floats,
    is_right: npt.NDArray[np.bool_],
    articles: Counts,
    thresholds: Floats,
    *,
    generator: np.random.Generator,
    sample: int,
    replacement: bool,
    variant: Variant,
    permutations: int,
) -> Floats:
    """Return what the search finds, ``[1 + permutations]``, or nothing where no threshold can be measured."""
    n_rows = len(values)
    n_lower = np.searchsorted(np.sort(values), thresholds, side="right")
    is_tried = np.minimum(n_lower, n_rows - n_lower) >= sample
    if not is_tried.any():
        return np.empty(0)
    n_lower, thresholds = n_lower[is_tried], thresholds[is_tried]
    # Bin b holds what is at or below threshold b and above the one before it.
    bins = np.searchsorted(thresholds, values)
    n_right = _right_by_bin(bins, is_right, articles, len(thresholds) + 1, generator, permutations)
    right_lower = np.cumsum(n_right, axis=1)[:, :-1]
    right_higher = np.count_nonzero(is_right) - right_lower
    distances = closed_form(
        right_lower / n_lower, n_lower, right_higher / (n_rows - n_lower), n_rows - n_lower, sample, replacement
    )
    rule = _of_paper if variant == "paper" else _of_reference
    return rule(distances, np.minimum(n_lower, n_rows - n_lower), sample)


def _right_by_bin(
    bins: Counts,
    is_right: npt.NDArray[np.bool_],
    articles: Counts,
    n_bins: int,
    generator: np.random.Generator,
    permutations: int,
) -> Counts:
    """Return how many answers of each bin are right, observed and in each draw, ``[1 + permutations, n_bins]``."""
    n_right = np.zeros((1 + permutations, n_bins), dtype=np.int64)
    n_right[0] = np.bincount(bins[is_right], minlength=n_bins)
    _, article, size = np.unique(articles, return_inverse=True, return_counts=True)
    stratum = np.where(size[article] == 1, -1, article)
    order = np.argsort(stratum, kind="stable")
    starts = np.flatnonzero(np.diff(stratum[order], prepend=-2))
    for rows in np.split(order, starts[1:]):
        own, counts = np.unique(bins[rows], return_counts=True)
        k = int(np.count_nonzero(is_right[rows]))
        n_right[1:, own] += generator.multivariate_hypergeometric(counts, k, size=permutations, method="marginals")
    return n_right


def closed_form(
    lower: Floats, n_lower: Counts, higher: Floats, n_higher: Counts, sample: int, replacement: bool
) -> Floats:
    """Return ``expected_significance`` of many segments: points, from shares of exact matches and sizes."""
    gap = 100 * np.abs(lower - higher)
    for share, size in ((lower, n_lower), (higher, n_higher)):
        part = 1.0 if replacement else (size - sample) / np.maximum(1, size - 1)
        gap -= _EXPECTED_QUANTILE * np.sqrt(np.maximum(0, share * (1 - share)) / sample * part)
    return np.where(gap > _TOLERANCE, gap, 0)


def _of_paper(distances: Floats, smaller: Counts, sample: int) -> Floats:
    """Return what ``paper_threshold`` chooses of each draw: the largest of large segments, else of all."""
    among_large = distances[:, smaller >= 2 * sample].max(axis=1, initial=0)
    found: Floats = np.where(among_large > 0, among_large, distances.max(axis=1))
    return found


def _of_reference(distances: Floats, smaller: Counts, sample: int) -> Floats:
    """Return what ``reference_threshold`` chooses of each draw, going through the thresholds."""
    chosen = np.zeros(len(distances))
    chosen_size = np.zeros(len(distances), dtype=np.int64)
    for distance, size in zip(distances.T, smaller, strict=True):
        is_next = (distance > chosen + _TOLERANCE) | (chosen_size < 2 * sample)
        takes = (distance > 0) & ((chosen == 0) | ((size > 2 * sample) & is_next))
        chosen = np.where(takes, distance, chosen)
        chosen_size = np.where(takes, size, chosen_size)
    return chosen
