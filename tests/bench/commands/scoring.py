"""Measures the scorer against lm-evaluation-harness, plain transformers and a prefix-cached loop, all in one run.

    python jobs/benchmark.py                                # on two cores, about twenty minutes
    python jobs/benchmark.py --gpus 1 --shape 7b            # on a machine with a GPU
    python jobs/benchmark.py --model DIR --engines vllm,llama.cpp --demos 0,4,16   # beside other engines
    ray job submit --working-dir . -- python jobs/benchmark.py --gpus 1 --shape 7b --out s3://bucket/7b.json

Prints Markdown tables and writes them beside the records, which are JSON. Models have random weights, so nothing is
downloaded. As a Ray job with --gpus 1 it measures inside one Ray task on a GPU node; otherwise in this process. Needs
the ``harness`` extra for lm-evaluation-harness, which is left out where it is not installed.
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from biaseval.errors import BiasevalError, InputError
from tests.bench.measure import Settings, benchmark
from tests.bench.results import markdown, summary
from tests.bench.shapes import SHAPES, train_tokenizer
from tests.bench.texts import SCENARIOS, Scenario, scenarios, training_texts

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(os.environ.get("BIASEVAL_SHARED", ROOT.parent / "shared")) / "data"
TASKS = DATA / "superni" / "tasks"
BOOLQ = DATA / "majority" / "boolq" / "train.jsonl"
DTYPES = {"cpu": "float32,bfloat16", "cuda": "bfloat16,float16,float32"}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command line's settings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="30m", help="of the random model (default: 30m)")
    parser.add_argument("--gpus", type=int, choices=(0, 1), default=0, help="0: CPU (default)")
    parser.add_argument("--dtype", help="comma-separated: all methods run in the first, ours in all "
                        f"(default: {DTYPES['cpu']}; with a GPU {DTYPES['cuda']})")  # fmt: skip
    parser.add_argument("--rows", type=int, default=200, help="prompts per scenario (default: 200)")
    parser.add_argument("--seconds", type=float, default=10, help="for each baseline and scenario, about (default: 10)")
    parser.add_argument("--scenarios", default=",".join(SCENARIOS), help="comma-separated (default: %(default)s)")
    parser.add_argument("--tasks", type=Path, help="folder of Super-NaturalInstructions task files (default: "
                        "$BIASEVAL_SHARED/data/superni/tasks; texts are generated where a file is absent)")  # fmt: skip
    parser.add_argument("--boolq", type=Path, help="train.jsonl of BoolQ (default: "
                        "$BIASEVAL_SHARED/data/majority/boolq/train.jsonl; else generated texts)")  # fmt: skip
    parser.add_argument("--demos", help="comma-separated numbers of demonstrations (default: each scenario's own)")
    parser.add_argument("--model", type=Path, help="folder of a real model in place of a random one; on the CPU")
    parser.add_argument("--engines", default="", help="comma-separated, of vllm and llama.cpp, beside a real model; "
                        "each is installed into an environment of its own the first time")  # fmt: skip
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "biaseval-tests" / "engines",
                        help="folder of these environments (default: %(default)s)")  # fmt: skip
    parser.add_argument("--out", help="path or s3:// URI (default: tests/bench/results/DEVICE-SHAPE.json)")
    return parser.parse_args(arguments)


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the benchmark where the command line says and return its report."""
    device = "cuda" if arguments.gpus else "cpu"
    if arguments.model and (arguments.gpus or not (arguments.model / "model.safetensors").is_file()):
        raise InputError(f"--model {arguments.model}: give a folder with model.safetensors, and no --gpus")
    if arguments.engines and not arguments.model:
        raise InputError("--engines: needs a real model; name its folder with --model")
    settings = Settings(
        shape=arguments.shape,
        dtypes=_names("--dtype", arguments.dtype or DTYPES[device], ("float32", "bfloat16", "float16")),
        device=device,
        n_rows=arguments.rows,
        baseline_s=arguments.seconds,
        model=arguments.model,
        engines=_names("--engines", arguments.engines, ("vllm", "llama.cpp")) if arguments.engines else (),
        cache=arguments.cache,
    )
    folder = arguments.tasks or (TASKS if TASKS.is_dir() else None)
    if folder is not None and not folder.is_dir():
        raise InputError(f"--tasks {folder}: no such folder; leave it out to measure on generated texts")
    boolq = arguments.boolq or (BOOLQ if BOOLQ.is_file() else None)
    chosen = scenarios(folder, _names("--scenarios", arguments.scenarios, SCENARIOS), boolq)
    least = min(own.n_reserved for own in chosen)
    if arguments.demos:
        if not all(own.isdecimal() and int(own) <= least for own in arguments.demos.split(",")):
            raise InputError(f"--demos {arguments.demos}: give numbers from 0 to {least}, with commas between them")
        asked = [int(own) for own in arguments.demos.split(",")]
        by_name = {own.name: own for own in chosen}
        chosen = [replace(own, n_demos=n_demos) for own in by_name.values() for n_demos in asked]
    tokenizer = (
        "" if arguments.model else train_tokenizer(training_texts(folder, chosen), SHAPES[arguments.shape].vocabulary)
    )
    if arguments.gpus and "RAY_ADDRESS" in os.environ:
        return _in_ray_task(arguments.gpus, chosen, tokenizer, settings)
    if arguments.gpus:
        import torch

        if not torch.cuda.is_available():
            raise InputError("--gpus 1: no GPU is seen here; run it on a machine with one, or submit it as a Ray job")
    return benchmark(chosen, tokenizer, settings)


def _names(option: str, given: str, known: Sequence[str]) -> tuple[str, ...]:
    names = tuple(given.split(","))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError(f"{option}: {', '.join(unknown)} is not one of {', '.join(known)}")
    return names


def _in_ray_task(n_gpus: int, chosen: Sequence[Scenario], tokenizer: str, settings: Settings) -> dict[str, Any]:
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(runtime_env={"py_modules": [str(ROOT / "platform" / "biaseval"), str(ROOT / "tests")]})
    task = ray.remote(num_gpus=n_gpus, max_retries=0)(benchmark)
    report: dict[str, Any] = ray.get(task.remote(chosen, tokenizer, settings))
    return report


def write(report: dict[str, Any], out: str) -> None:
    """Write the report as JSON to a path or an object store, and its tables as Markdown beside it."""
    from pyarrow import fs

    uri = out if "://" in out else str(Path(out).absolute())
    filesystem, path = fs.FileSystem.from_uri(uri)
    filesystem.create_dir(path.rpartition("/")[0])

    def put(name: str, text: str) -> None:
        with filesystem.open_output_stream(name) as stream:
            stream.write(f"{text}\n".encode())

    put(path, json.dumps(report, indent=2))  # first: the tables can be made again from it
    put(path.removesuffix(".json") + ".md", f"{summary(report)}\n\n## All records\n\n{markdown(report)}")
    print(f"written: {uri}", file=sys.stderr)


def default_out(report: dict[str, Any]) -> str:
    """Return where results lie in the repository: named after device and shape."""
    is_cpu = report["device"].endswith("(CPU)")
    device = "cpu" if is_cpu else re.sub(r"[^a-z0-9]+", "-", report["device"].lower()).strip("-")
    return str(ROOT / "tests" / "bench" / "results" / f"{device}-{report['shape']['name']}.json")


def main() -> None:
    """Run the benchmark; print its table and write its records."""
    arguments = parse()
    try:
        report = measure(arguments)
    except BiasevalError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    write(report, arguments.out or default_out(report))
    print(f"{markdown(report)}\n\n{summary(report)}")
