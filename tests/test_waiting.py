"""Work that waits for its place on a real Ray: what is said, what ends a wait, and what the dead do not keep."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group

from biaseval.errors import TransientError
from biaseval.execute import datasets, groups, holdings, stalls, training, waiting
from biaseval.execute.cluster import Cluster
from biaseval.execute.holdings import remove_strays
from biaseval.execute.pace import Pace
from biaseval.execute.parts import Parts
from biaseval.execute.resources import Ask, Groups, NodeType, Resources, allocate
from biaseval.execute.tasks import Made, Task
from biaseval.execute.training import Training
from biaseval.execute.tune import Attempts, try_all
from biaseval.execute.waiting import Wait
from biaseval.spec import ExecutionSpec, LoraSpec, ModelSpec
from biaseval.store import Run
from biaseval.training.recipe import adapters_recipe
from biaseval.units import Unit

HERE = Resources([], True, 2)
GPU, SPOT = Ask("an actor", {"CPU": 0, "GPU": 1}), NodeType("gpu_spot", {"CPU": 8, "GPU": 1}, 16)
CPU = NodeType("cpu", {"CPU": 8}, 4)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "FIRST_S", 0.3)
    monkeypatch.setattr(waiting, "ENDS_S", 1.0)
    monkeypatch.setattr(waiting, "_BETWEEN_LOOKS_S", 0.1)


def looked(wait: Wait, ask: Ask, seconds: float = 2.0, **how: Any) -> None:
    """Look again and again, as who waits does."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        wait.look(ask, **how)
        time.sleep(0.1)


@contextmanager
def held(cpus: float) -> Iterator[PlacementGroup]:
    """Hold CPUs of the one Ray of the tests, as what lives in a process of the user's."""
    group = placement_group([{"CPU": cpus}])
    ray.get(group.ready(), timeout=60)
    try:
        yield group
    finally:
        remove_placement_group(group)


def states() -> dict[str, str]:
    return {name: group["state"] for name, group in placement_group_table().items()}


# ---- placement groups of the dead ------------------------------------------------------------------------------------


@ray.remote(num_cpus=0)
class Maker:
    """Asks for a placement group, as the controller of a training does."""

    def make(self, cpus: float) -> str:
        group = placement_group([{"CPU": cpus}])
        ray.get(group.ready(), timeout=60)
        return str(group.id.hex())


def kill(maker: Any, group: str) -> None:
    """Kill what made a group, and wait until that is removed."""
    ray.kill(maker)
    deadline = time.monotonic() + 30
    while states()[group] == "CREATED":
        assert time.monotonic() < deadline
        time.sleep(0.1)
        remove_strays()


@pytest.mark.ray
def test_a_placement_group_goes_whose_maker_is_dead_and_no_other(ray_cluster: None) -> None:
    living, dying = Maker.remote(), Maker.remote()
    kept, stray = (ray.get(maker.make.remote(0.5), timeout=60) for maker in (living, dying))
    with held(0.5) as own:
        remove_strays()
        assert states()[stray] == "CREATED"
        kill(dying, stray)
        found = [states()[name] for name in (kept, stray, own.id.hex())]
        assert found == ["CREATED", "REMOVED", "CREATED"]
    kill(living, kept)


class Writer:
    """Writes its part."""

    def __init__(self, run: Run, allocation: Any) -> None:
        self._run = run

    def make(self, task: Task, prepared: Any) -> Made:
        self._run.write_text(task.files[0], "written by it")
        return Made({})


def prepared(run: Run, task: Task) -> str:
    return "prepared"


def made(folder: Path, **how: Any) -> list[int]:
    """Make a part on an actor that asks for two CPUs or one."""
    unit = Unit(0, 1, ("files/0",))
    stage = Parts(name="writing", verb="written", units=[unit], execution=ExecutionSpec(actors=1), worker=Writer, **how)
    with Cluster(ExecutionSpec()) as cluster:
        return [done.unit.number for done in stage.make(Run.open(str(folder)), [unit], cluster)]


def test_a_look_that_fails_is_not_the_last(tmp_path: Path, impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, looked_again = list[str](), threading.Event()

    def n_placed(name: str) -> int:
        asked.append(name)
        if len(asked) == 1:
            raise RuntimeError("Ray's tables do not answer")
        looked_again.set()
        return 1

    monkeypatch.setattr(holdings, "n_placed", n_placed)
    monkeypatch.setattr(datasets, "_PAUSE_S", 0.05)
    allocation, pace = allocate(ExecutionSpec(), 1, HERE), Pace(Run.open(str(tmp_path)), [], "rows", 0)
    with datasets._looked_after(Wait("scoring", ExecutionSpec(), HERE), allocation, pace, stalls.Stalls("scoring", [])):
        assert looked_again.wait(30)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_stage_takes_the_place_that_a_dead_process_left_held(ray_cluster: None, tmp_path: Path) -> None:
    maker = Maker.remote()
    ray.get(maker.make.remote(3.8), timeout=60)
    ray.kill(maker)
    assert made(tmp_path, prepare=prepared) == [0]


# ---- waits -----------------------------------------------------------------------------------------------------------


@pytest.mark.ray
def test_waiting_is_said_with_what_is_asked_for_and_what_is_there(
    ray_cluster: None, impatient: None, capsys: pytest.CaptureFixture[str]
) -> None:
    looked(Wait("scoring", ExecutionSpec(), Resources([], False, 2, types=[SPOT, CPU])), GPU, 1.5)
    assert capsys.readouterr().err.splitlines() == [
        "scoring has waited 0:00 for an actor, which asks for 1 GPU: of 0 GPUs there 0 are free; up to 16 gpu_spot may "
        "come"
    ]
    group = Ask("a group of workers", {"GPU": 1}, 2)
    looked(Wait("training", ExecutionSpec(), HERE), group, is_idle=False)  # another group works
    assert capsys.readouterr().err.splitlines() == [
        "training has waited 0:00 for a group of workers, which asks for 2 GPU: of 0 GPUs there 0 are free"
    ]


@pytest.mark.ray
@pytest.mark.parametrize(("execution", "resources"), [
    ({}, Resources([], False, 2, types=[SPOT])),  # an autoscaler says what may come
    ({"gpus_per_actor": 1}, Resources([], False, 2)),  # a person says that it comes
])  # fmt: skip
def test_nodes_that_may_come_are_waited_for_however_long(
    ray_cluster: None, impatient: None, execution: dict[str, Any], resources: Resources
) -> None:
    looked(Wait("scoring", ExecutionSpec(**execution), resources), GPU)


@pytest.mark.ray
def test_what_tasks_or_other_runs_hold_is_waited_for_however_long(ray_cluster: None, impatient: None) -> None:
    ask = Ask("an actor", {"CPU": 3})
    with held(2):
        looked(Wait("scoring", ExecutionSpec(), Resources([], True, 2, is_shared=True)), ask)
    working = ray.remote(num_cpus=2)(lambda: time.sleep(8)).remote()
    deadline = time.monotonic() + 30
    while ray.available_resources()["CPU"] > 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    looked(Wait("scoring", ExecutionSpec(), HERE), ask)
    ray.cancel(working, force=True)


@pytest.mark.ray
def test_a_wait_that_nothing_can_end_ends_with_who_holds_what(ray_cluster: None, impatient: None) -> None:
    rest = "no node is known to come, and nothing will free more"
    with pytest.raises(TransientError) as lost:
        looked(Wait("scoring", ExecutionSpec(), HERE), GPU)
    assert f"an actor, which asks for 1 GPU: of 0 GPUs there 0 are free, {rest} (nobody holds any)" in str(lost.value)
    with held(2), pytest.raises(TransientError) as kept:
        looked(Wait("scoring", ExecutionSpec(), HERE), Ask("an actor", {"CPU": 3}))
    message = str(kept.value)
    assert f"asks for 3 CPU: of 4 CPUs there 2 are free, {rest} (a placement group of this process holds 2)" in message
    assert message.endswith("run the same command again to resume")
    assert lost.value.exit_code == 1


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_stage_whose_actor_or_preparation_never_gets_a_place_ends(
    ray_cluster: None, impatient: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = r"^writing has waited 0:\d\d for an actor, which asks for \d CPU: of 4 CPUs there 0 are free, no node"
    with held(4), pytest.raises(TransientError, match=words):
        made(tmp_path)
    words = r"^writing has waited 0:\d\d for a task that prepares, which asks for 0\.9 CPU: of 4 CPUs"
    of_actor = allocate(ExecutionSpec(actors=1), 1, Cluster(ExecutionSpec()).resources()).num_cpus
    with held(3.5 - of_actor), pytest.raises(TransientError, match=words):
        made(tmp_path, prepare=prepared)
    assert "Traceback" not in capfd.readouterr().err
    assert made(tmp_path, prepare=prepared) == [0]


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("is_alone", [True, False])
def test_a_training_whose_workers_never_get_a_place_ends(
    ray_cluster: None, impatient: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_alone: bool
) -> None:
    """A worker is the process that leads its group, or one of Ray Train's."""
    asked = Groups(1, 1, {"CPU": 2}, use_gpu=False, n_threads=1, is_alone=is_alone)
    monkeypatch.setattr(training, "share", lambda *arguments: asked)
    monkeypatch.setattr(groups, "SECONDS_BETWEEN_LOOKS", 0.2)
    stage = Training(
        name="training", verb="trained", noun="adapters", units=[Unit(0, 1, ("trained/0",))],
        execution=ExecutionSpec(), recipe=adapters_recipe(ModelSpec(path="none"), LoraSpec()), work=attempt,
    )  # fmt: skip
    words = r"^training has waited 0:\d\d for a group of workers, which asks for 2 CPU: of 4 CPUs there 0 are free, no"
    with Cluster(ExecutionSpec()) as cluster, held(4), pytest.raises(TransientError, match=words):
        list(stage.make(Run.open(str(tmp_path)), stage.units, cluster))
    assert "PENDING" not in states().values()


def attempt(number: int) -> None:
    """Try."""


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_search_whose_trials_never_get_a_place_ends(ray_cluster: None, impatient: None) -> None:
    wait = Wait("the search", ExecutionSpec(), HERE)
    words = r"^the search has waited .* for a trial, which asks for 1 CPU: of 4"
    with held(4), pytest.raises(TransientError, match=words):
        list(try_all([0], Attempts(attempt, {}, 1, 1), lambda _: False, wait))
    assert list(try_all([], Attempts(attempt, {}, 1, 1), lambda _: False, wait)) == []
