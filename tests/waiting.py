"""A scorer that waits to be killed, at a part of its own, so that no test depends on how fast a machine is."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from biaseval.pipelines.label_scores import LabelScoresWorker
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

    def make(self, task: Any, prepared: Any) -> Mapping[str, Any]:
        n_made = len(self._run.parts("label_scores"))
        for number, marker in enumerate(MARKERS, start=1):
            if n_made >= number * N_BEFORE and not (self._folder / marker).exists():
                (self._folder / marker).touch()
                time.sleep(3600)
        return super().make(task, prepared)


def waiting_command() -> None:
    """Run ``biaseval`` with a `WaitingWorker`."""
    from biaseval.cli import main
    from biaseval.pipelines import label_scores

    label_scores.LabelScoresWorker = WaitingWorker  # type: ignore[misc]
    main()
