"""What a report tells, read from a run: marts and tables by SQL, the spec, the plan and the environment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import duckdb
import yaml

from biaseval.analysis import open_runs
from biaseval.errors import InputError
from biaseval.store import Run

Row = dict[str, Any]

METHODS = {"none": "no calibration", "cc": "CC", "dc": "DC", "looc": "LOOC"}
"""The display names of the calibration methods, in the order of tables and figures; others go by their own name."""

METRICS = {"macro_f1": "macro-F1", "accuracy": "accuracy", "rsd": "RSD", "bias_score": "BiasScore"}
"""The display names of the metrics, in the order of tables and figures."""

N_MOST_BIASED = 10


@dataclass(frozen=True)
class Findings:
    """All that one report shows. Rates are in [0, 1], rsd >= 0; a number that was not measured is None."""

    model: str
    n_demos: tuple[int, ...]
    """The numbers of demonstrations, ascending."""
    methods: tuple[str, ...]
    by_suite: dict[str, list[Row]]
    """Suite to the rows of ``label_bias_by_model`` with ``n_bias_score_rows``, by n_demos and method."""
    by_task: list[Row]
    """One row per (task, n_demos, method): metrics averaged over demonstration sets."""
    changes: list[Row]
    """One row per compared pair of settings: paired differences of the metrics with intervals (``_CHANGES``)."""
    most_biased: list[Row]
    """The tasks of highest RSD without calibration at the largest n_demos, each with its ``labels``."""
    n_without_hit: int
    """Tasks with accuracy 0 in a demonstration set, without calibration at the largest n_demos; their RSD is 0."""
    tasks: list[Row]
    cut_prompts: list[Row]
    """One row per (n_demos, purpose) in which prompts lost demonstrations or text to the length limit."""
    spec: Row
    plan: Row
    environment: Row

    def mean(self, n_demos: int, method: str, suite: str = "all") -> Row | None:
        """Return the suite's row of ``label_bias_by_model`` for this setting, or None."""
        for row in self.by_suite[suite]:
            if row["n_demos"] == n_demos and row["method"] == method:
                return row
        return None


def method_order(method: str) -> tuple[int, str]:
    """Return the sort key of a method: those of `METHODS` first, in their order."""
    known = list(METHODS)
    return (known.index(method) if method in known else len(known), method)


def read_findings(run: Run) -> Findings:
    """Return what the report of ``run`` shows.

    Raises:
        InputError: ``run`` is no label-bias run.
        BiasevalError: it has no metrics yet.
    """
    spec = yaml.safe_load(run.read_text("spec.yaml")) if run.has("spec.yaml") else {}
    if spec.get("kind") != "label_bias":
        raise InputError(f"{run.uri}: is not a label-bias run; name the directory of one")
    with closing(open_runs([run.uri])) as connection:
        means = _rows(connection, _MEANS)
        tasks = _rows(connection, "select * exclude (definition) from tasks order by task")
        by_task = _rows(connection, _BY_TASK)
        changes = _changes(connection)
        cut_prompts = _rows(connection, _CUT_PROMPTS)
        n_demos = tuple(sorted({row["n_demos"] for row in means}))
        most_biased = _most_biased(connection, n_demos[-1])
        [without_hit] = _rows(connection, _WITHOUT_HIT, [n_demos[-1]])
    return Findings(
        model=spec["name"],
        n_demos=n_demos,
        methods=tuple(sorted({row["method"] for row in means}, key=method_order)),
        by_suite={
            suite: sorted(
                (row for row in means if row["suite"] == suite),
                key=lambda row: (row["n_demos"], method_order(row["method"])),
            )
            for suite in sorted({row["suite"] for row in means})
        },
        by_task=by_task,
        changes=changes,
        most_biased=most_biased,
        n_without_hit=without_hit["n_tasks"],
        tasks=tasks,
        cut_prompts=cut_prompts,
        spec=spec,
        plan=_read_json(run, "plan.json"),
        environment=_read_json(run, "environment.json"),
    )


def _changes(connection: duckdb.DuckDBPyConnection) -> list[Row]:
    changes: dict[tuple[int, str], Row] = {}
    for row in _rows(connection, _CHANGES):
        metric = row["metric"]
        place = {name: row[name] for name in ("n_demos", "method", "from_n_demos")}
        change = changes.setdefault((row["n_demos"], row["method"]), place)
        change |= {metric: row["change"], f"{metric}_low": row["low"], f"{metric}_high": row["high"]}
        if metric == "rsd":
            change |= {"n_tasks_lower_rsd": row["n_tasks_lower"], "n_tasks": row["n_tasks"]}
    return sorted(changes.values(), key=lambda row: (row["n_demos"], method_order(row["method"])))


def _most_biased(connection: duckdb.DuckDBPyConnection, n_demos: int) -> list[Row]:
    tasks = _rows(connection, _MOST_BIASED, [n_demos, N_MOST_BIASED])
    labels = _rows(connection, _LABELS, [n_demos, [task["task"] for task in tasks]])
    return [{**task, "labels": [label for label in labels if label["task"] == task["task"]]} for task in tasks]


def _rows(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
    rows: list[Row] = connection.sql(sql, params=parameters).to_arrow_table().to_pylist()
    return rows


def _read_json(run: Run, name: str) -> Row:
    content: Row = json.loads(run.read_text(name)) if run.has(name) else {}
    return content


_MEANS = """
with

bias_score_rows as (

    select
        suite,
        n_demos,
        method,
        sum(n_bias_score_rows)::bigint as n_bias_score_rows
    from label_bias_by_task
    inner join (select suite, task from bootstrap_draws where draw = 0) using (task)
    group by all

)

select *
from label_bias_by_model
inner join bias_score_rows using (suite, n_demos, method)
"""

_BY_TASK = """
select
    task,
    n_demos,
    method,
    avg(macro_f1 order by demo_set) as macro_f1,
    avg(accuracy order by demo_set) as accuracy,
    avg(rsd order by demo_set) as rsd,
    avg(bias_score order by demo_set) as bias_score,
    sum(n_rows)::bigint as n_rows
from label_bias_by_task
group by all
order by task, n_demos, method
"""

# One row per (n_demos, method, metric): how it changes against none at the same n_demos or, for none itself, against
# none at the smallest n_demos. A pair is a task; the draws are those of label_bias_by_model. Lists, because a join of
# draws and differences has millions of rows with 279 tasks.
_CHANGES = """
with

task_means as (

    select
        task,
        n_demos,
        method,
        avg(macro_f1 order by demo_set) as macro_f1,
        avg(accuracy order by demo_set) as accuracy,
        avg(rsd order by demo_set) as rsd,
        avg(bias_score order by demo_set) as bias_score
    from label_bias_by_task
    group by all

),

differences as (

    select
        task,
        after.n_demos,
        after.method,
        before.n_demos as from_n_demos,
        after.macro_f1 - before.macro_f1 as macro_f1,
        after.accuracy - before.accuracy as accuracy,
        after.rsd - before.rsd as rsd,
        after.bias_score - before.bias_score as bias_score
    from task_means as after
    inner join task_means as before using (task)
    where
        before.method = 'none'
        and if(
            after.method = 'none',
            before.n_demos = (select min(n_demos) from task_means) and after.n_demos > before.n_demos,
            after.n_demos = before.n_demos
        )

),

long as (

    from differences
    unpivot include nulls (change for metric in (macro_f1, accuracy, rsd, bias_score))

),

change_lists as (

    select
        n_demos,
        method,
        from_n_demos,
        metric,
        list(coalesce(change, 0) order by task) as changes,
        list((change is not null)::double order by task) as has_change,
        count(*) filter (change < 0) as n_tasks_lower,
        count(change) as n_tasks
    from long
    group by all

),

draw_lists as (

    select
        draws.draw,
        list(coalesce(n_drawn, 0)::double order by task) as counts
    from (select distinct draw from bootstrap_draws where suite = 'all') as draws
    cross join tasks
    left join (from bootstrap_draws where suite = 'all') using (draw, task)
    group by draws.draw

),

resampled as (

    select
        * exclude (changes, has_change, counts),
        list_dot_product(counts, changes) / nullif(list_dot_product(counts, has_change), 0) as change
    from change_lists
    cross join draw_lists

),

intervals as (

    select
        n_demos,
        method,
        metric,
        quantile_cont(change, [0.025, 0.975]) as ends
    from resampled
    where draw > 0
    group by all

)

select
    estimates.* exclude (draw),
    intervals.ends[1] as low,
    intervals.ends[2] as high
from (from resampled where draw = 0) as estimates
left join intervals using (n_demos, method, metric)
"""

_MOST_BIASED = """
with

measured as (

    select
        task,
        avg(macro_f1 order by demo_set) as macro_f1,
        avg(accuracy order by demo_set) as accuracy,
        avg(rsd order by demo_set) as rsd,
        avg(bias_score order by demo_set) as bias_score,
        sum(n_rows)::bigint as n_rows,
        sum(n_bias_score_rows)::bigint as n_bias_score_rows
    from label_bias_by_task
    where method = 'none' and n_demos = $1
    group by all

)

select
    measured.*,
    tasks.category,
    tasks.definition,
    len(tasks.labels) as n_labels
from measured
inner join tasks using (task)
order by rsd desc, task
limit $2
"""

_LABELS = """
select
    task,
    label,
    sum(n_gold) / sum(sum(n_gold)) over (partition by task) as gold_share,
    sum(n_predicted) / sum(sum(n_predicted)) over (partition by task) as predicted_share,
    sum(n_correct) / nullif(sum(n_gold), 0) as recall,
    avg(mean_probability order by demo_set) as mean_probability
from label_bias_by_label
where method = 'none' and n_demos = $1 and list_contains($2, task)
group by task, label
order by task, label
"""

_WITHOUT_HIT = """
select count(distinct task) as n_tasks
from label_bias_by_task
where method = 'none' and n_demos = $1 and accuracy = 0
"""

_CUT_PROMPTS = """
select
    n_demos,
    purpose,
    count(*) as n_rows,
    count(*) filter (n_demos_used < n_demos - (purpose = 'looc')::int) as n_fewer_demos,
    count(*) filter (is_truncated) as n_truncated
from prompts
group by all
having n_fewer_demos > 0 or n_truncated > 0
order by all
"""
