"""What the marts of a simulated majority-bias run say, beside what is true of it."""


def queries(effect: str) -> dict[str, str]:
    """Return the query over the marts and ``truths``, by name.

    Args:
        effect: what is true of the run.
    """
    asked = [query for name, query in _QUERIES.items() if effect == "remedied" or name != "power"]
    if effect == "constant":
        asked.append(_CONSTANT)
    # In one statement, what they have in common is computed once.
    return {"outcomes": _TRUTH + " union all by name ".join(f"({query})" for query in asked)}


_NO_INTERVAL = "null::double as estimate, null::double as low, null::double as high"
_NO_COUNT = "null::bigint as n, null::bigint as n_hit"

_TRUTH = """
with

-- What is true of other test rows, behind these demonstrations and behind any.
setting_truths as materialized (
    select
        instruction, method, setting, number, region,
        unnest(['these', 'any']) as behind,
        unnest([avg(weighted_f1), avg(expected_f1)]) as weighted_f1
    from truths
    inner join setting_regions using (setting)
    group by instruction, method, setting, number, region
),

model_truths as (
    select
        instruction,
        method,
        behind,
        avg(weighted_f1) as mean_f1,
        stddev_samp(weighted_f1) as sd_f1,
        rb_at_k(list(weighted_f1), 10) as rb_at_10,
        avg(weighted_f1) filter (region = 'tails') as tails_f1,
        avg(weighted_f1) filter (region = 'middle') as middle_f1
    from setting_truths
    group by all
),

long_truths as materialized (
    select
        instruction,
        method,
        behind,
        unnest(['mean_f1', 'sd_f1', 'rb_at_10', 'tails_f1', 'middle_f1']) as metric,
        unnest([mean_f1, sd_f1, rb_at_10, tails_f1, middle_f1]) as truth
    from model_truths
),

-- Of RB@10 over seeds the sign alone is known, which is that of its change in the means.
verdicts as materialized (
    select verdicts.*, own.behind, round(own.truth - other.truth, 9) as truth
    from majority_verdicts as verdicts
    inner join long_truths as own using (instruction, method, metric)
    inner join long_truths as other
        on
            own.behind = other.behind
            and verdicts.against_instruction = other.instruction
            and verdicts.against_method = other.method
            and verdicts.metric = other.metric
)
"""

_QUERIES = {
    "verdicts": f"""
select
    named.run, 'wrong verdict' as quantity, metric, '' as place, count(*) as n,
    count(*) filter ((verdict = 'higher' and truth <= 0) or (verdict = 'lower' and truth >= 0)) as n_hit,
    {_NO_INTERVAL}
from verdicts
cross join named
where behind = 'any'
group by all
""",
    "negligible": f"""
select
    named.run, 'called negligible, and is not' as quantity, metric, '' as place, count(*) as n,
    count(*) filter (verdict = 'negligible' and abs(truth) >= 0.01) as n_hit, {_NO_INTERVAL}
from verdicts
cross join named
where metric <> 'rb_at_10' and behind = 'any'
group by all
""",
    "power": f"""
select
    named.run, 'power' as quantity, metric, '' as place, count(*) as n,
    count(*) filter (verdict = if(metric = 'sd_f1', 'lower', 'higher')) as n_hit, {_NO_INTERVAL}
from verdicts
cross join named
where metric in ('mean_f1', 'sd_f1', 'rb_at_10') and behind = 'any'
group by all
""",
    "tests": f"""
select
    named.run, 'interval of a test' as quantity, metric, '' as place, count(low) as n,
    count(*) filter (truth between low - 1e-9 and high + 1e-9) as n_hit, {_NO_INTERVAL}
from verdicts
cross join named
where metric <> 'rb_at_10' and behind = 'these'
group by all
""",
    "bands": f"""
select
    named.run, 'simultaneous bands' as quantity, 'all' as metric, '' as place, 1 as n,
    bool_and(truth between simultaneous_low - 1e-9 and simultaneous_high + 1e-9)::int as n_hit, {_NO_INTERVAL}
from verdicts
cross join named
where metric <> 'rb_at_10' and behind = 'these' and both_low is not null
group by all
""",
    "both": f"""
select
    named.run, 'bands over rows and demonstrations' as quantity, 'all' as metric, '' as place, 1 as n,
    bool_and(truth between both_low - 1e-9 and both_high + 1e-9)::int as n_hit, {_NO_INTERVAL}
from verdicts
cross join named
where behind = 'any' and both_low is not null
group by all
""",
    "proportions": f"""
select
    named.run, 'proportions matter' as quantity, unnest(['p', 'p_adjusted']) as metric, '' as place,
    unnest([count(proportions_p), count(proportions_p_adjusted)]) as n,
    unnest([
        count(*) filter (proportions_p <= 0.05), count(*) filter (proportions_p_adjusted <= 0.05)
    ]) as n_hit, {_NO_INTERVAL}
from majority_by_model
cross join named
group by named.run
""",
    "proportions_page": f"""
select
    named.run, 'proportions matter somewhere' as quantity, 'all' as metric, '' as place, 1 as n,
    bool_or(proportions_p_adjusted <= 0.05)::int as n_hit, {_NO_INTERVAL}
from majority_by_model
cross join named
where proportions_p_adjusted is not null
group by all
""",
    "models": f"""
select
    named.run, 'interval of a model' as quantity, metric, '' as place, count(low) as n,
    count(*) filter (truth between low - 1e-9 and high + 1e-9) as n_hit, {_NO_INTERVAL}
from (
    select
        instruction, method,
        unnest(['mean_f1', 'rb_at_10']) as metric,
        unnest([mean_f1_low, rb_at_10_low]) as low,
        unnest([mean_f1_high, rb_at_10_high]) as high
    from majority_by_model
)
inner join long_truths using (instruction, method, metric)
cross join named
where behind = 'these'
group by all
""",
    "settings": f"""
select
    named.run, 'interval of a setting' as quantity, 'weighted_f1' as metric, '' as place,
    count(weighted_f1_low) as n,
    count(*) filter (setting_truths.weighted_f1 between weighted_f1_low and weighted_f1_high) as n_hit, {_NO_INTERVAL}
from majority_over_seeds as measured
inner join setting_truths using (instruction, method, setting)
cross join named
where behind = 'these'
group by all
""",
    "following": f"""
select
    named.run, 'interval over seeds' as quantity,
    unnest(['majority_effect', 'recency_at_equal_shares']) as metric,
    concat_ws(' ', method, if(instruction, 'with', 'without')) as place, {_NO_COUNT},
    unnest([majority_effect, recency_at_equal_shares]) as estimate,
    unnest([majority_effect_low, recency_at_equal_shares_low]) as low,
    unnest([majority_effect_high, recency_at_equal_shares_high]) as high
from majority_by_model
cross join named
""",
    "gains": f"""
select
    named.run, 'interval of a gain' as quantity, metric, '' as place, count(low) as n,
    count(*) filter (truth between low - 1e-9 and high + 1e-9) as n_hit, {_NO_INTERVAL}
from verdicts
cross join named
where metric in ('mean_f1', 'sd_f1') and behind = 'these'
group by all
""",
    "gaps": f"""
select
    named.run, 'interval of a gap' as quantity, replace(metric, '_f1', '') as metric, '' as place, count(low) as n,
    count(*) filter (truth between low - 1e-9 and high + 1e-9) as n_hit, {_NO_INTERVAL}
from verdicts
cross join named
where metric in ('tails_f1', 'middle_f1') and behind = 'these'
group by all
""",
}

_CONSTANT = f"""
select
    named.run, 'verdict on a constant answer' as quantity, metric, '' as place, count(*) as n,
    count(*) filter (verdict in ('higher', 'lower', 'negligible')) as n_hit, {_NO_INTERVAL}
from majority_verdicts
cross join named
where metric in ('sd_f1', 'rb_at_10')
group by all
"""
