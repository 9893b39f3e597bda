"""What `biaseval doctor` says of machines, stores and files that are as they should be, and of others."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from biaseval.doctor import Finding, examine
from biaseval.doctor.cluster_file import cluster_file
from biaseval.doctor.finding import State
from biaseval.doctor.hub import judge_hub
from biaseval.doctor.machine import GIB, Gpu, available_gib, judge_disk, judge_torch, n_nvidia_devices
from biaseval.doctor.packages import Asked, asked, judge_packages, judge_python
from biaseval.doctor.ray import judge_address
from biaseval.doctor.run_dir import run_dir
from biaseval.doctor.upload import upload, uploaded
from biaseval.lease import held
from biaseval.store import Run
from tests.buckets import free_port
from tests.commands import call

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def states(findings: Iterator[Finding] | list[Finding]) -> dict[str, State]:
    return {finding.check: finding.state for finding in findings}


def assert_has_remedies(findings: list[Finding]) -> None:
    for finding in findings:
        assert (finding.remedy is None) == (finding.state is State.ok), finding
        assert "\n" not in f"{finding.found}{finding.remedy}"


# ---- the machine -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "state"), [("3.11.7", "ok"), ("3.12.0", "ok"), ("3.10.9", "problem"), ("3.13.0", "problem")]
)
def test_python_is_one_that_the_package_takes(version: str, state: str) -> None:
    assert judge_python(version, asked().python).state == state


def test_packages_are_as_asked_for_and_as_tested() -> None:
    from importlib.metadata import version

    own = version("pyarrow")
    assert states(judge_packages(Asked("", ["pyarrow>=1", "absent; python_version < '3'"], [f"pyarrow=={own}"]))) == {
        "packages": State.ok
    }
    [wrong] = judge_packages(Asked("", ["pyarrow>=9999", "no-such-package>=2"], []))
    assert wrong.state is State.problem
    assert f"pyarrow {own} (>=9999 is needed), no-such-package is missing (>=2)" in wrong.found
    [other] = judge_packages(Asked("", ["pyarrow"], ["pyarrow==0.1", "no-such-package==1"]))
    assert other.state is State.warning
    assert other.found == f"1 other than the tests passed with: pyarrow {own} (tested: 0.1)"
    assert_has_remedies([wrong, other])


def test_what_is_asked_for_is_known_without_the_repository(tmp_path: Path) -> None:
    installed, checkout = asked(tmp_path), asked()
    assert installed.python == ">=3.11,<3.13" or set(installed.python.split(",")) == set(checkout.python.split(","))
    assert any(own.startswith("pyarrow") for own in installed.requirements)
    assert not any("bitsandbytes" in own for own in installed.requirements)
    assert (installed.tested, bool(checkout.tested)) == ([], True)


GPU = Gpu("NVIDIA X", memory_gib=80, free_gib=79)


@pytest.mark.parametrize(
    ("cuda", "n_devices", "gpus", "expected"),
    [
        (None, 0, [], {"torch": "ok"}),
        ("12.8", 0, [], {"torch": "ok"}),
        (None, 2, [], {"torch": "problem"}),
        ("12.8", 2, [], {"torch": "problem"}),
        ("12.8", 1, [GPU], {"torch": "ok", "gpu 0": "ok"}),
        ("12.8", 1, [Gpu("NVIDIA X", 80, 3)], {"torch": "ok", "gpu 0": "warning"}),
    ],
)
def test_torch_reaches_the_gpus_that_are_there(
    cuda: str | None, n_devices: int, gpus: list[Gpu], expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found = list(judge_torch("2.13.0", cuda, n_devices, gpus, has_quantization=True))
    assert states(found) == expected
    assert_has_remedies(found)


def test_hidden_gpus_and_missing_quantization_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    [hidden] = judge_torch("2.13.0", "12.8", 1, [], has_quantization=False)
    assert (hidden.state, "CUDA_VISIBLE_DEVICES" in hidden.found) == (State.warning, True)
    assert states(judge_torch("2.13.0", "12.8", 1, [GPU], has_quantization=False))["quantization"] is State.warning


def test_gpus_are_counted_by_the_devices_of_their_driver(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert n_nvidia_devices(tmp_path) == 2


def test_memory_is_what_the_container_leaves(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 99999999 kB\nMemAvailable: 8388608 kB\n")
    assert available_gib(tmp_path / "meminfo", tmp_path) == 8
    (tmp_path / "memory.max").write_text("max\n")
    assert available_gib(tmp_path / "meminfo", tmp_path) == 8
    (tmp_path / "memory.max").write_text(f"{3 * GIB}\n")
    (tmp_path / "memory.current").write_text(f"{1 * GIB}\n")
    assert available_gib(tmp_path / "meminfo", tmp_path) == 2
    assert available_gib(tmp_path / "absent", tmp_path / "absent") is None


@pytest.mark.parametrize(
    ("total_gib", "free_gib", "state"),
    [(100, 50, "ok"), (15, 9, "ok"), (100, 8, "warning"), (1000, 40, "warning"), (100, 0.5, "problem")],
)
def test_a_disk_has_place_for_models_and_for_what_ray_spills(total_gib: float, free_gib: float, state: str) -> None:
    assert judge_disk("runs", total_gib, free_gib).state == state


# ---- Ray and the hub -------------------------------------------------------------------------------------------------


@pytest.mark.ray
def test_an_address_of_ray_is_reached_or_said_to_be_wrong(
    tmp_path: Path, ray_cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    head = ray.get_runtime_context().gcs_address
    nobody = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    current = tmp_path / "ray" / "ray_current_cluster"

    def state(address: str) -> str:
        finding = judge_address(address, "2.60.0")
        assert_has_remedies([finding])
        return finding.state

    assert [state(own) for own in ("local", head, "auto")] == ["ok"] * 3
    assert [state(own) for own in (nobody, "nonsense", f"http://{head}")] == ["problem"] * 3
    current.parent.mkdir()
    current.write_text(head)
    assert state("local") == "ok"
    current.write_text(nobody)  # it is gone, and its file is still there
    assert state("local") == "warning"
    assert judge_address("local", "2.60.0").remedy == f"rm {current}"


class Hub(BaseHTTPRequestHandler):
    """A hub that knows one token."""

    def do_GET(self) -> None:  # the name that Python asks for
        is_known = self.headers.get("Authorization") in (None, "Bearer known")
        self.send_response(500 if self.path.startswith("/broken") else 200 if is_known else 401)
        self.end_headers()

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def a_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = HTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_hub_answers_and_knows_the_token(a_hub: str) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    found = [
        judge_hub(*own)
        for own in ((a_hub, None), (a_hub, "known"), (a_hub, "old"), (f"{a_hub}/broken", "known"), (nobody, None))
    ]
    assert [finding.state for finding in found] == ["ok", "ok", "problem", "warning", "warning"]
    assert_has_remedies(found)
    assert not any(token in str(finding) for finding in found for token in ("'known'", "'old'", "Bearer"))


# ---- run directories -------------------------------------------------------------------------------------------------


def test_a_local_directory_is_tried_and_not_made(tmp_path: Path) -> None:
    assert states(run_dir(str(tmp_path / "a" / "b"))) == {"run directory": State.ok}
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("x")
    for bad in ("file", "file/run"):
        [found] = run_dir(str(tmp_path / bad))
        assert found.state is State.problem
        assert_has_remedies([found])
    [foreign] = run_dir(str(tmp_path))
    assert "not a run directory" in foreign.found


def test_a_bucket_is_read_written_and_asked_with_conditions(object_store: str, tmp_path: Path) -> None:
    run = Run.open(f"{object_store}/doctor/{tmp_path.name}")
    found = list(run_dir(run.uri))
    assert states(found) == {"run directory": State.ok, "conditional writes": State.ok}
    assert set(found[0].facts) == {"list_s", "write_s", "read_s"}
    assert run.names() == []
    with held(run):
        last = list(run_dir(run.uri))[-1]
        assert last.state is State.warning
        assert "works on it" in last.found
    [absent] = run_dir("s3://absent/run")
    assert absent.state is State.problem
    assert "AWS_ENDPOINT_URL" in str(absent.remedy)


def test_without_boto3_nothing_is_promised(object_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "botocore.session", None)
    found = list(run_dir(f"{object_store}/doctor/without"))
    assert states(found)["conditional writes"] is State.warning
    assert found[-1].remedy == "pip install 'boto3>=1.36'"


# ---- cluster files ---------------------------------------------------------------------------------------------------


def changed(folder: Path, change: Any) -> list[Finding]:
    """Return what is said of our own file with a change."""
    config = yaml.safe_load((ROOT / "cluster.yaml").read_text())
    config["file_mounts"] = {}
    for own in config["available_node_types"].values():
        own["node_config"]["ImageId"] = "ami-0123456789abcdef0"
    change(config)
    (folder / "cluster.yaml").write_text(yaml.safe_dump(config))
    found = list(cluster_file(folder / "cluster.yaml"))
    assert_has_remedies(found)
    return found


def test_our_own_cluster_file_is_fine_where_the_cloud_is_and_it_names_an_image(
    object_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert states(changed(tmp_path, lambda own: None)) == {"cluster file": State.ok, "cloud": State.ok}
    monkeypatch.setenv("HOME", str(tmp_path))
    _, missing, _ = cluster_file(ROOT / "cluster.yaml")
    assert missing.found == "file_mounts: ~/.ray/auth_token, for /home/ray/.ray/auth_token, is not here"
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").touch()
    [problem, _] = cluster_file(ROOT / "cluster.yaml")
    assert problem.state is State.problem
    assert "head, cpu, gpu_spot, gpu_on_demand, gpu_8x80gb: node_config.ImageId names no image" in problem.found


def test_what_is_wrong_with_a_cluster_file_is_said_by_its_keys(object_store: str, tmp_path: Path) -> None:
    def said(change: Any) -> str:
        found = [finding.found for finding in changed(tmp_path, change) if finding.state is State.problem]
        assert len(found) == 1
        return found[0]

    assert "max_workers: 'many' is not of type 'integer'" in said(lambda own: own.update(max_workers="many"))
    assert "head_node_type: tail is none of cpu, gpu_8x80gb, gpu_on_demand, gpu_spot, head" in said(
        lambda own: own.update(head_node_type="tail")
    )
    assert "file_mounts: ./absent" in said(lambda own: own.update(file_mounts={"/there": "./absent"}))
    old = "rayproject/ray:2.9.0-py311-gpu"
    assert f"{old} has ray 2.9.0" in said(lambda own: own["docker"].update(image=old))
    open_dashboard = ["ray start --head --dashboard-host=0.0.0.0"]
    assert "the dashboard" in said(lambda own: own.update(head_start_ray_commands=open_dashboard))
    (tmp_path / "cluster.yaml").write_text("a: [")
    [damaged] = cluster_file(tmp_path / "cluster.yaml")
    assert "cannot be read" in damaged.found
    (tmp_path / "cluster.yaml").write_text("cluster_name: small\nprovider: {type: local, head_ip: 10.0.0.1}\n")
    assert states(cluster_file(tmp_path / "cluster.yaml")) == {"cluster file": State.ok}
    [empty] = changed(tmp_path, lambda own: own.clear())
    assert "'cluster_name' is a required property" in empty.found


# ---- what jobs take with them ---------------------------------------------------------------------------------------


def test_what_a_job_would_send_is_what_ray_would_and_too_much_names_the_largest(tmp_path: Path) -> None:
    for name in ("jobs/a.py", ".git/objects/1", "runs/r/part", "models/weights", "models/small"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x" * 10)
    (tmp_path / ".gitignore").write_text("runs/\n")
    [fine] = upload(tmp_path)
    assert fine.state is State.ok
    assert fine.found.endswith("would send 0.0 MiB in 4 files")
    with (tmp_path / "models" / "weights").open("wb") as weights:
        weights.truncate(600 * 2**20)  # a hole, which takes no disk
    [found] = upload(tmp_path)
    assert found.state is State.problem
    assert "would send 600.0 MiB in 4 files, and Ray takes 512; largest: models/weights (600.0 MiB), " in found.found
    (tmp_path / ".rayignore").write_text("weights\n")
    assert sorted(uploaded(tmp_path)) == [".gitignore", ".rayignore", "jobs/a.py", "models/small"]


# ---- the command -----------------------------------------------------------------------------------------------------


def test_the_command_prints_a_line_a_check_and_fails_where_there_is_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = call(capsys, monkeypatch, "doctor", "--run-dir", str(tmp_path / "run"))
    lines = [line for line in shown.out.splitlines() if not line.startswith(" ")]
    found = {State(line.split()[0]) for line in lines}
    assert shown.code == (State.problem in found), shown.out
    for check in ("python", "packages", "torch", "disk", "ray", "hugging face", "run directory"):
        assert any(f" {check}: " in line for line in lines), check
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{free_port()}")
    broken = call(capsys, monkeypatch, "doctor", "--cluster", str(tmp_path / "absent.yaml"), "--json")
    assert broken.code == 1
    content = json.loads(broken.out)
    assert content["has_problem"] is True
    assert {"ray", "cluster file"} <= {own["check"] for own in content["checks"] if own["state"] == "problem"}


def test_a_check_that_fails_itself_is_a_problem_and_the_others_go_on() -> None:
    found = list(examine("nonsense://bucket/run"))
    assert found[-1].state is State.problem
    assert "cannot open this run directory" in found[-1].found
    assert len(found) > 5
