"""Simulated label-bias runs of several formats of the prompt, whose differences are known."""

from collections.abc import Mapping
from functools import partial
from typing import Literal

import pyarrow as pa

from biaseval.spec import BASE
from tests.validation import label_bias
from tests.validation.cells import Cell
from tests.validation.outcomes import OUTCOMES, outcomes

Effect = Literal["same", "better"]
"""Formats that change nothing; one of three that makes a biased model right more often."""

_FORMATS: Mapping[Effect, Mapping[str, float]] = {
    "same": {BASE: 0.0, "terse": 0.0, "back": 0.0},
    "better": {BASE: 0.0, "terse": 0.08, "back": 0.0},
}
"""Formats to their gains in accuracy."""


def cells(n_small: int, n_large: int) -> list[Cell]:
    """Return the cells of formats.

    Args:
        n_small: runs of small cells.
        n_large: of those with more than 2,000 rows.
    """
    sizes = [(1, 100, 2), (1, 300, 5), (1, 1000, 2), (3, 100, 2), (6, 100, 5), (30, 100, 2)]
    effects: tuple[Effect, ...] = ("same", "better")
    return [
        _cell(effect, *size, n_small if size[0] * size[1] <= 2000 else n_large) for effect in effects for size in sizes
    ]


def _cell(effect: Effect, n_tasks: int, n_rows: int, n_labels: int, n_runs: int) -> Cell:
    sizes = {"n_tasks": n_tasks, "n_rows": n_rows, "n_labels": n_labels}
    n_per_part = max(1, label_bias.n_per_part(n_tasks, n_rows) // len(_FORMATS[effect]))
    return Cell("label_bias_formats", effect, sizes, n_runs, n_per_part, partial(_judged, effect, sizes))


def _judged(effect: Effect, sizes: Mapping[str, int], n_runs: int, seed: list[int]) -> pa.Table:
    [simulated] = label_bias.simulate_paired("biased", [0.0], _FORMATS[effect], n_runs=n_runs, seed=seed, **sizes)
    tables = {**simulated.tables, "truths": simulated.truths}
    found = outcomes("label_bias", tables, ("label_bias_format_changes",), QUERIES)
    return pa.concat_tables([table.cast(OUTCOMES) for table in found.values()])


_TRUTHS = """
with truth as (
    select
        split_part(task, '_', 1) as suite, task, n_demos, method, format,
        unnest(['accuracy', 'macro_f1', 'rsd', 'bias_score', 'relative_variance']) as metric,
        unnest([accuracy, macro_f1, rsd, bias_score, relative_variance]) as truth
    from truths
), means as (
    select
        own.suite, own.n_demos, own.method, own.format, other.method as against_method,
        other.format as against_format, own.metric, avg(own.truth - other.truth) as truth
    from truth as own
    inner join truth as other using (task, n_demos, metric)
    group by all
), judged as (
    select *, if(method = against_method, 'formats', 'methods in formats') as family
    from label_bias_format_changes
    inner join means using (suite, n_demos, method, format, against_method, against_format, metric)
)
"""

QUERIES = {
    "words": f"""
{_TRUTHS}
select
    suite as run, 'wrong verdict' as quantity, metric, family as place, count(*) as n,
    count(*) filter (
        verdict in ('higher', 'lower') and (abs(truth) <= 1e-9 or (verdict = 'higher') <> (truth > 0))
    ) as n_hit,
    null::double as estimate, null::double as low, null::double as high
from judged
group by suite, metric, family
""",
    "power": f"""
{_TRUTHS}
select
    suite as run, 'power' as quantity, metric, '' as place, count(*) as n,
    count(*) filter (verdict = 'higher') as n_hit,
    null::double as estimate, null::double as low, null::double as high
from judged
where family = 'formats' and method = 'none' and metric in ('accuracy', 'macro_f1') and truth > 0.01
group by suite, metric
""",
    "intervals": f"""
{_TRUTHS}
select
    suite as run, 'interval on these tasks' as quantity, metric, '' as place, count(low) as n,
    count(*) filter (truth between low and high) as n_hit,
    null::double as estimate, null::double as low, null::double as high
from judged
group by suite, metric
""",
}
"""What the mart says, by run (a suite): its words in two families, which a page shows beside each other."""
