"""Samplers: the points that they choose are those of their seed and of the answers that they heard, and no others."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from biaseval.search.halving import Reached
from biaseval.search.samplers import Point, Result, sampler_of
from biaseval.search.trials import result_of
from biaseval.spec import stored_spec
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


def test_a_search_at_random_hears_nothing() -> None:
    spec = spec_of(SPACE, algorithm="random")
    assert drawn(spec, 40, distance) == drawn(spec, 40, opposite) == drawn(spec, 40, failed)


def test_a_search_at_random_may_look_for_a_point_for_each_of_several() -> None:
    row = {"state": "done", "objectives": '{"a": {"task001": 0.5, "task002": null}}'}
    spec = spec_of(SPACE, algorithm="random", per=["task"])
    assert drawn(spec, 8, lambda _: result_of(row, [])) == drawn(spec, 8, failed)


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


def test_of_a_failed_trial_nothing_is_learned() -> None:
    assert drawn(spec_of(SPACE), 16, failed) == drawn(spec_of(SPACE, algorithm="random"), 16, failed)


@pytest.mark.parametrize("maximize", [True, False])
def test_a_stopped_trial_counts_with_how_far_it_came(maximize: bool) -> None:
    """Its F1 says that it is good where more is, whatever the objective's direction."""
    spec = spec_of(SPACE, objective={"sql": "select 1 as a", "maximize": maximize})
    points = drawn(spec, 40, stopped)
    assert points[:8] == drawn(spec, 8, failed)
    assert n_near(points[20:]) >= 2 * 20 / 8


def test_answers_belong_to_the_batch_that_was_asked_for() -> None:
    sampler = sampler_of(spec_of(SPACE))
    points = sampler.ask(3)
    with pytest.raises(ValueError, match="shorter"):
        sampler.tell([distance(point) for point in points[:2]])


def test_numbers_of_a_list_are_drawn_by_their_place_among_them() -> None:
    """The order in which they are written does not matter, and large ones are no further apart than small ones."""
    space, turned = {RATE: [1e-4, 1e-3, 1e-1]}, {RATE: [1e-1, 1e-4, 1e-3]}
    points = drawn(spec_of(space), 40, distance)
    assert drawn(spec_of(turned), 40, distance) == points
    assert {point[RATE] for point in points} == {1e-4, 1e-3, 1e-1}
    places = drawn(spec_of({ROWS: {"int": [1, 3]}}), 8, failed)
    assert [space[RATE][point[ROWS] - 1] for point in places] == [point[RATE] for point in points[:8]]


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
