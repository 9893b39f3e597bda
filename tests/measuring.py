"""Runs of a handful of rows, measured: what their marts are made of is written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from biaseval.analysis import marts
from biaseval.runs import analyse_run
from biaseval.store import Run


def measure(run: str | Path, *, has_checks: bool = True) -> None:
    """Analyse a run, but for ``results.duckdb``: a third of the time, of which most tests read nothing.

    Args:
        run: its directory.
        has_checks: without them, of a run whose page alone is read, it takes less.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(marts, "_results_database", _no_database)
        if not has_checks:
            patch.setattr(marts, "_check", _no_check)
        analyse_run(str(run))


def _no_database(run: Run, kind: str) -> bytes:
    return b""


def _no_check(*given: object) -> None:
    """Find nothing."""
