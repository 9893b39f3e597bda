"""Jobs: measurements through a real Ray head and its job server."""

import runpy
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from ray.job_submission import JobStatus, JobSubmissionClient

from biaseval.runs import run_spec, run_status
from biaseval.spec import load_spec
from tests.heads import BIN, Head, ray_head
from tests.inprocess import in_this_process
from tests.processes import ROOT
from tests.test_pipelines import digests
from tests.test_pipelines import write_spec as write_label_spec
from tests.waiting import MARKERS, N_BEFORE

# Limits are for what hangs: a busy machine may take minutes for what starts a dozen processes.
pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]


def jobs_of(head: Head) -> JobSubmissionClient:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("no_proxy", head.environment["no_proxy"])
        return JobSubmissionClient(head.dashboard)


def wait_for_job_agent(head: Head) -> None:
    """Wait until a job can be submitted: the agent that takes jobs starts after the head says that it runs."""
    deadline = time.monotonic() + 240
    while True:
        try:
            jobs_of(head).submit_job(entrypoint="true")
            return
        except (RuntimeError, ConnectionError):
            if time.monotonic() > deadline:
                raise
            time.sleep(1)


LOCAL = """
import ray
from biaseval.execute.cluster import Cluster
from biaseval.spec import ExecutionSpec
with Cluster(ExecutionSpec()) as cluster:
    print(cluster.resources().is_local, len(ray.nodes()), ray.cluster_resources()["CPU"])
"""


HELP = """
import contextlib, io, runpy, sys
from pathlib import Path
sys.path.insert(0, "jobs")
for job in sorted(map(str, Path("jobs").glob("*.py"))):
    if job in ("jobs/source.py", "jobs/submission.py"):
        continue
    sys.argv, shown, code = [job, "--help"], io.StringIO(), None
    try:
        with contextlib.redirect_stdout(shown):
            runpy.run_path(job, run_name="__main__")
    except SystemExit as stop:
        code = stop.code or 0
    print(job, code, "usage" in shown.getvalue().lower())
"""


def run_job(name: str, *arguments: str) -> int:
    """Run a job's script in this process; return its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [f"jobs/{name}.py", *arguments])
        with pytest.raises(SystemExit) as stop:
            runpy.run_path(str(ROOT / "jobs" / f"{name}.py"), run_name="__main__")
    return int(stop.value.code or 0)


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    """Start a head with a job server that takes jobs."""
    with ray_head(num_cpus=4) as started:
        wait_for_job_agent(started)
        yield started


@dataclass(frozen=True)
class Ended:
    """A command that ended."""

    code: int
    out: str
    err: str


Commands = dict[str, tuple[Path, Ended]]
"""The run directory of each, and what came of it."""


@pytest.fixture(scope="module")
def ended(head: Head, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Ended]]:
    """Return (run directory, command that made it) of a measurement and a local run, all made at once."""
    folder = tmp_path_factory.mktemp("jobs")
    submit = [str(BIN / "ray"), "job", "submit", "--address", head.dashboard, "--working-dir", str(ROOT), "--"]
    smallest = ("prompt.n_demos=[0]", "tasks.max_eval=20", "calibration=[cc]", "execution.part_rows=999")
    settings = [word for setting in smallest for word in ("--set", setting)]
    commands = {
        "quickstart": [*submit, sys.executable, "jobs/label_bias.py", "jobs/specs/quickstart.yaml", *settings],
        "help": [*submit, sys.executable, "-c", HELP],
        "wrong": [*submit, sys.executable, "jobs/label_bias.py", "jobs/specs/quickstart.yaml", "--set", "seed=many"],
        "local": [sys.executable, "-c", LOCAL],
    }
    started = {
        name: subprocess.Popen(
            command if name in ("local", "help") else [*command, "--run-dir", str(folder / "runs" / name)],
            env=head.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for name, command in commands.items()
    }  # fmt: skip
    found = {}
    for name, process in started.items():
        out, err = process.communicate(timeout=600)
        found[name] = (folder / "runs" / name, Ended(process.returncode, out, err))
    return found


def test_the_quickstart_runs_as_a_ray_job(ended: Commands) -> None:
    run_dir, done = ended["quickstart"]
    assert done.code == 0, done.out + done.err
    assert f"report: {run_dir}/report.html" in done.out
    status = run_status(str(run_dir))
    assert status.size_done == status.size > 0
    assert status.has_report


def test_every_entry_point_starts_in_the_uploaded_folder(ended: Commands) -> None:
    _, done = ended["help"]
    found = {words[0]: words[1:] for line in done.out.splitlines() if (words := line.split())[:1] and ".py" in words[0]}
    jobs = {f"jobs/{path.name}" for path in (ROOT / "jobs").glob("*.py")} - {"jobs/source.py", "jobs/submission.py"}
    assert found == {job: ["0", "True"] for job in jobs}, done.out + done.err


def test_a_job_with_a_wrong_spec_fails_and_says_why_where_one_looks_first(ended: Commands, head: Head) -> None:
    run_dir, done = ended["wrong"]
    assert done.code == 1
    assert not run_dir.exists()
    [job] = [own for own in jobs_of(head).list_jobs() if "seed=many" in own.entrypoint]
    assert job.status == JobStatus.FAILED
    assert job.driver_exit_code == 2
    last = jobs_of(head).get_job_logs(job.submission_id).strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert "seed: " in last


def test_a_stopped_job_leaves_a_run_that_goes_on_elsewhere(head: Head, tmp_path: Path, tiny_llama: Path) -> None:
    """And what `biaseval status` says of it meanwhile, from where one looks."""
    spec = write_label_spec(tmp_path, tiny_llama, calibration=[], prompt={"n_demos": [0]})
    first, second = (tmp_path / marker for marker in MARKERS)
    second.touch()  # it waits once
    run_dir = str(tmp_path / "run")
    code = "from tests.waiting import *; waiting_command(WaitingWorker)"
    entrypoint = shlex.join([sys.executable, "-c", code, "run", str(spec), "--run-dir", run_dir])
    client, states = jobs_of(head), (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.STOPPED)

    def wait(job: str, is_time: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 240
        while not is_time():
            assert time.monotonic() < deadline, client.get_job_logs(job)
            time.sleep(0.2)

    job = client.submit_job(entrypoint=entrypoint, runtime_env={"working_dir": str(ROOT)})
    wait(job, first.exists)
    meanwhile = run_status(run_dir)
    assert meanwhile.is_live
    assert N_BEFORE <= meanwhile.stages[0].n_units_done < meanwhile.stages[0].n_units
    client.stop_job(job)
    wait(job, lambda: client.get_job_status(job) in states)
    assert client.get_job_status(job) == JobStatus.STOPPED
    log = client.get_job_logs(job)
    assert "stopped; complete parts are kept, run the same command again to resume" in log.splitlines()
    assert "Traceback" not in log, log
    kept = digests(tmp_path / "run" / "label_scores")
    with in_this_process():
        run_spec(load_spec(spec), run_dir)
    assert run_status(run_dir).is_complete
    assert digests(tmp_path / "run" / "label_scores").items() >= kept.items()


def test_a_local_run_does_not_join_somebody_elses_head(ended: Commands) -> None:
    """The head has left its address file; a run without RAY_ADDRESS starts a Ray of its own."""
    _, done = ended["local"]
    assert done.out.split()[:2] == ["True", "1"], done.err


@pytest.mark.parametrize(("name", "what", "command"), [
    ("label_bias", "A label-bias run as a Ray job.", "biaseval run"),
    ("majority_bias", "A majority-bias run as a Ray job.", "biaseval run"),
    ("qa_bias", "A QA-bias run as a Ray job.", "biaseval run"),
    ("train_lora", "Training the adapters of a label-bias or majority-bias run", "biaseval train lora"),
    ("train_instruct", "Tuning a model on conversations as a Ray job.", "biaseval train instruct"),
    ("train_qa", "Training the readers of a QA-bias run as a Ray job.", "biaseval train qa"),
    ("tune", "A search over keys of a spec as a Ray job.", "biaseval tune"),
])  # fmt: skip
def test_each_job_says_what_it_does_and_leaves_its_run_behind(
    name: str, what: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the job's own arguments; what the commands do is tested where they are."""
    assert run_job(name, "--help") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"Usage: python jobs/{name}.py [OPTIONS]" in shown
    assert what in shown
    assert f"It takes what {command} takes, and needs --run-dir." in shown
    assert "│ * --run-dir DIR The run's directory: an absolute path or" in shown
    for arguments in ([], ["--run-dir", "runs/x"], ["--run-dir=x"]):
        assert run_job(name, "spec.yaml", *arguments) == 2
        assert capsys.readouterr().err.startswith("error: --run-dir: name an absolute path or s3:// URI that every")
