"""Runs on a cluster that begins with no worker, grows, and loses nodes: Ray's own autoscaler, on this machine."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pyarrow
import pytest
import torch
from ray._raylet import GcsClient

from biaseval.runs import run_spec, run_status
from biaseval.spec import load_spec
from tests.heads import Head, ray_head
from tests.inprocess import in_this_process
from tests.processes import ROOT
from tests.test_pipelines import assert_same, digests, marts, write_spec
from tests.training.test_adapted_runs import LORA, weights
from tests.waiting import MARKERS

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]

NODE = {"CPU": 2, "object_store_memory": 100_000_000}
SOON = "from biaseval.execute import waiting; waiting.FIRST_S = waiting._BETWEEN_LOOKS_S = 0.2; "
OTHER_ARROW = f"workers have pyarrow 0.1 (here {pyarrow.__version__}): install the same on all nodes"


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    """Start a head that can hold no work, and may have two nodes that do; they say that their Arrow is another one."""
    other = tmp_path_factory.mktemp("other")
    (other / "pyarrow-0.1.dist-info").mkdir()
    (other / "pyarrow-0.1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: pyarrow\nVersion: 0.1\n")
    paths = os.pathsep.join(map(str, (other, ROOT, ROOT / "platform")))
    with ray_head(0, {"cpu": {"resources": NODE, "max_workers": 2}}, PYTHONPATH=paths) as started:
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
    deadline = time.monotonic() + 180  # two test processes share the machine
    while not file.exists():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
    return file.read_text()


def n_nodes(head: Head) -> int:
    """Return how many nodes there are or were, the head included."""
    return len(GcsClient(address=head.address).get_all_node_info())


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


def interrupted(head: Head, spec: Path, what: str, table: str) -> str:
    """Run a spec beside its file, and lose the node of who waits in it; return what the run said.

    What was there by then stays as it is.
    """
    folder, log = spec.parent, spec.parent / "log"
    first, second = (folder / marker for marker in MARKERS)
    second.touch()  # they wait once
    code = f"{SOON} from tests.waiting import *; waiting_command({what})"
    with driver(head, code, ["run", str(spec), "--run-dir", str(folder / "run")], log) as process:
        node = wait_for(first, process, log)
        kept = digests(folder / "run" / table)
        assert not run_status(str(folder / "run")).is_complete
        lose(head, node)
        assert process.wait(timeout=300) == 0, log.read_text()
    assert digests(folder / "run" / table).items() >= kept.items()
    return log.read_text()


def undisturbed(spec: Path) -> Path:
    """Return the run directory of the same spec, made here."""
    with in_this_process():
        run_spec(load_spec(spec), str(spec.parent / "undisturbed"), page=False)
    return spec.parent / "undisturbed"


def test_a_run_begins_without_nodes_and_outlives_the_loss_of_one(head: Head, tmp_path: Path, tiny_llama: Path) -> None:
    spec = write_spec(tmp_path, tiny_llama, calibration=["cc"], prompt={"n_demos": [0, 2], "demo_sets": 1})
    assert n_nodes(head) == 1
    said = interrupted(head, spec, "WaitingWorker", "label_scores")
    assert "scoring has waited 0:00 for an actor, which asks for 1 CPU: of 0 CPUs there 0 are free; up to 2 cpu" in said
    assert said.count(OTHER_ARROW) == 1
    assert n_nodes(head) >= 1 + 2
    assert_same(marts(tmp_path / "run"), marts(undisturbed(spec)))


@pytest.mark.skipif("BIASEVAL_STUDIES" not in os.environ, reason="takes minutes; set BIASEVAL_STUDIES=1")
def test_adapters_outlive_the_loss_of_a_node(head: Head, tmp_path: Path, tiny_llama: Path) -> None:
    spec = write_spec(tmp_path, tiny_llama, calibration=["cc"], lora=LORA)
    said = interrupted(head, spec, "waiting_adapter", "adapters")
    assert said.count(OTHER_ARROW) == 2  # of those that train, and of those that score
    found, wanted = weights(tmp_path / "run"), weights(undisturbed(spec))
    assert found.keys() == wanted.keys()
    for adapter, own in wanted.items():
        for name, values in own.items():
            torch.testing.assert_close(found[adapter][name], values, rtol=1e-3, atol=1e-4)
