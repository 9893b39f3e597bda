"""How questions are cut into windows: part by part, as a run's worker does, in a process of its own."""

import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa

from biaseval.execute.resources import Allocation
from biaseval.execute.tasks import Task
from biaseval.pipelines.qa.training_stages import FeaturesWorker
from biaseval.spec import QaBaseSpec, WindowsSpec
from biaseval.store import Run, part_name
from tests.bench.training.settings import Settings

_N_FIRST = 20
"""Parts behind which the memory of cutting is looked at first."""
_MIB = 2**20


@dataclass(frozen=True)
class Cut:
    """How questions were cut into windows, in a process of its own."""

    n_questions: int
    n_parts: int
    n_windows: int
    seconds: float
    first_parts: int
    begun_mib: float
    """The highest resident memory of the process before the first part."""
    first_mib: float
    """Behind the first parts."""
    peak_mib: float
    """Behind the last."""


def write_parts(run: Run, questions: pa.Table, settings: Settings) -> int:
    """Write as many questions as are asked for, again and again the given ones; return the number of parts."""
    starts = range(0, settings.n_questions, settings.part_questions)
    place = questions.schema.get_field_index("example_id")
    for part, start in enumerate(starts):
        numbers = np.arange(start, min(start + settings.part_questions, settings.n_questions))
        rows = questions.take(pa.array(numbers % questions.num_rows))
        rows = rows.set_column(place, "example_id", pa.array([f"q{number}" for number in numbers]))
        run.write_part("qa_training_examples", part, rows)
    return len(starts)


def cut_parts(run: Run, base: Path, n_parts: int, settings: Settings) -> Cut:
    """Cut all parts as a run's worker does, in a new process, so that what it holds is all there is."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        asked = process.submit(_cut, run.uri, str(base), n_parts, settings.windows)
        seconds, peaks = asked.result()
    first = min(_N_FIRST, n_parts)
    n_windows = sum(run.read_part("qa_features", part).num_rows for part in range(n_parts))
    return Cut(settings.n_questions, n_parts, n_windows, seconds, first, peaks[0], peaks[first], peaks[-1])


def _cut(uri: str, base: str, n_parts: int, windows: WindowsSpec) -> tuple[float, list[float]]:
    """Return the seconds of all parts, and the highest memory before them and behind each."""
    bases = {"base": QaBaseSpec(name="base", path=base)}
    alone = Allocation(n_actors=1, num_cpus=1, num_gpus=0, n_threads=None, n_preparing=1)
    sizes = {"max_tokens": windows.max_tokens, "stride": windows.stride}
    run = Run.open(uri)
    worker = FeaturesWorker(run, alone, bases=bases, **sizes)
    peaks = [_highest_mib()]
    started = time.perf_counter()
    for part in range(n_parts):
        task = Task(part, {"base": "base", "part": part}, (f"qa_features/{part_name(part)}",))
        worker.make(task, None).write(run)
        peaks.append(_highest_mib())
    return time.perf_counter() - started, peaks


def _highest_mib() -> float:
    """Return the highest resident memory of this process so far."""
    try:
        [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) / 1024
    except (OSError, ValueError):
        import resource

        # Of a new process Linux counts what its parent had, which is why this comes second; macOS counts bytes.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _MIB
