"""What a report tells, read from a run: marts and tables by SQL, the spec, the plan and the environment."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import duckdb

from biaseval.analysis import open_runs
from biaseval.report.methods import Order, is_adapted, method_order, mitigation_of
from biaseval.store import Run

Row = dict[str, Any]

METRICS = {"macro_f1": "macro-F1", "accuracy": "accuracy", "rsd": "RSD", "bias_score": "BiasScore"}
"""The display names of the metrics, in the order of tables and figures."""

N_MOST_BIASED = 10


@dataclass(frozen=True)
class Adaptation:
    """How the adapters of a run were trained, and what every mitigation of the run needed."""

    costs: list[Row]
    """The changes against none, each with its row of ``mitigation_costs``."""
    training: list[Row]
    """The rows of ``training_by_setting``."""
    losses: list[Row]
    """The rows of ``training_by_step``."""


@dataclass(frozen=True)
class Findings:
    """All that one report shows. Rates are in [0, 1], rsd >= 0; a number that was not measured is None."""

    model: str
    n_demos: tuple[int, ...]
    """The numbers of demonstrations, ascending."""
    methods: tuple[str, ...]
    by_suite: dict[str, list[Row]]
    """Suite to the rows of ``label_bias_by_model``, by n_demos and method."""
    by_task: list[Row]
    """The rows of ``label_bias_by_task_over_sets``, by task, n_demos and method."""
    changes: list[Row]
    """The rows of ``label_bias_changes`` on all tasks, by n_demos, method and against_method."""
    most_biased: list[Row]
    """The tasks of highest RSD without calibration at the largest n_demos, each with its ``definition`` and its
    ``labels``, the rows of ``label_bias_by_label_over_sets``."""
    adaptation: Adaptation | None
    """None in a run without adapters."""
    n_without_hit: int
    """Tasks with accuracy 0 in a demonstration set, without calibration at the largest n_demos; their RSD is 0."""
    tasks: list[Row]
    cut_prompts: list[Row]
    """One row per (n_demos, purpose) in which prompts lost demonstrations or text to the length limit."""
    spec: Row
    plan: Row
    environment: Row

    @property
    def mitigation(self) -> str:
        """What the method ``none`` is without: ``calibration``, or in a run with adapters ``mitigation``."""
        return mitigation_of(self.methods)

    def mean(self, n_demos: int, method: str, suite: str = "all") -> Row | None:
        """Return the suite's row of ``label_bias_by_model`` for this setting, or None."""
        for row in self.by_suite[suite]:
            if row["n_demos"] == n_demos and row["method"] == method:
                return row
        return None


def read_findings(run: Run) -> Findings:
    """Return what the report of ``run`` shows.

    Raises:
        BiasevalError: it has no metrics yet.
    """
    spec = run.read_yaml("spec.yaml")
    with closing(open_runs([run.uri])) as connection:
        means = _rows(connection, "from label_bias_by_model")
        tasks = _rows(connection, "select * exclude (definition) from tasks order by task")
        by_task = _rows(connection, "from label_bias_by_task_over_sets order by task, n_demos, method")
        changes = sorted(_rows(connection, "from label_bias_changes where suite = 'all'"), key=_change_order)
        adaptation = read_adaptation(connection, changes, place="n_demos")
        cut_prompts = _rows(connection, _CUT_PROMPTS)
        n_demos = tuple(sorted({row["n_demos"] for row in means}))
        most_biased = _most_biased(connection, n_demos[-1])
        [without_hit] = _rows(connection, _WITHOUT_HIT, [n_demos[-1]])
    return Findings(
        model=spec["name"],
        n_demos=n_demos,
        methods=tuple(sorted({row["method"] for row in means}, key=method_order)),
        by_suite={
            suite: sorted((row for row in means if row["suite"] == suite), key=_setting_order)
            for suite in sorted({row["suite"] for row in means})
        },
        by_task=by_task,
        changes=changes,
        most_biased=most_biased,
        adaptation=adaptation,
        n_without_hit=without_hit["n_tasks"],
        tasks=tasks,
        cut_prompts=cut_prompts,
        spec=spec,
        plan=_read_json(run, "plan.json"),
        environment=_read_json(run, "environment.json"),
    )


def read_adaptation(connection: duckdb.DuckDBPyConnection, changes: Sequence[Row], *, place: str) -> Adaptation | None:
    """Return how adapters were trained and what every mitigation needed; None without adapters.

    Args:
        connection: to one run.
        changes: what each method changes; those against none have their costs beside them.
        place: the column that tells the rows of one method apart, ``n_demos`` or ``instruction``.
    """
    against_none = [row for row in changes if row["method"] != "none" and row.get("against_method", "none") == "none"]
    if not any(is_adapted(row["method"]) for row in against_none):
        return None
    costs = {(row[place], row["method"]): row for row in _rows(connection, "from mitigation_costs")}
    return Adaptation(
        costs=[{**costs[row[place], row["method"]], **row} for row in against_none],
        training=_rows(connection, "from training_by_setting order by n_demos, instruction"),
        losses=_rows(connection, "from training_by_step order by step"),
    )


def _setting_order(row: Row) -> tuple[int, Order]:
    return (row["n_demos"], method_order(row["method"]))


def _change_order(row: Row) -> tuple[int, Order, Order]:
    return (*_setting_order(row), method_order(row["against_method"]))


def _most_biased(connection: duckdb.DuckDBPyConnection, n_demos: int) -> list[Row]:
    tasks = _rows(connection, _MOST_BIASED, [n_demos, N_MOST_BIASED])
    labels = _rows(connection, _LABELS, [n_demos, [task["task"] for task in tasks]])
    return [{**task, "labels": [label for label in labels if label["task"] == task["task"]]} for task in tasks]


def _rows(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
    rows: list[Row] = connection.sql(sql, params=parameters).to_arrow_table().to_pylist()
    return rows


def _read_json(run: Run, name: str) -> Row:
    content: Row = run.read_json(name) if run.has(name) else {}
    return content


_MOST_BIASED = """
select *
from label_bias_by_task_over_sets
inner join (select task, definition from tasks) using (task)
where method = 'none' and n_demos = $1
order by rsd desc, task
limit $2
"""

_LABELS = """
select *
from label_bias_by_label_over_sets
where method = 'none' and n_demos = $1 and list_contains($2, task)
order by task, label
"""

_WITHOUT_HIT = """
select count(*) as n_tasks
from label_bias_by_task_over_sets
where method = 'none' and n_demos = $1 and n_demo_sets_without_hit > 0
"""

_CUT_PROMPTS = """
select *
from shortened_prompts
where n_fewer_demos > 0 or n_truncated > 0
order by n_demos, purpose
"""
