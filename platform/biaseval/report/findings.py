"""What a report tells, read from a run: marts and tables by SQL, the spec, the plan and the environment."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import duckdb

from biaseval.analysis import open_runs
from biaseval.environment import raw_spec, read_environment
from biaseval.report.formats import QUERIES as OF_FORMATS
from biaseval.report.formats import Formats, formats_of
from biaseval.report.methods import Order, is_adapted, method_order, mitigation_of
from biaseval.store import Run

Row = dict[str, Any]

METRICS = {"macro_f1": "macro-F1", "accuracy": "accuracy", "rsd": "RSD", "bias_score": "BiasScore"}
"""The display names of the metrics, in the order of tables and figures."""

N_MOST_BIASED = 10
"""Tasks whose labels and rows are shown."""

N_WRONG = 5
"""Wrong rows that are shown of each of them."""

N_LETTERS = 300
"""The length at which texts of a run are cut."""


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
    scope: Row
    """The run's numbers of tasks, test rows and labels."""
    by_suite: dict[str, list[Row]]
    """Suite to the rows of ``label_bias_by_model``, by n_demos and method: all tasks, and suites of several. Of
    a single task the tables of tasks have the same."""
    by_task: list[Row]
    """The rows of ``label_bias_by_task_over_sets`` and ``label_bias_task_tests``, by task, n_demos and method."""
    remedies: list[Row]
    """The rows of ``label_bias_remedies`` against none on all tasks, by n_demos and method."""
    verdicts: dict[tuple[int, str, int, str], dict[str, Row]]
    """(n_demos, method, against_n_demos, against_method) to the rows of ``label_bias_verdicts`` of all tasks by metric;
    what more demonstrations change first, then by n_demos and method."""
    ranked: list[Row]
    """Of ``by_task``, the method none at the largest n_demos, the highest RSD beyond its noise first."""
    labels: dict[str, list[Row]]
    """Task to its rows of ``label_bias_by_label_over_sets``, of the method none at the largest n_demos."""
    answers: list[Row]
    """The label that is predicted most in each task, n_demos and demonstration set, of the method none."""
    preferred: list[Row]
    """By task and n_demos, of the method none: the label that is predicted most beyond its share of the gold labels.
    ``is_of_all_sets``: it is the same in each demonstration set."""
    wrong: dict[str, list[Row]]
    """Most biased task to its rows of ``wrong_answers``, of the same, where the preferred label is predicted."""
    adaptation: Adaptation | None
    """None in a run without adapters."""
    tasks: list[Row]
    cut_prompts: list[Row]
    """One row per (n_demos, purpose) in which prompts lost demonstrations or text to the length limit."""
    n_cut: Row
    """How many prompts lost demonstrations or text."""
    demo_sets: list[Row]
    """One row per (task, n_demos, demo_set): ``labels`` and how many demonstrations have each, of
    ``demonstration_labels``."""
    components: list[Row]
    """The rows of ``label_bias_components`` of the method none, by n_demos and metric."""
    formats: Formats | None
    """None in a run of one format of the prompt."""
    queries: dict[str, str]
    """Table of the page to the query that shows its rows."""
    spec: Row
    plan: Row
    environment: Row

    @property
    def mitigation(self) -> str:
        """What the method ``none`` is without: ``calibration``, or in a run with adapters ``mitigation``."""
        return mitigation_of(self.methods)

    @property
    def ends(self) -> tuple[int, ...]:
        """The smallest and the largest number of demonstrations; one where they are the same."""
        return tuple(dict.fromkeys((self.n_demos[0], self.n_demos[-1])))

    def mean(self, n_demos: int, method: str, suite: str = "all") -> Row | None:
        """Return the suite's row of ``label_bias_by_model`` for this setting, or None."""
        for row in self.by_suite[suite]:
            if row["n_demos"] == n_demos and row["method"] == method:
                return row
        return None

    def preferred_of(self, task: str, n_demos: int) -> Row:
        """Return the row of ``preferred`` of a task and a number of demonstrations."""
        [found] = [row for row in self.preferred if (row["task"], row["n_demos"]) == (task, n_demos)]
        return found


def read_findings(run: Run) -> Findings:
    """Return what the report of ``run`` shows.

    Raises:
        BiasevalError: it has no metrics yet.
    """
    spec = raw_spec(run)
    with closing(open_runs([run.uri])) as connection:
        means = _rows(connection, "from label_bias_by_model")
        n_demos = tuple(sorted({row["n_demos"] for row in means}))
        by_task = _rows(connection, f"{_TESTED_TASKS} order by task, n_demos, method")
        queries = _queries(n_demos[-1])
        shown = {name: _rows(connection, sql) for name, sql in queries.items() if name != "wrong"}
        most_biased = [row["task"] for row in shown["ranked"][:N_MOST_BIASED]]
        queries["wrong"] = _wrong_query(n_demos[-1], most_biased)
        wrong = _rows(connection, queries["wrong"])
        [scope] = _rows(connection, _SCOPE)
        [n_cut] = _rows(connection, _N_CUT)
        answers = _rows(connection, _ANSWERS)
        preferred = _rows(connection, _PREFERRED)
        tasks = _rows(connection, "select * exclude (definition) from tasks order by task")
        definitions = _rows(
            connection, "select task, definition from tasks where list_contains($1, task)", [most_biased]
        )
        adaptation = read_adaptation(connection, shown["remedies"], place="n_demos")
        cut_prompts = _rows(connection, _CUT_PROMPTS)
        demo_sets = _rows(connection, _DEMO_SETS)
        formats = formats_of(spec.get("prompt", {}), {name: _rows(connection, sql) for name, sql in OF_FORMATS.items()})
    texts = {row["task"]: row["definition"] for row in definitions}
    return Findings(
        model=spec["name"],
        n_demos=n_demos,
        methods=tuple(sorted({row["method"] for row in means}, key=method_order)),
        scope=scope,
        by_suite={
            suite: sorted((row for row in means if row["suite"] == suite), key=_setting_order)
            for suite in sorted(
                {row["suite"] for row in means if row["suite"] == "all" or row["n_tasks"] > 1},
                key=lambda suite: (suite != "all", suite),
            )
        },
        by_task=by_task,
        remedies=sorted(shown["remedies"], key=_setting_order),
        verdicts=_by_metric(shown["changes"]),
        ranked=shown["ranked"],
        labels=_by_task(shown["labels"]),
        answers=answers,
        preferred=preferred,
        wrong=_by_task(wrong),
        adaptation=adaptation,
        tasks=[{**task, "definition": texts.get(task["task"])} for task in tasks],
        cut_prompts=cut_prompts,
        n_cut=n_cut,
        demo_sets=demo_sets,
        components=sorted(
            (row for row in shown["components"] if row["metric"] in METRICS and row["share_tasks"] is not None),
            key=lambda row: (row["n_demos"], list(METRICS).index(row["metric"])),
        ),
        formats=formats,
        queries=queries,
        spec=spec,
        plan=run.read_json("plan.json") if run.has("plan.json") else {},
        environment=read_environment(run),
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


def _queries(n_demos: int) -> dict[str, str]:
    """Return what shows the rows of the page's tables; ``n_demos`` is the largest number of demonstrations."""
    most = f"method = 'none' and n_demos = {n_demos}"
    return {
        "remedies": "from label_bias_remedies where suite = 'all' and against_method = 'none'",
        "changes": "from label_bias_verdicts where suite = 'all'",
        "ranked": f"{_TESTED_TASKS} and {most} order by rsd_excess desc nulls last, task",
        "components": "from label_bias_components where suite = 'all' and method = 'none'",
        "labels": f"from label_bias_by_label_over_sets where {most} order by task, label",
    }


def _wrong_query(n_demos: int, tasks: Sequence[str]) -> str:
    names = ", ".join("'" + task.replace("'", "''") + "'" for task in tasks)
    return (
        f"from wrong_answers where method = 'none' and n_demos = {n_demos} and is_preferred and place <= {N_WRONG} "
        f"and task in ({names}) order by task, place"
    )


def _setting_order(row: Row) -> tuple[int, Order]:
    return (row["n_demos"], method_order(row["method"]))


def _change_order(row: Row) -> tuple[bool, int, Order, Order]:
    return (row["method"] != "none", *_setting_order(row), method_order(row["against_method"]))


def _by_metric(rows: Sequence[Row]) -> dict[tuple[int, str, int, str], dict[str, Row]]:
    found: dict[tuple[int, str, int, str], dict[str, Row]] = {}
    for row in sorted(rows, key=_change_order):
        place = (row["n_demos"], row["method"], row["against_n_demos"], row["against_method"])
        found.setdefault(place, {})[row["metric"]] = row
    return found


def _by_task(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["task"], []).append(row)
    return found


def _rows(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
    rows: list[Row] = connection.sql(sql, params=parameters).to_arrow_table().to_pylist()
    return rows


_TESTED_TASKS = (
    "from label_bias_by_task_over_sets inner join label_bias_task_tests using (model, task, n_demos, method) "
    "where suite = 'all'"
)

_SCOPE = """
select
    count(*) as n_tasks,
    sum(n_main)::bigint as n_rows,
    min(len(labels)) as n_labels_least,
    max(len(labels)) as n_labels_most
from tasks
"""

_ANSWERS = """
select
    task,
    n_demos,
    demo_set,
    label,
    n_predicted / sum(n_predicted) over (partition by task, n_demos, demo_set) as predicted_share
from label_bias_by_label
where method = 'none'
qualify row_number() over (partition by task, n_demos, demo_set order by n_predicted desc, label) = 1
order by task, n_demos, demo_set
"""

_PREFERRED = """
with sets as (
    from label_bias_by_label
    where method = 'none'
    qualify row_number() over (partition by task, n_demos, demo_set order by n_predicted - n_gold desc, label) = 1
)

select
    over_sets.*,
    (
        select count(distinct sets.label) = 1
        from sets
        where sets.task = over_sets.task and sets.n_demos = over_sets.n_demos
    ) as is_of_all_sets
from label_bias_by_label_over_sets as over_sets
where method = 'none'
qualify row_number() over (partition by task, n_demos order by predicted_share - gold_share desc, label) = 1
order by task, n_demos
"""

_CUT_PROMPTS = """
select *
from shortened_prompts
where n_fewer_demos > 0 or n_truncated > 0
order by n_demos, purpose
"""

_DEMO_SETS = """
select
    task,
    n_demos,
    demo_set,
    list(label order by label) as labels,
    list(n_with_label order by label) as counts,
    any_value(is_single_label) as is_single_label,
    any_value(n_demos_used) as n_demos_used
from demonstration_labels
group by all
order by task, n_demos, demo_set
"""

_N_CUT = """
select
    coalesce(sum(n_fewer_demos), 0)::bigint as n_fewer_demos,
    coalesce(sum(n_truncated), 0)::bigint as n_truncated
from shortened_prompts
"""
