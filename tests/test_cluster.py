"""Connecting to Ray: once a run, and what a head that is gone costs."""

from __future__ import annotations

import socket

import pytest

from biaseval.errors import InputError, TransientError
from biaseval.execute import cluster
from biaseval.execute.cluster import Cluster
from biaseval.spec import ExecutionSpec
from tests.buckets import free_port


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "localhost:{}", "ray://127.0.0.1:{}"])
def test_a_head_that_is_gone_is_said_and_not_waited_for(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    address = form.format(free_port())
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setattr(cluster, "ANSWER_S", 0.2)
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with (
        pytest.raises(TransientError, match=rf"no Ray answers at '{address}' \(.+\): start its head, or correct RAY_A"),
        Cluster(ExecutionSpec()) as own,
    ):
        own.resources()
    assert TransientError.exit_code == 1


@pytest.mark.parametrize("address", ["local", "auto", "host:abc", "host:99999"])
def test_what_names_no_host_is_left_to_ray(address: str) -> None:
    cluster._refuse_silence(address)


def test_a_head_that_listens_is_connected_to() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        cluster._refuse_silence(f"127.0.0.1:{listener.getsockname()[1]}")


@pytest.fixture
def rays(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what is asked of a Ray that only says whether it is there."""
    asked: list[str] = []
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("ray.is_initialized", lambda: asked.count("init") > asked.count("shutdown"))
    monkeypatch.setattr("ray.init", lambda **options: asked.append("init"))
    monkeypatch.setattr("ray.shutdown", lambda: asked.append("shutdown"))
    monkeypatch.setattr(cluster, "node_types", list)
    monkeypatch.setattr("ray.nodes", lambda: [{"Alive": True, "Resources": {"CPU": 4.0}}] * 2)
    return asked


def test_a_ray_that_planning_began_is_that_of_making(rays: list[str]) -> None:
    with Cluster(ExecutionSpec(), hands_on=True) as planning:
        assert planning.resources().is_local
    assert rays == ["init"]
    with Cluster(ExecutionSpec()) as making:
        assert making.resources().is_local  # what began it knows: a head may have several nodes
    assert rays == ["init", "shutdown"]
    Cluster.leave()
    assert rays == ["init", "shutdown"]


def test_a_ray_that_nobody_takes_is_left(rays: list[str]) -> None:
    with Cluster(ExecutionSpec(), hands_on=True) as planning:
        planning.resources()
    Cluster.leave()
    assert rays == ["init", "shutdown"]


def test_a_ray_is_handed_on_behind_no_error(rays: list[str]) -> None:
    def plan() -> None:
        with Cluster(ExecutionSpec(), hands_on=True) as planning:
            planning.resources()
            raise InputError("the last task is empty")

    with pytest.raises(InputError):
        plan()
    assert rays == ["init", "shutdown"]


def test_somebody_elses_ray_stays(rays: list[str]) -> None:
    rays.append("init")
    for hands_on in (True, False):
        with Cluster(ExecutionSpec(), hands_on=hands_on) as own:
            assert not own.resources().is_local
    Cluster.leave()
    assert rays == ["init"]
