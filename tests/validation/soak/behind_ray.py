"""Rounds behind Ray: processes and nodes die at random moments, or workers at named points, while a real command runs.

Each round has a Ray of its own, and rounds that lose nodes a cluster. The same command then runs again, without Ray:
the files that it writes are the same.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from tests.validation.soak import server
from tests.validation.soak.points import ENVIRONMENT, Plan
from tests.validation.soak.rounds import BUCKET, CODES, Bench, Round, Strike, conclude, heard, wrong

psutil: Any = importlib.import_module("psutil")
ROOT = Path(__file__).parents[3]
HANGS_S = 240.0
"""Seconds after which a command on Ray hangs."""

_RAY: dict[str, str] = {
    "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0", "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
}  # fmt: skip
_NODES = {
    "RAY_health_check_period_ms": "500", "RAY_health_check_failure_threshold": "4",
    "RAY_health_check_initial_delay_ms": "1000",
}  # fmt: skip

_SCORED, _TRAINED, _TRIED = ("scoring", "generating", "answering"), ("lora", "readers", "instruct"), ("search",)
_ALL = (*_SCORED, *_TRAINED, *_TRIED)

_WORKER_POINTS = {
    **dict.fromkeys(_SCORED, ("a part, computed", "a part, before its write", "a part, between write and rename",
        "a part, behind its write")),
    "lora": ("training, at a step", "model or adapter, in a file", "a part, before its write"),
    "readers": ("training, at a step", "checkpoint, in a file", "checkpoint, before its marker",
        "checkpoint, behind its marker", "model or adapter, in a file"),
    "instruct": ("training, at a step", "checkpoint, in a file", "checkpoint, behind its marker",
        "model or adapter, in a file"),
    "search": ("a trial, at its start", "a trial, in its rows", "a part, before its write"),
}  # fmt: skip

NODE, POINT, RANDOM = "node of a cluster", "worker, at a named point", "at random"
TARGETS: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "driver, SIGKILL": (_ALL, (), ()),
    "driver, SIGTERM": (_ALL, (), ()),
    "driver, SIGINT": (_ALL, (), ()),
    "scoring actor": (_SCORED, ("ray::", "_Actor"), ()),
    "worker of a group": (_TRAINED, ("ray::", "TrainWorker"), ("ray::", "lead")),
    "trial": (_TRIED, ("ray::", "ImplicitFunc"), ("ray::", "ImplicitFunc")),
    "raylet": (_ALL, ("/raylet/raylet",), ()),
    "Ray's GCS": (_ALL, ("gcs_server",), ()),
    "Ray's agents and monitors": (_ALL, ("agent",), ("monitor",)),
    NODE: (("scoring", "generating", "answering"), (), ()),  # adapters that nodes train differ by rounding
    POINT: (tuple(_WORKER_POINTS), (), ()),
}
"""What is killed: kinds of runs, and one or two lists of words that its command line holds."""


class Rays:
    """Draws and makes the rounds behind Ray."""

    def __init__(self, bench: Bench, seed: int, on_s3: float = 0.25) -> None:
        self.bench, self.seed, self.on_s3 = bench, seed, on_s3

    def draw(self, number: int) -> Round:
        """Return a round: every target comes once before any comes again."""
        order = list(TARGETS)
        random.Random(f"{self.seed}/{number // len(order)}/ray").shuffle(order)
        target = order[number % len(order)]
        chance = random.Random(f"{self.seed}/{number}/ray")
        kind = chance.choice(TARGETS[target][0])
        point, nth = RANDOM, 1
        if target == POINT:
            point = chance.choice(_WORKER_POINTS[kind])
            nth = chance.randint(1, 2)
        return Round(number, kind, "s3" if chance.random() < self.on_s3 else "disk", [Strike(point, target, nth)])

    def made(self, number: int, variables: Mapping[str, str]) -> Round:
        """Make a round; ``variables`` point to the S3 server."""
        own, bench, begun = self.draw(number), self.bench, time.monotonic()
        [strike] = own.strikes
        folder = bench.folder / "rounds" / str(number)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        os.environ.update(variables)
        uri = f"{BUCKET}/{self.seed}/{number}" if own.store == "s3" else str(folder / "run")
        point = None if strike.point == RANDOM else strike.point
        plan = Plan(str(folder), point, "kill", strike.nth, str(bench.memory))
        (folder / "plan.json").write_text(json.dumps(asdict(plan)))
        there = bench.begin(own.kind, folder, uri)
        bench.undisturbed(own.kind)
        arguments = bench.arguments(own.kind, uri)
        chance = random.Random(f"{self.seed}/{number}/moment")
        with _place(folder) as place:
            is_node = strike.fault == NODE
            with _cluster(place) if is_node else contextlib.nullcontext() as cluster:
                address = None if cluster is None else cluster.address
                pid = server.start(partial(_driver, arguments, plan, bench.memory, address), folder)
                strike.hit = _disturb(strike, pid, folder, chance, cluster)
                ended = server.wait(pid, folder, HANGS_S)
            _end_all(place)
        strike.hit = strike.hit or (folder / "fired").exists()
        own.wrong = wrong(ended, _right(strike.fault))
        heard(own, strike, ended, folder, 0)
        conclude(own, bench, uri, folder, there, variables)
        own.seconds = round(time.monotonic() - begun, 1)
        return own


def _disturb(own: Strike, pid: int, folder: Path, chance: random.Random, cluster: Any) -> bool:
    """Kill what a round is about while its command runs; return whether something was killed."""
    if own.fault == POINT:
        return False
    driver = psutil.Process(pid)
    if own.fault.startswith("driver"):
        time.sleep(chance.uniform(0.3, 25.0))
        number = {"SIGKILL": signal.SIGKILL, "SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT}
        return _sent(driver, number[own.fault.partition(", ")[2]])
    if cluster is not None:
        if not _wait_for(lambda: "written" in os.listdir(folder), driver):
            return False
        time.sleep(chance.uniform(0.0, 1.5))
        cluster.lose()
        return not _has_ended(driver)
    words = chance.choice([own for own in TARGETS[own.fault][1:] if own])
    found: list[Any] = []

    def is_there() -> bool:
        found[:] = _processes(driver, words)
        return bool(found)

    if not _wait_for(is_there, driver):
        return False
    time.sleep(chance.choice([chance.uniform(0.0, 1.0), chance.uniform(0.0, 12.0)]))
    found[:] = _processes(driver, words)
    return bool(found) and not _has_ended(driver) and _sent(chance.choice(found), signal.SIGKILL)


def _driver(arguments: list[str], plan: Plan, memory: Path, address: str | None) -> int:
    if address is not None:
        os.environ["RAY_ADDRESS"] = address
    return server.command(arguments, plan, is_on_ray=True, memory=memory)


def _has_ended(process: Any) -> bool:
    return bool(process.status() == psutil.STATUS_ZOMBIE)


def _sent(process: Any, number: int) -> bool:
    try:
        if _has_ended(process):
            return False
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return False
    return True


def _wait_for(is_time: Any, driver: Any) -> bool:
    deadline = time.monotonic() + HANGS_S
    while time.monotonic() < deadline and not _has_ended(driver):
        if is_time():
            return True
        time.sleep(0.1)
    return False


def _processes(driver: Any, words: tuple[str, ...]) -> list[Any]:
    """Return the processes below a driver whose command lines hold all of these words."""
    found = []
    for one in driver.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            line = " ".join(one.cmdline())
            if all(word in line for word in words):
                found.append(one)
    return found


@contextlib.contextmanager
def _place(folder: Path) -> Iterator[str]:
    """Set the environment of a Ray of a round's own, and yield its temporary folder: paths of sockets must be short."""
    place = tempfile.mkdtemp(prefix="k", dir="/tmp")
    site = Path(__file__).parent / "site"
    paths = [str(site), str(ROOT), str(ROOT / "platform")]
    changes = {
        **_RAY, "RAY_TMPDIR": place, "PYTHONPATH": os.pathsep.join(paths),
        ENVIRONMENT: str(folder / "plan.json"),
    }  # fmt: skip
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield place
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        shutil.rmtree(place, ignore_errors=True)


def _end_all(place: str) -> None:
    """Kill what is left of a Ray: the processes whose environment names its temporary folder."""
    left = []
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if one.pid != os.getpid() and one.environ().get("RAY_TMPDIR") == place:
                one.kill()
                left.append(one)
    psutil.wait_procs(left, timeout=20)


class _Cluster:
    """A cluster with a head without work and one node, in a process of its own that loses the node when told."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pid = server.start(self._work, folder)
        deadline = time.monotonic() + 120
        while not (folder / "address").exists():
            if time.monotonic() > deadline:
                raise RuntimeError((folder / "err").read_text())
            time.sleep(0.1)
        self.address = (folder / "address").read_text()

    def _work(self) -> int:
        from ray.cluster_utils import Cluster

        os.environ.update(_NODES)
        cluster = Cluster(True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        node = cluster.add_node(num_cpus=2)
        part = self._folder / "address.part"
        part.write_text(cluster.address)
        part.rename(self._folder / "address")
        while not (self._folder / "lose").exists():
            time.sleep(0.05)
        cluster.remove_node(node, allow_graceful=False)
        cluster.add_node(num_cpus=2)
        (self._folder / "lose").rename(self._folder / "gone")
        while True:
            time.sleep(60)

    def lose(self) -> None:
        """Lose the node, and have another one come."""
        (self._folder / "lose").touch()
        while not (self._folder / "gone").exists():
            time.sleep(0.05)

    def end(self) -> None:
        """End the process; what it started is ended by `_end_all`."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


@contextlib.contextmanager
def _cluster(place: str) -> Iterator[_Cluster]:
    folder = Path(place) / "c"
    folder.mkdir()
    cluster = _Cluster(folder)
    try:
        yield cluster
    finally:
        cluster.end()


def _right(fault: str) -> set[int]:
    """Return the exit codes that a command on Ray may have."""
    if fault == POINT:
        return {0, 1, -9}
    if fault.startswith("driver"):
        return {0, CODES[{"SIGKILL": "kill", "SIGTERM": "stop", "SIGINT": "interrupt"}[fault.split(", ")[1]]]}
    return {0, 1}
