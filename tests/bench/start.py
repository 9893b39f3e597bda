"""Measures how long commands take that compute nothing: what a user waits for before any work begins."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import biaseval
from biaseval.environment import describe_environment
from biaseval.errors import BiasevalError


def benchmark(run: str, n_starts: int) -> dict[str, Any]:
    """Start commands one after another and return the report, which is JSON.

    Args:
        run: a finished run to ask.
        n_starts: of each command, behind one that is not counted (it warms up the disk's cache).

    Raises:
        BiasevalError: a command failed.
    """
    commands = {
        "python -c pass": ("-c", "pass"),
        "biaseval --help": ("-m", "biaseval", "--help"),
        'biaseval sql RUN "select 1"': ("-m", "biaseval", "sql", run, "select 1"),
    }
    return {
        "starts": [{"command": name, **_timed(command, n_starts)} for name, command in commands.items()],
        "load_average": os.getloadavg()[0],
        "environment": describe_environment(),
        "typer": version("typer"),
    }


def _timed(command: Sequence[str], n_starts: int) -> dict[str, Any]:
    seconds = [_call(*command) for _ in range(n_starts + 1)][1:]
    return {"median_s": statistics.median(seconds), "smallest_s": min(seconds), "n_starts": n_starts}


def _call(*arguments: str) -> float:
    """Run Python and return its seconds."""
    # This very code, installed or not, and not what lies in the current folder.
    environment = {**os.environ, "PYTHONPATH": str(Path(biaseval.__file__).parents[1])}
    started = time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)
    seconds = time.perf_counter() - started
    if done.returncode:
        raise BiasevalError(f"python {' '.join(arguments)}: exit code {done.returncode}: {done.stderr.strip()}")
    return seconds


def markdown(report: dict[str, Any]) -> str:
    """Return the report as a table, and what it was measured with."""
    lines = ["| command | median, s | smallest, s |", "|---|---|---|"]
    lines += [f"| `{row['command']}` | {row['median_s']:.2f} | {row['smallest_s']:.2f} |" for row in report["starts"]]
    own = report["environment"]
    hardware, versions = own["hardware"], own["versions"]
    lines += [
        "",
        f"Of {report['starts'][0]['n_starts']} starts each. {hardware['cpu']}, {hardware['n_cores']} cores, load "
        f"average {report['load_average']:.1f}; Python {own['python']}, biaseval {versions['biaseval']}, typer "
        f"{report['typer']}, duckdb {versions['duckdb']}, pyarrow {versions['pyarrow']}.",
    ]
    return "\n".join(lines)
