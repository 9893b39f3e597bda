"""What the marts of a simulated QA-bias run say, beside what is true of it."""


def queries(effect: str, thresholds: str) -> dict[str, str]:
    """Return queries over the marts and ``truths``, by name.

    Args:
        effect: what is true of the run.
        thresholds: ``search``, or the published ones.
    """
    chosen = "searched" if thresholds == "search" else "fixed"
    wanted = [*_OF_THRESHOLDS]
    if effect not in ("none", "alike"):
        wanted.append("power")
    if effect not in ("none", "biased"):
        wanted += ["gaps", "gap_intervals", "models"]
    if thresholds == "search":
        wanted += ["datasets", "curves"]
        if effect == "alike":
            wanted.append("at_another")
        if effect not in ("none", "biased"):
            wanted.append("model_intervals")
        if effect == "better":
            wanted.append("model_power")
    # What is better is true of the planted heuristic alone.
    is_planted = "false" if effect in ("none", "alike") else "heuristic = 'word_dist'"
    return {name: f"{_TRUTH}\n{_QUERIES[name]}".format(chosen=chosen, planted=is_planted) for name in wanted}


def comparison_queries(effect: str, thresholds: str) -> dict[str, str]:
    """Return queries over ``qa_bias_comparison`` of two runs, each of one model, and ``truths``, by name.

    Args:
        effect: what is true of the models.
        thresholds: ``search``, or the published ones.
    """
    chosen = "searched" if thresholds == "search" else "fixed"
    wanted = ["wrong", "intervals", *(["power"] if effect == "better" else [])]
    return {name: _OF_RUNS[name].format(chosen=chosen) for name in wanted}


_NO_INTERVAL = "null::double as estimate, null::double as low, null::double as high"

_TRUTH = """
with

segment_truths as (
    select
        model, dataset, heuristic,
        100 * avg(truths.exact_match) filter (value <= threshold) as lower,
        100 * avg(truths.exact_match) filter (value > threshold) as higher,
        100 * avg(truths.f1) filter (value <= threshold) as lower_f1,
        100 * avg(truths.f1) filter (value > threshold) as higher_f1
    from qa_bias_by_heuristic as biases
    inner join qa_measured using (model, dataset, heuristic)
    inner join truths using (model, example_id)
    where biases.status = 'measured'
    group by all
),

dataset_truths as (
    select model, avg(exact_match) as exact_match, avg(f1) as f1
    from truths
    group by model
)
"""

_OF_THRESHOLDS = ("supported", "published", "published_page", "differences", "averages", "not_counted")

_QUERIES = {
    "supported": f"""
select
    named.run, 'wrong verdict' as quantity, '{{chosen}}' as metric, '{{chosen}}' as place, count(is_supported) as n,
    count(*) filter (is_supported) as n_hit, {_NO_INTERVAL}
from qa_bias_tests
cross join named
where not {{planted}}
group by all
""",
    "published": f"""
select
    named.run, 'significance above 0, as published' as quantity, '{{chosen}}' as metric, '' as place,
    count(bias_significance) as n, count(*) filter (bias_significance > 0) as n_hit, {_NO_INTERVAL}
from qa_bias_tests
cross join named
where not {{planted}}
group by all
""",
    "published_page": f"""
select
    named.run, 'any significance above 0, as published' as quantity, '{{chosen}}' as metric, '' as place,
    1 as n, coalesce(bool_or(bias_significance > 0), false)::int as n_hit, {_NO_INTERVAL}
from qa_bias_tests
cross join named
where not {{planted}}
group by all
""",
    # Of the model that is measured where the other one's answers chose.
    "at_another": f"""
select
    named.run, 'p below 5 %' as quantity, if(is_searched, 'own threshold', 'other model''s threshold') as metric,
    '' as place, count(p) as n, count(*) filter (p <= 0.05) as n_hit, {_NO_INTERVAL}
from qa_bias_tests
cross join named
group by all
""",
    "not_counted": f"""
select
    named.run, 'any p below 5 %' as quantity, '{{chosen}}' as metric, '' as place,
    1 as n, coalesce(bool_or(p_adjusted <= 0.05), false)::int as n_hit, {_NO_INTERVAL}
from qa_bias_tests
cross join named
where not {{planted}}
group by all
""",
    "power": f"""
select
    named.run, 'power' as quantity, '{{chosen}}' as metric, '' as place, count(*) as n,
    count(*) filter (is_supported and difference > 0) as n_hit, {_NO_INTERVAL}
from qa_bias_tests
cross join named
where {{planted}}
group by all
""",
    "differences": f"""
select
    named.run, concat('interval of a difference', if({{planted}}, ', planted', '')) as quantity,
    unnest(['{{chosen}}, EM', '{{chosen}}, F1']) as metric, '' as place,
    unnest([count(difference_low), count(difference_low_f1)]) as n,
    unnest([
        count(*) filter (segments.lower - segments.higher between difference_low and difference_high),
        count(*) filter (segments.lower_f1 - segments.higher_f1 between difference_low_f1 and difference_high_f1)
    ]) as n_hit, {_NO_INTERVAL}
from qa_bias_by_heuristic as biases
inner join segment_truths as segments using (model, dataset, heuristic)
cross join named
group by named.run, quantity
""",
    "averages": f"""
, averages as (
    select
        model, dataset,
        sum(coalesce(if(biases.status = 'measured', expected_significance(
            segments.lower / 100, biases.n_lower, segments.higher / 100, biases.n_higher, sample, replacement
        ), 0), 0)) / count(biases.bias_significance) as truth
    from qa_bias_by_heuristic as biases
    left join segment_truths as segments using (model, dataset, heuristic)
    cross join qa_settings
    group by all
)

select
    named.run, 'interval of an average significance' as quantity, '{{chosen}}' as metric, '' as place,
    count(bias_significance_low) as n,
    count(*) filter (truth between bias_significance_low - 1e-9 and bias_significance_high + 1e-9) as n_hit,
    {_NO_INTERVAL}
from qa_by_model
inner join averages using (model, dataset)
cross join named
group by all
""",
    "datasets": f"""
select
    named.run, 'interval of a data set' as quantity, unnest(['exact_match', 'f1']) as metric, '' as place,
    unnest([count(exact_match_low), count(f1_low)]) as n,
    unnest([
        count(*) filter (dataset_truths.exact_match between exact_match_low and exact_match_high),
        count(*) filter (dataset_truths.f1 between f1_low and f1_high)
    ]) as n_hit, {_NO_INTERVAL}
from qa_by_dataset
inner join dataset_truths using (model)
cross join named
group by named.run
""",
    "curves": f"""
, bin_truths as (
    select
        qa_curves.model, dataset, heuristic, bin, avg(truths.exact_match) as exact_match, avg(truths.f1) as f1
    from qa_curves
    inner join qa_measured using (model, dataset, heuristic)
    inner join truths using (model, example_id)
    where qa_measured.value between value_low and value_high
    group by all
)

select
    named.run, 'interval of a curve' as quantity, unnest(['exact_match', 'f1']) as metric, '' as place,
    unnest([count(exact_match_low), count(f1_low)]) as n,
    unnest([
        count(*) filter (bin_truths.exact_match between exact_match_low and exact_match_high),
        count(*) filter (bin_truths.f1 between f1_low and f1_high)
    ]) as n_hit, {_NO_INTERVAL}
from qa_curves
inner join bin_truths using (model, dataset, heuristic, bin)
cross join named
group by named.run
""",
    "models": f"""
select
    named.run, 'wrong verdict' as quantity, concat('{{chosen}}, ', metric, ' of models') as metric,
    '{{chosen}}' as place, count(verdict) as n,
    count(*) filter (
        (verdict = 'higher' and other.exact_match <= own.exact_match + 1e-9)
        or (verdict = 'lower' and other.exact_match >= own.exact_match - 1e-9)
    ) as n_hit, {_NO_INTERVAL}
from qa_model_comparisons as compared
inner join dataset_truths as own using (model)
inner join dataset_truths as other on compared.other_model = other.model
cross join named
where metric <> 'gap' and compared.model < compared.other_model
group by all
""",
    "model_intervals": f"""
select
    named.run, 'interval of a comparison' as quantity, metric, '' as place, count(low) as n,
    count(*) filter (
        if(metric = 'f1', other.f1 - own.f1, other.exact_match - own.exact_match) between low and high
    ) as n_hit, {_NO_INTERVAL}
from qa_model_comparisons as compared
inner join dataset_truths as own using (model)
inner join dataset_truths as other on compared.other_model = other.model
cross join named
where metric <> 'gap' and compared.model < compared.other_model
group by all
""",
    "model_power": f"""
select
    named.run, 'power of a comparison' as quantity, metric, '' as place, count(*) as n,
    count(*) filter (verdict = 'higher') as n_hit, {_NO_INTERVAL}
from qa_model_comparisons as compared
cross join named
where metric <> 'gap' and compared.model < compared.other_model
group by all
""",
    # Gaps are the same: a better model is better in both segments.
    "gaps": f"""
select
    named.run, 'wrong verdict' as quantity,
    concat('{{chosen}}, ', if(heuristic = 'mean', 'mean gap', 'gap'), ' of models') as metric,
    '{{chosen}}' as place, count(verdict) as n,
    count(*) filter (verdict in ('higher', 'lower')) as n_hit, {_NO_INTERVAL}
from qa_model_comparisons
cross join named
where metric = 'gap' and model < other_model
group by all
""",
    "gap_intervals": f"""
select
    named.run, 'interval of a comparison' as quantity,
    concat('{{chosen}}, ', if(heuristic = 'mean', 'mean gap', 'gap')) as metric, '' as place, count(low) as n,
    count(*) filter (0 between low and high) as n_hit, {_NO_INTERVAL}
from qa_model_comparisons
cross join named
where metric = 'gap' and model < other_model
group by all
""",
}

# Gaps are the same in all effects.
_OF_MODELS = """
with means as (
    select model, unnest(['exact_match', 'f1', 'gap']) as metric, unnest([avg(exact_match), avg(f1), 0]) as truth
    from truths
    group by model
),

compared as (
    select
        named.run, compared.* exclude (run), round(other.truth - own.truth, 9) as truth,
        concat('{chosen}, ', metric, ' of runs') as name
    from qa_bias_comparison as compared
    inner join means as own using (model, metric)
    inner join means as other using (metric)
    cross join named
    where compared.run = 'a' and other.model = compared.other_model
)
"""

_OF_RUNS = {
    "wrong": f"""{_OF_MODELS}
select
    run, 'wrong verdict' as quantity, name as metric, '{{chosen}}, runs' as place, count(verdict) as n,
    count(*) filter ((verdict = 'higher' and truth <= 0) or (verdict = 'lower' and truth >= 0)) as n_hit,
    {_NO_INTERVAL}
from compared
group by all
""",
    "intervals": f"""{_OF_MODELS}
select
    run, 'interval of a comparison' as quantity, name as metric, '' as place, count(low) as n,
    count(*) filter (truth between low and high) as n_hit, {_NO_INTERVAL}
from compared
group by all
""",
    "power": f"""{_OF_MODELS}
select
    run, 'power of a comparison' as quantity, name as metric, '' as place, count(*) as n,
    count(*) filter (verdict = 'higher') as n_hit, {_NO_INTERVAL}
from compared
where truth > 0
group by all
""",
}
