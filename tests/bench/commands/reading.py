"""Measures the extractive reader against the published code's settings, in one run.

    python jobs/benchmark_reading.py                                     # two cores, about a minute
    python jobs/benchmark_reading.py --device cuda --shape base --questions 10570

Prints a Markdown table and writes it beside the records, which are JSON. Models have random weights, so nothing is
downloaded; questions are SQuAD's where its file is there (--squad), else generated.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from biaseval.errors import BiasevalError
from tests.bench.reading import SHAPES, benchmark, generated_questions, markdown, read_squad
from tests.bench.written import print_and_write

ROOT = Path(__file__).resolve().parents[3]
SQUAD = Path(os.environ.get("BIASEVAL_SHARED", ROOT.parent / "shared")) / "data" / "qa" / "squad_dev.jsonl.gz"


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command line's settings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="12m", help="of the random model (default: 12m)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="default: cpu")
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16", "float16"), default="float32", help="default: float32"
    )
    parser.add_argument("--questions", type=int, default=800, help="how many (default: 800)")
    parser.add_argument("--squad", type=Path, help="questions as JSON lines, or gzipped (default: "
                        "$BIASEVAL_SHARED/data/qa/squad_dev.jsonl.gz, generated where that is absent)")  # fmt: skip
    parser.add_argument("--out", type=Path, help="default: tests/bench/results/reading-DEVICE.json")
    return parser.parse_args(arguments)


def main() -> None:
    """Run the benchmark; print its table and write its records."""
    arguments = parse()
    path = arguments.squad if arguments.squad is not None else SQUAD if SQUAD.is_file() else None
    try:
        questions = generated_questions(arguments.questions) if path is None else read_squad(path, arguments.questions)
        report = benchmark(questions, arguments.shape, arguments.dtype, arguments.device)
    except BiasevalError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    report["questions"] = f"{len(questions)} generated ones" if path is None else f"{len(questions)} of {path.name}"
    out = arguments.out or ROOT / "tests" / "bench" / "results" / f"reading-{arguments.device}.json"
    print_and_write(report, markdown(report), out)
