"""Measures how readers are trained against Hugging Face's Trainer, in one run.

    python jobs/benchmark_training.py                                   # two cores, about ten minutes
    python jobs/benchmark_training.py --cases 2x128:1 --rounds 9

Prints Markdown tables and writes them beside the records, which are JSON. Models have random weights, so nothing is
downloaded; questions are SQuAD's where its files are there (--squad), else generated. Measure on a quiet machine: the
records say what else it did.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from transformers.utils import logging

from biaseval.errors import BiasevalError, InputError
from tests.bench.training import SHAPES, Settings, benchmark, default_cases, generated_training, markdown, read_squad
from tests.bench.written import print_and_write

ROOT = Path(__file__).resolve().parents[3]
SHARED = Path(os.environ.get("BIASEVAL_SHARED", ROOT.parent / "shared")) / "data" / "qa"
N_GENERATED = 8000


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command line's settings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", help="shapes and threads, as 2x128:1,4x256:2 (default: both shapes with all "
                        "threads, the smaller with one, too)")  # fmt: skip
    parser.add_argument("--steps", type=int, default=6, help="of each way in a round (default: 6)")
    parser.add_argument("--rounds", type=int, default=5, help="in which the ways take turns (default: 5)")
    parser.add_argument("--questions", type=int, default=87_599, help="to cut into windows (default: SQuAD's 87599)")
    parser.add_argument("--unit-steps", type=int, default=300, help="of a whole training (default: 300)")
    parser.add_argument("--unit-every", type=int, default=100, help="its steps between checkpoints (default: 100)")
    parser.add_argument("--squad", type=Path, nargs="+", help="files of questions (default: squad_train* in "
                        "$BIASEVAL_SHARED/data/qa, generated where that is absent)")  # fmt: skip
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "tests" / "bench" / "results" / "training-cpu.json",
        help="default: tests/bench/results/training-cpu.json",
    )
    return parser.parse_args(arguments)


def cases(text: str) -> tuple[tuple[str, int], ...]:
    """Return shapes and threads.

    Raises:
        InputError: one of them is no shape with its threads.
    """
    found = [own.partition(":")[::2] for own in text.split(",")]
    for shape, threads in found:
        if shape not in SHAPES or not threads.isdecimal() or int(threads) == 0:
            raise InputError(f"--cases: {shape}:{threads} is not SHAPE:THREADS with one of {', '.join(SHAPES)}")
    return tuple((shape, int(threads)) for shape, threads in found)


def main() -> None:
    """Run the benchmark; print its tables and write its records."""
    arguments = parse()
    logging.disable_progress_bar()  # models are loaded dozens of times
    paths = arguments.squad if arguments.squad is not None else sorted(SHARED.glob("squad_train*"))
    try:
        settings = Settings(
            cases=default_cases() if arguments.cases is None else cases(arguments.cases),
            n_steps=arguments.steps,
            n_rounds=arguments.rounds,
            n_questions=arguments.questions,
            n_unit_steps=arguments.unit_steps,
            unit_every=arguments.unit_every,
        )
        questions = read_squad(paths) if paths else generated_training(N_GENERATED)
        report = benchmark(questions, settings)
    except BiasevalError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    of = " and ".join(path.name for path in paths) if paths else "generated ones"
    report["questions"] = f"{len(questions):,} of {of}, again and again up to {settings.n_questions:,}"
    print_and_write(report, markdown(report), arguments.out)
