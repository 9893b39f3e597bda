"""The points of a search: all points of a grid, or points that Optuna draws from earlier results.

A sampler returns a batch of points, and receives all their results in order before the next batch. So the same seed and
results give the same points, independent of parallel trials and restarts.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from biaseval.parsing import json_value
from biaseval.spec import SearchSpec
from biaseval.spec.search import Domain

if TYPE_CHECKING:
    import optuna

Point = dict[str, Any]
"""Searched key to its value."""


@dataclass(frozen=True)
class Result:
    """The result of a trial."""

    value: float | None
    """Of the objective; None: it was stopped, or failed."""
    reached: Mapping[int, float] = field(default_factory=dict)
    """Of one that was stopped: steps to how its readers did there, more being better."""


def sampler_of(spec: SearchSpec) -> Grid | Drawn:
    """Return the sampler of a search, from its start."""
    return Grid(spec.search) if spec.algorithm == "grid" else Drawn(spec)


class Grid:
    """All combinations, the last key's values going round first."""

    def __init__(self, search: Mapping[str, Domain]) -> None:
        lists = [domain["grid" if "grid" in domain else "choice"] for domain in search.values()]
        self._points: Iterator[Point] = (dict(zip(search, own, strict=True)) for own in itertools.product(*lists))

    def ask(self, n_points: int) -> list[Point]:
        """Return the next combinations."""
        return list(itertools.islice(self._points, n_points))

    def tell(self, results: Sequence[Result]) -> None:
        """Hear nothing: the points are known beforehand."""


class Drawn:
    """Optuna's: random, or TPE.

    A list of numbers is drawn by its place among them, so that neighbours are known to be such.
    """

    def __init__(self, spec: SearchSpec) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._search = {
            key: {kind: sorted(values) if kind == "grid" else values}
            for key, domain in spec.search.items()
            for kind, values in domain.items()
        }
        self._learns = spec.algorithm != "random"
        own = optuna.samplers.TPESampler if self._learns else optuna.samplers.RandomSampler
        self._sign, goal = (1, "MAXIMIZE") if spec.objective.maximize else (-1, "MINIMIZE")
        self._study = optuna.create_study(sampler=own(seed=spec.seed), direction=optuna.study.StudyDirection[goal])
        self._distributions = {key: _distribution(domain) for key, domain in self._search.items()}
        self._asked: list[optuna.trial.Trial] = []

    def ask(self, n_points: int) -> list[Point]:
        """Return points that the sampler draws, knowing the results of all batches before."""
        self._asked = [self._study.ask(self._distributions) for _ in range(n_points)]
        return [{key: _value(self._search[key], drawn) for key, drawn in own.params.items()} for own in self._asked]

    def tell(self, results: Sequence[Result]) -> None:
        """Hear of the batch; one that was stopped counts with how far it came, one that failed not at all."""
        from optuna.trial import TrialState

        if not self._learns:  # the objective may be several numbers (per)
            return
        for trial, result in zip(self._asked, results, strict=True):
            if result.value is not None:
                self._study.tell(trial, result.value)
            elif result.reached:
                for step, value in result.reached.items():
                    trial.report(self._sign * value, step)
                self._study.tell(trial, state=TrialState.PRUNED)
            else:
                self._study.tell(trial, state=TrialState.FAIL)


def _distribution(domain: Domain) -> optuna.distributions.BaseDistribution:
    from optuna import distributions

    [(kind, values)] = domain.items()
    if kind == "grid":
        return distributions.IntDistribution(0, len(values) - 1)
    if kind == "choice":  # Optuna takes no lists
        return distributions.CategoricalDistribution([json.dumps(value) for value in values])
    if kind == "int":
        return distributions.IntDistribution(int(values[0]), int(values[1]))
    return distributions.FloatDistribution(float(values[0]), float(values[1]), log=kind == "loguniform")


def _value(domain: Domain, drawn: Any) -> Any:
    [(kind, values)] = domain.items()
    return values[drawn] if kind == "grid" else json_value(drawn) if kind == "choice" else drawn
