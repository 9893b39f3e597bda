"""Connecting to Ray: what a head that is gone costs."""

from __future__ import annotations

import socket

import pytest

from biaseval.errors import TransientError
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


@pytest.mark.parametrize("address", ["local", "auto"])
def test_what_names_no_host_is_left_to_ray(address: str) -> None:
    cluster._refuse_silence(address)


def test_a_head_that_listens_is_connected_to() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        cluster._refuse_silence(f"127.0.0.1:{listener.getsockname()[1]}")
