"""How a driver fares with many parts and many actors that have no model: parts a second, and its memory."""

import os
import resource
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from biaseval.environment import describe_environment
from biaseval.execute.parts import Parts
from biaseval.execute.resources import Allocation
from biaseval.execute.tasks import Made, Task
from biaseval.pipelines.run import make_missing
from biaseval.spec import ExecutionSpec
from biaseval.store import Run, part_name
from biaseval.units import Done, Unit

_PROMPTS_OF_A_PART = 3_300


class StubWorker:
    """Makes a part without having computed it."""

    def __init__(self, run: Run, allocation: Allocation) -> None:
        pass

    def make(self, task: Task, prepared: Any) -> Made:
        """Return the files of a part."""
        return Made({name: pa.table({"part": [task.number]}) for name in task.files})


@dataclass
class Watch:
    """When the first part came."""

    started_s: float
    first_s: float = 0.0

    def add(self, done: Done) -> None:
        """Hear of a finished part."""
        self.first_s = self.first_s or time.monotonic() - self.started_s

    def close(self) -> None:
        """Hear that the sitting ends."""


@dataclass(frozen=True)
class Record:
    """One number of parts and actors: a row of the table."""

    n_parts: int
    n_actors: int
    first_s: float
    """Until the first part came: Ray and the first actor started."""
    seconds: float
    """Until the last came."""
    parts_per_s: float
    """Behind the first; the other actors start meanwhile."""
    driver_mib: float
    """What the driver's process holds at most."""
    driver_more_mib: float
    """Of it, what came since before Ray started."""
    load: float
    """Processes that wanted a core when it began, on average over a minute."""


def benchmark(run_uri: str, n_parts: int, n_actors: int) -> dict[str, Any]:
    """Have parts made that cost nothing, in a new run directory on a Ray of this machine; return the record.

    Raises:
        BiasevalError: Ray failed.
    """
    run = Run.open(run_uri)
    run.create()
    load, before, watch = os.getloadavg()[0], _peak_mib(), Watch(time.monotonic())
    execution = ExecutionSpec(actors=n_actors, gpus_per_actor=0)
    stage = Parts(
        name="making parts",
        verb="made",
        units=units(n_parts),
        execution=execution,
        worker=StubWorker,
        recorder=lambda _: watch,
    )
    with _without_address():
        make_missing(run, [stage], execution)
    seconds = time.monotonic() - watch.started_s
    rate = (n_parts - 1) / max(seconds - watch.first_s, 1e-9)
    peak = _peak_mib()
    record = Record(n_parts, n_actors, watch.first_s, seconds, rate, peak, peak - before, load)
    return {"records": [asdict(record)], "environment": describe_environment()}


def units(n_parts: int) -> list[Unit]:
    """Return units as those of scoring are."""
    return [
        Unit(
            part,
            _PROMPTS_OF_A_PART,
            (f"label_scores/{part_name(part)}",),
            {"part": part, "contexts_part": part // 4, "n_prompts": _PROMPTS_OF_A_PART, "tokens": 300_000},
        )
        for part in range(n_parts)
    ]


def markdown(reports: Sequence[Mapping[str, Any]]) -> str:
    """Return the records as a table."""
    names = ("parts", "actors", "first part, s", "all, s", "parts/s", "driver, MiB", "of it more, MiB", "load before")
    rows = [
        f"| {row['n_parts']:,} | {row['n_actors']} | {row['first_s']:.1f} | {row['seconds']:.1f} | "
        f"{row['parts_per_s']:.0f} | {row['driver_mib']:.0f} | {row['driver_more_mib']:.0f} | {row['load']:.1f} |"
        for report in reports
        for row in report["records"]
    ]
    return "\n".join([f"| {' | '.join(names)} |", "|---" * len(names) + "|", *rows])


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << (20 if sys.platform == "darwin" else 10))


@contextmanager
def _without_address() -> Iterator[None]:
    """Have a Ray of this machine, whatever cluster the environment names."""
    address = os.environ.pop("RAY_ADDRESS", None)
    try:
        yield
    finally:
        if address is not None:
            os.environ["RAY_ADDRESS"] = address
