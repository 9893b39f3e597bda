"""What `biaseval status` knows of a run that works, was killed, or ended: by real drivers in processes of their own."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from biaseval.lease import held
from biaseval.runs import run_status, score_prompts
from biaseval.spec import ExecutionSpec, ModelSpec
from biaseval.store import LEASE, Run
from tests.commands import Command
from tests.inprocess import in_this_process
from tests.processes import ROOT, killed_in_the_end, wait_until
from tests.test_execute import write_prompts

N_PARTS = 4


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Path:
    """Return the directory of scores of twelve prompts, in four parts."""
    folder = tmp_path_factory.mktemp("finished")
    with in_this_process():
        model, prompts = ModelSpec(path=str(tiny_llama)), write_prompts(folder)
        score_prompts(model, ExecutionSpec(part_rows=3), prompts, str(folder / "out"))
    return folder / "out"


@pytest.fixture
def begun(finished: Path, tmp_path: Path) -> Run:
    """Return a run of which three parts of four are scored, one every ten seconds, the last a minute ago."""
    subprocess.run(["cp", "-r", str(finished), str(tmp_path / "run")], check=True)
    parts = sorted((tmp_path / "run" / "label_scores").iterdir())
    assert len(parts) == N_PARTS
    parts.pop().unlink()
    for number, part in enumerate(parts):
        os.utime(part, times=(time.time() - 80 + 10 * number,) * 2)
    return Run.open(str(tmp_path / "run"))


DRIVE = """
import sys, time
from biaseval.lease import held, hold
from biaseval.store import Run
hold.BEAT_S = 0.1
with held(Run.open(sys.argv[1])):
    time.sleep(600)
"""


@pytest.fixture
def driver(begun: Run) -> Iterator[psutil.Popen]:
    with killed_in_the_end(DRIVE, begun.uri) as process:
        wait_until(lambda: begun.has(LEASE), process)
        yield process


def test_a_run_that_nothing_works_on_says_so_and_what_to_do(begun: Run, command: Command) -> None:
    shown = command("status", begun.uri)
    assert shown.code == 0
    *lines, pace, log = shown.out.splitlines()
    assert lines == [
        "rows    9 of 12 scored (3 of 4 parts)",
        "damaged label_scores/part-00003.parquet: is gone, or differs from the recorded digest; the same command "
        "makes it again",
        "result  not yet", "driver  none",
    ]  # fmt: skip
    assert re.fullmatch(r"pace    0\.30 rows/s, last part 1:\d\d ago", pace)
    assert begun.read_text(log.removeprefix("log     ")).splitlines()[-1].endswith(" ends")
    assert shown.err == "run the same command again to go on\n"


def test_a_live_run_says_who_works_on_it_and_how_long(begun: Run, driver: psutil.Popen, command: Command) -> None:
    shown = command("status", begun.uri)
    assert shown.err == ""
    assert f"driver  live: process {driver.pid} on " in shown.out
    # The parts are of a sitting before this one.
    assert re.fullmatch(r"pace    last part 1:\d\d ago", shown.out.splitlines()[-2])
    wait_until(lambda: json.loads(begun.read_text(LEASE))["held_s"] > 0, driver)
    now = time.time()
    for number in range(3):
        os.utime(begun.path(f"label_scores/part-{number:05d}.parquet"), times=(now + 10 * number,) * 2)
    found: dict[str, Any] = json.loads(command("status", begun.uri, "--json").out)
    assert found["driver"]["is_live"] is True
    assert 0 <= found["driver"]["last_beat_age_s"] < 30
    assert found["pace"]["rate_per_s"] == pytest.approx(0.3, rel=1e-3)
    assert found["pace"]["left_s"] == pytest.approx(10, rel=1e-3)
    assert found["given_up"] == {}


def test_a_killed_run_is_not_taken_for_a_live_one(begun: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with killed_in_the_end(DRIVE, begun.uri) as process:
        wait_until(lambda: begun.has(LEASE), process)
        assert run_status(begun.uri).is_live
    status = run_status(begun.uri)
    assert status.driver is not None
    assert (status.is_live, status.driver.pid) == (False, process.pid)
    from biaseval.cli.printing import print_status

    print_status(status)
    assert f"driver  ended without a word: process {process.pid} on " in capsys.readouterr().out


def test_one_that_is_stopped_is_said_to_hang(begun: Run, driver: psutil.Popen, command: Command) -> None:
    driver.send_signal(signal.SIGSTOP)
    os.utime(begun.path(LEASE), times=(time.time() - 300,) * 2)
    shown = command("status", begun.uri)
    assert "hangs or is stopped: its process is there and has said nothing for 5:" in shown.out
    assert shown.err == ""


def test_a_run_in_a_bucket_is_live_for_another_machine(object_store: str, finished: Path, tmp_path: Path) -> None:
    run, table = Run.open(f"{object_store}/status/{tmp_path.name}"), "label_scores"
    for name in ("spec.yaml", "environment.json", "plan.json"):
        run.write_bytes(name, (finished / name).read_bytes())
    for number in range(2):
        run.write_bytes(f"{table}/part-{number:05d}.parquet", next((finished / table).iterdir()).read_bytes())
    with held(run):
        lease = json.loads(run.read_text(LEASE))
        run.write_text(LEASE, json.dumps({**lease, "process": "elsewhere/1/2"}))
        status: Any = run_status(run.uri)
        assert status.is_live
        assert status.driver.last_beat_age_s < 30
        assert status.pace.last_part_age_s < 30
    run.write_text(LEASE, json.dumps({**lease, "process": "elsewhere/1/2", "expires_s": -1}))
    assert not run_status(run.uri).is_live


SCORE = """
import sys, time
from pathlib import Path
from biaseval.pipelines.labels import label_scores
from biaseval.runs import score_prompts
from biaseval.spec import ExecutionSpec, ModelSpec
from tests.inprocess import in_this_process

class Waiting(label_scores.LabelScoresWorker):
    def make(self, task, prepared):
        if len(self._run.parts("label_scores")) == 2:
            time.sleep(3600)
        return super().make(task, prepared)

label_scores.LabelScoresWorker = Waiting
model, prompts, out = sys.argv[1:]
with in_this_process():
    score_prompts(ModelSpec(path=model), ExecutionSpec(part_rows=3), Path(prompts), out)
"""


@pytest.mark.slow
def test_a_bucket_that_a_job_works_on_can_be_looked_at(
    object_store: str, tmp_path: Path, tiny_llama: Path, command: Command
) -> None:
    run = Run.open(f"{object_store}/status/{tmp_path.name}")
    with killed_in_the_end(SCORE, str(tiny_llama), str(write_prompts(tmp_path)), run.uri) as job:
        wait_until(lambda: len(run.parts("label_scores")) == 2, job)
        shown = command("status", run.uri)
        assert shown.code == 0
        assert shown.err == ""
        assert f"driver  live: process {job.pid} on " in shown.out
        found = json.loads(command("status", run.uri, "--json").out)
        [stage] = found["stages"]
        assert (stage["n_units_done"], stage["n_units"]) == (2, N_PARTS)
        assert found["driver"]["is_live"] is True
        assert found["pace"]["last_part_age_s"] < 30
    before = {name: run.read_bytes(name) for name in run.files("label_scores")}
    assert not run_status(run.uri).is_live
    with in_this_process():
        score_prompts(ModelSpec(path=str(tiny_llama)), ExecutionSpec(part_rows=3), tmp_path / "prompts.jsonl", run.uri)
    assert run_status(run.uri).is_complete
    assert {name: run.read_bytes(name) for name in before} == before


def test_watching_goes_on_until_the_run_is_complete(begun: Run, finished: Path, driver: psutil.Popen) -> None:
    command = [sys.executable, "-m", "biaseval", "status", "--watch=0.1", begun.uri, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT) as watching:
        assert watching.stdout is not None
        first = json.loads(watching.stdout.readline())
        assert not first["is_complete"]
        last_part = "label_scores/part-00003.parquet"
        begun.write_bytes(last_part, (finished / last_part).read_bytes())
        *_, last = map(json.loads, watching.stdout)
        assert last["is_complete"]
        assert last["pace"] is None
        assert watching.wait(timeout=30) == 0


def test_watching_ends_when_nobody_works_on_the_run(begun: Run) -> None:
    command = [sys.executable, "-m", "biaseval", "status", "--watch=0.1", begun.uri]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": ROOT}
    with killed_in_the_end(DRIVE, begun.uri) as driver:
        wait_until(lambda: begun.has(LEASE), driver)
        watching = subprocess.Popen(command, **pipes)
        assert watching.stdout is not None
        assert watching.stdout.readline() == "\n"
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\n", watching.stdout.readline())
        while not watching.stdout.readline().startswith("driver  live"):
            pass
    output, errors = watching.communicate(timeout=30)
    assert "driver  ended without a word" in output
    assert watching.returncode == 1
    assert errors.splitlines()[-1].startswith(f"error: {begun.uri}: no process works on it, and it is not complete;")


def test_a_run_that_is_not_planned_yet_names_its_driver(tmp_path: Path, command: Command) -> None:
    run = Run.open(str(tmp_path / "run"))
    run.create()
    with held(run):
        shown = command("status", run.uri)
        as_json = json.loads(command("status", run.uri, "--json").out)
    assert shown.code == 0
    assert shown.out.startswith("plan    under way: ")
    assert f"driver  live: process {os.getpid()} on " in shown.out
    assert (as_json["is_planned"], as_json["is_complete"], as_json["stages"]) == (False, False, [])
    shown = command("status", run.uri)
    assert (shown.code, "holds no planned run" in shown.err) == (2, True)
    assert command("status", "x", "--watch", "0").code == 2


def test_who_stops_watching_sees_no_traceback(begun: Run, driver: psutil.Popen) -> None:
    """Whoever runs these tests in the background has them, and all that they start, ignore the signal."""
    heed = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{heed}; from biaseval.cli import main; main()"
    command = [sys.executable, "-c", code, "status", begun.uri, "--watch"]
    process = psutil.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    while not process.stdout.readline().startswith("rows"):
        pass
    while not process.stdout.readline().startswith("pace"):
        pass
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in errors
