"""What the comparison of two simulated majority-bias runs says, beside what is true of them."""

BY_SETTING = """
select
    task, n_demos, instruction, setting, number, seed, predict, method,
    weighted_f1(list(gold), list(prediction)) as weighted_f1,
    avg((prediction = gold)::int) as accuracy
from majority_predictions
group by all
"""
"""What of the mart ``majority_by_setting`` is read: without resamples of the rows."""


def of_runs() -> dict[str, str]:
    """Return queries for what comparisons read of runs, each of which is a task here."""
    read = ("majority_predictions", "majority_row_values", "majority_draw_values", "majority_seed_boundaries")
    return {name: f"select task as run, * from {name}" for name in read} | {
        "majority_by_model": _BY_MODEL,
        "majority_best": _BY_MODEL,
        "majority_bias_shared": _SHARED,
    }


_BY_MODEL = """
select distinct
    task as run, n_demos, instruction, predict, method, true as is_above_constant,
    true as is_any_setting_above_constant, true as has_enough_rows,
    null::double as majority_accuracy, null::double as constant_f1
from majority_predictions
"""

_SHARED = """
select own.task as run, other.task as other_run, true as is_comparable
from (select distinct task from majority_predictions) as own
inner join (select distinct task from majority_predictions) as other
    on left(own.task, -1) = left(other.task, -1) and own.task <> other.task
"""

_TRUTH = """
with

setting_truths as (
    select
        task, number, region,
        unnest(['these', 'any']) as behind,
        unnest([avg(accuracy), avg(expected_accuracy)]) as accuracy,
        unnest([avg(weighted_f1), avg(expected_f1)]) as weighted_f1
    from truths
    inner join setting_regions using (setting)
    group by task, number, region
),

model_truths as (
    select
        task, behind,
        unnest(['accuracy', 'mean_f1', 'sd_f1', 'rb_at_10', 'tails_f1', 'middle_f1']) as metric,
        unnest([
            avg(accuracy),
            avg(weighted_f1),
            stddev_samp(weighted_f1),
            rb_at_k(list(weighted_f1), 10),
            avg(weighted_f1) filter (region = 'tails'),
            avg(weighted_f1) filter (region = 'middle')
        ]) as truth
    from setting_truths
    group by task, behind
),

compared as materialized (
    select compared.*, own.behind, round(other.truth - own.truth, 9) as truth
    from majority_bias_comparison as compared
    inner join model_truths as own on compared.run = own.task and compared.metric = own.metric
    inner join model_truths as other
        on compared.other_run = other.task and compared.metric = other.metric and own.behind = other.behind
    -- Of RB@10 over seeds the truth is known where models are equal.
    where compared.run < compared.other_run and (compared.metric <> 'rb_at_10' or own.truth = other.truth)
)
"""

_NO_INTERVAL = "null::double as estimate, null::double as low, null::double as high"

_QUERIES = {
    "verdicts": f"""
select
    run, 'wrong verdict' as quantity, metric, '' as place, count(verdict) as n,
    count(*) filter ((verdict = 'higher' and truth <= 0) or (verdict = 'lower' and truth >= 0)) as n_hit,
    {_NO_INTERVAL}
from compared
where behind = 'any'
group by all
""",
    "negligible": f"""
select
    run, 'called negligible, and is not' as quantity, metric, '' as place, count(verdict) as n,
    count(*) filter (verdict = 'negligible' and abs(truth) >= 0.01) as n_hit, {_NO_INTERVAL}
from compared
where behind = 'any'
group by all
""",
    "power": f"""
select
    run, 'power' as quantity, metric, '' as place, count(verdict) as n,
    count(*) filter (verdict = 'higher') as n_hit, {_NO_INTERVAL}
from compared
where behind = 'any' and truth >= 0.01
group by all
""",
    "intervals": f"""
select
    run, 'interval of a difference' as quantity, metric, '' as place, count(low) as n,
    count(*) filter (truth between low - 1e-9 and high + 1e-9) as n_hit, {_NO_INTERVAL}
from compared
where behind = 'these' and metric <> 'rb_at_10'
group by all
""",
    "both": f"""
select
    run, 'bands over rows and demonstrations' as quantity, 'all' as metric, '' as place, 1 as n,
    bool_and(truth between both_low - 1e-9 and both_high + 1e-9)::int as n_hit, {_NO_INTERVAL}
from compared
where behind = 'any' and both_low is not null
group by all
""",
}

COMPARED = {"outcomes": _TRUTH + " union all by name ".join(f"({query})" for query in _QUERIES.values())}
"""The query over ``majority_bias_comparison`` and ``truths``, by name."""
