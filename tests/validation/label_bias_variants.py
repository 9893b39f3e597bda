"""Label bias by NumPy alone, as P1's code and as P1's text reads the stored scores of a finished run.

    python -m tests.validation.label_bias_variants RUN

Copies the run, gives the copy each variant by ``biaseval analyse``, and compares. Loads no model. Prints BiasScore of
each task and variant, the values of biaseval and NumPy's largest distance from them, and fails beyond 1e-6.
"""

import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from biaseval.analysis import query
from biaseval.runs import reanalyse_run
from biaseval.spec import BASE

Floats = npt.NDArray[np.float64]
Key = tuple[str, int, int, str]
"""Task, number of demonstrations, demonstration set, method."""

VARIANTS = {
    "code": ("mean", True, ("none", "cc", "dc", "looc")),
    "text": ("where_unequal", False, ("none", "cc_softmax", "dc_softmax", "looc")),
    "text, with EOS": ("where_unequal", True, ("none", "cc_softmax", "dc_softmax", "looc")),
    "code, without EOS": ("mean", False, ("none", "cc", "dc", "looc")),
}
"""Normalization, whether EOS counts, and methods of each way to read the same scores."""

TOLERANCE = 1e-6


def by_numpy(run: str, normalization: str, eos: bool, methods: tuple[str, ...]) -> dict[Key, dict[str, float]]:
    """Return ``bias_score``, ``rsd`` and ``accuracy`` of each setting and method with stored prompts.

    ``where_unequal`` looks at all prompts of a task: one label with more tokens than another makes it the mean.
    """
    prompts = pq.read_table(f"{run}/prompts").to_pylist()
    scores: dict[str, dict[str, Any]] = defaultdict(dict)
    for row in pq.read_table(f"{run}/label_scores").to_pylist():
        scores[row["prompt_id"]][row["label"]] = row
    n_tokens: dict[str, set[int]] = defaultdict(set)
    for row in prompts:
        n_tokens[row["task"]] |= {own["n_label_tokens"] for own in scores[row["prompt_id"]].values()}
    settings: dict[tuple[str, int, int], dict[str, list[tuple[str, Floats]]]] = defaultdict(lambda: defaultdict(list))
    for row in prompts:
        if row.get("format") not in (None, BASE):
            continue
        is_mean = normalization == "mean" or (normalization == "where_unequal" and len(n_tokens[row["task"]]) > 1)
        tokens = [scores[row["prompt_id"]][label]["token_logprobs"] for label in sorted(row["labels"])]
        of_labels = [np.array(own if eos else own[:-1], dtype=np.float64) for own in tokens]
        weights = np.exp([own.mean() if is_mean else own.sum() for own in of_labels])
        settings[row["task"], row["n_demos"], row["demo_set"]][row["purpose"]].append(
            (row["gold"], weights / weights.sum())
        )
    labels = {row["task"]: sorted(row["labels"]) for row in prompts}
    return {
        (*setting, method): _metrics(given, _calibration(method, given), labels[setting[0]])
        for setting, given in settings.items()
        for method in methods
        if method == "none" or method.removesuffix("_softmax") in given
    }


def _calibration(method: str, given: Mapping[str, list[tuple[str, Floats]]]) -> Callable[[Floats], Floats]:
    if method == "none":
        return lambda p: p
    inputs = given[method.removesuffix("_softmax")]
    p_hat = _mean_of_labels(inputs) if method == "looc" else np.mean([p for _, p in inputs], axis=0)
    if method.endswith("_softmax"):
        return lambda p: np.exp(p / p_hat - (p / p_hat).max()) / np.exp(p / p_hat - (p / p_hat).max()).sum()
    return lambda p: p / p_hat / (p / p_hat).sum()


def _mean_of_labels(rows: list[tuple[str, Floats]]) -> Floats:
    """Return the mean probabilities of each gold label that occurs, averaged over these labels."""
    of_label = [np.mean([p for gold, p in rows if gold == label], axis=0) for label in {gold for gold, _ in rows}]
    found: Floats = np.mean(of_label, axis=0)
    return found


def _metrics(
    given: Mapping[str, list[tuple[str, Floats]]], calibrated: Callable[[Floats], Floats], labels: list[str]
) -> dict[str, float]:
    is_right = [(gold, labels[int(calibrated(p).argmax())] == gold) for gold, p in given["main"]]
    accuracy = float(np.mean([own for _, own in is_right]))
    recalls = [np.mean([own for gold, own in is_right if gold == label]) for label in {gold for gold, _ in is_right}]
    held_out = _mean_of_labels([(gold, calibrated(p)) for gold, p in given["bias_score"]])
    return {
        "bias_score": 0.5 * float(np.abs(held_out - 1 / len(labels)).sum()),
        "rsd": float(np.std(recalls)) / accuracy if accuracy else 0.0,
        "accuracy": accuracy,
    }


def largest_difference(expected: Mapping[Key, Mapping[str, float]], found: list[dict[str, Any]]) -> float:
    """Return the largest distance of rows of ``label_bias_by_task`` from NumPy's values; each value needs its row."""
    rows = {(row["task"], row["n_demos"], row["demo_set"], row["method"]): row for row in found}
    apart = [abs(float(rows[key][name]) - value) for key, own in expected.items() for name, value in own.items()]
    return float(np.max(apart))  # NaN where one is


def main(run: str) -> None:
    """Print the variants of a finished run on this machine; ends with 1 if biaseval and NumPy differ."""
    lines, worst = ["| variant | task | demonstrations | method | BiasScore | RSD | accuracy |", "|" + "---|" * 7], 0.0
    with tempfile.TemporaryDirectory() as scratch:
        copy = shutil.copytree(run, Path(scratch) / "run")
        stored = {row["purpose"] for row in pq.read_table(f"{run}/prompts", columns=["purpose"]).to_pylist()}
        methods = [own for own in ("cc", "dc", "looc") if own in stored]
        methods += [f"{own}_softmax" for own in methods if own != "looc"]
        for variant, (normalization, eos, own) in VARIANTS.items():
            keys = {"scoring.normalization": normalization, "scoring.eos": str(eos).lower()}
            keys["calibration"] = f"[{', '.join(methods)}]"
            reanalyse_run(copy, [f"{key}={value}" for key, value in keys.items()], page=False)
            expected = by_numpy(str(copy), normalization, eos, own)
            found = query([str(copy)], "from label_bias_by_task").to_pylist()
            difference = largest_difference(expected, found)
            worst = difference if np.isnan(difference) else max(worst, difference)
            for (task, n_demos, demo_set, method), value in sorted(expected.items()):
                numbers = " | ".join(f"{number:.4f}" for number in value.values())
                lines.append(f"| {variant} | {task} | {n_demos}, set {demo_set} | {method} | {numbers} |")
    print(*lines, f"\nlargest difference between biaseval and NumPy: {worst:.1e}", sep="\n")
    if not worst <= TOLERANCE:
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
