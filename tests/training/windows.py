"""Groups of Ray Train, of which one stays where it has its place and its controller has told nobody of it.

Its modules are imported by every process of a group: torch is not among them.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

from ray.train.v2._internal.execution.callback import WorkerGroupCallback
from ray.train.v2._internal.execution.worker_group.placement_group_handle import DefaultPlacementGroupHandle

from biaseval.execute.messages import Queue

_CALLBACKS, _FOLDER = "RAY_TRAIN_CALLBACKS", "BIASEVAL_TEST_WINDOW"


class Window(WorkerGroupCallback):
    """Lets the first group pass; every other one stays for ever between the place it got and what registers it."""

    def __init__(self) -> None:
        self._folder = Path(os.environ[_FOLDER])

    def before_worker_group_start(self, worker_group_context: Any) -> None:
        folder, wait = self._folder, DefaultPlacementGroupHandle.wait

        def staying(self: DefaultPlacementGroupHandle, timeout_seconds: float = 30) -> bool:
            is_ready = wait(self, timeout_seconds)
            if is_ready:
                try:
                    (folder / "first").mkdir()
                except FileExistsError:
                    (folder / "window").touch()
                    time.sleep(3600)
            return is_ready

        DefaultPlacementGroupHandle.wait = staying  # type: ignore[method-assign]  # of this process, the controller's


def patient(folder: Path) -> type[Queue]:
    """Return a queue that is over when a group stays in the window: before, none of those that wait is ended."""

    class Patient(Queue):
        def is_over(self, *, is_halted: bool) -> bool:
            return super().is_over(is_halted=is_halted) and (folder / "window").exists()

    return Patient


def lead(job: Any, queue: Any, group: int) -> None:
    """Lead a group, with the window beside the run directory."""
    from biaseval.execute import groups

    os.environ |= {_CALLBACKS: f"{__name__}.{Window.__name__}", _FOLDER: str(Path(job.run_uri).parent)}
    try:
        groups.lead._function(job, queue, group)
    finally:
        del os.environ[_CALLBACKS], os.environ[_FOLDER]


def light_lead(job: Any, queue: Any, group: int) -> None:
    """Lead a group that has next to nothing to do, and no torch to do it with."""
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    from biaseval.execute import groups, workers

    before = groups._train, workers.TorchTrainer

    def trainer(work: Any, torch_config: Any, **how: Any) -> Any:
        return DataParallelTrainer(work, **how)

    groups._train, workers.TorchTrainer = said_to_be_trained, trainer  # type: ignore[misc]
    try:
        lead(job, queue, group)
    finally:
        groups._train, workers.TorchTrainer = before  # type: ignore[misc]


def said_to_be_trained(config: dict[str, Any]) -> None:
    """Write the file of each unit, and that it is trained."""
    import ray

    from biaseval.execute.messages import outcome_file
    from biaseval.store import Run

    run, facts = Run.open(config["job"].run_uri), {"first_step": 0, "n_steps": 1, "seconds": 0.1, "step_seconds": 0.1}
    while (unit := ray.get(config["queue"].take.remote(config["group"]))) is not None:
        if unit.work.get("waits"):
            time.sleep(3600)
        run.write_text(unit.files[-1], "trained")
        run.write_text(outcome_file(unit), json.dumps({**facts, "problem": None, "is_complete": True, "versions": {}}))


def no_work(*arguments: Any) -> None:
    """Stand for what trains a unit."""
