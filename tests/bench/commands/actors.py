"""Measures a driver with many parts and many actors, which have no model: parts a second, and the driver's memory.

    python jobs/benchmark_actors.py --parts 1000 --actors 64

An actor is a process of about 100 MiB that takes half of a logical CPU of a Ray with as many as that needs. Prints a
Markdown table and writes it beside the record, which is JSON. Measure on a quiet machine: the record says the load.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from biaseval.errors import BiasevalError
from tests.bench.actors import benchmark, markdown
from tests.bench.written import print_and_write

RESULTS = Path(__file__).resolve().parents[3] / "tests" / "bench" / "results"


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command line's settings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", type=int, default=1000, help="default: %(default)s")
    parser.add_argument("--actors", type=int, default=64, help="default: %(default)s")
    parser.add_argument(
        "--out", type=Path, default=RESULTS / "actors.json", help="default: tests/bench/results/actors.json"
    )
    return parser.parse_args(arguments)


def main() -> None:
    """Run the benchmark; print its table and write its record."""
    own = parse()
    try:
        with tempfile.TemporaryDirectory(prefix="biaseval-bench-") as folder:
            report = benchmark(f"{folder}/run", own.parts, own.actors)
    except BiasevalError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    print_and_write(report, markdown([report]), own.out)
