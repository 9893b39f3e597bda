"""The report as one HTML file without any outside resource."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from biaseval.report.cautions import FEW_NOTES, caveats
from biaseval.report.figures import Figure
from biaseval.report.findings import METRICS, N_LETTERS, N_MOST_BIASED, Findings, Row
from biaseval.report.format_words import formats_words
from biaseval.report.formats import METRICS as FORMAT_METRICS
from biaseval.report.ids import ids_of_methods
from biaseval.report.methods import explained, method_name, side_by_side
from biaseval.report.mitigation import cost_groups
from biaseval.report.summary import measured, remedy_name, scope_of_words, word
from biaseval.report.verdict import conclude

SUITES = {"all": "All tasks", "semantically_equivalent": "Tasks with semantically equivalent labels"}

_FOLDER = Path(__file__).parent
_VERDICT_PANELS = ("rsd", "accuracy")
_NOT_MEASURED = "–"
_N_TASKS_OF_SETS = 10
"""Tasks up to which the labels of each demonstration set are listed."""


def page_templates() -> Environment:
    """Return the templates of this folder with their filters; what they are given is escaped."""
    templates = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {
        "rate": _rate,
        "change": _change,
        "band": _band,
        "number": lambda value: _NOT_MEASURED if _is_missing(value) else f"{value:.3f}",
        "exact": lambda value: "" if _is_missing(value) else f"{value:.6g}",
        "percent": lambda value: _NOT_MEASURED if _is_missing(value) else f"{value:.1%}",
        "p": lambda value: _NOT_MEASURED if _is_missing(value) else "< 0.001" if value < 0.001 else f"{value:.3f}",
        "count": lambda value: _NOT_MEASURED if value is None else f"{value:,}",
        "seconds": lambda value: _NOT_MEASURED if value is None else f"{value:,.1f}",
        "method": method_name,
        "suite": lambda suite: SUITES.get(suite, suite),
        "data_uri": lambda svg: f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}",
        "flat": lambda content: list(_flat(content)),
        "cut": _cut,
        "word": word,
        "prose": lambda text: Markup(html.escape(text, quote=False)),
    }
    script = (_FOLDER / "tables.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    templates.globals |= {
        "FEW_NOTES": FEW_NOTES,
        "calibrations": explained([]),
        "tables_script": Markup("<script>{}</script>").format(Markup(script)),
        "tables_script_source": Markup(f"'sha256-{digest}'"),
    }
    return templates


def render_page(findings: Findings, figures: Sequence[Figure], training: Sequence[Figure] = ()) -> str:
    """Return the HTML of the report; everything from the run is escaped.

    Args:
        findings: of the run.
        figures: of the metrics.
        training: of the adapters' training.
    """
    first = [figure for figure in figures if _is_of_verdict(figure)]
    return (
        page_templates()
        .get_template("template.html.j2")
        .render(
            findings=findings,
            calibrations=explained(findings.methods),
            measured=measured(findings),
            verdict=conclude(findings),
            words=scope_of_words(findings),
            caveats=caveats(findings),
            first_figures=sorted(first, key=lambda figure: _VERDICT_PANELS.index(figure.metric)),
            figures=[figure for figure in figures if not _is_of_verdict(figure)],
            ids=[ids_of_methods(findings.methods), ("metric", METRICS)],
            training=training,
            costs=[] if findings.adaptation is None else cost_groups(findings.adaptation, lambda row: row["n_demos"]),
            metrics=METRICS,
            remedies=_remedy_tables(findings),
            remedy_name=lambda row: remedy_name(row, findings),
            most_biased=findings.ranked[:N_MOST_BIASED],
            task_tables=_task_tables(findings),
            environment={name: fact for name, fact in findings.environment.items() if name != "data"},
            sha256=findings.environment.get("data", {}),
            demo_sets=findings.demo_sets if len(findings.tasks) <= _N_TASKS_OF_SETS else [],
            format_metrics=FORMAT_METRICS,
            formats_words=[] if findings.formats is None else formats_words(findings.formats),
            about={task["task"]: task for task in findings.tasks},
        )
    )


def _is_of_verdict(figure: Figure) -> bool:
    return figure.suite == "all" and figure.line == 0 and figure.metric in _VERDICT_PANELS


def _remedy_tables(findings: Findings) -> list[tuple[str, list[tuple[Row, list[Row]]]]]:
    """Return tables of remedies, those of the fewest and most demonstrations first.

    Each has, for a number of demonstrations, the row of ``label_bias_by_model`` without mitigation and the remedies.
    """
    tables = []
    between = [number for number in findings.n_demos if number not in findings.ends]
    for heading, numbers in (("", findings.ends), (_between(between), between)):
        groups = []
        for n_demos in numbers:
            without = findings.mean(n_demos, "none")
            if without is not None:
                groups.append((without, [row for row in findings.remedies if row["n_demos"] == n_demos]))
        if groups:
            tables.append((heading, groups))
    return tables


def _between(numbers: Sequence[int]) -> str:
    return f"The same with {', '.join(map(str, numbers))} demonstration{'' if list(numbers) == [1] else 's'}"


def _task_tables(findings: Findings) -> list[Row]:
    """Return the tables of all tasks for each n_demos, in the order of the most biased."""
    tables = []
    order = {row["task"]: place for place, row in enumerate(findings.ranked)}
    for n_demos in findings.n_demos:
        by_task: dict[str, dict[str, Row]] = {}
        for row in findings.by_task:
            if row["n_demos"] == n_demos:
                by_task.setdefault(row["task"], {})[row["method"]] = row
        groups = side_by_side(method for by_method in by_task.values() for method in by_method)
        tasks = sorted(by_task.items(), key=lambda item: order[item[0]])
        tables.append({"n_demos": n_demos, "groups": groups, "tasks": tasks})
    return tables


def _cut(text: str) -> str:
    """Return a text of a run, cut where it is long."""
    return text if len(text) <= N_LETTERS else f"{text[:N_LETTERS]} …"


def _rate(row: Row | None, metric: str) -> str:
    """Return a metric with its interval, if it has one."""
    return _NOT_MEASURED if row is None else _estimate(row, metric, ".3f")


def _change(row: Row, metric: str) -> str:
    """Return a signed difference with its interval, if it has one."""
    return _estimate(row, metric, "+.3f")


def _band(row: Row) -> str:
    """Return the simultaneous band of a difference in brackets, if it has one."""
    low, high = row["simultaneous_low"], row["simultaneous_high"]
    return "" if _is_missing(low) or _is_missing(high) else f"[{_rounded(low, '+.3f')}, {_rounded(high, '+.3f')}]"


def _estimate(row: Row, metric: str, number_format: str) -> str:
    numbers = [row[metric], row.get(f"{metric}_low"), row.get(f"{metric}_high")]
    if _is_missing(numbers[0]):
        return _NOT_MEASURED
    value, *interval = [_rounded(number, number_format) for number in numbers if not _is_missing(number)]
    if len(interval) < 2:
        return value
    return Markup('{} <span class="interval">[{}, {}]</span>').format(value, *interval)


def _rounded(number: float, number_format: str) -> str:
    # Adding 0.0 turns the -0.0 that rounding may leave into 0.0.
    return format(round(number, 3) + 0.0, number_format).replace("-", "\N{MINUS SIGN}")


def _is_missing(value: float | None) -> bool:
    return value is None or not math.isfinite(value)


def _flat(content: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the leaves of nested mappings as (dotted key, text); lists of plain values are one leaf.

    Of a list of mappings each goes by its name, or else its place.
    """
    if isinstance(content, list) and content and all(isinstance(each, dict) for each in content):
        content = {each.get("name", place): each for place, each in enumerate(content)}
    if isinstance(content, dict) and content:
        for key, value in content.items():
            yield from _flat(value, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(content, str):
        yield prefix, content
    else:
        yield prefix, json.dumps(content, ensure_ascii=False)
