"""Successive halving: what readers must reach, and where, by hand and as Ray Tune computes it."""

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ray.tune.schedulers.async_hyperband import _Bracket

from biaseval.search.halving import Reached, cutoffs
from biaseval.spec import StopEarlySpec
from biaseval.training.evaluation import Scores, Watch


def rule(grace_steps: int = 10, reduction: float = 2) -> StopEarlySpec:
    return StopEarlySpec(grace_steps=grace_steps, reduction=reduction)


def reached(evaluations: Mapping[int, float], reader: str = "bert") -> list[Reached]:
    """Return how a reader of a trial did behind these steps."""
    return [Reached(reader, n_steps, f1) for n_steps, f1 in evaluations.items()]


@pytest.mark.parametrize(
    ("halving", "trials", "expected"),
    [
        (rule(), [], {}),
        (rule(), [{}, {}], {}),
        # It was evaluated before the first rung, and never behind it.
        (rule(), [{9: 0.5}], {}),
        # One trial asks for what it reached itself.
        (rule(10, 3), [{10: 0.6}], {10: 0.6}),
        # Of four, the median lies between the second and the third; three quarters over three gaps are 2.25 gaps, and
        # two thirds are two gaps.
        (rule(10, 2), [{10: f1} for f1 in (0.3, 0.1, 0.4, 0.2)], {10: 0.25}),
        (rule(10, 4), [{10: f1} for f1 in (0.3, 0.1, 0.4, 0.2)], {10: 0.325}),
        (rule(10, 3), [{10: f1} for f1 in (0.3, 0.1, 0.4, 0.2)], {10: 0.3}),
        # Rungs lie by powers of the reduction.
        (rule(10, 3), [{n: n / 1000 for n in range(10, 300, 10)}], {10: 0.01, 30: 0.03, 90: 0.09, 270: 0.27}),
        # Of 1.5 times 3 a step is behind from the fifth on, and of 2.25 times 3 from the seventh.
        (rule(3, 1.5), [{n: n / 10 for n in range(3, 9)}], {3: 0.3, 5: 0.5, 7: 0.7}),
        # Rungs closer than a step are one.
        (rule(1, 1.25), [{1: 0.1, 2: 0.2, 3: 0.3}], {1: 0.1, 2: 0.2, 3: 0.3}),
        # The first evaluation behind a rung counts for it, in whatever order; one may stand for two rungs.
        (rule(10), [{7: 0.1, 14: 0.2, 21: 0.3, 28: 0.4}], {10: 0.2, 20: 0.3}),
        (rule(10), [{28: 0.4, 21: 0.3, 14: 0.2, 7: 0.1}], {10: 0.2, 20: 0.3}),
        (rule(10), [{7: 0.1, 45: 0.2}], {10: 0.2, 20: 0.2, 40: 0.2}),
        # A trial that was stopped counts as far as it came.
        (rule(10), [{10: 0.2, 20: 0.6}, {10: 0.8, 20: 0.8}, {10: 0.1}], {10: 0.2, 20: 0.7}),
    ],
)
def test_the_best_share_of_readers_goes_on_by_hand(
    halving: StopEarlySpec, trials: list[dict[int, float]], expected: dict[int, float]
) -> None:
    found = cutoffs(halving, [reached(trial) for trial in trials])
    assert found == ({"bert": pytest.approx(expected, abs=1e-12)} if expected else {})


def test_readers_are_compared_with_the_same_readers_of_other_trials() -> None:
    trials = [reached({10: 0.2}) + reached({10: 0.9}, "roberta"), reached({10: 0.4}) + reached({10: 0.7}, "roberta")]
    assert cutoffs(rule(10), trials) == {"bert": {10: pytest.approx(0.3)}, "roberta": {10: pytest.approx(0.8)}}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.sampled_from([2, 3, 4, 2.5]))
def test_cutoffs_are_those_of_ray_tune(found: list[float], reduction: float) -> None:
    bracket = _Bracket(10, 10, reduction, 0)
    expected = bracket.cutoff(dict(enumerate(found)))
    own = cutoffs(rule(10, reduction), [reached({10: f1}) for f1 in found])
    assert own["bert"][10] == pytest.approx(expected, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.floats(1.1, 5), st.integers(1, 15), st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_who_does_as_well_as_the_only_one_before_is_never_stopped(
    grace_steps: int, reduction: float, every: int, found: list[float]
) -> None:
    """What is noted of one trial at a rung is asked of the next at the same evaluation, wherever rungs lie."""
    evaluations = {every * number: f1 for number, f1 in enumerate(found, start=1)}
    asked = cutoffs(rule(grace_steps, reduction), [reached(evaluations)]).get("bert", {})
    watch = Watch([], every, "f1", frozenset({"dev"}), cutoffs=asked)

    def stopped_at(less: float) -> list[int]:
        ends = [(n_steps - every, n_steps, f1) for n_steps, f1 in evaluations.items()]
        return [end for start, end, f1 in ends if watch.stops(start, end, [Scores("dev", 1.0, 0.0, f1 - less)])]

    assert not stopped_at(0)
    behind = [n_steps for n_steps in evaluations if n_steps >= grace_steps]
    assert stopped_at(0.01)[:1] == behind[:1]
