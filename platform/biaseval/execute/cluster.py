"""The connection to Ray, once per run, the resources of the cluster, and the nodes that an autoscaler would start."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, ClassVar, Self

from biaseval.analytics_files import modules_sent
from biaseval.errors import BiasevalError
from biaseval.execute.address import LOCAL, ray_address, refuse_unusable_address
from biaseval.execute.machine import n_cores
from biaseval.execute.resources import NodeType, Resources, local_cpus, share_of
from biaseval.parsing import yaml_1_1_value
from biaseval.progress import say
from biaseval.spec import ExecutionSpec

_SETTLING_S = 60.0
"""How long what a stage held may take to be free again."""


class Cluster:
    """Ray, which a run connects to when something of it is missing, and leaves at its end.

    A job or a ``RAY_ADDRESS`` decides for a cluster; otherwise a Ray of this run's own starts and ends with it, and no
    address file of a cluster that is gone is picked up.

    Args:
        execution: of the spec; its actors decide how many logical CPUs a Ray of this run's own has.
        at_once: runs of a search that share it equally, of which this is one; None: it has all of it.
        hands_on: at the end of this one Ray is left to the next of this process, or to `leave`; not after an error.
    """

    _handed_on: ClassVar[list[bool]] = []
    """Whether a Ray that was left is this machine's own; empty where none was."""
    _witness: ClassVar[list["Witness"]] = []
    """Of a Ray that this process connected to."""

    def __init__(self, execution: ExecutionSpec, at_once: int | None = None, *, hands_on: bool = False) -> None:
        self._hands_on = hands_on
        self._execution = execution
        self._at_once = at_once
        self._is_connected = False
        self._is_ours = False
        self._is_local = False

    def __enter__(self) -> Self:
        """Connect to nothing yet."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Leave Ray where this run connected to it, or hand it on."""
        if self._is_ours:
            self._handed_on.append(self._is_local)
            if not self._hands_on or error is not None:
                self.leave()

    @classmethod
    def leave(cls) -> None:
        """Leave a Ray that was handed on and that nobody took."""
        if cls._handed_on:
            import ray

            cls._handed_on.clear()
            with _held_signals() as hold_again:  # Ray's core takes handlers away before its processes end
                node = getattr(ray._private.worker, "_global_node", None)
                if node is not None:
                    end = node.kill_all_processes
                    node.kill_all_processes = lambda *given, **how: (hold_again(), end(*given, **how))
                ray.shutdown()
                cls._witness.pop().dismiss()

    @property
    def would_start(self) -> bool:
        """Whether there is no Ray yet, and the one that resources are asked of would be this run's own."""
        has_ray = "ray" in sys.modules and sys.modules["ray"].is_initialized()
        return not (self._is_connected or has_ray) and ray_address() == LOCAL

    def resources(self) -> Resources:
        """Return what there is to share now for one of the runs; connects where nothing has yet.

        Raises:
            InputError: no Ray answers at ``RAY_ADDRESS``.
            BiasevalError: Ray cannot be started or reached.
        """
        import ray

        self._connect()
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        threads = os.environ.get("OMP_NUM_THREADS", "")
        types = [] if self._is_local else node_types()
        found = Resources(nodes, self._is_local, n_cores(), int(threads) if threads.isdigit() else None, types)
        return found if self._at_once is None else share_of(found, self._at_once)

    def settle(self) -> None:
        """Wait until actors of an earlier stage have given back the CPUs and GPUs that they held; not for ever."""
        if not self._is_connected:
            return
        import ray

        from biaseval.execute.holdings import remove_strays

        remove_strays()
        if not (self._is_ours and self._is_local):
            return
        deadline = time.monotonic() + _SETTLING_S
        total = ray.cluster_resources()
        while time.monotonic() < deadline:
            free = ray.available_resources()
            if all(free.get(kind, 0) >= total.get(kind, 0) for kind in ("CPU", "GPU")):
                return
            time.sleep(0.05)

    def _connect(self) -> None:
        if self._is_connected:
            return
        import ray

        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Ray reports each actor pool's arguments as an error, which they are not while this process lives.
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
        # Ray's coming default: a task without a GPU keeps the machine's CUDA_VISIBLE_DEVICES. Unset, it warns.
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        if ray.is_initialized():
            self._is_ours = bool(self._handed_on)
            self._is_local = self._handed_on.pop() if self._is_ours else len(ray.nodes()) == 1
            self._is_connected = True
            return
        address = ray_address()
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address == LOCAL:
            options |= {"num_cpus": local_cpus(self._execution, n_cores()), "include_dashboard": False}
        else:
            # Workers run this very code, installed there or not.
            options["runtime_env"] = {"py_modules": modules_sent()}
        say("starting Ray" if address == LOCAL else f"connecting to Ray at {address}")
        refuse_unusable_address()  # Ray itself would wait for a head for ever
        self._witness.append(Witness())
        with _held_signals():
            try:
                with _without_chatter(), _on_loopback() if address == LOCAL else nullcontext():
                    ray.init(address=address, **options)
            except Exception as error:  # Ray raises bare ones where a node does not start
                self._witness.pop().dismiss()
                what = "cannot be started" if address == LOCAL else f"cannot be reached at {address} (RAY_ADDRESS)"
                raise BiasevalError(f"Ray {what}: {error}; run the same command again") from error
            self._is_local = address == LOCAL
            self._is_connected = self._is_ours = True
        with suppress(ImportError):  # a private module of Ray may move
            from ray._private.authentication.authentication_utils import is_token_auth_enabled

            if not self._is_local and not is_token_auth_enabled():
                say(
                    f"caution: Ray at {address} asks for no token, so whoever reaches its ports can run code on it; "
                    "set RAY_AUTH_MODE=token for it and here"
                )


@contextmanager
def _held_signals() -> Iterator[Callable[[], object]]:
    """Hold an interrupt and a stop back while Ray starts or ends, which fails on either; a second one ends at once.

    A handler that this process has for stops stays in place of Ray's own. Yields what holds them again.
    """
    if threading.current_thread() is not threading.main_thread():
        yield bool
        return
    from ray._private import utils

    came: list[int] = []
    of_ray: list[Any] = []

    def hold(number: int, frame: FrameType | None) -> None:
        if came:
            os._exit(128 + number)
        came.append(number)

    def hold_all() -> dict[signal.Signals, Any]:
        return {number: signal.signal(number, hold) for number in (signal.SIGINT, signal.SIGTERM)}

    kept = hold_all()
    set_by_ray, utils.set_sigterm_handler = utils.set_sigterm_handler, of_ray.append
    try:
        yield hold_all
    finally:
        utils.set_sigterm_handler = set_by_ray
        if of_ray and not callable(kept[signal.SIGTERM]):
            kept[signal.SIGTERM] = of_ray[-1]
        for number, handler in kept.items():
            signal.signal(number, handler or signal.SIG_DFL)
        for one in came:
            signal.raise_signal(one)


class Witness:
    """Another process, which says so if this one ends before `dismiss`: Ray's core ends it silently if Ray dies."""

    def __init__(self) -> None:
        said = "error: this process was ended, by Ray or by the system; run the same command again to resume"
        self._process: subprocess.Popen[bytes] | None = None
        with suppress(OSError):  # a machine may have no shell, or no room for a process
            self._process = subprocess.Popen(["sh", "-c", 'read -r _ || echo "$0" >&2', said], stdin=subprocess.PIPE)

    def dismiss(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.communicate(b"\n")


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Let a Ray that starts here listen on the loopback address alone, as it does on macOS and Windows."""
    from ray._private import ray_constants

    name, is_for_many = ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR, ray_constants.ENABLE_RAY_CLUSTER
    before = os.environ.get(name)
    os.environ[name], ray_constants.ENABLE_RAY_CLUSTER = "0", False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = is_for_many
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


@contextmanager
def _without_chatter() -> Iterator[None]:
    """Keep off standard error what Ray's core prints there below Python; its failures come as exceptions."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


_FILE = Path("~/ray_bootstrap_config.yaml")
"""Where `ray up` leaves its file on the head, on which jobs run."""

_UNLIMITED, _MOST = -1, 1000


def node_types() -> list[NodeType]:
    """Return the types of nodes that come on demand; none where no autoscaler says which.

    Ray knows them where the autoscaler reported them to it; `ray up` leaves its file on the head.
    """
    import ray

    config = ray._private.state.state.get_cluster_config()
    if config is not None and config.node_group_configs:
        return [
            NodeType(each.name, dict(each.resources), _MOST if each.max_count == _UNLIMITED else each.max_count)
            for each in config.node_group_configs
            if each.max_count > each.min_count or each.max_count == _UNLIMITED
        ]
    file = _FILE.expanduser()
    return types_of(yaml_1_1_value(file.read_text(encoding="utf-8"))) if file.is_file() else []


def types_of(config: Mapping[str, Any]) -> list[NodeType]:
    """Return the types of nodes that a file of `ray up` has beside its head; those that never come are left out."""
    most = int(config.get("max_workers", 2))  # Ray's own default
    return [
        NodeType(name, dict(own.get("resources", {})), at_most)
        for name, own in config.get("available_node_types", {}).items()
        if name != config.get("head_node_type") and (at_most := min(most, int(own.get("max_workers", most)))) > 0
    ]
