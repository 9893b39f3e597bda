"""Run the first checks and measurements on a machine with a GPU: python jobs/first_gpu_hour.py [--minutes 25].

The script measures in the order of worth: exactness against texts that run alone, speed of a random 7B beside the
card's own matrix products, a profile, passes of several sizes, behaviour where memory runs out, LoRA steps, 8-bit
weights. It writes its records as JSON after each step, so that a lease that ends early loses one step. It needs torch,
transformers and pyarrow, PEFT for LoRA and bitsandbytes for 8-bit weights; it needs neither Ray nor DuckDB.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

from biaseval.errors import BiasevalError, InputError
from tests.bench.gpu import STEPS, Bench, markdown, measured
from tests.bench.shapes import SHAPES, train_tokenizer
from tests.bench.texts import SCENARIOS, scenarios, training_texts


def main() -> None:
    """Measure, and write the records after each step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=25, help="after which no further step starts (default: 25)")
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="cpu tries the script (default: cuda)"
    )
    parser.add_argument("--shape", choices=SHAPES, default="7b", help="of the random model (default: 7b)")
    parser.add_argument("--small", choices=SHAPES, default="1b", help="of the model for 8-bit weights (default: 1b)")
    parser.add_argument("--rows", type=int, default=200, help="prompts per scenario (default: 200)")
    parser.add_argument("--seconds", type=float, default=5, help="for each baseline and scenario (default: 5)")
    parser.add_argument("--steps", default=",".join(STEPS), help="comma-separated (default: %(default)s)")
    parser.add_argument("--scenarios", default=",".join(SCENARIOS), help="comma-separated (default: %(default)s)")
    parser.add_argument("--tasks", type=Path, help="folder of Super-NaturalInstructions task files (else generated)")
    parser.add_argument("--out", type=Path, default=Path("first-gpu-hour.json"), help="(default: %(default)s)")
    arguments = parser.parse_args()
    try:
        run(arguments)
    except BiasevalError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def run(arguments: argparse.Namespace) -> None:
    """Run the chosen steps."""
    names = arguments.steps.split(",")
    for option, given, known in (("--steps", names, STEPS), ("--scenarios", arguments.scenarios.split(","), SCENARIOS)):
        unknown = [name for name in given if name not in known]
        if unknown:
            raise InputError(f"{option}: {', '.join(unknown)} is not one of {', '.join(known)}")
    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda: this machine has no GPU; run the script on one that has, or try --device cpu")
    chosen = scenarios(arguments.tasks, arguments.scenarios.split(","))
    tokenizer = train_tokenizer(training_texts(arguments.tasks, chosen), SHAPES[arguments.shape].vocabulary)
    bench = Bench(
        arguments.device, arguments.shape, arguments.small, chosen, tokenizer, arguments.rows, arguments.seconds
    )
    report: dict[str, Any] = {}
    for name, own in measured(bench, names, arguments.minutes):
        report[name] = own
        arguments.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        arguments.out.with_suffix(".md").write_text(markdown(report), encoding="utf-8")
        said = own.get("error") or own.get("skipped") or f"{own['seconds_in_all']:.1f} s"
        print(f"{name}: {said}", flush=True)
    print(f"\n{markdown(report)}\nwritten: {arguments.out}")
