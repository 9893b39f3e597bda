"""Simulated label-bias runs of different models beside each other, whose differences are known."""

from collections.abc import Mapping
from functools import partial
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from tests.validation import label_bias
from tests.validation.cells import Cell
from tests.validation.label_bias import Simulated
from tests.validation.outcomes import OUTCOMES, outcomes

Effect = Literal["same", "better", "same_five"]
"""Two biased models that differ in no task on average; one that is right more often; five that differ in none."""

_GAINS = {"same": [0.0, 0.0], "better": [0.0, 0.05], "same_five": [0.0] * 5}
"""Accuracy of each model beyond that of the first."""

_N_JUDGED_BY_TASK = 6
"""Tasks from which on they are the units of tests, and not rows; as in ``label_bias_shared``."""


def cells(n_small: int, n_large: int) -> list[Cell]:
    """Return the cells of comparisons of label-bias runs.

    Args:
        n_small: pairs of runs of small cells.
        n_large: of those with more than 2,000 rows.
    """
    sizes = [(1, 100, 2), (1, 1000, 5), (3, 100, 2), (6, 100, 2), (30, 100, 2), (100, 100, 2)]
    effects: tuple[Effect, ...] = ("same", "better")
    asked = [(effect, size) for size in sizes for effect in effects]
    asked += [("same_five", size) for size in sizes if size in [(1, 100, 2), (6, 100, 2), (30, 100, 2)]]
    return [_cell(effect, *size, n_small if size[0] * size[1] <= 2000 else n_large) for effect, size in asked]


def _cell(effect: Effect, n_tasks: int, n_rows: int, n_labels: int, n_runs: int) -> Cell:
    sizes = {"n_tasks": n_tasks, "n_rows": n_rows, "n_labels": n_labels}
    n_per_part = max(1, label_bias.n_per_part(n_tasks, n_rows) // len(_GAINS[effect]))
    return Cell("label_bias_comparison", effect, sizes, n_runs, n_per_part, partial(_judged, effect, sizes))


def _judged(effect: Effect, sizes: Mapping[str, int], n_runs: int, seed: list[int]) -> pa.Table:
    simulated = label_bias.simulate_paired("biased", _GAINS[effect], n_runs=n_runs, seed=seed, **sizes)
    return judge(simulated, effect, sizes["n_tasks"])


def judge(simulated: list[Simulated], effect: Effect, n_tasks: int, *, is_by_truth: bool = False) -> pa.Table:
    """Return what the comparison says of simulated runs beside each other: rows of `OUTCOMES`.

    Args:
        simulated: the runs of each model.
        effect: what is true of them.
        n_tasks: of each run.
        is_by_truth: words are judged by what is true of these tasks, also where tasks are the units.
    """
    measured = {
        name: outcomes("label_bias", {**own.tables, "truths": own.truths}, _MARTS, _of_runs(name))
        for name, own in zip("abcde", simulated, strict=False)
    }
    tables = {name: pa.concat_tables([own[name] for own in measured.values()]) for name in (*_MARTS, "truths")}
    unit = "task" if n_tasks >= _N_JUDGED_BY_TASK else "row"
    tables |= outcomes("label_bias", {"mains": tables["label_bias_by_task"]}, (), _shared(unit))
    queries = {"verdicts": _VERDICTS[effect], **_OF_TASKS} if unit == "task" and not is_by_truth else _OF_ROWS
    signs = {"comparison_sign_flips": simulated[0].tables["sign_flips"]}
    found: list[pa.Table] = []
    # One comparison after the other, as all that is compared is one family.
    for suite in sorted({run[:-1] for run in tables["truths"]["run"].to_pylist()}):
        own = {name: table.filter(pc.starts_with(table["run"], suite)) for name, table in tables.items()}
        found += outcomes("label_bias", own | signs, ("label_bias_comparison",), queries).values()
    return pa.concat_tables([table.cast(OUTCOMES) for table in found])


_MARTS = ("label_bias_by_task", "label_bias_constant_differences", "label_bias_row_values", "metric_values")


def _of_runs(name: str) -> dict[str, str]:
    """Return queries for what comparisons read of the runs of a model: each suite is a run of its own."""
    return {
        relation: f"select concat(split_part(task, '_', 1), '{name}') as run, * from {relation}"
        for relation in (*_MARTS, "truths")
    }


def _shared(unit: str) -> dict[str, str]:
    """Return queries for what the runs of a pair share, which is everything."""
    pairs = """
select distinct mains.run, others.run as other_run, {columns}
from mains
inner join mains as others using (task)
where mains.run <> others.run
"""
    of_tasks = "task, mains.n_rows, true as has_same_rows, true as has_same_bias_score_rows"
    return {
        "label_bias_shared_tasks": pairs.format(columns=of_tasks),
        "label_bias_shared": pairs.format(columns=f"'{unit}' as unit"),
        "label_bias_best": "select distinct run, 0 as n_demos, 'none' as method from mains",
    }


_NO_INTERVAL = "null::double as estimate, null::double as low, null::double as high"
_STUDY = "left(run, length(run) - 1) as run"
"""The runs of several models that are compared with each other have one name but for its last letter."""

_SAME = f"""
select
    {_STUDY}, 'wrong verdict' as quantity, metric, '' as place, count(verdict) as n,
    count(*) filter (verdict in ('higher', 'lower')) as n_hit, {_NO_INTERVAL}
from label_bias_comparison
where run < other_run
group by all
"""

_VERDICTS: dict[Effect, str] = {
    "same": _SAME,
    "same_five": _SAME,
    # RSD falls where accuracy rises, and so does what is left of it without noise; BiasScore stays.
    "better": f"""
select
    {_STUDY}, if(metric = 'bias_score', 'wrong verdict', 'power') as quantity, metric, '' as place, count(verdict) as n,
    count(*) filter (if(metric = 'bias_score', verdict in ('higher', 'lower'), verdict = 'higher')) as n_hit,
    {_NO_INTERVAL}
from label_bias_comparison
where run < other_run and metric not in ('rsd', 'relative_variance')
group by all
""",
}

_PLACE = "concat_ws(' ', n_demos, method, right(run, 1), right(other_run, 1)) as place"

_OF_TASKS = {
    "intervals": f"""
select
    {_STUDY}, 'interval of a difference' as quantity, metric, {_PLACE}, null::bigint as n, null::bigint as n_hit,
    estimate, low, high
from label_bias_comparison
where run < other_run
""",
    "bands": f"""
select
    {_STUDY}, 'simultaneous bands' || if(metric = 'relative_variance', ' of relative_variance', '') as quantity,
    metric, {_PLACE}, null::bigint as n, null::bigint as n_hit,
    estimate, simultaneous_low as low, simultaneous_high as high
from label_bias_comparison
where run < other_run and simultaneous_low is not null
""",
}

_TRUTH = """
with means as (
    select run, n_demos, method, unnest(['accuracy', 'macro_f1', 'rsd', 'bias_score', 'relative_variance']) as metric,
        unnest([avg(accuracy), avg(macro_f1), avg(rsd), avg(bias_score), avg(relative_variance)]) as truth
    from truths
    group by run, n_demos, method
),

compared as (
    select compared.*, round(other.truth - own.truth, 9) as truth
    from label_bias_comparison as compared
    inner join means as own using (run, n_demos, method, metric)
    inner join means as other using (n_demos, method, metric)
    where compared.run < compared.other_run and other.run = compared.other_run
)
"""

# Rows speak of these tasks, in which models may differ that are alike over all tasks.
_OF_ROWS = {
    "verdicts": f"""{_TRUTH}
select
    {_STUDY}, 'wrong verdict' as quantity, metric, '' as place, count(verdict) as n,
    count(*) filter ((verdict = 'higher' and truth <= 0) or (verdict = 'lower' and truth >= 0)) as n_hit,
    {_NO_INTERVAL}
from compared
group by all
""",
    "power": f"""{_TRUTH}
select
    {_STUDY}, 'power' as quantity, metric, '' as place, count(verdict) as n,
    count(*) filter (verdict = 'higher') as n_hit, {_NO_INTERVAL}
from compared
where metric in ('accuracy', 'macro_f1') and truth >= 0.01
group by all
""",
    "intervals": f"""{_TRUTH}
select
    {_STUDY}, 'interval of a difference' as quantity, metric, '' as place, count(low) as n,
    count(*) filter (truth between low and high) as n_hit, {_NO_INTERVAL}
from compared
group by all
""",
}
