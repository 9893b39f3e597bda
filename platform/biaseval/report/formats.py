"""What a label-bias report tells of several formats of a prompt: how far wordings and orders move its numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from biaseval.report.methods import method_order
from biaseval.spec import BASE

Row = dict[str, Any]

METRICS = {"rsd": "RSD", "bias_score": "BiasScore", "accuracy": "accuracy", "macro_f1": "macro-F1"}
"""In the order of the section."""

QUERIES = {
    "means": "from label_bias_by_format where suite = 'all'",
    "changes": "from label_bias_format_changes where suite = 'all'",
    "base_changes": "select n_demos, method, metric, same_tasks_verdict from label_bias_verdicts where suite = 'all' "
    "and n_demos = against_n_demos and against_method = 'none'",
    "spread": "from label_bias_format_spread where suite = 'all' and method = 'none' and task is null",
    "labels": "from label_bias_format_labels where method = 'none' and is_rsd_above order by task, n_demos, format",
}
"""What shows the rows of the section's tables."""


@dataclass(frozen=True)
class Formats:
    """A run of several formats of the prompt."""

    names: Sequence[str]
    """The base first."""
    changes: Mapping[str, Mapping[str, str]]
    """Format to the keys of the prompt that it has in place of the base's, as JSON, which shows white space."""
    means: Sequence[Row]
    """The rows of ``label_bias_by_format``, by n_demos, method and format; ``words`` has, by metric, the verdict of a
    format against the base without calibration, and of a method against none in the same format."""
    spread: Sequence[Row]
    """The rows of ``label_bias_format_spread`` of the mean over tasks without calibration, by n_demos and metric."""
    n_tested: int
    """Differences from the base without calibration that were tested."""
    n_found: int
    """Those that other rows do not explain."""
    turned: Sequence[Row]
    """(task, n_demos) whose preferred label is not the same in all formats with a bias beyond rows: ``labels``, to the
    first format that prefers each."""


def formats_of(prompt: Mapping[str, Any], shown: Mapping[str, Sequence[Row]]) -> Formats | None:
    """Return what a report tells of formats; None where the run has one.

    Args:
        prompt: the section of the spec.
        shown: the rows of `QUERIES`.
    """
    own = prompt.get("formats")
    if not own:
        return None
    names = [BASE, *own]
    words = {_place(row): row["verdict"] for row in shown["changes"] if row["format"] != row["against_format"]}
    words_of_methods = {
        _place(row): row["verdict"] for row in shown["changes"] if row["method"] != row["against_method"]
    } | {_place({**row, "format": BASE}): row["same_tasks_verdict"] for row in shown["base_changes"]}
    means = [
        {
            **row,
            "words": {
                metric: (words if row["method"] == "none" else words_of_methods).get((*_setting(row), metric))
                for metric in METRICS
            },
        }
        for row in shown["means"]
    ]
    tested = [row for row in shown["changes"] if row["method"] == "none" and row["p_adjusted"] is not None]
    of_page = [row for row in tested if row["metric"] in METRICS]
    return Formats(
        names=names,
        changes={
            name: {
                key: json.dumps(value, ensure_ascii=False)
                for key, value in form.items()
                if value not in (None, "drawn")
            }
            for name, form in own.items()
        },
        means=sorted(means, key=lambda row: (row["n_demos"], method_order(row["method"]), names.index(row["format"]))),
        spread=sorted(
            (row for row in shown["spread"] if row["metric"] in METRICS),
            key=lambda row: (row["n_demos"], list(METRICS).index(row["metric"])),
        ),
        n_tested=len(of_page),
        n_found=sum(row["verdict"] in ("higher", "lower") for row in of_page),
        turned=list(_turned(shown["labels"])),
    )


def _setting(row: Row) -> tuple[int, str, str]:
    return row["n_demos"], row["method"], row["format"]


def _place(row: Row) -> tuple[int, str, str, str]:
    return (*_setting(row), row["metric"])


def _turned(labels: Sequence[Row]) -> Iterator[Row]:
    for (task, n_demos), rows in groupby(labels, key=lambda row: (row["task"], row["n_demos"])):
        by_label: dict[str, str] = {}
        for row in rows:
            by_label.setdefault(row["label"], row["format"])
        if len(by_label) > 1:
            yield {"task": task, "n_demos": n_demos, "labels": by_label}
