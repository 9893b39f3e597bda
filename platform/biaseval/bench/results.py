"""From measurements to records, which compare methods, and to a Markdown table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

SUITE_ROWS = 264_176
"""Evaluation examples of the 279 tasks of Reif & Schwartz (2024): rows to score in each setting."""


@dataclass(frozen=True)
class Measured:
    """One method on one scenario, as it was timed."""

    scenario: str
    task: str
    n_demos: int
    prompt_tokens: float
    n_labels: int
    dtype: str
    method: str
    is_ours: bool
    n_rows: int
    seconds: float
    """From texts to scores."""
    prepare_s: float | None
    """The part of it that tokenises, which a run does on other processors while the scorer works; ours only."""
    peak_memory_mib: float
    n_unique_tokens: int
    useful_flops: int
    scores: npt.NDArray[np.float64]
    """``[n_rows * n_labels]`` sums of log-probabilities of label tokens and EOS, nats."""
    n_label_tokens: npt.NDArray[np.int32]
    """``[n_rows * n_labels]`` without EOS."""


@dataclass(frozen=True)
class Record:
    """One method on one scenario, beside ours: a row of the table."""

    scenario: str
    task: str
    n_demos: int
    prompt_tokens: int
    """Mean over all rows of the scenario."""
    n_labels: int
    label_tokens: float
    """Mean over labels, without EOS."""
    dtype: str
    method: str
    n_rows: int
    """Rows timed: the first ones."""
    seconds: float
    prepare_s: float | None
    rows_per_s: float
    ratio: float
    """How many times the time per row of ours in the dtype in which all methods ran."""
    largest_difference: float
    """Nats, between a label's summed log-probability and the reference: ours in float32, where that was run."""
    flipped: int
    """Rows whose predicted label (largest mean log-probability of label tokens and EOS) is not the reference's."""
    peak_memory_mib: float
    """Beyond weights and what else was there before."""
    tokens_per_s: float
    """Unique tokens: those of shared prefixes once."""
    flops_per_s: float
    """Useful operations (``flops.useful_flops`` of the rows timed, whatever else a method computes) per second."""
    share_of_matrix_rate: float
    """That as a share of a plain matrix product in the same dtype: model FLOP utilisation against what is possible."""
    share_without_preparing: float | None
    """The same with the seconds after ``prepare_s``: how well the scorer itself works; ours only."""
    suite_hours: float
    """For 264,176 rows like these."""


def records(measured: Sequence[Measured], matrix_flops_per_s: Mapping[str, float]) -> list[Record]:
    """Compare measurements; those of a scenario come together, in the order in which they were made.

    Args:
        measured: with ours, per scenario and number of demonstrations, in the dtype of the first of all.
        matrix_flops_per_s: by dtype.
    """
    main = measured[0].dtype
    ours = {(own.scenario, own.n_demos, own.dtype): own for own in measured if own.is_ours}
    reference = "float32" if any(own.dtype == "float32" for own in measured) else main
    groups = list(dict.fromkeys((own.scenario, own.n_demos) for own in measured))
    return [
        _record(own, ours[*group, main], ours[*group, reference], matrix_flops_per_s[own.dtype])
        for group in groups
        for own in measured
        if (own.scenario, own.n_demos) == group
    ]


def _record(own: Measured, ours: Measured, reference: Measured, matrix_rate: float) -> Record:
    row_s = own.seconds / own.n_rows
    rate = own.useful_flops / own.seconds
    expected = reference.scores[: len(own.scores)]
    return Record(
        scenario=own.scenario,
        task=own.task,
        n_demos=own.n_demos,
        prompt_tokens=round(own.prompt_tokens),
        n_labels=own.n_labels,
        label_tokens=float(own.n_label_tokens.mean()),
        dtype=own.dtype,
        method=own.method,
        n_rows=own.n_rows,
        seconds=own.seconds,
        prepare_s=own.prepare_s,
        rows_per_s=1 / row_s,
        ratio=row_s / (ours.seconds / ours.n_rows),
        largest_difference=float(np.abs(own.scores - expected).max()),
        flipped=int((_predicted(own, own.scores) != _predicted(own, expected)).sum()),
        peak_memory_mib=own.peak_memory_mib,
        tokens_per_s=own.n_unique_tokens / own.seconds,
        flops_per_s=rate,
        share_of_matrix_rate=rate / matrix_rate,
        share_without_preparing=(
            None if own.prepare_s is None else own.useful_flops / (own.seconds - own.prepare_s) / matrix_rate
        ),
        suite_hours=SUITE_ROWS * row_s / 3600,
    )


def _predicted(own: Measured, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    means = (scores / (own.n_label_tokens + 1)).reshape(own.n_rows, own.n_labels)
    return np.asarray(means.argmax(axis=1))


COLUMNS = {
    "texts": "{scenario}",
    "k": "{n_demos}",
    "prompt tokens": "{prompt_tokens}",
    "labels": "{n_labels}",
    "label tokens": "{label_tokens:.1f}",
    "method": "{method}, {dtype}",
    "rows timed": "{n_rows}",
    "rows/s": "{rows_per_s:.2f}",
    "ratio": "{ratio:.1f}x",
    "largest difference": "{largest_difference:.1e}",
    "flipped": "{flipped}",
    "peak memory, MiB": "{peak_memory_mib:.0f}",
    "tokens/s": "{tokens_per_s:.0f}",
    "of matrix rate": "{share_of_matrix_rate:.0%}",
    "suite, h": "{suite_hours:.1f}",
}


def markdown(report: Mapping[str, Any]) -> str:
    """Return the report's table, with what it was measured on below."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    lines += ["| " + " | ".join(cell.format(**row) for cell in COLUMNS.values()) + " |" for row in report["records"]]
    shape, versions = report["shape"], report["environment"]["versions"]
    tasks = {row["scenario"]: row["task"] for row in report["records"]}
    names = ("torch", "transformers", "lm_eval")
    rates = (f"{dtype} {rate / 1e9:,.0f}" for dtype, rate in report["matrix_flops_per_s"].items())
    lines += [
        "",
        f"{report['device']}, {report['threads']} threads; a Llama of {shape['parameters'] / 1e6:,.0f}M random "
        f"parameters; {', '.join(f'{name} {versions[name]}' for name in names if name in versions)}. "
        f"A plain matrix product, GFLOP/s: {', '.join(rates)}. Texts: "
        f"{', '.join(f'{scenario} {task}' for scenario, task in tasks.items())}.",
    ]
    return "\n".join(lines)
