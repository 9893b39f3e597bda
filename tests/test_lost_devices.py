"""What goes wrong on single nodes of a cluster, for a moment, ends no run: on a real Ray, with errors as they come."""

import time
from pathlib import Path
from typing import Any

import pytest

from biaseval.errors import BiasevalError, InputError
from biaseval.execute import datasets
from biaseval.execute.budget import GpuHours
from biaseval.execute.cluster import Cluster
from biaseval.execute.datasets import _may_pass
from biaseval.execute.devices import is_broken_device, refuse_unusable_gpu, unusable_gpu
from biaseval.execute.parts import Parts
from biaseval.execute.tasks import Made
from biaseval.spec import ExecutionSpec
from biaseval.store import Run
from biaseval.units import Unit, missing_units

UNITS = [Unit(number, 1, (f"files/{number}",)) for number in range(3)]
BROKEN = "CUDA error: an illegal memory access was encountered"


class TroubledWorker:
    """Finds no hub when it starts first, and loses its GPU at part 1, as often as it is told."""

    def __init__(self, run: Run, allocation: Any, *, times: int, seconds: float) -> None:
        self._run, self._times, self._seconds = run, times, seconds
        if not run.has("asked"):
            run.write_text("asked", "")
            try:
                raise ConnectionError("the hub does not answer")
            except ConnectionError as error:
                raise InputError("org/model: no usable config.json: the hub does not answer; check") from error

    def make(self, task: Any, prepared: None) -> Made:
        if task.number == 1 and len(self._run.files("broken")) < self._times:
            self._run.write_text(f"broken/{time.monotonic_ns()}", BROKEN)
            raise RuntimeError(BROKEN)
        self._run.write_text(task.files[0], "written by it")
        time.sleep(self._seconds)
        return Made({})


def made(run: Run, times: int, max_gpu_hours: float | None = None) -> list[int]:
    """Have what is missing made, and return the numbers of it."""
    stage = Parts(
        name="writing",
        verb="written",
        units=UNITS,
        execution=ExecutionSpec(actors=1, max_gpu_hours=max_gpu_hours),
        worker=TroubledWorker,
        # So long that the driver hears of a part before the last one begins.
        arguments={"times": times, "seconds": 0 if max_gpu_hours is None else 1.5},
    )
    with Cluster(ExecutionSpec()) as cluster:
        return sorted(done.unit.number for done in stage.make(run, missing_units(run, UNITS), cluster))


@pytest.mark.ray
@pytest.mark.slow
def test_a_hub_that_does_not_answer_and_a_gpu_that_breaks_once_end_nothing(tmp_path: Path, ray_cluster: None) -> None:
    run = Run.open(str(tmp_path))
    assert made(run, times=1) == [0, 1, 2]
    assert len(run.files("broken")) == 1
    assert not run.files("trouble")


@pytest.mark.ray
@pytest.mark.slow
def test_a_part_that_breaks_every_gpu_is_said_after_three(tmp_path: Path, ray_cluster: None) -> None:
    run = Run.open(str(tmp_path))
    run.write_text("asked", "")
    with pytest.raises(BiasevalError, match=f"writing failed: RuntimeError: {BROKEN}; mend this and run the same"):
        made(run, times=9)
    assert len(run.files("broken")) == 3
    assert not run.files("trouble")


@pytest.mark.ray
@pytest.mark.slow
def test_gpu_hours_that_are_used_up_end_a_run_after_a_part_and_more_of_them_resume_it(
    tmp_path: Path, ray_cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if each actor had a GPU."""
    monkeypatch.setattr(datasets, "GpuHours", lambda run, most, n_gpus: GpuHours(run, most, 1))
    run = Run.open(str(tmp_path))
    run.write_text("asked", "")
    with pytest.raises(BiasevalError, match=r"max_gpu_hours: 1e-09 are used up \(.*\) before all is made; raise it"):
        made(run, times=0, max_gpu_hours=1e-9)
    there = set(run.files("files"))
    assert 1 <= len(there) < 3
    assert not run.has("halt")
    assert run.read_json("environment.json")["gpu_hours"] >= 0
    # What earlier sittings took counts: nothing is begun.
    run.write_json("environment.json", {"gpu_hours": 2.0})
    with pytest.raises(BiasevalError, match=r"max_gpu_hours: 1 are used up \(2\)"):
        made(run, times=0, max_gpu_hours=1.0)
    assert set(run.files("files")) == there
    assert made(run, times=0, max_gpu_hours=3.0) == [n for n in range(3) if f"files/{n}" not in there]


def test_a_device_is_broken_by_errors_other_than_of_memory() -> None:
    assert is_broken_device(RuntimeError(BROKEN))
    for text in ("CUDA error: out of memory", "CUDA out of memory. Tried to allocate 2 GiB", "size mismatch"):
        assert not is_broken_device(RuntimeError(text))
    assert not is_broken_device(ValueError(BROKEN))


def test_only_what_comes_from_outside_is_tried_again() -> None:
    for cause, is_expected in (
        (TimeoutError("read timed out"), True),
        (FileNotFoundError("config.json"), False),
        (PermissionError("gated"), False),
        (ValueError("not JSON"), False),
        (None, False),
    ):
        error = InputError("org/model: no usable config.json")
        error.__cause__ = cause
        assert _may_pass(error) is is_expected
    assert _may_pass(OSError("AWS Error SLOW_DOWN during GetObject operation"))


def test_a_gpu_that_torch_cannot_use_is_named_with_its_node_and_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.version.cuda", "12.8")
    refuse_unusable_gpu(0)
    with pytest.raises(InputError, match=r"a GPU of the node [\d.]+, .* with CUDA 12\.8, cannot use; give it"):
        refuse_unusable_gpu(0.25)
    assert "built for CPUs alone, cannot use; install a build with CUDA on it" in unusable_gpu("10.0.0.7", "2.9", None)


def test_gpu_hours_without_a_gpu_are_said_once_to_be_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run.open(str(tmp_path))
    for most, n_gpus in ((None, 0), (2.0, 1), (2.0, 0), (2.0, 0)):
        GpuHours(run, most, n_gpus)
    assert capsys.readouterr().err == "no GPU is used: execution.max_gpu_hours counts nothing\n"
