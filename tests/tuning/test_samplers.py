"""Samplers and successive halving."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ray.tune.schedulers.async_hyperband import _Bracket

from biaseval.search.halving import Reached, cutoffs
from biaseval.search.samplers import Point, Result, sampler_of
from biaseval.search.trials import result_of
from biaseval.spec import StopEarlySpec, stored_spec
from biaseval.training.evaluation import Scores, Watch
from tests.searches import searched

RATE, ROWS, SORT = "lora.learning_rate", "tasks.max_eval", "scoring.normalization"
SPACE: dict[str, Any] = {RATE: {"loguniform": [1e-5, 1e-1]}, ROWS: {"int": [1, 1000]}, SORT: ["mean", "sum"]}

Answer = Callable[[Point], Result]


def spec_of(space: dict[str, Any], **changes: Any) -> Any:
    return stored_spec(searched(**{"search": space, "trials": 40, **changes}), "spec")


def drawn(spec: Any, n_points: int, answer: Answer) -> list[Point]:
    """Return the points that a sampler chooses, in batches, each told what came of the one before."""
    sampler, points = sampler_of(spec), list[Point]()
    while len(points) < n_points:
        batch = sampler.ask(spec.batch)
        points += batch
        sampler.tell([answer(point) for point in batch])
    return points[:n_points]


def distance(point: Point) -> Result:
    """Be the better the nearer the rate is to 0.001."""
    return Result(-abs(math.log10(point[RATE]) + 3))


def opposite(point: Point) -> Result:
    return Result(-(distance(point).value or 0.0))


def failed(point: Point) -> Result:
    return Result(None)


def stopped(point: Point) -> Result:
    """Have come as far as two rungs, the better the nearer the rate is to 0.001."""
    f1 = 1 / (1 + abs(math.log10(point[RATE]) + 3))
    return Result(None, {3: f1 / 2, 6: f1})


def n_near(points: Sequence[Point]) -> int:
    """Return how many rates lie within a quarter of a decade around 0.001: by chance an eighth of them."""
    return sum(abs(math.log10(point[RATE]) + 3) < 0.25 for point in points)


def test_a_grid_is_every_combination_the_last_key_going_round_first() -> None:
    space = {ROWS: [30, 10, 20], SORT: ["mean", "sum"]}
    sampler = sampler_of(spec_of(space, algorithm="grid", trials=...))
    batches = [sampler.ask(4) for _ in range(3)]
    expected = [{ROWS: rows, SORT: sort} for rows in (30, 10, 20) for sort in ("mean", "sum")]
    assert batches == [expected[:4], expected[4:], []]


@pytest.mark.parametrize("algorithm", ["random", "optuna"])
def test_points_lie_in_their_domains_and_are_those_of_the_seed_and_answers(algorithm: str) -> None:
    points = drawn(spec_of(SPACE, algorithm=algorithm), 40, distance)
    assert drawn(spec_of(SPACE, algorithm=algorithm), 40, distance) == points
    assert drawn(spec_of(SPACE, seed=43, algorithm=algorithm), 4, distance) != points[:4]
    assert all(1e-5 <= point[RATE] <= 1e-1 for point in points)
    assert all(type(point[ROWS]) is int and 1 <= point[ROWS] <= 1000 for point in points)
    assert {point[SORT] for point in points} == {"mean", "sum"}
    assert len({point[RATE] for point in points}) > 10


def test_what_a_sampler_hears_of_a_trial() -> None:
    reached = [Reached("bert", 3, 0.25), Reached("roberta", 3, 0.75), Reached("bert", 6, 0.5)]
    done = {"state": "done", "objectives": '{"f1": 0.5}'}
    assert result_of(done, reached) == Result(0.5)
    # Of one that was stopped, the mean over its readers.
    assert result_of({"state": "stopped"}, reached) == Result(None, {3: 0.5, 6: 0.5})
    assert result_of({"state": "failed"}, reached) == Result(None, {})


@pytest.mark.parametrize("maximize", [True, False])
def test_optuna_comes_nearer_to_what_is_planted(maximize: bool) -> None:
    """TPE draws ten at random before it learns."""
    spec = spec_of(SPACE, objective={"sql": "select 1 as a", "maximize": maximize})
    towards, away = (drawn(spec, 40, answer) for answer in (distance, opposite)[:: 1 if maximize else -1])
    assert towards[:8] == away[:8]
    assert n_near(away[20:]) < 20 / 8
    assert n_near(towards[20:]) >= 2 * 20 / 8


@pytest.mark.parametrize("maximize", [True, False])
def test_a_stopped_trial_counts_with_how_far_it_came(maximize: bool) -> None:
    """Its F1 says that it is good where more is, whatever the objective's direction."""
    spec = spec_of(SPACE, objective={"sql": "select 1 as a", "maximize": maximize})
    points = drawn(spec, 40, stopped)
    assert points[:8] == drawn(spec, 8, failed)
    assert n_near(points[20:]) >= 2 * 20 / 8


def test_values_of_any_sort_are_what_they_were() -> None:
    assert drawn(spec_of({ROWS: [7]}), 4, failed) == [{ROWS: 7}] * 4
    values = [None, "task1*", ["task1*", "task2*"]]
    points = drawn(spec_of({"tasks.include": {"choice": values}, "scoring.eos": [True, False]}), 40, failed)
    assert {repr(point["tasks.include"]) for point in points} == {repr(value) for value in values}
    assert {repr(point["scoring.eos"]) for point in points} == {"True", "False"}
    # Limits may be written without a point.
    decays = [
        point["lora.weight_decay"] for point in drawn(spec_of({"lora.weight_decay": {"uniform": [0, 1]}}), 20, failed)
    ]
    assert {type(decay) for decay in decays} == {float}
    assert len(set(decays)) == 20


def rule(grace_steps: int = 10, reduction: float = 2) -> StopEarlySpec:
    return StopEarlySpec(grace_steps=grace_steps, reduction=reduction)


def reached(evaluations: Mapping[int, float], reader: str = "bert") -> list[Reached]:
    """Return how a reader of a trial did behind these steps."""
    return [Reached(reader, n_steps, f1) for n_steps, f1 in evaluations.items()]


@pytest.mark.parametrize(("halving", "trials", "expected"), [
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
])  # fmt: skip
def test_the_best_share_of_readers_goes_on_by_hand(
    halving: StopEarlySpec, trials: list[dict[int, float]], expected: dict[int, float]
) -> None:
    found = cutoffs(halving, [reached(trial) for trial in trials])
    assert found == ({"bert": pytest.approx(expected, abs=1e-12)} if expected else {})


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
