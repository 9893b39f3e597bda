"""Connecting to Ray: once a run, and what a head that is gone costs."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from biaseval.errors import InputError
from biaseval.execute import address as addresses
from biaseval.execute import cluster
from biaseval.execute.cluster import Cluster
from biaseval.spec import ExecutionSpec
from tests.buckets import free_port


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "localhost:{}", "ray://127.0.0.1:{}"])
def test_a_head_that_is_gone_is_said_and_not_waited_for(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    address = form.format(free_port())
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    gone = rf"^no Ray answers at {address} \(Connection refused\); start that cluster"
    with pytest.raises(InputError, match=gone), Cluster(ExecutionSpec()) as own:
        own.resources()
    for wrong in ("host", "host:abc", "nonsense"):
        found = addresses.unusable(wrong)
        assert found is not None
        assert found.found == f"no Ray answers at {wrong} (it is not HOST:PORT)"


@contextmanager
def http_server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_who_listens_need_not_be_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    with http_server() as somebody:
        found = [addresses.unusable(form.format(somebody)) for form in ("{}", "ray://{}")]
    assert [one.found.partition(" (")[2] for one in found if one] == ["something else listens there)"] * 2
    monkeypatch.setattr(addresses, "_PATIENCE_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:  # and says nothing
        assert addresses.unusable(f"127.0.0.1:{listener.getsockname()[1]}") is not None


def test_the_dashboards_address_is_for_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:8265")
    monkeypatch.setattr("ray.is_initialized", lambda: True)
    addresses.refuse_unusable_address()  # a Ray that is there is taken, whatever the variable says
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with pytest.raises(
        InputError, match="is the address of the dashboard, which takes jobs alone; set it to HOST:6379"
    ):
        addresses.refuse_unusable_address()


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


def test_a_ray_that_nobody_takes_is_left_and_none_is_handed_on_behind_an_error(rays: list[str]) -> None:
    with Cluster(ExecutionSpec(), hands_on=True) as planning:
        planning.resources()
    Cluster.leave()
    assert rays == ["init", "shutdown"]
    rays.clear()

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
