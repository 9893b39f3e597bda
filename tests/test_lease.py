"""One driver at a time on a run, on disks and on a real S3 server, by real processes that are killed and stopped."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pytest
from botocore.exceptions import ClientError

from biaseval.errors import TransientError
from biaseval.lease import held, hold, look
from biaseval.lease.files import ChangedError, PlainFile, Seen, lease_file
from biaseval.lease.record import Lease
from biaseval.runs import score_prompts
from biaseval.spec import ExecutionSpec, ModelSpec
from biaseval.store import LEASE, Run
from tests.processes import ROOT, wait_until
from tests.test_execute import write_prompts
from tests.test_pipelines import digests

EXPIRES_S = 1.5

HOLD = f"""
import sys, time
from biaseval.errors import BiasevalError
from biaseval.lease import held, hold
from biaseval.store import Run
hold.BEAT_S, hold.EXPIRES_S = 0.1, {EXPIRES_S}
run = Run.open(sys.argv[1])
try:
    with held(run) as run:
        number = 0
        while True:
            run.write_text("written", str(number))
            number += 1
            time.sleep(0.02)
except BiasevalError as error:
    sys.exit(f"error: {{error}}")
"""
"""A driver that writes until it may not any more."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hold, "BEAT_S", 0.1)
    monkeypatch.setattr(hold, "EXPIRES_S", EXPIRES_S)


@contextmanager
def driver(run: Run) -> Iterator[psutil.Popen]:
    """Yield a process that holds a run; kill it in the end."""
    command = [sys.executable, "-c", HOLD, run.uri]
    process = psutil.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        yield process
    finally:
        with suppress(psutil.NoSuchProcess):
            process.kill()
        process.wait()


def written(run: Run) -> int:
    with suppress(TransientError):  # moto breaks a read off that a write meets
        return int(run.read_text("written")) if run.has("written") else -1
    return -1


def lease_of(run: Run) -> Lease:
    """Return a lease by one request: pyarrow asks for the size first, and cuts what has grown since."""
    seen = lease_file(run).read()
    assert seen is not None
    assert seen.lease is not None
    return seen.lease


def comes_true(is_true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while not is_true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture(params=["disk", "bucket"])
def run(request: pytest.FixtureRequest, tmp_path: Path, object_store: str) -> Run:
    where = str(tmp_path / "run") if request.param == "disk" else f"{object_store}/lease/{tmp_path.name}"
    opened = Run.open(where)
    opened.create()
    return opened


@pytest.fixture
def bucket(tmp_path: Path, object_store: str) -> Run:
    return Run.open(f"{object_store}/lease/{tmp_path.name}")


def test_a_second_driver_is_told_who_has_the_run_and_a_killed_one_is_followed_at_once(run: Run) -> None:
    with driver(run) as process:
        wait_until(lambda: written(run) > 3, process)
        with pytest.raises(TransientError) as refused, held(run):
            pass
        live = sight_of(run)
        assert (live.is_live, live.pid, live.interval_s) == (True, process.pid, 0.1)
        assert wait_until(lambda: sight_of(run).held_s > 0.2, process) is None
    message = str(refused.value)
    assert f"another process is working on this run: process {process.pid} on {live.host}" in message
    assert re.search(r"since 20\S+Z, last seen 0:0\d ago; wait for it", message)
    assert "\n" not in message
    # It is known that its process is gone: nobody waits.
    assert not sight_of(run).is_live
    with held(run) as again:
        again.write_text("written", "mine")
        assert (sight_of(run).is_live, sight_of(run).pid) == (True, os.getpid())
    assert look(run) == (None, None)
    assert run.names() == sorted({*run.leftovers(), "written"})


def sight_of(run: Run) -> Any:
    """Return what is seen of a lease that is there."""
    sight, _ = look(run)
    assert sight is not None
    return sight


def test_of_drivers_that_start_at_once_one_holds_the_run(run: Run) -> None:
    with driver(run) as one, driver(run) as two:
        drivers = [one, two]
        assert comes_true(lambda: sum(each.poll() is None for each in drivers) == 1)
        before = written(run)
        assert comes_true(lambda: written(run) > before + 3)
        ended = [each for each in drivers if each.poll() is not None]
        for each in ended:
            error = each.stderr.read()
            assert error.count("error: ") == 1
            assert "another process is working on" in error or "began on this run at the same time" in error, error


def of_another_machine(**changed: object) -> Lease:
    lease = Lease.of_this_process(0.1, EXPIRES_S)
    return replace(lease, id="other", host="elsewhere", process="elsewhere/1/2", **changed)  # type: ignore[arg-type]


def test_the_expired_lease_of_a_dead_machine_is_taken_over(bucket: Run, capsys: pytest.CaptureFixture[str]) -> None:
    time.sleep(1 - time.time() % 1)  # the store's times are whole seconds
    bucket.write_bytes(LEASE, of_another_machine(since="2000-01-01T00:00:00Z").data())
    started = time.monotonic()
    with held(bucket) as run:
        assert EXPIRES_S - 1.1 <= time.monotonic() - started < EXPIRES_S + 5
        run.write_text("written", "1")
    told = rf"(?s)is held by process .*elsewhere.*taken over, as its lease was not renewed for {EXPIRES_S} s"
    assert re.search(told, capsys.readouterr().err)


def test_a_driver_that_was_stopped_for_too_long_writes_nothing_more(bucket: Run) -> None:
    with driver(bucket) as process:
        wait_until(lambda: written(bucket) > 3, process)
        process.send_signal(signal.SIGSTOP)
        with held(bucket) as run:
            before = written(bucket)
            process.send_signal(signal.SIGCONT)
            _, error = process.communicate(timeout=30)
            assert process.returncode == 1
            assert "was taken over by process" in error
            assert "nothing more is written here" in error
            # What was under way when it was stopped may still have come through, and nothing else.
            assert written(bucket) in (before, before + 1)
            assert sight_of(bucket).pid == os.getpid()
            run.write_text("written", "0")


def test_nothing_is_written_or_deleted_once_the_lease_is_somebody_elses(bucket: Run) -> None:
    with held(bucket) as run:
        run.write_text("written", "1")
        bucket.write_bytes(LEASE, of_another_machine().data())
        assert comes_true(lambda: refuses(lambda: run.write_text("written", "2")))
        bucket.write_text("written", "3")
        assert refuses(lambda: run.write_text("written", "4"))
        assert refuses(lambda: run.delete("written"))
        assert written(bucket) == 3
    # Nor is the other one's lease given back.
    assert lease_of(bucket).host == "elsewhere"


def refuses(write: Callable[[], None]) -> bool:
    try:
        write()
    except TransientError as error:
        return "was taken over by process" in str(error)
    return False


def test_a_lease_that_was_deleted_or_whose_answer_was_lost_is_still_held(bucket: Run) -> None:
    with held(bucket) as run:
        own = lease_of(bucket)
        bucket.delete(LEASE)
        assert comes_true(lambda: bucket.has(LEASE))
        # As an earlier beat that came through, and of which the driver did not hear.
        bucket.write_bytes(LEASE, replace(own, command="late").data())
        assert comes_true(lambda: lease_of(bucket).command != "late")
        run.write_text("written", "1")
    assert not bucket.has(LEASE)


def test_a_beat_that_fails_ends_nothing(tmp_path: Path) -> None:
    run = Run.open(str(tmp_path))
    with held(run) as own:
        assert comes_true(lambda: json.loads(run.read_text(LEASE))["held_s"] > 0)
        (tmp_path / LEASE).unlink()
        (tmp_path / LEASE).mkdir()
        time.sleep(0.4)
        own.write_text("written", "1")
        (tmp_path / LEASE).rmdir()
        assert comes_true((tmp_path / LEASE).is_file)
    assert not (tmp_path / LEASE).exists()


def test_without_boto3_a_run_says_that_nobody_is_kept_out_for_sure(
    bucket: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with held(bucket) as run:
        run.write_text("written", "1")
        assert sight_of(bucket).pid == os.getpid()
        with pytest.raises(TransientError, match="another process is working on this run"), held(bucket):
            pass
    assert ("start no second run here" in capsys.readouterr().err, bucket.has(LEASE)) == (True, False)
    ends = {f"{name}_object.side_effect": ClientError({"Error": {"Code": "501"}}, name) for name in ("get", "put")}
    monkeypatch.setattr("biaseval.lease.files._client", lambda run: Mock(**ends))
    with held(bucket):
        assert "the store knows no conditional requests" in capsys.readouterr().err


def test_the_age_of_a_lease_is_never_negative() -> None:
    assert [Seen(None, "1", written_s, now_s=7.25).age_s for written_s in (7.0, 7.25, 9.0)] == [0.25, 0.0, 0.0]


def test_who_writes_second_is_refused_and_an_expired_lease_is_not_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The clock of S3 has whole seconds: a lease of 10 seconds has expired for sure at an age of 11."""
    run, own = Run.open(str(tmp_path)), Lease.of_this_process(1, 10)
    there = [*(Seen(one, "7", 0, 0) for one in (own, replace(own, pid=1, id="another"))), None]
    given: list[Any] = [Mock(read=Mock(side_effect=[None, one]), write=Mock(side_effect=ChangedError)) for one in there]
    assert hold._taken(run, given[0], own) == "7"
    with pytest.raises(TransientError, match=r"another process is working .* process 1\b"):
        hold._taken(run, given[1], own)
    with pytest.raises(TransientError, match="two processes began on this run at the same time"):
        hold._taken(run, given[2], own)
    assert hold._outwaited(run, given[0], seen := Seen(own, "7", 0, 11)) == seen
    assert re.fullmatch(r".*: taken over, as its lease was not renewed for 10 s\n", capsys.readouterr().err)
    plain = PlainFile(run)
    version = plain.write(own, None)
    plain.delete("another")
    assert run.has(LEASE)
    plain.delete(version)
    assert not run.has(LEASE)


def test_a_command_is_said_as_it_was_typed_without_credentials_or_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["biaseval", "run", "x.yaml"])  # what a job makes of it
    typed = ["/bin/python3.11", "/bin/biaseval", "run", "a spec.yaml", "--run-dir", "s3://key:secret@bucket/run"]
    for argv, said in (
        (typed, "biaseval run 'a spec.yaml' --run-dir s3://…@bucket/run"),
        (["/opt/bin/python", "jobs/label_bias.py", "x.yaml"], "python jobs/label_bias.py x.yaml"),
        (["/bin/python3", "-I", "-c", "key = 'secret'; run()", "x"], "python3 -I -c"),
        ([], "biaseval run x.yaml"),  # embedded
        (["/opt/bin/python", "-m", "biaseval", "demo"], "python -m biaseval demo"),
    ):
        monkeypatch.setattr(sys, "orig_argv", argv)
        assert Lease.of_this_process(1, 1).command == said
    for metadata, job in (('{"job_submission_id": "raysubmit_7"}', ", Ray job raysubmit_7"), ("{}", "")):
        monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", f'{{"metadata": {metadata}}}')
        assert Lease.of_this_process(1, 1).command == f"python -m biaseval demo{job}"


def test_a_damaged_lease_is_watched_and_taken_over(bucket: Run) -> None:
    bucket.write_text(LEASE, "{")
    with held(bucket):
        assert look(bucket)[0] is not None


def test_a_run_with_a_lease_is_to_the_byte_one_without(
    tmp_path: Path, tiny_llama: Path, here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts, model = write_prompts(tmp_path, n=6), ModelSpec(path=str(tiny_llama))
    for name, beat_s in (("quiet", 100.0), ("beating", 0.005)):
        monkeypatch.setattr(hold, "BEAT_S", beat_s)
        score_prompts(model, ExecutionSpec(part_rows=3), prompts, str(tmp_path / name))
    # What a killed driver left does not count, nor stay.
    (tmp_path / "quiet" / "label_scores" / "part-00000.parquet").unlink()
    (tmp_path / "quiet" / LEASE).write_bytes(of_another_machine().data())
    score_prompts(model, ExecutionSpec(part_rows=3), prompts, str(tmp_path / "quiet"))
    changing = {"environment.json", "digests.json", ".lock"}  # hardware and times
    first, second = (
        {name: digest for name, digest in digests(tmp_path / run).items() if name not in changing}
        for run in ("quiet", "beating")
    )
    assert first == second
    assert LEASE not in first
