"""The day of a run: written once, when it is first planned."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from biaseval.environment import amend_environment, date_of
from biaseval.store import Run


def test_a_run_keeps_the_day_on_which_it_was_first_planned(tmp_path: Path) -> None:
    run = Run.open(str(tmp_path / "run"))
    run.create()
    days = [datetime.now(UTC).date().isoformat()]
    found = date_of(run)
    days.append(datetime.now(UTC).date().isoformat())  # where midnight has passed
    assert found in days
    amend_environment(run, date="2024-02-29")
    assert date_of(run) == "2024-02-29"
