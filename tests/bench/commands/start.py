"""Measures how long `biaseval --help` and a small query take from the shell.

    make demo
    python jobs/benchmark_start.py runs/demo

Prints a Markdown table and writes it beside the record, which is JSON. Measure on a quiet machine: the record says the
load average.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from biaseval.errors import BiasevalError
from tests.bench.start import benchmark, markdown
from tests.bench.written import print_and_write

RESULTS = Path(__file__).resolve().parents[3] / "tests" / "bench" / "results"


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command line's settings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", metavar="RUN", help="a finished run, for the query")
    parser.add_argument("--starts", type=int, default=11, help="of each command (default: 11)")
    parser.add_argument(
        "--out", type=Path, default=RESULTS / "start.json", help="default: tests/bench/results/start.json"
    )
    return parser.parse_args(arguments)


def main() -> None:
    """Run the benchmark; print its table and write its record."""
    arguments = parse()
    try:
        report = benchmark(arguments.run, arguments.starts)
    except BiasevalError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    print_and_write(report, markdown(report), arguments.out)
