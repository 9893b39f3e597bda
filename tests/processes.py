"""Processes that tests kill."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]


def run_until_killed(is_time: Callable[[], bool], code: str, *arguments: str, **environment: str) -> None:
    """Run Python code and kill it with all its children as soon as it is time; it must not end before.

    Args:
        is_time: asked again and again.
        code: should wait for being killed, once it is time.
        *arguments: of the process.
        **environment: variables, beside those of this process.
    """
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    own = psutil.Process(process.pid)
    children: list[psutil.Process] = []
    deadline = time.monotonic() + 240
    try:
        while not is_time():
            assert process.poll() is None, "the process ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            children = own.children(recursive=True)
        for each in [own, *children]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        process.wait()
