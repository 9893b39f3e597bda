"""What the marts say of simulated label-bias runs, beside what is true of them."""

from typing import Literal

Effect = Literal["none", "biased", "remedied", "sharper"]
"""Answers without label bias, methods that change nothing on average; with bias, and such methods; one that helps;
without bias, and one that is right more often."""

_TRUE_CHANGES = """
truth as (
    select
        split_part(task, '_', 1) as suite, task, n_demos, method,
        unnest(['accuracy', 'macro_f1', 'rsd', 'bias_score', 'relative_variance']) as metric,
        unnest([accuracy, macro_f1, rsd, bias_score, relative_variance]) as truth
    from truths
), changes as (
    select
        own.suite, own.n_demos, own.method, other.n_demos as against_n_demos, other.method as against_method,
        own.metric, avg(own.truth - other.truth) as truth, count(*) as n_tasks
    from truth as own
    inner join truth as other using (task, metric)
    group by all
)
"""

_NO_INTERVAL = "null::double as estimate, null::double as low, null::double as high"


def _wrong_words(power: str, wrong: str) -> str:
    """Return a query for how often words for tasks like these are wrong, and what is to be found is found.

    Args:
        power: says which words are to be found.
        wrong: says whether a word is wrong that is none of these.
    """
    return f"""
with {_TRUE_CHANGES}
select
    suite as run, if({power}, 'power', 'wrong verdict') as quantity, metric, '' as place, count(*) as n,
    count(*) filter (
        if({power}, verdict = if(metric in ('accuracy', 'macro_f1'), 'higher', 'lower'), {wrong})
    ) as n_hit,
    {_NO_INTERVAL}
from label_bias_verdicts as verdicts
inner join changes using (suite, n_demos, method, against_n_demos, against_method, metric)
group by all
union all
select
    suite as run, 'wrong verdict' as quantity, metric || ', other way round' as metric, '' as place, count(*) as n,
    count(*) filter (verdict = if(metric in ('accuracy', 'macro_f1'), 'lower', 'higher')) as n_hit,
    {_NO_INTERVAL}
from label_bias_verdicts
where {power}
group by all
"""


_IS_SAID = "verdict in ('higher', 'lower')"
# Of several tasks, methods that change nothing on average do change something in each.
_NO_EFFECT = _wrong_words(
    "false", f"{_IS_SAID} and (verdicts.n_tasks > 1 or (verdict = 'higher') <> (truth > 1e-9) or abs(truth) <= 1e-9)"
)

VERDICTS: dict[Effect, str] = {
    "none": _NO_EFFECT,
    "biased": _NO_EFFECT,
    "remedied": _wrong_words("method = 'cc'", _IS_SAID),
    "sharper": _wrong_words("method = 'cc' and metric in ('accuracy', 'macro_f1')", _IS_SAID),
}

QUERIES = {
    "noise": """
select
    split_part(task, '_', 1) as run,
    unnest(['rsd above noise', 'bias_score above noise']) as quantity,
    unnest(['rsd', 'bias_score']) as metric, '' as place,
    unnest([count(rsd_p), count(bias_score_p)]) as n,
    unnest([count(*) filter (rsd_p <= 0.05), count(*) filter (bias_score_p <= 0.05)]) as n_hit,
    null::double as estimate, null::double as low, null::double as high
from label_bias_by_task_over_sets
group by run
""",
    "these tasks": f"""
with {_TRUE_CHANGES}
select
    suite as run, 'interval on these tasks' as quantity, metric, '' as place, count(same_tasks_low) as n,
    count(*) filter (truth between same_tasks_low and same_tasks_high) as n_hit, {_NO_INTERVAL}
from label_bias_verdicts
inner join changes using (suite, n_demos, method, against_n_demos, against_method, metric)
group by suite, metric
""",
    # The page has these words too; of one task they are the same.
    "words on these tasks": f"""
with {_TRUE_CHANGES}
select
    suite as run, 'wrong verdict' as quantity, metric || ' on these tasks' as metric, '' as place, count(*) as n,
    count(*) filter (
        same_tasks_verdict in ('higher', 'lower')
        and (abs(truth) <= 1e-9 or (same_tasks_verdict = 'higher') <> (truth > 0))
    ) as n_hit,
    {_NO_INTERVAL}
from label_bias_verdicts as verdicts
inner join changes using (suite, n_demos, method, against_n_demos, against_method, metric)
where verdicts.n_tasks > 1
group by suite, metric
""",
    "negligible": f"""
with {_TRUE_CHANGES}
select
    suite as run, 'called negligible, and is not' as quantity, metric || ' on these tasks' as metric, '' as place,
    count(same_tasks_verdict) as n,
    count(*) filter (same_tasks_verdict = 'negligible' and abs(truth) >= least_effect) as n_hit, {_NO_INTERVAL}
from label_bias_verdicts
inner join changes using (suite, n_demos, method, against_n_demos, against_method, metric)
group by suite, metric
""",
    # By what is true of the run's own tasks. A loss is one of more than is of interest.
    "advice": f"""
with {_TRUE_CHANGES}, remedies as (
    select
        suite as run, n_demos, method, advised.*,
        any_value(truth) filter (metric = 'accuracy') as accuracy,
        any_value(truth) filter (metric = 'macro_f1') as macro_f1,
        any_value(truth) filter (metric = 'rsd') as rsd,
        any_value(truth) filter (metric = 'bias_score') as bias_score
    from label_bias_remedies
    inner join changes using (suite, n_demos, method, against_n_demos, against_method)
    cross join lateral (
        select
            unnest(['tasks like these', 'these tasks']) as scope,
            unnest([is_supported, is_supported_on_these_tasks]) as is_recommended,
            unnest([advice, same_tasks_advice]) like 'do not use: bias%' as is_advised_against
    ) as advised
    group by all
)
select
    run, 'wrong advice' as quantity, concat(unnest(['recommended', 'advised against']), ', ', scope) as metric,
    '' as place, unnest([count(*), count(*)]) as n,
    unnest([
        count(*) filter (is_recommended and (accuracy <= -0.01 or (rsd > -1e-9 and bias_score > -1e-9))),
        count(*) filter (
            is_advised_against and accuracy > -1e-9 and macro_f1 > -1e-9 and rsd < 1e-9 and bias_score < 1e-9
        )
    ]) as n_hit, {_NO_INTERVAL}
from remedies
group by run, scope
""",
    "noticed": """
select
    suite as run, 'any task above noise' as quantity, unnest(['rsd', 'bias_score']) as metric, '' as place,
    unnest([1, 1]) as n,
    unnest([(n_tasks_rsd > 0)::int, (n_tasks_bias_score > 0)::int]) as n_hit,
    null::double as estimate, null::double as low, null::double as high
from label_bias_by_model
where method = 'none' and n_demos = 0
""",
    "tasks": """
with truth as (
    select task, n_demos, method, unnest(['accuracy', 'macro_f1', 'rsd', 'bias_score', 'relative_variance']) as metric,
        unnest([accuracy, macro_f1, rsd, bias_score, relative_variance]) as truth
    from truths
), measured as (
    select task, n_demos, method, unnest(['accuracy', 'macro_f1', 'rsd', 'bias_score']) as metric,
        unnest([accuracy_low, macro_f1_low, rsd_low, bias_score_low]) as low,
        unnest([accuracy_high, macro_f1_high, rsd_high, bias_score_high]) as high
    from label_bias_by_task_over_sets
)
select
    split_part(task, '_', 1) as run, 'interval of a task' as quantity, metric, '' as place,
    count(low) as n, count(*) filter (truth between low and high) as n_hit,
    null::double as estimate, null::double as low, null::double as high
from measured inner join truth using (task, n_demos, method, metric)
group by run, metric
""",
    "task_changes": """
with truth as (
    select task, n_demos, method, unnest(['accuracy', 'macro_f1', 'rsd', 'bias_score', 'relative_variance']) as metric,
        unnest([accuracy, macro_f1, rsd, bias_score, relative_variance]) as truth
    from truths
)
select
    split_part(changes.task, '_', 1) as run, 'interval of a change of a task' as quantity, metric, '' as place,
    count(changes.low) as n,
    count(*) filter (own.truth - other.truth between changes.low and changes.high) as n_hit,
    null::double as estimate, null::double as low, null::double as high
from label_bias_changes_by_task as changes
inner join truth as own using (task, n_demos, method, metric)
inner join truth as other
    on changes.task = other.task and changes.against_n_demos = other.n_demos
    and changes.against_method = other.method and changes.metric = other.metric
group by all
""",
    "means": """
select
    suite as run, 'interval of a mean' as quantity, unnest(['accuracy', 'macro_f1', 'rsd', 'bias_score']) as metric,
    concat_ws(' ', n_demos, method) as place, null::bigint as n, null::bigint as n_hit,
    unnest([accuracy, macro_f1, rsd, bias_score]) as estimate,
    unnest([accuracy_low, macro_f1_low, rsd_low, bias_score_low]) as low,
    unnest([accuracy_high, macro_f1_high, rsd_high, bias_score_high]) as high
from label_bias_by_model
where n_tasks > 1
""",
    "changes": """
select
    suite as run, 'interval of a change' as quantity, unnest(['accuracy', 'macro_f1', 'rsd', 'bias_score']) as metric,
    concat_ws(' ', n_demos, method, against_n_demos, against_method) as place, null::bigint as n, null::bigint as n_hit,
    unnest([accuracy, macro_f1, rsd, bias_score]) as estimate,
    unnest([accuracy_low, macro_f1_low, rsd_low, bias_score_low]) as low,
    unnest([accuracy_high, macro_f1_high, rsd_high, bias_score_high]) as high
from label_bias_changes
where n_tasks > 1
""",
    "bands": """
select
    suite as run,
    'simultaneous bands' || if(metric = 'relative_variance', ' of relative_variance', '') as quantity, metric,
    concat_ws(' ', n_demos, method, against_n_demos, against_method) as place, null::bigint as n, null::bigint as n_hit,
    estimate, simultaneous_low as low, simultaneous_high as high
from label_bias_verdicts
where n_tasks > 1 and simultaneous_low is not null
""",
}
"""What the marts say, by run (a suite); ``place`` where an interval is of what all runs have in common."""

OF_TRUTHS = {
    **{name: QUERIES[name] for name in ("negligible", "advice", "noise")},
    # Calibrations by inputs change something in every task: words are wrong by what is true of the run's own tasks.
    "words": f"""
with {_TRUE_CHANGES}, words as (
    select suite, metric, truth, unnest([verdict, same_tasks_verdict]) as word,
        unnest(['', ' on these tasks']) as scope, verdicts.n_tasks
    from label_bias_verdicts as verdicts
    inner join changes using (suite, n_demos, method, against_n_demos, against_method, metric)
)
select
    suite as run, 'wrong verdict' as quantity, metric || scope as metric, '' as place, count(*) as n,
    count(*) filter (
        word in ('higher', 'lower') and (abs(truth) <= 1e-9 or (word = 'higher') <> (truth > 0))
    ) as n_hit,
    {_NO_INTERVAL}
from words
where n_tasks > 1 or scope = ''
group by suite, metric, scope
""",
    "power": f"""
with {_TRUE_CHANGES}
select
    suite as run, 'power' as quantity, metric, '' as place, count(*) as n,
    count(*) filter (same_tasks_verdict = 'lower') as n_hit, {_NO_INTERVAL}
from label_bias_verdicts
inner join changes using (suite, n_demos, method, against_n_demos, against_method, metric)
where metric in ('rsd', 'bias_score') and method <> 'none' and truth <= -least_effect
group by suite, metric
""",
}
"""The same of runs in which everything changes a little: words by the sign of what is true of the run's own tasks."""
