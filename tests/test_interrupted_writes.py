"""Interrupted writes, and devices that are lost."""

import random
import re
import signal
import threading
import time
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

from biaseval import store
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
from tests.buckets import s3_server

N_INTERRUPTED = 60
ROWS = pa.table({"number": list(range(500))})


class Interrupted(BaseException):
    """What a signal raises wherever Python is, as SystemExit in a worker that is asked to end."""


def interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted


def seconds_of(run: Run, number: int) -> float:
    started = time.perf_counter()
    run.write_part("warm", number, ROWS)
    return time.perf_counter() - started


def wait_for(thread: threading.Thread) -> None:
    """Wait for a thread whose start may have been interrupted, too: such a one starts at once, or never."""
    for _ in range(1000):
        if thread.ident is not None:
            thread.join()
            return
        time.sleep(0.001)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupted_write_publishes_no_part_of_a_file(object_store: str) -> None:
    """An interruption that falls into a weak reference's callback is swallowed by Python; the next one counts."""
    run = Run.open(f"{object_store}/interrupted")
    usual_s = median(seconds_of(run, number) for number in range(7))
    chance = random.Random(0)
    written, n_interrupted = 0, 0
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        while n_interrupted < N_INTERRUPTED:
            try:
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.01, 1) * usual_s)
                run.write_part("label_scores", written, ROWS)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Interrupted:
                n_interrupted += 1
            written += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    for thread in threading.enumerate():
        if thread.name == "biaseval-write":
            wait_for(thread)
    for number in run.parts("label_scores"):
        assert run.read_part("label_scores", number).equals(ROWS), number
    sizes = {info.base_name: info.size for info in run.fs.get_file_info(pa.fs.FileSelector(run.path("label_scores")))}
    assert min(sizes.values()) == max(sizes.values()), sizes


@pytest.mark.parametrize("content", [b"", b"PAR1"])
def test_what_is_too_short_for_a_part_is_missing(content: bytes, object_store: str) -> None:
    """An older version may have left an empty object under a final name."""
    run = Run.open(f"{object_store}/short{len(content)}")
    units = [Unit(number, 1, (f"label_scores/part-{number:05d}.parquet",)) for number in range(2)]
    run.write_part("label_scores", 0, ROWS)
    run.write_bytes(units[1].files[0], content)
    assert run.parts("label_scores") == {0}
    assert missing_units(run, units) == [units[1]]


class Silence:
    """A store that does not answer the first requests to write."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *errors: str) -> None:
        self._errors, self._put, self.n_asked = list(errors), Run._put, 0
        monkeypatch.setattr(Run, "_put", lambda run, path, data: self._answer(run, path, data))
        monkeypatch.setattr(store, "PAUSES_S", (0.0, 0.0))

    def _answer(self, run: Run, path: str, data: bytes) -> None:
        self.n_asked += 1
        if self._errors:
            raise OSError(f"When writing: AWS Error {self._errors.pop(0)} during PutObject operation")
        self._put(run, path, data)


def test_a_store_that_does_not_answer_is_asked_again_and_not_for_ever(
    object_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run.open(f"{object_store}/silent")
    silence = Silence(monkeypatch, "SLOW_DOWN", "NETWORK_CONNECTION")
    run.write_text("name", "content")
    assert (silence.n_asked, run.read_text("name")) == (3, "content")
    monkeypatch.undo()
    for errors, n_asked in ((["ACCESS_DENIED"], 1), (["SLOW_DOWN"] * 3, 3)):
        with monkeypatch.context() as patch:
            silence = Silence(patch, *errors)
            with pytest.raises(BiasevalError, match=f"name: cannot be written .*{errors[-1]}.*complete parts are kept"):
                run.write_text("name", "content")
        assert silence.n_asked == n_asked


def test_a_part_is_written_by_one_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server notes what it is asked."""
    log = tmp_path / "log"
    with log.open("w") as file, s3_server(log=file) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        run = Run.open("s3://bias/counted")
        before = len(log.read_text())
        run.write_part("label_scores", 0, ROWS)
        asked = re.findall(r'"(PUT|POST|GET|HEAD) ', log.read_text()[before:])
        assert asked == ["PUT"]
        assert run.read_part("label_scores", 0).equals(ROWS)


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
def test_a_part_that_breaks_every_gpu_fails_after_three(tmp_path: Path, ray_cluster: None) -> None:
    run = Run.open(str(tmp_path))
    run.write_text("asked", "")
    assert made(run, times=9) == [0, 1, 2]
    assert run.files("files") == {"files/0", "files/2"}
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
        assert _may_pass(error) is is_expected  # fmt: skip
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
