"""Writes to an object store that are interrupted at any moment leave the whole object or none."""

import random
import re
import signal
import threading
import time
from pathlib import Path
from statistics import median
from types import FrameType

import pyarrow as pa
import pytest

from biaseval import store
from biaseval.errors import BiasevalError, InputError
from biaseval.execute import datasets
from biaseval.runs import run_status
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


def test_a_bucket_that_does_not_exist_is_said_at_once(object_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "PAUSES_S", (600.0,))
    run = Run.open("s3://nowhere/run")
    with pytest.raises(InputError, match=r"cannot be written \(its bucket does not exist; make it, or mend its name\)"):
        run.create()
    with pytest.raises(InputError, match="s3://nowhere: this bucket does not exist"):
        run_status(run.uri)  # which --watch would ask again and again, were it thought to be out of reach
    assert not datasets._may_pass(OSError("AWS Error NO_SUCH_BUCKET during GetObject operation"))
