"""Writes to an object store that are interrupted at any moment leave the whole object or none."""

from __future__ import annotations

import random
import signal
import threading
import time
from statistics import median
from types import FrameType

import pyarrow as pa
import pytest

from biaseval.store import Run
from biaseval.units import Unit, missing_units

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
