"""Logs and dates of runs."""

import logging
import re
from pathlib import Path

import pytest

from biaseval.digests import kept
from biaseval.environment import COMMIT, FILE, describe_environment
from biaseval.errors import BiasevalError, InputError
from biaseval.pipelines.log import logged
from biaseval.progress import say
from biaseval.store import LOGS, Run


def _sitting(run: Run, text: str, error: BaseException | None = None) -> None:
    with kept(run) as held, logged(held):
        held.write_json(FILE, {"versions": {}})
        say(text)
        logging.getLogger("biaseval.execute").warning("few %s", "cores")
        if error is not None:
            raise error


@pytest.mark.parametrize("is_local", [True, False])
def test_each_sitting_has_a_file_of_what_it_says(is_local: bool, tmp_path: Path, object_store: str) -> None:
    run = Run.open(str(tmp_path / "run") if is_local else f"{object_store}/logged")
    run.create()
    _sitting(run, "one")
    with pytest.raises(BiasevalError):
        _sitting(run, "two", BiasevalError("no room"))
    say("nobody hears this")
    files = sorted(run.listed(LOGS))
    assert len(files) == 2
    lines = [line for file in files for line in run.read_text(file).splitlines()]
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ", line) for line in lines)
    own = [line.partition(" ")[2] for line in lines]
    said = ["one", "warning: few cores", "ends", "two", "warning: few cores", "error: no room"]
    assert sorted(line for line in own if not line.startswith("begins: ")) == sorted(said)
    assert re.fullmatch(r"begins: .+ \(biaseval [\w.]+\)", own[0])


def test_warnings_are_still_printed_and_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial of a search is a run within a run; pytest's own handlers would print for it."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    runs = [Run.open(str(tmp_path / name)) for name in ("search", "trial")]
    for run in runs:
        run.create()
    with kept(runs[0]) as held, logged(held):
        held.write_json(FILE, {"versions": {}})
        _sitting(runs[1], "one")
    assert capsys.readouterr().err.count("few cores") == 1


def test_a_directory_that_became_no_run_has_no_log(tmp_path: Path) -> None:
    run = Run.open(str(tmp_path / "run"))
    run.create()

    def plan() -> None:
        with kept(run) as held, logged(held):
            say("planning")
            raise InputError("bad")

    with pytest.raises(InputError):
        plan()
    assert not run.has(LOGS)


def test_logs_of_others_are_not_taken_for_those_of_a_run(tmp_path: Path) -> None:
    run = Run.open(str(tmp_path))
    run.write_text(f"{LOGS}/2026-11-29T200000Z-0f3a.log", "")
    assert run.leftovers() == {LOGS}
    run.write_text(f"{LOGS}/slurm-1.out", "done")
    assert run.leftovers() == set()


def test_a_commit_can_be_named_where_the_code_is_no_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMMIT, "abc123")
    assert describe_environment()["git_commit"] == "abc123"
    monkeypatch.delenv(COMMIT)
    monkeypatch.setattr("biaseval.environment.__file__", "/nowhere/biaseval/environment.py")
    assert describe_environment()["git_commit"] is None
