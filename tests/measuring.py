"""Runs of a handful of rows, measured: what their marts are made of is written by hand."""

from pathlib import Path

import pytest

from biaseval.analysis import marts
from biaseval.analysis.queries import stored_kind
from biaseval.runs import report_run


def measure(run: str | Path, *, has_checks: bool = True, has_database: bool = False) -> None:
    """Analyse a run, without what people open: half of the time, of which most tests read nothing.

    Args:
        run: its directory.
        has_checks: without them, of a run whose page alone is read, it takes less.
        has_database: write ``results.duckdb``, too.
    """
    with pytest.MonkeyPatch.context() as patch:
        if not has_checks:
            patch.setattr(marts, "_check", _no_check)
        done = report_run(str(run), page=False)
    if has_database:
        done.write_bytes("results.duckdb", marts.results_database(done, stored_kind(done)))


def _no_check(*given: object) -> None:
    """Find nothing."""
