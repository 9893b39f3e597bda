"""Real Ray heads on loopback, in processes of their own: with a job server, or with an autoscaler that starts nodes."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.buckets import free_port
from tests.processes import ROOT

BIN = Path(sys.executable).parent

_HEAD_ID, _HEAD_TYPE = "f" * 51 + "00000", "ray.head.default"
"""Those of Ray's own provider of processes in place of machines."""

_LISTS = (
    "setup_commands", "head_setup_commands", "worker_setup_commands", "initialization_commands", "cluster_synced_files",
    "rsync_exclude", "rsync_filter", "head_start_ray_commands", "worker_start_ray_commands",
)  # fmt: skip
_FAKED = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"


@dataclass(frozen=True)
class Head:
    """A head that runs."""

    address: str
    """Of Ray."""
    dashboard: str
    """URL of its job server."""
    folder: Path
    """Its temporary folder, in which the home of its drivers is."""
    environment: dict[str, str]
    """For drivers and commands."""

    def processes(self) -> list[psutil.Process]:
        """Return the processes whose command line or environment names its temporary folder."""
        found, name = [], str(self.folder)
        for process in psutil.process_iter():
            try:
                if any(name in part for part in process.cmdline()) or process.environ().get("RAY_TMPDIR") == name:
                    found.append(process)
            except psutil.Error:
                continue
        return found


@contextlib.contextmanager
def ray_head(
    num_cpus: int, node_types: Mapping[str, Mapping[str, Any]] | None = None, **variables: str
) -> Iterator[Head]:
    """Start a head; end it and the processes that it started, of which none may be left.

    Args:
        num_cpus: of the head.
        node_types: as in a cluster's file; Ray's autoscaler starts such nodes, on this machine, when they are needed.
        **variables: of the environment of its nodes alone.
    """
    # A socket's path must be short.
    folder = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))
    port, dashboard = free_port(), free_port()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "platform")]),
        "RAY_TMPDIR": str(folder),
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        # Job logs are followed over a web socket, which a proxy of the machine's must not catch.
        "no_proxy": "127.0.0.1,localhost",
    }
    command = [
        *(str(BIN / "ray"), "start", "--head", "--block", f"--num-cpus={num_cpus}", "--disable-usage-stats"),
        *(f"--port={port}", f"--dashboard-port={dashboard}", "--dashboard-host=127.0.0.1"),
        *(f"--temp-dir={folder}", "--node-ip-address=127.0.0.1", f"--ray-client-server-port={free_port()}"),
        f"--dashboard-agent-listen-port={free_port()}",
    ]
    own: dict[str, str] = {}
    if node_types is not None:
        command += ["--autoscaling-config", str(_write_config(folder, port, node_types))]
        own = {
            "RAY_enable_autoscaler_v2": "1",
            "RAY_FAKE_CLUSTER": "1",
            "RAY_CLOUD_INSTANCE_ID": _HEAD_ID,
            "RAY_OVERRIDE_NODE_ID_FOR_TESTING": _HEAD_ID,
            "RAY_NODE_TYPE_NAME": _HEAD_TYPE,
            "AUTOSCALER_UPDATE_INTERVAL_S": "1",
            # A node that is gone is noticed after half a minute otherwise.
            "RAY_health_check_period_ms": "500",
            "RAY_health_check_failure_threshold": "4",
            "RAY_health_check_initial_delay_ms": "1000",
        }
    log = folder / "head.log"
    with log.open("w") as stream:
        process = subprocess.Popen(
            command, env=environment | own | variables, stdout=stream, stderr=stream, start_new_session=True
        )
    # As on a head that `ray up` made, its file lies in the home of who runs drivers.
    head = Head(f"127.0.0.1:{port}", f"http://127.0.0.1:{dashboard}", folder, environment | {"HOME": str(folder)})
    default_address_file = Path("/tmp/ray/ray_current_cluster")
    before = default_address_file.read_text() if default_address_file.exists() else None
    try:
        _wait_for_start(process, log)
        yield head
    finally:
        # Asked to end, it would take half a minute to say goodbye.
        process.kill()
        for left in head.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                left.kill()
        process.wait(timeout=30)
        psutil.wait_procs(head.processes(), timeout=10)
        shutil.rmtree(folder, ignore_errors=True)
    assert not head.processes(), "a process of the head is left"
    after = default_address_file.read_text() if default_address_file.exists() else None
    assert after == before, "the head left an address that a later local run would pick up"


def _write_config(folder: Path, port: int, node_types: Mapping[str, Mapping[str, Any]]) -> Path:
    """Write the file of a cluster whose nodes are processes of this machine; return where it is."""
    types = {name: {"node_config": {}, "min_workers": 0, **own} for name, own in node_types.items()}
    provider = {"gcs_address": f"127.0.0.1:{port}", "launch_multiple": True, "head_node_id": _HEAD_ID}
    config: dict[str, Any] = {
        # What Ray asks for however it is used.
        **{name: [] for name in _LISTS},
        "file_mounts": {},
        "file_mounts_sync_continuously": False,
        "auth": {},
        "docker": {},
        "idle_timeout_minutes": 5,
        "cluster_name": "faked",
        "max_workers": sum(own["max_workers"] for own in types.values()),
        "upscaling_speed": 10,
        "provider": {"type": "external", "module": _FAKED, **provider},
        "head_node_type": _HEAD_TYPE,
        "available_node_types": {_HEAD_TYPE: {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0}, **types},
    }
    path = folder / "ray_bootstrap_config.yaml"
    path.write_text(json.dumps(config))
    return path


def _wait_for_start(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 240
    while "will now block" not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.3)
