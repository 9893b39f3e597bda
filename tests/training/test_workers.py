"""Groups of workers: what is done when one is lost, and what is said while they wait."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.train import PreemptionInfo, TrainingFailedError, WorkerGroupError
from ray.train.v2.api.exceptions import PreemptionError
from ray.util.placement_group import placement_group, remove_placement_group

from biaseval.errors import BiasevalError
from biaseval.execute import workers
from biaseval.execute.workers import Groups, Wait, fit, share
from biaseval.spec import ExecutionSpec, LoraSpec
from biaseval.store import Run

ONE = Groups(1, 1, {"CPU": 1}, use_gpu=False, n_threads=1)
PREEMPTED = PreemptionError(PreemptionInfo(deadline_ms=None, preempted_node_to_ranks={"node": [0]}))


class Trainer:
    """Stands for Ray Train's trainer: it fails as it is told to."""

    failures: Iterator[TrainingFailedError | None]
    made: list[Any]

    def __init__(self, work: Any, *, run_config: Any, train_loop_config: Any, **_: Any) -> None:
        assert run_config.failure_config.max_failures == 0
        assert run_config.failure_config.max_preemption_failures == 0
        self.made.append(train_loop_config["left"])

    def fit(self) -> Any:
        failure = next(self.failures)
        if failure is not None:
            raise failure
        return type("Result", (), {"return_value": "done"})


def tried(
    monkeypatch: pytest.MonkeyPatch, folder: Path, failures: list[TrainingFailedError | None], left: list[int]
) -> list[int]:
    """Return what was left to do at each attempt."""
    monkeypatch.setattr(workers, "TorchTrainer", Trainer)
    Trainer.failures, Trainer.made = iter(failures), []
    states = iter(left)
    assert fit(Run.open(str(folder)), lambda _: None, lambda: {"left": next(states)}, "lora", ONE) == "done"
    return Trainer.made


def test_any_number_of_nodes_may_go_while_something_is_done_in_between(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = tried(monkeypatch, tmp_path, [PREEMPTED] * 5 + [None], [6, 5, 4, 3, 2, 1])
    assert made == [6, 5, 4, 3, 2, 1]


def test_three_deaths_in_a_row_are_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(BiasevalError, match=r"training failed: .* run the same command again to resume"):
        tried(monkeypatch, tmp_path, [PREEMPTED] * 5, [6, 5, 5, 5, 5, 5])
    assert Trainer.made == [6, 5, 5]


def test_an_error_of_the_work_is_not_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(BiasevalError, match="training failed: divided"):
        tried(monkeypatch, tmp_path, [WorkerGroupError("", {0: ZeroDivisionError("divided")})], [6, 5])
    assert Trainer.made == [6]


def test_a_cluster_without_gpus_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    nodes = [{"CPU": 4.0}]
    for execution, is_local in ((ExecutionSpec(), True), (ExecutionSpec(gpus_per_actor=0), False)):
        share(LoraSpec(), execution, 1, nodes, is_local=is_local)
        assert not caplog.records
    share(LoraSpec(), ExecutionSpec(), 1, nodes, is_local=False)
    assert "training on CPUs: the cluster shows no GPU" in caplog.text


@pytest.mark.ray
def test_who_waits_for_workers_is_told_once(
    ray_cluster: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(workers, "_LONG", 0.0)
    asked = Groups(1, 2, {"GPU": 1}, use_gpu=True, n_threads=None)
    there, missing = placement_group([{"CPU": 0.01}]), placement_group([{"GPU": 1}] * 2)
    try:
        ray.get(there.ready(), timeout=60)
        Wait(Groups(1, 1, {"CPU": 0.01}, use_gpu=False, n_threads=1)).look(1)
        assert not caplog.records
        wait = Wait(asked)
        wait.look(1)
        wait.look(1)
    finally:
        remove_placement_group(there)
        remove_placement_group(missing)
    messages = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert messages == ["waiting for workers: a group asks for 2 GPU, and the cluster has 0 GPU free"]
