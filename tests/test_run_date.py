"""What a run says of when and of which code it is: its day, written once, and the commit."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from biaseval.environment import COMMIT, amend_environment, date_of, describe_environment
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


def test_a_commit_can_be_named_where_the_code_is_no_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMMIT, "abc123")
    assert describe_environment()["git_commit"] == "abc123"
    monkeypatch.delenv(COMMIT)
    monkeypatch.setattr("biaseval.environment.__file__", "/nowhere/biaseval/environment.py")
    assert describe_environment()["git_commit"] is None
