"""Bias significance: the thresholds that are tried, and the samples whose quantiles SQL compares (P3)."""

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from biaseval.errors import InputError
from biaseval.qa_bias.heuristics.built_in import HEURISTICS, heuristic_of
from biaseval.tables import QA_DRAWS

PUBLISHED_THRESHOLDS: Mapping[str, float] = {
    heuristic.id: heuristic.threshold for heuristic in HEURISTICS.values() if heuristic.threshold is not None
}
"""P3's thresholds by heuristic (``thresholds: mikula2024``)."""

PUBLISHED_SEGMENTS: Mapping[str, tuple[float, Literal["lower", "higher"]]] = {
    heuristic.id: (
        PUBLISHED_THRESHOLDS.get(heuristic.id, 0.0),  # of ans_pos there is none; its released trials are at 0
        "higher" if heuristic.id in ("sim_word", "cos_sim", "sim_ents") else "lower",
    )
    for heuristic in HEURISTICS.values()
}
"""By heuristic the threshold at which P3 splits training data, and the segment that its models answer better."""

MAX_THRESHOLDS = 10_000
"""Of one heuristic; only a user's own can have a range of values that asks for more."""

_FLOAT_SUM = 1e-9

_N_DRAWN = 2_000_000
"""Rows that are drawn at a time, which bounds the memory at about 50 MB."""

Floats = npt.NDArray[np.float64]


def threshold_grid(
    heuristic: str, lowest: float, highest: float, *, variant: Literal["paper", "reference"]
) -> list[float]:
    """Return the thresholds among which that of a heuristic is searched, ascending (P3 section 5).

    ``paper``: the whole numbers, or the tenths, from ``lowest`` up to below ``highest``. P3 takes steps of 1 above 1
    and of 0.1 between 0 and 1; here its record decides: 0.1 for ``cos_sim``, 1 for P3's others, which count.
    A user's own heuristic has steps of 1 if a value is above 1, else of 0.1.

    ``reference``: P3's code exactly. The largest value decides the step (a count with the maximum 1 gets tenths), which
    is added up in floats (0.30000000000000004), from 0, or from the first whole number above a positive ``lowest``
    (which is never tried itself, and leaves ``cos_sim`` without a threshold).

    Args:
        heuristic: its id, or ``module:function``.
        lowest: the smallest value; for ``reference`` over all questions with -1 where undefined, for ``paper`` over
            those that take part in the measurement.
        highest: the largest value, over the same questions; at or above it the higher segment is empty.
        variant: whose rule.

    Raises:
        InputError: there are more than `MAX_THRESHOLDS`.
    """
    if variant == "paper":
        step = heuristic_of(heuristic).step or (1 if highest > 1 else 0.1)
        per_unit = round(1 / step)
        _refuse_too_many(heuristic, lowest, highest, (highest - lowest) * per_unit)
        numbers = itertools.count(math.ceil(lowest * per_unit - _FLOAT_SUM))
        return list(itertools.takewhile(lambda threshold: threshold < highest, (n / per_unit for n in numbers)))
    threshold = 0.0 if lowest <= 0 else float(int(lowest) + 1)
    step = 1.0 if highest > 1 else 0.1
    _refuse_too_many(heuristic, lowest, highest, (highest - threshold) / step)
    grid = []
    while threshold < highest:
        grid.append(threshold)
        threshold += step
    return grid


def given_thresholds(thresholds: str | Mapping[str, float | Sequence[float]]) -> Mapping[str, float | Sequence[float]]:
    """Return what the key of a spec gives by heuristic: a threshold, or those among which it is searched."""
    if isinstance(thresholds, str):
        return PUBLISHED_THRESHOLDS if thresholds == "mikula2024" else {}
    return thresholds


Segment = Literal["lower", "higher"]


def biased_questions(
    values: Floats,
    is_measured: npt.NDArray[np.bool_],
    threshold: float,
    segment: Segment,
    *,
    variant: Literal["paper", "reference"],
) -> npt.NDArray[np.bool_]:
    """Return which questions lie in the biased segment, where data are split for debiasing (P3 section 5).

    P3 does not say where questions without a defined value belong: here, ``paper``, never to the biased segment, for
    they show no shortcut. ``reference``: by their -1 to the lower one, as in P3's code.

    Args:
        values: ``[n]``, -1 where undefined.
        is_measured: ``[n]``, false where undefined.
        threshold: values up to it are lower.
        segment: which one is biased.
        variant: whose rule.

    Returns:
        ``[n]``, true where biased.
    """
    is_lower = values <= threshold
    is_biased = is_lower if segment == "lower" else ~is_lower
    return is_biased if variant == "reference" else is_biased & is_measured


def segment_draws(
    model: str, measured: pa.Table, thresholds: pa.Table, *, seed: int, trials: int, sample: int, replacement: bool
) -> pa.Table:
    """Return the mean exact match and F1 of samples of both segments of every threshold (P3 section 4).

    A threshold with fewer than ``sample`` questions in a segment cannot be measured and has no row.

    Each (data set, heuristic, threshold, segment) has a generator of its own, the same for every model: models that
    answered the same questions are compared on the same samples, whatever else a run measures. P3's code has no seed.

    Args:
        model: its name.
        measured: the model's questions that take part: ``dataset``, ``heuristic``, ``value``, ``exact_match`` and
            ``f1`` (0 to 1), in an order of the questions that does not depend on the model.
        thresholds: ``dataset``, ``heuristic``, ``threshold``.
        seed: the run's.
        trials: samples of each segment, 100 in P3.
        sample: questions in each, 800 in P3.
        replacement: draw a question more than once; P3 does not.

    Returns:
        The rows of `biaseval.tables.QA_DRAWS`, in the order of ``thresholds``, lower segments first.
    """
    tables = [QA_DRAWS.empty()]
    for dataset, heuristic, candidates in by_heuristic(thresholds):
        rows = measured.filter((pc.field("dataset") == dataset) & (pc.field("heuristic") == heuristic))
        values, exact_match, f1 = (rows[name].to_numpy() for name in ("value", "exact_match", "f1"))
        for threshold in candidates:
            is_lower = values <= threshold
            segments = {"lower": is_lower, "higher": ~is_lower}
            if min(np.count_nonzero(is_segment) for is_segment in segments.values()) < sample:
                continue
            for segment, is_segment in segments.items():
                generator = seeded_generator(seed, dataset, heuristic, threshold, segment)
                means = _trial_means(
                    np.stack([exact_match[is_segment], f1[is_segment]]), generator, trials, sample, replacement
                )
                place = (model, dataset, heuristic, threshold, segment)
                columns = [pa.repeat(pa.scalar(value), trials) for value in place]
                columns += [pa.array(np.arange(trials, dtype=np.int32)), *map(pa.array, means)]
                tables.append(pa.table(columns, schema=QA_DRAWS.schema))
    return pa.concat_tables(tables).combine_chunks()


def _refuse_too_many(heuristic: str, lowest: float, highest: float, n_thresholds: float) -> None:
    if n_thresholds > MAX_THRESHOLDS:
        raise InputError(
            f"{heuristic}: values from {lowest:g} to {highest:g} give more than {MAX_THRESHOLDS:,} thresholds to try; "
            f"let the heuristic return smaller numbers, or name its threshold under thresholds"
        )


def by_heuristic(thresholds: pa.Table) -> Iterator[tuple[str, str, list[float]]]:
    """Yield each data set and heuristic of ``dataset``, ``heuristic``, ``threshold``, with its thresholds."""
    groups: dict[tuple[str, str], list[float]] = {}
    for row in thresholds.to_pylist():
        groups.setdefault((row["dataset"], row["heuristic"]), []).append(row["threshold"])
    for (dataset, heuristic), candidates in groups.items():
        yield dataset, heuristic, candidates


def seeded_generator(seed: int, *place: str | float) -> np.random.Generator:
    """Return the generator of a place, such as a data set and a heuristic, which does not depend on other places."""
    digest = hashlib.sha256(json.dumps(place).encode()).digest()
    return np.random.default_rng([seed, int.from_bytes(digest, "big")])


def _trial_means(
    metrics: Floats, generator: np.random.Generator, trials: int, sample: int, replacement: bool
) -> Floats:
    """Return the mean of each metric in each sample, ``[n_metrics, trials]``, of ``metrics``, ``[n_metrics, n]``."""
    n_rows = metrics.shape[1]
    means = np.empty((len(metrics), trials))
    block = max(1, _N_DRAWN // sample)
    for start in range(0, trials, block):
        drawn = np.stack(
            [
                generator.choice(n_rows, size=sample, replace=replacement, shuffle=False)
                for _ in range(min(block, trials - start))
            ]
        )
        for metric, values in enumerate(metrics):
            means[metric, start : start + len(drawn)] = values[drawn].mean(axis=1)
    return means
