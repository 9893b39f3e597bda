"""Runs of every kind through a real Ray head and its job server."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from biaseval.analysis import query
from biaseval.models import ModelSource, load_model
from biaseval.pipelines import run_status
from tests.test_majority_pipeline import write_spec
from tests.test_qa_pipeline import make_bert
from tests.test_qa_pipeline import write_spec as write_qa_spec
from tests.training.test_distributed import write_spec as write_lora_spec
from tests.training.test_instruct import write_spec as write_instruct_spec

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _processes_of(temporary: str) -> list[psutil.Process]:
    """Return the processes whose command line or environment names the head's own temporary folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(temporary in part for part in process.cmdline()) or process.environ().get("RAY_TMPDIR") == temporary:
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.fixture(scope="module")
def head() -> Iterator[tuple[str, dict[str, str]]]:
    """Start a head with a job server; yield its address and environment; end the processes that it started."""
    # A socket's path must be short.
    temporary = tempfile.mkdtemp(prefix="r", dir="/tmp")
    environment = {
        **os.environ,
        "RAY_TMPDIR": temporary,
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        # Job logs are followed over a web socket, which a proxy of the machine's must not catch.
        "no_proxy": "127.0.0.1,localhost",
    }
    dashboard = _free_port()
    command = [
        *(str(BIN / "ray"), "start", "--head", "--block", "--num-cpus=4", "--disable-usage-stats"),
        *(f"--port={_free_port()}", f"--dashboard-port={dashboard}", "--dashboard-host=127.0.0.1"),
        *(f"--temp-dir={temporary}", "--node-ip-address=127.0.0.1", f"--ray-client-server-port={_free_port()}"),
        f"--dashboard-agent-listen-port={_free_port()}",
    ]
    log = open(Path(temporary) / "head.log", "w")  # noqa: SIM115  # the head writes to it until it ends
    process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    address = f"http://127.0.0.1:{dashboard}"
    default_address_file = Path("/tmp/ray/ray_current_cluster")
    before = default_address_file.read_text() if default_address_file.exists() else None
    try:
        _wait_for(dashboard, process, Path(temporary) / "head.log")
        yield address, environment
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
        for left in _processes_of(temporary):
            left.kill()
        log.close()
        shutil.rmtree(temporary, ignore_errors=True)
    psutil.wait_procs(_processes_of(temporary), timeout=10)
    assert not _processes_of(temporary), "a process of the head is left"
    after = default_address_file.read_text() if default_address_file.exists() else None
    assert after == before, "the head left an address that a later local run would pick up"


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError:
            time.sleep(0.3)
    raise AssertionError(log.read_text())


def _submit(head: tuple[str, dict[str, str]], *arguments: str) -> subprocess.CompletedProcess[str]:
    address, environment = head
    command = [
        *(str(BIN / "ray"), "job", "submit", "--address", address, "--working-dir", str(ROOT), "--"),
        *(sys.executable, *arguments),
    ]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)


def _assert_whole(done: subprocess.CompletedProcess[str], run_dir: Path) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"report: {run_dir}/report.html" in done.stdout
    status = run_status(str(run_dir))
    assert status.n_parts_done == status.n_parts > 0
    assert status.has_report


def test_the_quickstart_runs_as_a_ray_job(head: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    job = ("jobs/label_bias.py", "jobs/specs/quickstart.yaml")
    settings = ("--set", "prompt.n_demos=[0,2]", "--set", "tasks.max_eval=20", "--set", "prompt.demo_sets=1")
    _assert_whole(_submit(head, *job, "--run-dir", str(tmp_path / "run"), *settings), tmp_path / "run")
    refused = _submit(head, *job)
    assert refused.returncode != 0
    assert "--run-dir: name an absolute path" in refused.stdout + refused.stderr


def test_majority_bias_runs_as_a_ray_job(head: tuple[str, dict[str, str]], tmp_path: Path, tiny_llama: Path) -> None:
    spec = write_spec(tmp_path, tiny_llama)
    run_dir = tmp_path / "run"
    _assert_whole(_submit(head, "jobs/majority_bias.py", str(spec), "--run-dir", str(run_dir)), run_dir)
    assert query([run_dir], "from majority_by_model").num_rows == 8  # with and without instruction, four ways


def test_qa_bias_runs_as_a_ray_job(head: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    spec = write_qa_spec(tmp_path, make_bert(tmp_path / "bert"))
    run_dir = tmp_path / "run"
    _assert_whole(_submit(head, "jobs/qa_bias.py", str(spec), "--run-dir", str(run_dir)), run_dir)
    assert query([run_dir], "from qa_by_dataset").num_rows == 3  # one model answers both sets, the other one


def test_adapters_are_trained_by_a_ray_job(head: tuple[str, dict[str, str]], tmp_path: Path, tiny_llama: Path) -> None:
    spec, run_dir = write_lora_spec(tmp_path, tiny_llama), tmp_path / "run"
    done = _submit(head, "jobs/train_lora.py", str(spec), "--run-dir", str(run_dir))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 of 2 (2 trained now)" in done.stdout
    done_by_noun = {stage.noun: stage.size_done for stage in run_status(str(run_dir)).stages}
    assert done_by_noun["adapters"] == 2


def test_a_model_is_tuned_by_a_ray_job(head: tuple[str, dict[str, str]], tmp_path: Path, tiny_llama: Path) -> None:
    spec, run_dir = write_instruct_spec(tmp_path, tiny_llama, max_steps=2), tmp_path / "run"
    done = _submit(head, "jobs/train_instruct.py", str(spec), "--run-dir", str(run_dir))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"model: {run_dir}/model" in done.stdout
    assert (
        load_model(ModelSource(str(run_dir / "model"))).num_parameters()
        == load_model(ModelSource(str(tiny_llama))).num_parameters()
    )


def test_a_local_run_does_not_join_somebody_elses_head(head: tuple[str, dict[str, str]]) -> None:
    """The head has left its address file; a run without RAY_ADDRESS starts a Ray of its own."""
    code = (
        "import ray; from biaseval.execute.cluster import Cluster; from biaseval.spec import ExecutionSpec\n"
        "with Cluster(ExecutionSpec()) as cluster:\n"
        "    print(cluster.resources().is_local, len(ray.nodes()), ray.cluster_resources()['CPU'])"
    )
    done = subprocess.run([sys.executable, "-c", code], env=head[1], capture_output=True, text=True, timeout=120)
    assert done.stdout.split()[:2] == ["True", "1"], done.stderr
