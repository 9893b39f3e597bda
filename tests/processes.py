"""Commands that tests kill."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable

import psutil


def run_until_killed(is_time: Callable[[], bool], *arguments: str) -> None:
    """Run ``biaseval`` and kill it with all its children as soon as it is time; it must not end before."""
    command = [sys.executable, "-m", "biaseval", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    own = psutil.Process(process.pid)
    children: list[psutil.Process] = []
    deadline = time.monotonic() + 240
    try:
        while not is_time():
            assert process.poll() is None, "the command ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            children = own.children(recursive=True)
        for each in [own, *children]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        process.wait()
