"""Measures a search of a thousand calibration strengths over four tasks, whose trials are arithmetic on stored scores.

    python jobs/benchmark_search.py natural-instructions/tasks

Needs the task files of natural-instructions. Prints a Markdown table and writes it beside the record, which is JSON.
Takes about two minutes; measure on a quiet machine: the record says the load average.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from biaseval.demo import MODEL_PATH
from biaseval.errors import BiasevalError
from tests.bench.search import benchmark, markdown
from tests.bench.written import print_and_write

RESULTS = Path(__file__).resolve().parents[3] / "tests" / "bench" / "results"
TASKS = (
    "task109_smsspamcollection_spamsmsdetection",
    "task209_stancedetection_classification",
    "task585_preposition_classification",
    "task827_copa_commonsense_reasoning",
)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command line's settings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", type=Path, metavar="TASKS", help="the folder of task files")
    parser.add_argument("--model", type=Path, default=MODEL_PATH, help="default: the bundled tiny model")
    parser.add_argument("--include", nargs="+", default=TASKS, help="tasks (default: four of natural-instructions)")
    parser.add_argument("--trials", type=int, default=1000, help="strengths (default: 1000)")
    parser.add_argument("--rows", type=int, default=1000, help="at most so many of each task (default: 1000)")
    parser.add_argument(
        "--out", type=Path, default=RESULTS / "search-cpu.json", help="default: tests/bench/results/search-cpu.json"
    )
    return parser.parse_args(arguments)


def main() -> None:
    """Run the benchmark; print its table and write its record."""
    own = parse()
    try:
        report = benchmark(
            own.tasks.resolve(), own.include, own.model.resolve(), n_trials=own.trials, max_eval=own.rows
        )
    except BiasevalError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    print_and_write(report, markdown(report), own.out)
