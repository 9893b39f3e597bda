"""Groups of workers: what is done when one is lost."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray.train import PreemptionInfo, TrainingFailedError, WorkerGroupError
from ray.train.v2.api.exceptions import PreemptionError

from biaseval.errors import BiasevalError, InputError
from biaseval.execute import workers
from biaseval.execute.resources import Groups, Resources, share
from biaseval.execute.workers import fit
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


@pytest.mark.parametrize(("failures", "left", "message", "made"), [
    ([PREEMPTED] * 5, [6, 5, 5, 5, 5, 5], r"training failed: .* run the same command again to resume", [6, 5, 5]),
    ([WorkerGroupError("", {0: ZeroDivisionError("divided")})], [6, 5], "training failed: divided", [6]),
])  # fmt: skip
def test_three_deaths_in_a_row_and_any_error_of_the_work_end_it(
    failures: Any, left: list[int], message: str, made: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(BiasevalError, match=message):
        tried(monkeypatch, tmp_path, failures, left)
    assert Trainer.made == made


def node(cpus: float = 0, gpus: float = 0) -> dict[str, float]:
    return {"CPU": cpus, "GPU": gpus}


def test_groups_share_a_cluster() -> None:
    eight, four, fives = [node(8, 4)], [node(4)], [node(5)] * 4
    for workers_of_a_group, actors, n_adapters, nodes, is_local, expected in (
        (1, "auto", 10, eight, True, (4, {"GPU": 1})),
        (2, "auto", 10, [node(8, 4), node(8, 1)], False, (2, {"GPU": 1})),
        (2, "auto", 1, eight, True, (1, {"GPU": 1})), (2, 1, 10, eight, True, (1, {"GPU": 1})),
        (1, "auto", 10, four, True, (1, {"CPU": 4})), (2, "auto", 10, four, True, (1, {"CPU": 2})),
        (2, "auto", 10, fives, False, (2, {"CPU": 5})), (4, "auto", 10, fives[:3], False, (1, {"CPU": 2})),
    ):  # fmt: skip
        resources, execution = Resources(nodes, is_local, n_cores=4), ExecutionSpec(actors=actors)
        groups = share(LoraSpec(workers=workers_of_a_group), execution, n_adapters, resources)
        assert (groups.n_groups, groups.resources_per_worker) == expected
        assert groups.use_gpu == ("GPU" in expected[1])  # fmt: skip


def test_gpus_and_cpus_that_are_missing_are_counted() -> None:
    lora = LoraSpec(workers=4)
    cluster, machine = Resources([node(16, 2)], False, 16), Resources([node(16, 4)], True, 16)
    with pytest.raises(InputError, match="4 need 4 GPUs, one each, and Ray has 2: 2 missing"):
        share(lora, ExecutionSpec(), 3, cluster)
    with pytest.raises(InputError, match=r"4 in each of 2 groups .* need 8 GPUs, one each, and Ray has 4: 4 missing"):
        share(lora, ExecutionSpec(actors=2), 3, machine)
    with pytest.raises(InputError, match=r"lora.workers: 8 need 8 CPUs, one each, and Ray has 4: 4 missing"):
        share(LoraSpec(workers=8), ExecutionSpec(), 3, Resources([node(4)], True, 4))
    # Where GPU nodes come on demand, a number says so.
    assert share(lora, ExecutionSpec(gpus_per_actor=1), 3, Resources([node(4)], False, 4)).use_gpu
    assert not share(lora, ExecutionSpec(gpus_per_actor=0), 3, machine).use_gpu
