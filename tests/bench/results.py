"""From measurements to records, which compare methods, and to a Markdown table."""

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
    peak_memory_mib: float | None
    n_tokens: int | None
    """Computed, without padding; None: not known."""
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
    """Nats, between a label's summed log-probability and the reference: ours in float32, where that was run.

    Labels that a method gives no score are left out.
    """
    flipped: int
    """Rows whose predicted label (largest mean log-probability of label tokens and EOS) is not the reference's."""
    n_unscored: int
    """Labels that the method gives no score; their rows are not among ``flipped``."""
    peak_memory_mib: float | None
    """Beyond weights and what else was there before; None of other engines, which reserve it when they start."""
    tokens_per_row: float | None
    """Computed, without padding; None: not known."""
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
    is_whole = ~np.isnan(own.scores).reshape(own.n_rows, own.n_labels).any(axis=1)
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
        largest_difference=float(np.nanmax(np.abs(own.scores - expected))),
        flipped=int(((_predicted(own, own.scores) != _predicted(own, expected)) & is_whole).sum()),
        n_unscored=int(np.isnan(own.scores).sum()),
        peak_memory_mib=own.peak_memory_mib,
        tokens_per_row=None if own.n_tokens is None else own.n_tokens / own.n_rows,
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
    "labels without a score": "{n_unscored}",
    "peak memory, MiB": "{peak_memory_mib:.0f}",
    "tokens per row": "{tokens_per_row:.0f}",
    "unique tokens/s": "{tokens_per_s:.0f}",
    "of matrix rate": "{share_of_matrix_rate:.0%}",
    "suite, h": "{suite_hours:.1f}",
}


def markdown(report: Mapping[str, Any]) -> str:
    """Return all records as a table, with what they were measured on below."""
    known = [{name: float("nan") if own is None else own for name, own in row.items()} for row in report["records"]]
    rows = [[cell.format(**row).replace("nan", "") for cell in COLUMNS.values()] for row in known]
    return "\n".join([*_table(list(COLUMNS), rows), "", _conditions(report)])


def summary(report: Mapping[str, Any]) -> str:
    """Return a line per scenario and number of demonstrations: ours, the others' time as a multiple, other dtypes."""
    settings: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for row in report["records"]:
        settings.setdefault((row["scenario"], row["n_demos"]), []).append(row)
    main = report["dtypes"][0]
    methods = list(dict.fromkeys(_method(row) for row in report["records"] if row["prepare_s"] is None))
    header = ["texts", "k", "prompt tokens", "labels x tokens", "rows/s", "of matrix rate", "peak MiB", "suite, h"]
    header += [f"time of {method}" for method in methods]
    for dtype in report["dtypes"][1:]:
        header += [f"{dtype}: rows/s", "largest difference", "flipped"]
    lines = []
    for (scenario, n_demos), rows in settings.items():
        by_method = {(_method(row), row["dtype"]): row for row in rows}
        own = next(row for row in rows if row["prepare_s"] is not None and row["dtype"] == main)
        line = [scenario, str(n_demos), str(own["prompt_tokens"]), f"{own['n_labels']} x {own['label_tokens']:.1f}"]
        line += [f"{own['rows_per_s']:.1f}", f"{own['share_of_matrix_rate']:.0%}", f"{own['peak_memory_mib']:.0f}"]
        line += [f"{own['suite_hours']:.1f}"]
        line += [
            f"{by_method[method, main]['ratio']:.1f}x" if (method, main) in by_method else "" for method in methods
        ]
        for dtype in report["dtypes"][1:]:
            [other] = [row for row in rows if row["prepare_s"] is not None and row["dtype"] == dtype]
            line += [f"{other['rows_per_s']:.1f}", f"{other['largest_difference']:.2f}", str(other["flipped"])]
        lines.append(line)
    worst = max(row["largest_difference"] for row in report["records"] if row["dtype"] == main)
    below = f"Largest difference between methods in {main}: {worst:.1e} nats. {_conditions(report)}"
    return "\n".join([*_table(header, lines), "", below])


def _method(row: Mapping[str, Any]) -> str:
    return str(row["method"]).split(", batch ")[0]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"] + ["| " + " | ".join(r) + " |" for r in rows]


def _conditions(report: Mapping[str, Any]) -> str:
    shape, versions = report["shape"], report["environment"]["versions"]
    tasks = {row["scenario"]: row["task"] for row in report["records"]}
    names = ("torch", "transformers", "lm_eval")
    model = shape["name"] if shape["is_real"] else "a random Llama"
    own = ", ".join(f"{name} {versions[name]}" for name in names if name in versions)
    rates = (f"{dtype} {rate / 1e9:,.0f}" for dtype, rate in report["matrix_flops_per_s"].items())
    return (
        f"{report['device']}, {report['threads']} threads; {model} "
        f"({shape['parameters'] / 1e6:,.0f}M parameters); {own}. "
        f"A plain matrix product, GFLOP/s: {', '.join(rates)}. Texts: "
        f"{', '.join(f'{scenario} {task}' for scenario, task in tasks.items())}."
    )
