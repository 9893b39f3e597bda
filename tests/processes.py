"""Processes that tests kill."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]


@contextlib.contextmanager
def killed_in_the_end(code: str, *arguments: str, **environment: str) -> Iterator[psutil.Popen]:
    """Run Python code, yield its process, and kill it with all its children; it must not end before.

    Args:
        code: should wait for being killed, once it is time.
        *arguments: of the process.
        **environment: variables, beside those of this process.
    """
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = psutil.Popen(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment}, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        yield process
        assert process.poll() is None, "the process ended before it could be killed"
    finally:
        children: list[psutil.Process] = []
        with contextlib.suppress(psutil.NoSuchProcess):
            children = process.children(recursive=True)
        for each in [process, *children]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        process.wait()
        psutil.wait_procs(children, timeout=30)


def wait_until(is_time: Callable[[], bool], process: psutil.Popen, pause: float = 0.05) -> None:
    """Wait, as long as a process lives, and at most four minutes; to list processes takes 20 ms of a core."""
    deadline = time.monotonic() + 240
    while not is_time():
        assert process.poll() is None, "the process ended before it was time"
        assert time.monotonic() < deadline
        time.sleep(pause)


@contextlib.contextmanager
def own_ray() -> Iterator[dict[str, str]]:
    """Yield the environment of a Ray of a command's own: a socket's path must be short."""
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield {"RAY_TMPDIR": folder}
