"""Samples of a real lm-evaluation-harness (``tests/fixtures/lm_eval``), and copies of them to break."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "fixtures" / "lm_eval"

Record = dict[str, Any]


def samples(setting: str, task: str) -> Path:
    """Return the samples of a task in one evaluation."""
    [path] = (FOLDER / setting).glob(f"samples_{task}_*.jsonl")
    return path


def results(setting: str) -> Record:
    """Return the results of an evaluation."""
    [path] = (FOLDER / setting).glob("results_*.json")
    found: Record = json.loads(path.read_text())
    return found


def lines(path: Path) -> list[Record]:
    """Return the lines of samples."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def reported_accuracy(setting: str, task: str) -> float:
    """Return what the harness reported, of the first filter."""
    [key, *_] = [key for key in results(setting)["results"][task] if key.startswith("acc,")]
    return float(results(setting)["results"][task][key])


def copied(
    folder: Path,
    setting: str,
    task: str,
    change: Callable[[Record], None] = lambda record: None,
    change_results: Callable[[Record], None] = lambda record: None,
) -> Path:
    """Copy samples and results into a folder, with every line and the results changed.

    Returns:
        The copied samples.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = samples(setting, task)
    records = lines(path)
    for record in records:
        change(record)
    target = folder / path.name
    target.write_text("".join(json.dumps(record) + "\n" for record in records))
    [results_path] = path.parent.glob("results_*.json")
    found = json.loads(results_path.read_text())
    change_results(found)
    (folder / results_path.name).write_text(json.dumps(found))
    return target
