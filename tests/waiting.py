"""A scorer that waits to be killed, at a part of its own, so that no test depends on how fast a machine is.

The files by which it says so hold the id of its node, if it has one.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray

from biaseval.execute.tasks import Made
from biaseval.pipelines.labels.label_scores import LabelScoresWorker
from biaseval.store import Run

MARKERS = ("first", "second")
N_BEFORE = 2
"""Parts that are made before each wait."""


class WaitingWorker(LabelScoresWorker):
    """Waits for ever when two parts are complete, and again when four are; a file beside the run says that it does.

    Where the file is there already, nothing happens: whoever comes next goes on.
    """

    def __init__(self, run: Run, allocation: Any, **arguments: Any) -> None:
        super().__init__(run, allocation, **arguments)
        self._folder = Path(run.uri).parent

    def make(self, task: Any, prepared: Any) -> Made:
        n_made = len(self._run.parts("label_scores"))
        for number, marker in enumerate(MARKERS, start=1):
            if n_made >= number * N_BEFORE and not (self._folder / marker).exists():
                say_and_wait(self._folder / marker)
        return super().make(task, prepared)


def waiting_adapter(run: Run, unit: Mapping[str, Any], base: Any, **arguments: Any) -> Any:
    """Return `train_adapter`, which waits for ever before the second step of the first adapter, once."""
    from biaseval.pipelines.labels.adapters import train_adapter
    from tests.training.interruptions import Interrupted

    work, marker = train_adapter(run, unit, base, **arguments), Path(run.uri).parent / MARKERS[0]
    if unit["part"] or marker.exists():
        return work
    return replace(work, objective=Interrupted(work.objective, 1, lambda share: say_and_wait(marker)))


def say_and_wait(marker: Path) -> None:
    """Make a file, and wait for ever."""
    incomplete = marker.with_suffix(".incomplete")
    incomplete.write_text(ray.get_runtime_context().get_node_id() if ray.is_initialized() else "")
    incomplete.rename(marker)
    time.sleep(3600)


def waiting_command(what: Any) -> None:
    """Run ``biaseval`` with a worker, or a training of an adapter, that waits."""
    from biaseval.cli import main
    from biaseval.pipelines.labels import adapters, label_scores

    if what is waiting_adapter:
        adapters.train_adapter = what
    else:
        label_scores.LabelScoresWorker = what  # type: ignore[misc]
    main()
