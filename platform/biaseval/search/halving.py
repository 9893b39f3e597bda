"""Successive halving, which stops trainings early (Li et al. 2020, "A System for Massively Parallel Hyperparameter
Tuning", ASHA).

A trial is compared only with trials of earlier batches, which have all ended. Its threshold is known before it begins,
so neither the number of simultaneous trials nor a kill changes which trials stop.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from biaseval.spec import StopEarlySpec


@dataclass(frozen=True)
class Reached:
    """How a reader did after a step of a trial."""

    reader: str
    n_steps: int
    f1: float
    """Mean over its sets for validation, 0 to 1."""


Cutoffs = Mapping[str, Mapping[int, float]]
"""Reader to steps to the F1 that it must have reached at the first evaluation after so many."""


def cutoffs(rule: StopEarlySpec, trials: Iterable[Iterable[Reached]]) -> Cutoffs:
    """Return what the readers of a trial must reach to go on.

    ``trials`` has, of each trial of earlier batches, how its readers did at their evaluations.

    Returns:
        At each rung that some reached, the F1 above which the best ``1 / reduction`` of them lie, as Ray Tune's ASHA
        computes it; none where nothing is known.
    """
    values: dict[str, dict[int, list[float]]] = {}
    for trial in trials:
        readers: dict[str, list[Reached]] = {}
        for own in trial:
            readers.setdefault(own.reader, []).append(own)
        for reader, evaluations in readers.items():
            for rung, f1 in _at_rungs(rule, evaluations).items():
                values.setdefault(reader, {}).setdefault(rung, []).append(f1)
    share = 100 * (1 - 1 / rule.reduction)
    return {
        reader: {rung: float(np.percentile(found, share)) for rung, found in sorted(rungs.items())}
        for reader, rungs in values.items()
    }


def _at_rungs(rule: StopEarlySpec, evaluations: Iterable[Reached]) -> dict[int, float]:
    """Return the F1 of a reader at the first evaluation after each rung."""
    found: dict[int, float] = {}
    rung: float = rule.grace_steps
    for own in sorted(evaluations, key=lambda one: one.n_steps):
        while own.n_steps >= rung:
            found[math.ceil(rung)] = own.f1
            rung *= rule.reduction
    return found
