"""What disturbs a study: a process that dies, files that are lost, logits from elsewhere."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from biaseval.execute import groups
from biaseval.runs import run_status
from biaseval.runs.status import UnderWay
from biaseval.store import Run
from biaseval.training.loop import StepRecord
from biaseval.units import Unit


class KilledError(Exception):
    """Stands for the death of a process."""


class DyingSaying(groups._Saying):
    """Dies behind some of the steps that it says, and notes what is known of them then."""

    def __init__(self, run: Run, unit: Unit, n_planned: int, behind: Iterator[int], heard: list[UnderWay]) -> None:
        super().__init__(run, unit, n_planned)
        self._behind, self._heard = behind, heard

    def __call__(self, record: StepRecord) -> None:
        super().__call__(record)
        if next(self._behind) == 0:
            self._heard += run_status(self._run.uri).under_way
            raise KilledError


def written(run_dir: Path) -> dict[str, int]:
    """Return when the files of what is trained and answered were written."""
    return {
        str(path.relative_to(run_dir)): path.stat().st_mtime_ns
        for name in ("models", "trained_models", "qa_segments", "qa_guide_logits", "qa_predictions")
        for path in (run_dir / name).rglob("*.*")
        if path.is_file()
    }


def logits_file(path: Path, run_dir: Path, change: Callable[[pa.Table], pa.Table] = lambda table: table) -> Path:
    """Write the logits of a run's bias model as a file from elsewhere."""
    guides = Run.open(str(run_dir)).read_table("qa_guide_logits")
    own = guides.filter(pc.equal(guides["guide"], "bert+bias_model"))
    pq.write_table(change(own.select(["example_id", "window", "start_logits", "end_logits"])), path)
    return path
