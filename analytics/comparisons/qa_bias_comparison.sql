-- One row per ordered pair of models (run, model, other_run, other_model), dataset, metric and heuristic, over the questions
-- that both answered (qa_bias_paired): the metric of each (value, other_value); estimate: other_model minus model.
-- metric: exact_match and f1 (0 to 1), whose heuristic is null; gap, by heuristic: exact match in the segment that both
-- together answer better minus that in the other one, at one threshold for both (qa_bias_comparison_thresholds), which is
-- the wider the more a model leans on the heuristic. Tested by sign_flip_tests over articles, whose value is the sum over
-- its questions (times articles over questions); p_adjusted and the simultaneous band hold for all that is compared between the
-- two runs. verdict: of other_model against model (verdict); a difference below least_effect is negligible.
-- n_questions: that the row is about. All but the counts is null where a question lacks the metric.
with

measured as (

    select
        paired.* exclude (exact_match, other_exact_match, f1, other_f1),
        unnest(['exact_match', 'f1']) as metric,
        null::varchar as heuristic,
        null::double as threshold,
        null::varchar as better_segment,
        coalesce(unnest([exact_match, f1]), 'nan') as value,
        coalesce(unnest([other_exact_match, other_f1]), 'nan') as other_value,
        1 / count(*) over (partition by run, other_run, model, other_model, dataset) as weight
    from qa_bias_paired as paired

    union all by name

    select
        paired.* exclude (exact_match, other_exact_match, f1, other_f1),
        'gap' as metric,
        heuristic,
        chosen.threshold,
        chosen.better_segment,
        paired.exact_match as value,
        paired.other_exact_match as other_value,
        if(chosen.better_segment = 'lower', 1, -1)
        * if(qa_attributes.value <= chosen.threshold, 1 / chosen.n_lower, -1 / chosen.n_higher) as weight
    from qa_bias_paired as paired
    inner join qa_bias_comparison_thresholds as chosen using (run, other_run, model, other_model, dataset)
    inner join qa_attributes using (run, dataset, example_id, heuristic)
    where qa_attributes.is_measured and isfinite(qa_attributes.value)

),

articles as materialized (

    select
        run,
        other_run,
        model,
        other_model,
        dataset,
        metric,
        heuristic,
        any_value(threshold) as threshold,
        any_value(better_segment) as better_segment,
        article,
        sum(weight * value order by example_id) as value,
        sum(weight * other_value order by example_id) as other_value,
        count(*) as n_questions
    from measured
    group by run, other_run, model, other_model, dataset, metric, heuristic, article

),

totals as (

    select
        run,
        other_run,
        model,
        other_model,
        dataset,
        metric,
        heuristic,
        any_value(threshold) as threshold,
        any_value(better_segment) as better_segment,
        nullif(sum(value order by article), 'nan') as value,
        nullif(sum(other_value order by article), 'nan') as other_value,
        sum(n_questions)::bigint as n_questions
    from articles
    group by run, other_run, model, other_model, dataset, metric, heuristic

),

units as (

    select
        {'run': run, 'other_run': other_run} as family,
        {
            'model': model,
            'other_model': other_model,
            'dataset': dataset,
            'metric': metric,
            'heuristic': heuristic
        } as test,
        dense_rank() over (partition by run, other_run order by dataset, article) - 1 as unit,
        nullif(other_value - value, 'nan')
        * count(*) over (partition by run, other_run, model, other_model, dataset, metric, heuristic) as value
    from articles

),

tested as materialized (

    select
        family.run,
        family.other_run,
        test.model,
        test.other_model,
        test.dataset,
        test.metric,
        test.heuristic,
        totals.threshold,
        totals.better_segment,
        totals.value,
        totals.other_value,
        totals.n_questions,
        tests.* exclude (family, test)
    from sign_flip_tests('units', 'comparison_sign_flips') as tests
    inner join totals
        on
            family.run = totals.run
            and family.other_run = totals.other_run
            and test.model = totals.model
            and test.other_model = totals.other_model
            and test.dataset = totals.dataset
            and test.metric = totals.metric
            and test.heuristic is not distinct from totals.heuristic

),

both_ways as (

    from tested

    union all by name

    select
        * replace (
            other_run as run,
            run as other_run,
            other_model as model,
            model as other_model,
            other_value as value,
            value as other_value,
            0 - estimate as estimate,
            0 - high as low,
            0 - low as high,
            0 - simultaneous_high as simultaneous_low,
            0 - simultaneous_low as simultaneous_high
        )
    from tested

)

select
    run,
    model,
    other_run,
    other_model,
    dataset,
    metric,
    heuristic,
    threshold,
    better_segment,
    value,
    other_value,
    estimate,
    standard_error,
    low,
    high,
    p,
    p_adjusted,
    simultaneous_low,
    simultaneous_high,
    smallest_detectable,
    0.01::double as least_effect,
    verdict(estimate, p_adjusted, simultaneous_low, simultaneous_high, n_units, 0.01) as verdict,
    'article' as unit,
    n_units,
    n_questions
from both_ways
order by all
