"""The suite of kills: a few real rounds, and runs with a lost row or a unit made twice, which its oracle must find."""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from biaseval.store import Run
from tests.processes import ROOT, own_ray, wait_until
from tests.validation.soak import oracle, table
from tests.validation.soak.__main__ import _state
from tests.validation.soak.behind_ray import _processes
from tests.validation.soak.kinds import KINDS, RUN, prepare
from tests.validation.soak.points import FAULTS, POINTS
from tests.validation.soak.rounds import CODES, wrong
from tests.validation.soak.server import Ended

ROWS = pa.table({"number": [1, 2, 3], "seconds": [0.1, 0.2, 0.3]})


@pytest.mark.slow
def test_a_few_kills_hit_lose_nothing_and_are_not_made_again(tmp_path: Path) -> None:
    """Every function that the suite wraps is wrapped here: one that has another name ends the command."""
    out = tmp_path / "soak.json"
    command = [sys.executable, "-m", "tests.validation.soak", "--only", "instruct", "--disk", "--out", str(out)]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'platform'}"}
    done = subprocess.run(
        [*command, "--kills", "3", "--behind-ray", "0"],
        env=environment, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    rounds = json.loads(out.read_text())["rounds"]
    assert [own["number"] for own in rounds] == list(range(len(rounds)))
    assert sum(strike["hit"] for own in rounds for strike in own["strikes"]) >= 3
    assert table.problems(rounds) == ""
    assert table.table(rounds) in done.stdout


def addresses(process: psutil.Process) -> set[str]:
    """Return where a process and those below it listen."""
    found: set[str] = set()
    for one in [process, *process.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            ports = [port for port in one.net_connections("tcp") if port.status == psutil.CONN_LISTEN]
            found |= {port.laddr.ip for port in ports}
    return found


LONG = ("max_steps=9999", "epochs=999", "evaluation_steps=9999", "accumulation=2", "workers=2")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kind", "changes", "code"), [("search", (), 1), ("readers", LONG, 143)])
def test_a_search_whose_agent_of_ray_dies_and_a_stopped_training_end_with_a_word(
    kind: str, changes: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    given = KINDS[kind].arguments(prepare(kind, tmp_path / "inputs"), is_on_ray=True)
    command = [sys.executable, "-m", "biaseval", *(one.replace(RUN, str(tmp_path / "run")) for one in given)]
    command += [word for change in changes for word in ("--set", f"train.{change}")]
    said = tmp_path / "said"
    with own_ray() as place, said.open("w") as file:
        process = psutil.Popen(command, env={**os.environ, **place}, stdout=file, stderr=file)
        try:
            is_search = kind == "search"
            works = ("ray::", "ImplicitFunc" if is_search else "TrainWorker")
            wait_until(lambda: is_search or "step 1 of" in said.read_text(), process)
            wait_until(lambda: bool(_processes(process, works)), process, pause=0.5)
            assert addresses(process).isdisjoint({"0.0.0.0", "::"})
            [ended] = _processes(process, ("runtime_env", "agent")) if is_search else [process]
            ended.send_signal(signal.SIGKILL if is_search else signal.SIGTERM)
            assert process.wait(120) == code
        finally:
            for one in psutil.process_iter():
                with contextlib.suppress(psutil.Error):
                    if one.environ().get("RAY_TMPDIR") == place["RAY_TMPDIR"]:
                        one.kill()
    assert wrong(Ended(code, said.read_text(), 0.0), {code}) == []


def test_another_seed_does_not_go_on_in_the_same_file(tmp_path: Path) -> None:
    out = tmp_path / "soak.json"
    out.write_text(json.dumps({"rounds": [], "seed": 1, "only": ""}))
    with pytest.raises(SystemExit, match="is of another seed or other kinds; name another file"):
        _state(argparse.Namespace(out=out, seed=2, only=""), "here")


def run_of(folder: Path, rows: pa.Table = ROWS) -> Run:
    run = Run.open(str(folder))
    run.write_part("label_scores", 0, rows)
    run.write_text("plan.json", "{}")
    return run


def test_a_lost_row_and_a_lost_file_are_found(tmp_path: Path) -> None:
    wanted = oracle.contents(run_of(tmp_path / "undisturbed"))
    other_times = ROWS.set_column(1, "seconds", pa.array([7.0, 8.0, 9.0]))
    assert oracle.lost(oracle.contents(run_of(tmp_path / "same", other_times)), wanted) == []
    for name, rows in (("row", ROWS.slice(1)), ("value", ROWS.set_column(0, "number", pa.array([1, 2, 4])))):
        found = oracle.contents(run_of(tmp_path / name, rows))
        assert oracle.lost(found, wanted) == ["label_scores/part-00000.parquet differs"]
    run = run_of(tmp_path / "files")
    run.delete("plan.json")
    assert oracle.lost(oracle.contents(run), wanted) == ["plan.json is missing"]


def test_a_unit_that_is_made_twice_is_found() -> None:
    units = {"one": ["a/1", "b/1"], "two": ["a/2"]}
    assert oracle.twice(["a/1", "a/1", "b/1", "a/2"], units) == []
    assert oracle.twice(["a/1", "b/1", "a/2", "b/1"], units) == ["one"]
    assert oracle.twice(["a/2"], units, there=["a/2"]) == ["two"]


@pytest.mark.parametrize(("fault", "code", "said", "expected"), [
    ("kill", -9, "", []), ("kill", 0, "", ["exit code 0 where -9 is right"]),
    ("stop", 143, "stopped; run the same command again to resume", []),
    ("stop", -15, "", ["exit code -15 where 143 is right", "it ends without a word"]),
    ("full", 1, "error: the disk is full", []), ("full", 1, "", ["0 errors are said"]),
    ("error", 1, "Traceback (most recent call last):\nerror: one", ["traceback: error: one"]),
])  # fmt: skip
def test_a_wrong_end_is_found(fault: str, code: int, said: str, expected: list[str]) -> None:
    assert wrong(Ended(code, said, 0.0), {CODES[fault]}) == expected


def test_every_point_has_faults_whose_right_end_is_known() -> None:
    assert {fault for point in POINTS.values() for fault in point.faults} == set(FAULTS) == CODES.keys()
