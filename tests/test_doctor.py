"""What `biaseval doctor` says of machines, stores and files that are as they should be, and of others."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from biaseval.doctor import Finding, examine
from biaseval.doctor.cluster_file import cluster_file
from biaseval.doctor.finding import State
from biaseval.doctor.ray import judge_address
from biaseval.doctor.run_dir import run_dir
from biaseval.lease import held
from biaseval.store import Run
from tests.buckets import free_port
from tests.commands import Command

ROOT = Path(__file__).resolve().parents[1]


def states(findings: Iterator[Finding] | list[Finding]) -> dict[str, State]:
    return {finding.check: finding.state for finding in findings}


def assert_has_remedies(findings: list[Finding]) -> None:
    for finding in findings:
        assert (finding.remedy is None) == (finding.state is State.ok), finding
        assert "\n" not in f"{finding.found}{finding.remedy}"


# ---- Ray -----------------------------------------------------------------------------------------------------------


@pytest.mark.ray
def test_an_address_of_ray_is_reached_or_wrong(
    tmp_path: Path, ray_cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    head = ray.get_runtime_context().gcs_address
    nobody = f"127.0.0.1:{free_port()}"
    monkeypatch.setattr("biaseval.execute.address._PATIENCE_S", 2)
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
    tail = "head_node_type: tail is none of cpu, gpu_8x80gb, gpu_on_demand, gpu_spot, head"
    changes: list[tuple[Any, str]] = [
        (lambda own: own.update(max_workers="many"), "max_workers: 'many' is not of type 'integer'"),
        (lambda own: own.update(head_node_type="tail"), tail),
        (lambda own: own.update(file_mounts={"/there": "./absent"}), "file_mounts: ./absent"),
        (lambda own: own["docker"].update(image="rayproject/ray:2.9.0-py311-gpu"), "2.9.0-py311-gpu has ray 2.9.0"),
        (lambda own: own.update(head_start_ray_commands=["ray start --head --dashboard-host=0.0.0.0"]),
            "the dashboard"),
        (lambda own: own.clear(), "'cluster_name' is a required property"),
    ]  # fmt: skip
    for change, said in changes:
        [found] = [finding.found for finding in changed(tmp_path, change) if finding.state is State.problem]
        assert said in found
    (tmp_path / "cluster.yaml").write_text("a: [")
    [damaged] = cluster_file(tmp_path / "cluster.yaml")
    assert "cannot be read" in damaged.found
    (tmp_path / "cluster.yaml").write_text("cluster_name: small\nprovider: {type: local, head_ip: 10.0.0.1}\n")
    assert states(cluster_file(tmp_path / "cluster.yaml")) == {"cluster file": State.ok}


# ---- the command -----------------------------------------------------------------------------------------------------


def test_the_command_prints_a_line_a_check_and_fails_where_there_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    shown = command("doctor", "--run-dir", str(tmp_path / "run"))
    lines = [line for line in shown.out.splitlines() if not line.startswith(" ")]
    found = {State(line.split()[0]) for line in lines}
    assert shown.code == (State.problem in found), shown.out
    for check in ("ray", "run directory"):
        assert any(f" {check}: " in line for line in lines), check
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{free_port()}")
    monkeypatch.setattr("biaseval.execute.address._PATIENCE_S", 2)
    broken = command("doctor", "--cluster", str(tmp_path / "absent.yaml"), "--json")
    assert broken.code == 1
    content = json.loads(broken.out)
    assert content["has_problem"] is True
    assert {"ray", "cluster file"} <= {own["check"] for own in content["checks"] if own["state"] == "problem"}


def test_a_check_that_fails_itself_is_a_problem_and_the_others_go_on(tmp_path: Path) -> None:
    found = list(examine("nonsense://bucket/run", tmp_path / "absent.yaml"))
    [failed] = [finding for finding in found if finding.check == "run directory"]
    assert failed.state is State.problem
    assert "cannot open this run directory: nonsense:// is not" in failed.found
    assert (found[0].check, found[-1].check) == ("ray", "cluster file")
