"""Measures a search that is arithmetic on stored scores: how long a grid of calibration strengths takes."""

import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from biaseval.analysis import query
from biaseval.environment import describe_environment
from biaseval.runs import run_spec
from biaseval.search.computed_trials import make_block
from biaseval.search.trials import MADE, SHARED
from biaseval.spec import stored_spec

_KEY = "calibration.cc.strength"
_HIGHEST = 1.5
_N_ALONE = 3
_N_TOGETHER = 50


def benchmark(tasks: Path, include: Sequence[str], model: Path, *, n_trials: int, max_eval: int) -> dict[str, Any]:
    """Score tasks once, search the strength of cc over a grid for each, and return the report, which is JSON.

    Args:
        tasks: the folder of task files.
        include: names of tasks.
        model: a directory.
        n_trials: strengths, evenly from 0 to 1.5.
        max_eval: rows of each task.
    """
    content = {
        "kind": "search",
        "name": "strengths",
        "spec": {
            "kind": "label_bias",
            "name": "strengths",
            "model": {"path": str(model)},
            "tasks": {"path": str(tasks), "include": list(include), "max_eval": max_eval},
            "prompt": {"n_demos": [0, 2]},
            "calibration": ["cc"],
        },
        "search": {_KEY: [_HIGHEST * number / (n_trials - 1) for number in range(n_trials)]},
        "objective": {
            "sql": "select task, avg(macro_f1) as macro_f1 from label_bias_by_task where method like 'cc%' group by 1",
            "maximize": True,
        },
        "per": ["task"],
        "algorithm": "grid",
        "execution": {"at_once": 2},
    }
    spec = stored_spec(content, "benchmark")
    with tempfile.TemporaryDirectory(prefix="biaseval-bench-") as folder:
        run = Path(folder) / "run"
        load, began = os.getloadavg()[0], time.time()
        run_spec(spec, str(run))
        ended = time.time()
        scored = (run / MADE).stat().st_mtime
        computed = max(path.stat().st_mtime for path in (run / "trials").glob("part-*.parquet"))
        [row] = query([str(run)], "select max(n_done) as n_done from search_best").to_pylist()
        alone, together = _seconds_a_trial(run, Path(folder) / "again")
    return {
        "n_trials": n_trials,
        "n_done": row["n_done"],
        "tasks": list(include),
        "max_eval": max_eval,
        "until_scored_s": scored - began,
        "trials_s": computed - scored,
        "marts_and_report_s": ended - computed,
        "alone_s_a_trial": alone,
        "together_s_a_trial": together,
        "load_average": load,
        "environment": describe_environment(),
    }


def _seconds_a_trial(run: Path, again: Path) -> tuple[float, float]:
    """Return the seconds of a trial that is computed alone, and as one of a block, in this process."""
    again.mkdir()
    for name in ("spec.yaml", "plan.json"):
        shutil.copy(run / name, again / name)
    shutil.copytree(run / SHARED, again / SHARED)
    points = [{_KEY: _HIGHEST * (number + 1) / _N_TOGETHER} for number in range(_N_TOGETHER)]
    make_block(0, run_uri=str(again), points={0: points[:1]})  # imports, and warms up the disk's cache
    started = time.perf_counter()
    for number in range(_N_ALONE):
        make_block(number, run_uri=str(again), points={number: [points[number]]})
    between = time.perf_counter()
    make_block(_N_ALONE, run_uri=str(again), points={_N_ALONE: points})
    return (between - started) / _N_ALONE, (time.perf_counter() - between) / _N_TOGETHER


def markdown(report: dict[str, Any]) -> str:
    """Return the report as a table, and what it was measured with."""
    own = report["environment"]
    hardware, versions = own["hardware"], own["versions"]
    alone, together = report["alone_s_a_trial"], report["together_s_a_trial"]
    return "\n".join(
        [
            "| what | seconds |",
            "|---|---|",
            f"| planning and scoring, once | {report['until_scored_s']:.1f} |",
            f"| {report['n_trials']:,} trials, two blocks at a time | {report['trials_s']:.1f} |",
            f"| marts, figures and report | {report['marts_and_report_s']:.1f} |",
            f"| a trial that is computed alone, one process | {alone:.3f} |",
            f"| a trial of a block of {_N_TOGETHER}, one process | {together:.3f} ({alone / together:.0f}x as fast) |",
            "",
            f"Strengths of cc from 0 to {_HIGHEST}, {len(report['tasks'])} tasks ({', '.join(report['tasks'])}) of at "
            f"most {report['max_eval']:,} rows, 0 and 2 demonstrations; objectives on both halves, with each of ten "
            f"groups left out. {hardware['cpu']}, {hardware['n_cores']} cores, load average "
            f"{report['load_average']:.1f} at the start; Python {own['python']}, biaseval {versions['biaseval']}, ray "
            f"{versions['ray']}, duckdb {versions['duckdb']}.",
        ]
    )
