"""Runs on a cluster that begins with no worker, grows, and loses nodes: Ray's own autoscaler, on this machine."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from biaseval.pipelines import run_spec, run_status
from biaseval.spec import load_spec
from tests.heads import Head, ray_head
from tests.inprocess import in_this_process
from tests.test_pipelines import assert_same, digests, marts, write_spec
from tests.training.test_adapted_runs import LORA
from tests.waiting import MARKERS, N_BEFORE

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]

NODE = {"CPU": 2, "object_store_memory": 100_000_000}
SOON = "from biaseval.execute import waiting; waiting.FIRST_S = waiting._BETWEEN_LOOKS_S = 0.2; "


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    """Start a head that can hold no work, and may have two nodes that do."""
    with ray_head(num_cpus=0, node_types={"cpu": {"resources": NODE, "max_workers": 2}}) as started:
        yield started


@contextlib.contextmanager
def driver(head: Head, code: str, arguments: Sequence[str], log: Path) -> Iterator[psutil.Popen]:
    """Run code that drives a run on the cluster; it ends with the block at the latest."""
    environment = head.environment | {"RAY_ADDRESS": head.address}
    with log.open("w") as stream:
        process = psutil.Popen([sys.executable, "-c", code, *arguments], env=environment, stdout=stream, stderr=stream)
    try:
        yield process
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
        process.wait(timeout=30)


def wait_for(file: Path, process: psutil.Popen, log: Path) -> str:
    """Return what is in a file, once it is there."""
    deadline = time.monotonic() + 90
    while not file.exists():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
    return file.read_text()


def lose(head: Head, node: str) -> None:
    """Kill a node with all that is on it, as when a spot node is taken away."""
    found = [each for each in head.processes() if _node_of(each) == node]
    assert "raylet" in "".join(name for each in found for name in each.cmdline()[:1])
    for each in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()


def _node_of(process: psutil.Process) -> str | None:
    with contextlib.suppress(psutil.Error):
        return process.environ().get("RAY_OVERRIDE_NODE_ID_FOR_TESTING")
    return None


def test_a_run_begins_without_nodes_and_outlives_the_loss_of_one(head: Head, tmp_path: Path, tiny_llama: Path) -> None:
    spec, log = write_spec(tmp_path, tiny_llama), tmp_path / "log"
    code = SOON + "from tests.waiting import *; waiting_command(WaitingWorker)"
    lost: list[str] = []
    with driver(head, code, ["run", str(spec), "--run-dir", str(tmp_path / "run")], log) as process:
        for number, marker in enumerate(MARKERS, start=1):
            node = wait_for(tmp_path / marker, process, log)
            kept = digests(tmp_path / "run" / "label_scores")
            assert len(kept) >= number * N_BEFORE
            assert not run_status(str(tmp_path / "run")).is_complete
            lose(head, node)
            lost.append(node)
        assert process.wait(timeout=300) == 0, log.read_text()
    said = log.read_text()
    assert "scoring has waited 0:00 for an actor, which asks for 1 CPU: of 0 CPUs there 0 are free; up to 2 cpu" in said
    assert len(set(lost)) == 2
    assert digests(tmp_path / "run" / "label_scores").items() >= kept.items()
    with in_this_process():
        run_spec(load_spec(spec), str(tmp_path / "undisturbed"))
    assert_same(marts(tmp_path / "run"), marts(tmp_path / "undisturbed"))
