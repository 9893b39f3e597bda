"""The named points of a run, and faults there; nothing in the product knows of them.

`install` wraps functions of the product in a process, as soon as their modules are imported. Each call of a wrapped
function is an event: a hook with a moment (before, in or behind) and, for writes, the name of the file.
"""

from __future__ import annotations

import errno
import functools
import importlib.abc
import importlib.util
import json
import os
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

ENVIRONMENT = "BIASEVAL_SOAK"
"""The variable that names a file for processes of Ray: it holds the plan as JSON."""

_PLANNED = (
    "(tasks|splits|settings|contexts|prompts|training_rows|conversations|qa_examples|qa_tfidf|qa_training_examples)/.*"
)
_MODEL = "(adapters|adapter|models|model)/.*"
_ROWS = "(trials|trial_values|trial_evaluations)/part-.*"
_PART = (
    "(label_scores|adapted_scores|generations|adapted_generations|qa_attributes|qa_predictions|qa_segments"
    "|qa_guide_logits|trained_models|training|evaluations)/part-.*"
)
KILLS = ("kill", "stop", "interrupt")
FAULTS = (*KILLS, "full", "error")
"""SIGKILL, SIGTERM, SIGINT; a disk that is full once, or a store that refuses once; an error of torch."""


@dataclass(frozen=True)
class Point:
    """A place in the work of a run."""

    hook: str
    moment: str = "before"
    files: str = ".*"
    """A pattern of the whole name of the written file."""
    faults: Sequence[str] = KILLS


_IN = (*KILLS, "full")
_COMPUTED = (*KILLS, "error")
POINTS = {
    "planning, before a write": Point("write", "before", _PLANNED),
    "planning, between write and rename": Point("write", "in", _PLANNED, _IN),
    "planning, before plan.json": Point("write", "in", r"plan\.json", _IN),
    "planning, behind plan.json": Point("write", "behind", r"plan\.json"),
    "environment or spec": Point("write", "in", r"environment\.json|spec\.yaml|specs/.*", _IN),
    "a part, computed": Point("made", faults=_COMPUTED),
    "a part, before its write": Point("write", "before", _PART),
    "a part, between write and rename": Point("write", "in", _PART, _IN),
    "a part, behind its write": Point("write", "behind", _PART),
    "between two files of a unit": Point("between"),
    "behind the last part": Point("stage"),
    "digests": Point("write", "in", r"digests\.json", _IN),
    "marts, in a query": Point("query"),
    "marts, before a write": Point("write", "before", "marts/.*"),
    "marts, between write and rename": Point("write", "in", "marts/.*", _IN),
    "database": Point("write", "in", r"results\.duckdb", _IN),
    "page": Point("write", "in", r"figures/.*|summary\.json|report\.html|best\.yaml", _IN),
    "training, at a step": Point("step"),
    "checkpoint, before it": Point("checkpoint"),
    "checkpoint, in a file": Point("write", "in", r"checkpoints/.*\.safetensors", _IN),
    "checkpoint, before its marker": Point("write", "before", r"checkpoints/.*checkpoint\.json"),
    "checkpoint, behind its marker": Point("write", "behind", r"checkpoints/.*checkpoint\.json"),
    "model or adapter, in a file": Point("write", "in", _MODEL, _IN),
    "a trial, at its start": Point("trial"),
    "a trial, in its rows": Point("write", "in", _ROWS, _IN),
    "a batch of trials, behind it": Point("batch"),
    "before a deletion": Point("delete"),
    "at the end, holding the lease": Point("release"),
}


@dataclass
class Plan:
    """What a process does at events."""

    folder: str
    """Holds ``written`` and ``fired``."""
    point: str | None = None
    fault: str = "kill"
    nth: int = 1
    """At which event of the point the fault comes, 1-based."""
    memory: str | None = None
    """The folder of `memory.use` for processes that make trials."""


_plan = Plan("")
_seen: Counter[str] = Counter()
_own = threading.local()
_last: list[str] = [""]


def counted() -> dict[str, int]:
    """Return how often each point was met in this process."""
    return dict(_seen)


def _event(hook: str, moment: str = "before", name: str = "") -> None:
    for label, point in POINTS.items():
        if (point.hook, point.moment) == (hook, moment) and re.fullmatch(point.files, name):
            _seen[label] += 1
            if label == _plan.point and _seen[label] == _plan.nth:
                _fire(name)


def _fire(name: str) -> None:
    """Note that the fault comes, and let it come; only one process of several may do so."""
    with suppress(FileExistsError):
        with open(f"{_plan.folder}/fired", "x") as file:
            file.write(json.dumps({"pid": os.getpid(), "file": name, "time": time.time()}))
        _strike()


def _strike() -> None:
    if _plan.fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif _plan.fault in ("stop", "interrupt"):
        os.kill(os.getpid(), signal.SIGTERM if _plan.fault == "stop" else signal.SIGINT)
        time.sleep(0.01)  # the main thread hears of it
    elif _plan.fault == "full":
        if getattr(_own, "is_local", True):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        raise OSError("When writing: AWS Error ACCESS_DENIED during PutObject operation: denied")
    else:
        raise RuntimeError("CUDA error: device-side assert triggered")


def _note(path: str) -> None:
    """Append the path of a written file to the list of all."""
    with open(f"{_plan.folder}/written", "a") as file:
        file.write(f"{path}\n")


# ---- what is wrapped -------------------------------------------------------------------------------------------------


def _around(owner: Any, name: str, hook: str, moment: str = "before") -> None:
    """Wrap a function so that its call is an event."""
    own = getattr(owner, name)

    @functools.wraps(own)
    def wrapped(*given: Any, **named: Any) -> Any:
        if moment == "before":
            _event(hook)
        found = own(*given, **named)
        if moment == "behind":
            _event(hook)
        return found

    setattr(owner, name, wrapped)


def _is_next_of(before: str, name: str) -> bool:
    """Return whether a file is another one of the unit of the file written before."""
    if not before or before == name:
        return False
    if re.fullmatch(_MODEL, name):
        return os.path.dirname(before) == os.path.dirname(name)
    parts = before.rpartition("/")[2].startswith("part-")
    return parts and before.rpartition("/")[2] == name.rpartition("/")[2]


def _store(module: ModuleType) -> None:
    run = module.Run
    write, put, replace = run.write_bytes, run._put, os.replace

    def write_bytes(self: Any, name: str, data: bytes) -> None:
        if name == module.LEASE:
            write(self, name, data)
            return
        if _is_next_of(_last[0], name):
            _event("between")
        _event("write", "before", name)
        _own.name, _own.run, _own.is_local = name, self, self.is_local
        try:
            write(self, name, data)
        finally:
            _own.name = None
        _last[0] = name
        _event("write", "behind", name)

    def replaced(source: Any, target: Any, **named: Any) -> None:
        name = getattr(_own, "name", None)
        if name is None or str(target) != _own.run.path(name):
            replace(source, target, **named)
            return
        _event("write", "in", name)
        replace(source, target, **named)
        _note(str(target))

    def put_bytes(self: Any, path: str, data: bytes) -> None:
        name = path.removeprefix(f"{self.root}/")
        if _plan.fault == "full":
            _own.is_local = False
            _event("write", "in", name)
            put(self, path, data)
        else:
            with self.fs.open_output_stream(path) as stream:
                stream.write(data)
                _event("write", "in", name)
        _note(path)

    run.write_bytes, run._put = write_bytes, put_bytes
    os.replace = replaced  # type: ignore[assignment]
    _around(run, "delete", "delete")
    module.PAUSES_S = (0.0,)  # type: ignore[attr-defined]


def _steps(module: ModuleType) -> None:
    own = module.training_steps

    def steps(*given: Any, **named: Any) -> Iterator[Any]:
        for record in own(*given, **named):
            _event("step")
            yield record

    module.training_steps = steps  # type: ignore[attr-defined]
    _around(module, "write_checkpoint", "checkpoint")


def _batches(module: ModuleType) -> None:
    for sampler in (module.Grid, module.Drawn):
        _around(sampler, "tell", "batch")


def _trials(module: ModuleType) -> None:
    _around(module, "_made", "trial")
    if _plan.memory is not None:
        from tests.validation.soak.memory import use

        use(Path(_plan.memory))


def _few_groups(module: ModuleType) -> None:
    module.N_GROUPS = 3  # type: ignore[attr-defined]


WRAPPED: dict[str, Callable[[Any], None]] = {
    "biaseval.store": _store,
    "biaseval.execute.tasks": lambda module: _around(module.Made, "write", "made"),
    "biaseval.pipelines.run": lambda module: _around(module, "record", "stage"),
    "biaseval.analysis.marts": lambda module: _around(module, "_check", "query", "behind"),
    "biaseval.training.outcome": _steps,
    "biaseval.search.trials": _trials,
    "biaseval.search.samples": _few_groups,
    "biaseval.search.computed_trials": lambda module: _around(module, "together", "trial"),
    "biaseval.search.samplers": _batches,
    "biaseval.lease.hold": lambda module: _around(module._Keeper, "release", "release"),
}
"""Modules of the product to what wraps their functions."""


class _Finder(importlib.abc.MetaPathFinder):
    """Wraps a module when it is imported."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in WRAPPED:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def run_and_wrap(module: ModuleType) -> None:
            run(module)
            WRAPPED[name](module)

        spec.loader.exec_module = run_and_wrap  # type: ignore[method-assign]
        return spec


def install(plan: Plan) -> None:
    """Wrap the functions of the product in this process, now or when they are imported, and follow a plan."""
    global _plan
    _plan = plan
    _seen.clear()
    for name, wrap in WRAPPED.items():
        if name in sys.modules:
            wrap(sys.modules[name])
    sys.meta_path.insert(0, _Finder())


def install_as_told() -> None:
    """Follow the plan in the environment of this process, if there is one."""
    if told := os.environ.get(ENVIRONMENT):
        with suppress(OSError), open(told) as file:
            install(Plan(**json.load(file)))
