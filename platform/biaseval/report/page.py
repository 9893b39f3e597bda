"""The report as one HTML file without any outside resource."""

from __future__ import annotations

import base64
import html
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from biaseval.prompting.calibration import CALIBRATIONS
from biaseval.report.figures import Figure
from biaseval.report.findings import METRICS, Findings, Row
from biaseval.report.methods import method_name, side_by_side
from biaseval.report.mitigation import cost_groups
from biaseval.report.summary import caveats, preferred_label, summarize

SUITES = {"all": "All tasks", "semantically_equivalent": "Tasks with semantically equivalent labels"}

_LOWER_IS_BETTER = ("rsd", "bias_score")
_NOT_MEASURED = "–"


def page_templates() -> Environment:
    """Return the templates of this folder with their filters; what they are given is escaped."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {
        "rate": _rate,
        "change": _change,
        "number": lambda value: _NOT_MEASURED if _is_missing(value) else f"{value:.3f}",
        "percent": lambda value: _NOT_MEASURED if _is_missing(value) else f"{value:.1%}",
        "count": lambda value: _NOT_MEASURED if value is None else f"{value:,}",
        "seconds": lambda value: _NOT_MEASURED if value is None else f"{value:,.1f}",
        "method": method_name,
        "suite": lambda suite: SUITES.get(suite, suite),
        "data_uri": lambda svg: f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}",
        "flat": lambda content: list(_flat(content)),
        "preferred": preferred_label,
        "prose": lambda text: Markup(html.escape(text, quote=False)),
    }
    templates.globals["calibrations"] = list(CALIBRATIONS.values())
    return templates


def render_page(findings: Findings, figures: Sequence[Figure], training: Sequence[Figure] = ()) -> str:
    """Return the HTML of the report; everything from the run is escaped.

    Args:
        findings: of the run.
        figures: of the metrics.
        training: of the adapters' training.
    """
    return (
        page_templates()
        .get_template("template.html.j2")
        .render(
            findings=findings,
            summary=summarize(findings),
            caveats=caveats(findings),
            figures=figures,
            training=training,
            costs=[] if findings.adaptation is None else cost_groups(findings.adaptation, lambda row: row["n_demos"]),
            metrics=METRICS,
            best=_best(findings),
            changes=_groups(findings.changes),
            task_tables=_task_tables(findings),
            environment={name: fact for name, fact in findings.environment.items() if name != "data"},
            sha256=findings.environment.get("data", {}),
            n_labels={task["task"]: len(task["labels"]) for task in findings.tasks},
        )
    )


def _best(findings: Findings) -> set[tuple[str, int, str, str]]:
    """Return the (suite, n_demos, method, metric) that are best among the methods, as rounded in the report."""
    best = set()
    for suite, rows in findings.by_suite.items():
        for n_demos in findings.n_demos:
            for metric in METRICS:
                values = {
                    row["method"]: round(row[metric], 3)
                    for row in rows
                    if row["n_demos"] == n_demos and not _is_missing(row[metric])
                }
                if len(set(values.values())) < 2:
                    continue
                goal = (min if metric in _LOWER_IS_BETTER else max)(values.values())
                best |= {(suite, n_demos, method, metric) for method, value in values.items() if value == goal}
    return best


def _groups(changes: Sequence[Row]) -> list[list[Row]]:
    """Return what more demonstrations change, then what calibration changes with each number of demonstrations."""
    groups: dict[int, list[Row]] = {}
    for row in changes:
        groups.setdefault(-1 if row["method"] == "none" else row["n_demos"], []).append(row)
    return [groups[key] for key in sorted(groups)]


def _task_tables(findings: Findings) -> list[Row]:
    """Return the tables of all tasks for each n_demos, the highest RSD of the method none first."""
    tables = []
    for n_demos in findings.n_demos:
        by_task: dict[str, dict[str, Row]] = {}
        for row in findings.by_task:
            if row["n_demos"] == n_demos:
                by_task.setdefault(row["task"], {})[row["method"]] = row
        groups = side_by_side(method for by_method in by_task.values() for method in by_method)
        order = sorted(by_task, key=lambda task: (-_sortable(by_task[task].get("none")), task))
        tables.append({"n_demos": n_demos, "groups": groups, "tasks": [(task, by_task[task]) for task in order]})
    return tables


def _sortable(row: Row | None) -> float:
    return -1.0 if row is None or _is_missing(row["rsd"]) else float(row["rsd"])


def _rate(row: Row | None, metric: str) -> str:
    """Return a metric with its interval, if it has one."""
    return _NOT_MEASURED if row is None else _estimate(row, metric, ".3f")


def _change(row: Row, metric: str) -> str:
    """Return a signed difference with its interval, if it has one."""
    return _estimate(row, metric, "+.3f")


def _estimate(row: Row, metric: str, number_format: str) -> str:
    numbers = [row[metric], row.get(f"{metric}_low"), row.get(f"{metric}_high")]
    if _is_missing(numbers[0]):
        return _NOT_MEASURED
    value, *interval = [
        # Adding 0.0 turns the -0.0 that rounding may leave into 0.0.
        format(round(number, 3) + 0.0, number_format).replace("-", "\N{MINUS SIGN}")
        for number in numbers
        if not _is_missing(number)
    ]
    if len(interval) < 2:
        return value
    return Markup('{} <span class="interval">[{}, {}]</span>').format(value, *interval)


def _is_missing(value: float | None) -> bool:
    return value is None or not math.isfinite(value)


def _flat(content: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the leaves of nested mappings as (dotted key, text); lists of plain values are one leaf."""
    if isinstance(content, dict) and content:
        for key, value in content.items():
            yield from _flat(value, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(content, str):
        yield prefix, content
    else:
        yield prefix, json.dumps(content, ensure_ascii=False)
