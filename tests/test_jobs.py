"""Jobs: a measurement and a tuning through a real Ray head and its job server."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from biaseval.models import ModelSource, load_model
from biaseval.pipelines import run_status
from tests.heads import BIN, Head, ray_head
from tests.processes import ROOT
from tests.training.test_instruct import write_spec as write_instruct_spec

# Limits are for what hangs: a busy machine may take minutes for what starts a dozen processes.
pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]


LOCAL = """
import ray
from biaseval.execute.cluster import Cluster
from biaseval.spec import ExecutionSpec
with Cluster(ExecutionSpec()) as cluster:
    print(cluster.resources().is_local, len(ray.nodes()), ray.cluster_resources()["CPU"])
"""


def run_job(name: str, *arguments: str) -> int:
    """Run a job's script in this process; return its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [f"jobs/{name}.py", *arguments])
        patch.syspath_prepend(ROOT / "jobs")
        with pytest.raises(SystemExit) as stop:
            runpy.run_path(str(ROOT / "jobs" / f"{name}.py"), run_name="__main__")
    return int(stop.value.code or 0)


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    """Start a head with a job server."""
    with ray_head(num_cpus=4) as started:
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
def ended(
    head: Head, tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path
) -> dict[str, tuple[Path, Ended]]:
    """Return (run directory, command that made it) of a measurement, a tuning and a local run, all made at once."""
    folder = tmp_path_factory.mktemp("jobs")
    tuning = write_instruct_spec(folder / "tuning", tiny_llama, max_steps=2)
    submit = [str(BIN / "ray"), "job", "submit", "--address", head.dashboard, "--working-dir", str(ROOT), "--"]
    smallest = ("prompt.n_demos=[0]", "tasks.max_eval=20", "calibration=[cc]", "execution.part_rows=999")
    settings = [word for setting in smallest for word in ("--set", setting)]
    commands = {
        "quickstart": [*submit, sys.executable, "jobs/label_bias.py", "jobs/specs/quickstart.yaml", *settings],
        "tuning": [*submit, sys.executable, "jobs/train_instruct.py", str(tuning)],
        "local": [sys.executable, "-c", LOCAL],
    }
    started = {
        name: subprocess.Popen(
            command if name == "local" else [*command, "--run-dir", str(folder / "runs" / name)],
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
    assert status.n_parts_done == status.n_parts > 0
    assert status.has_report


def test_a_model_is_tuned_by_a_ray_job(ended: Commands, tiny_llama: Path) -> None:
    run_dir, done = ended["tuning"]
    assert done.code == 0, done.out + done.err
    assert f"model: {run_dir}/model" in done.out
    found, base = (load_model(ModelSource(str(path))) for path in (run_dir / "model", tiny_llama))
    assert found.num_parameters() == base.num_parameters()


def test_a_local_run_does_not_join_somebody_elses_head(ended: Commands) -> None:
    """The head has left its address file; a run without RAY_ADDRESS starts a Ray of its own."""
    _, done = ended["local"]
    assert done.out.split()[:2] == ["True", "1"], done.err


@pytest.mark.parametrize(
    "name", ["label_bias", "majority_bias", "qa_bias", "train_lora", "train_instruct", "train_qa", "tune"]
)
def test_a_run_that_a_job_could_not_leave_behind_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["--run-dir", "runs/x"], ["--run-dir=x"]):
        assert run_job(name, "spec.yaml", *arguments) == 2
        assert capsys.readouterr().err.startswith("error: --run-dir: name an absolute path or s3:// URI that every")


@pytest.mark.parametrize(
    ("name", "what", "command"),
    [
        ("label_bias", "A label-bias run as a Ray job.", "biaseval run"),
        ("majority_bias", "A majority-bias run as a Ray job.", "biaseval run"),
        ("qa_bias", "A QA-bias run as a Ray job.", "biaseval run"),
        ("train_lora", "Training the adapters of a label-bias or majority-bias run", "biaseval train lora"),
        ("train_instruct", "Tuning a model on conversations as a Ray job.", "biaseval train instruct"),
        ("train_qa", "Training the readers of a QA-bias run as a Ray job.", "biaseval train qa"),
        ("tune", "A search over keys of a spec as a Ray job.", "biaseval tune"),
    ],
)
def test_each_job_says_what_it_does(name: str, what: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With the job's own arguments; what the commands do is tested where they are."""
    assert run_job(name, "--help") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"Usage: python jobs/{name}.py [OPTIONS]" in shown
    assert what in shown
    assert f"It takes what {command} takes" in shown
