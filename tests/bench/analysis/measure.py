"""Measures what the analysis of a large run takes: its metrics, its page and questions to it, each in a new process."""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import biaseval
from biaseval.environment import describe_environment, raw_spec
from biaseval.errors import BiasevalError
from biaseval.store import Run

_POLL_S = 0.1

_CODE = (Path(biaseval.__file__).parents[1], Path(__file__).parents[3])

_ANALYSE = "import sys; from tests.measuring import measure; measure(sys.argv[1], has_database=True)"
_PAGE = "import sys; from biaseval.runs import write_report; write_report(sys.argv[1])"
_MART = "from label_bias_by_model"
_NAMES = "show tables"
_SETTING = "select * from calibrated_predictions where task = '{task}' and n_demos = {n_demos} and method = 'none'"


@dataclass(frozen=True)
class Took:
    """What one process took, the median of its starts."""

    what: str
    seconds: float
    peak_mib: float
    """Of the process' memory, the most of all starts."""
    spilled_mib: float
    """That DuckDB wrote to the disk for want of memory, at the same time; looked at ten times a second."""
    n_starts: int
    load_average: float
    """Of the machine, before the first start."""


def benchmark(run_uri: str, n_starts: int = 3) -> dict[str, Any]:
    """Analyse a scored run, ask it, and return the report, which is JSON; the run then has marts and a page.

    Args:
        run_uri: a label-bias run on a local disk.
        n_starts: of each question, behind one that is not counted; metrics and page are made once.

    Raises:
        BiasevalError: a process failed.
    """
    run = Run.open(run_uri)
    plan = run.read_json("plan.json")
    tasks = sorted(run.read_table("tasks")["task"].to_pylist())
    setting = _SETTING.format(task=tasks[len(tasks) // 2], n_demos=max(raw_spec(run)["prompt"]["n_demos"]))
    took = [
        _measured("metrics and results.duckdb", ["-c", _ANALYSE, run.root], 1),
        _measured("page and figures", ["-c", _PAGE, run.root], 1),
    ]
    with tempfile.TemporaryDirectory(prefix="biaseval-bench-", dir=Path(run.root).parent) as folder:
        other = str(shutil.copytree(run.root, Path(folder) / "other"))
        for what, runs, query in (
            (f'sql RUN "{_MART}"', [run.root], _MART),
            (f'sql RUN "{_NAMES}"', [run.root], _NAMES),
            (f'sql RUN RUN "{_MART}"', [run.root, other], _MART),
            ("sql RUN, the predictions of one task and number of demonstrations", [run.root], setting),
        ):
            took.append(_measured(what, ["-m", "biaseval", "sql", *runs, query, "--format", "csv"], n_starts))
    return {
        "run": {name: plan[name] for name in ("n_tasks", "n_prompts", "n_scores", "n_parts")},
        "took": [asdict(own) for own in took],
        "page_bytes": Path(run.path("report.html")).stat().st_size,
        "page_and_figures_bytes": Path(run.path("report.html")).stat().st_size
        + sum(path.stat().st_size for path in Path(run.path("figures")).glob("*")),
        "database_bytes": Path(run.path("results.duckdb")).stat().st_size,
        "environment": describe_environment(),
    }


def _measured(what: str, arguments: Sequence[str], n_starts: int) -> Took:
    """Run Python, and once more before it where it is run several times, to warm up the disk's cache."""
    load = os.getloadavg()[0]
    started = [_run(arguments) for _ in range(n_starts if n_starts == 1 else n_starts + 1)][-n_starts:]
    print(f"{what}: {statistics.median(own[0] for own in started):.2f} s", file=sys.stderr, flush=True)
    return Took(
        what=what,
        seconds=statistics.median(own[0] for own in started),
        peak_mib=max(own[1] for own in started),
        spilled_mib=max(own[2] for own in started),
        n_starts=n_starts,
        load_average=load,
    )


def _run(arguments: Sequence[str]) -> tuple[float, float, float]:
    """Run Python; return seconds, and MiB of its memory and of what DuckDB spilled, each at its highest."""
    with tempfile.TemporaryDirectory(prefix="biaseval-bench-") as folder, tempfile.TemporaryFile() as errors:
        # This very code, installed or not, and not what lies in the current folder.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, _CODE)), "TMPDIR": folder}
        ended = threading.Event()
        spilled: list[int] = [0]
        watcher = threading.Thread(target=_watch, args=(Path(folder), ended, spilled))
        started = time.perf_counter()
        child = subprocess.Popen(
            [sys.executable, *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=errors
        )
        watcher.start()
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - started
        child.returncode = os.waitstatus_to_exitcode(status)
        ended.set()
        watcher.join()
        if child.returncode:
            errors.seek(0)
            message = errors.read().decode(errors="replace").strip()
            raise BiasevalError(f"python {' '.join(arguments)}: exit code {child.returncode}: {message}")
    per_mib = 2**20 if sys.platform == "darwin" else 2**10
    return seconds, usage.ru_maxrss / per_mib, spilled[0] / 2**20


def _watch(folder: Path, ended: threading.Event, largest: list[int]) -> None:
    """Keep in ``largest`` how much DuckDB's own folders in ``folder`` have held."""
    while not ended.wait(_POLL_S):
        size = 0
        for path in folder.glob("biaseval-duckdb-*/**/*"):
            try:
                size += path.stat().st_size
            except OSError:  # it was deleted meanwhile
                continue
        largest[0] = max(largest[0], size)


def markdown(report: Mapping[str, Any]) -> str:
    """Return the report as a table, and what it was measured on and with."""
    lines = ["| what | seconds | peak memory, MiB | spilled, MiB | load before |", "|---|---|---|---|---|"]
    lines += [
        f"| {row['what']} | {row['seconds']:.2f} | {row['peak_mib']:,.0f} | {row['spilled_mib']:,.0f} | "
        f"{row['load_average']:.1f} |"
        for row in report["took"]
    ]
    own, run = report["environment"], report["run"]
    hardware, versions = own["hardware"], own["versions"]
    n_starts = max(row["n_starts"] for row in report["took"])
    return "\n".join(
        [
            *lines,
            "",
            f"A generated run of {run['n_tasks']:,} tasks: {run['n_prompts']:,} prompts, {run['n_scores']:,} scores, "
            f"{run['n_parts']:,} parts a table. report.html {report['page_bytes'] / 1e6:.2f} MB, with figures "
            f"{report['page_and_figures_bytes'] / 1e6:.2f} MB; results.duckdb {report['database_bytes'] / 1e6:.1f} MB. "
            f"Each in processes of its own, start-up included; questions: median of {n_starts}. {hardware['cpu']}, "
            f"{hardware['n_cores']} cores, {hardware['memory_gib']} GiB; Python {own['python']}, biaseval "
            f"{versions['biaseval']}, duckdb {versions['duckdb']}, pyarrow {versions['pyarrow']}.",
        ]
    )
