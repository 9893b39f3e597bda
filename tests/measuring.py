"""Runs of a handful of rows, measured: what their marts are made of is written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from biaseval.analysis import marts
from biaseval.runs import analyse_run
from biaseval.store import Run


def measure(run: str | Path) -> None:
    """Analyse a run, but for ``results.duckdb``: a third of the time, of which most tests read nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(marts, "_results_database", _no_database)
        analyse_run(str(run))


def _no_database(run: Run, kind: str) -> bytes:
    return b""
