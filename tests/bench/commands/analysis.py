"""Measures metrics, page and questions on a generated run of the published suite: 256 tasks, 13 settings.

    python jobs/benchmark_analysis.py

Loads no model: the scores are drawn. Generates 3.3 million prompts and 10.3 million scores in 10,100 parts a table,
which take half a GB of disk (twice that while two runs are asked), or takes the run of an earlier call (--run). Prints
a Markdown table and writes it beside the record, which is JSON. Takes about three minutes; measure on a quiet machine:
the record says the load average.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from biaseval.errors import BiasevalError
from biaseval.store import Run
from tests.bench.analysis import Suite, benchmark, markdown, write_suite
from tests.bench.written import print_and_write

RESULTS = Path(__file__).resolve().parents[3] / "tests" / "bench" / "results"


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command line's settings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--run", type=Path, help="where the run is, or is generated and kept (default: generated, and not kept)"
    )
    parser.add_argument("--tasks", type=int, default=Suite.n_tasks, help="of 256 (default: all)")
    parser.add_argument("--rows", type=int, default=Suite.max_rows, help="of a task, at most (default: 1000)")
    parser.add_argument("--seed", type=int, default=Suite.seed, help="default: %(default)s")
    parser.add_argument("--starts", type=int, default=3, help="of each question (default: 3)")
    parser.add_argument(
        "--out", type=Path, default=RESULTS / "analysis-cpu.json", help="default: tests/bench/results/analysis-cpu.json"
    )
    return parser.parse_args(arguments)


def main() -> None:
    """Run the benchmark; print its table and write its record."""
    own = parse()
    try:
        with tempfile.TemporaryDirectory(prefix="biaseval-bench-") as folder:
            run = Run.open(str(own.run or Path(folder) / "run"))
            if not run.has("plan.json"):
                print(f"generating {run.uri}", file=sys.stderr, flush=True)
                write_suite(run, Suite(n_tasks=own.tasks, max_rows=own.rows, seed=own.seed))
            report = benchmark(run.uri, own.starts)
    except BiasevalError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    print_and_write(report, markdown(report), own.out)
