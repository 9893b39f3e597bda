"""Processes that are forked from this one, which has imported everything once: a command then starts in no time.

This process itself opens no run, no database and no store. Their threads would not live on in what it forks.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.validation.soak.kinds import of_tests
from tests.validation.soak.memory import use
from tests.validation.soak.points import Plan, counted, install

HANGS_S = 90.0
"""Seconds after which a command without Ray hangs."""


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    code: int | None
    """Its exit code, a signal as a negative number; None: it hung and was killed."""
    said: str
    """Its standard error."""
    seconds: float


def load() -> None:
    """Import what commands import, and let one thread compute: a fork has no others.

    Patterns that a load of a model compiles are compiled once, here.
    """
    import pyarrow
    import torch

    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
    pyarrow.set_cpu_count(1)
    for name in _IMPORTED:
        importlib.import_module(name)
    re._MAXCACHE = 10_000  # type: ignore[attr-defined]


_IMPORTED = (
    *("nltk.stem", "optuna", "peft", "pyarrow.dataset", "pyarrow.parquet", "ray.data", "ray.train.torch", "ray.tune"),
    *("sklearn.feature_extraction.text", "typer.rich_utils", "transformers.models.bert.modeling_bert"),
    *("transformers.models.llama.modeling_llama", "biaseval.cli", "biaseval.execute.groups", "biaseval.execute.tune"),
    *("biaseval.runs.commands", "biaseval.search.kind", "biaseval.training.outcome", "biaseval.training.work"),
    *("biaseval.qa_bias.tfidf_bias", "tests.inprocess"),
)


def warm(model: Path, reader: Path) -> None:
    """Load two tiny models once, so that the patterns of transformers are compiled in what is forked from here."""
    from transformers import AutoModelForCausalLM, AutoModelForQuestionAnswering, AutoTokenizer

    for own, path in ((AutoModelForCausalLM, model), (AutoModelForQuestionAnswering, reader)):
        own.from_pretrained(path)
        AutoTokenizer.from_pretrained(path)


def start(work: Callable[[], int], folder: Path) -> int:
    """Fork a process that does ``work``, whose result is its exit code; return its pid.

    Its standard output and error go to the files ``out`` and ``err`` in the folder.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.setpgid(0, 0)
        for number, name in ((1, "out"), (2, "err")):
            file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
            os.dup2(file, number)
            os.close(file)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        code = work()
    except BaseException:
        traceback.print_exc()
        code = 71
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def wait(pid: int, folder: Path, hangs_s: float = HANGS_S) -> Ended:
    """Wait until a forked process has ended; kill it where it hangs."""
    begun = time.monotonic()
    code: int | None = None
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            break
        if time.monotonic() - begun > hangs_s:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            break
        time.sleep(0.01)
    said = (folder / "err").read_text(errors="replace") if (folder / "err").exists() else ""
    return Ended(code, said, time.monotonic() - begun)


def forked(work: Callable[[], int], folder: Path, hangs_s: float = HANGS_S) -> Ended:
    """Do work in a forked process."""
    return wait(start(work, folder), folder, hangs_s)


def command(arguments: Sequence[str], plan: Plan | None, *, is_on_ray: bool = False, memory: Path | None = None) -> int:
    """Run ``biaseval`` in this process, its stages too unless they are to run on Ray; return the exit code.

    With a plan the points count events and the fault comes; the counts go to the file ``counts`` of its folder.
    """
    from biaseval.__main__ import start as begin

    if memory is not None:
        use(memory)
    if plan is not None:
        install(plan)
    sys.argv = ["biaseval", *arguments]
    code: Any = 0
    with contextlib.nullcontext() if is_on_ray else of_tests("inprocess:in_this_process")():
        try:
            begin()
        except SystemExit as ended:
            code = ended.code
        except BaseException:
            traceback.print_exc()
            code = 1
    if plan is not None:
        Path(plan.folder, "counts").write_text(json.dumps(counted()))
    return code if isinstance(code, int) else 0 if code is None else 1
