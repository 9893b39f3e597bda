-- One row per ordered pair of models (run, model, other_run, other_model), dataset, metric and heuristic, over the
-- questions that both answered (qa_bias_paired): the metric of each (value, other_value); estimate: other_value minus
-- value. metric, from 0 to 1: exact_match and f1, whose heuristic is null; gap, by heuristic: how far apart the exact
-- match of its two segments lies, whichever is better, at one threshold for both (qa_bias_comparison_thresholds; there,
-- better_segment is the segment that both together answer better), which is the wider the more a model leans on the
-- heuristic. Tested by two_model_tests over articles; p_adjusted and the simultaneous band hold for all pairs of runs
-- that are compared together. verdict: of other_model against model (verdict); a difference below least_effect is
-- negligible; verdict_p to verdict_smallest_detectable: as in label_bias_comparison. n_questions: that the row is
-- about. All but the counts is null where a question lacks the metric.
with
sums as (
    select
        run, other_run, model, other_model, dataset, unnest(['exact_match', 'f1']) as metric,
        null::varchar as heuristic, null::double as threshold, null::varchar as better_segment, article,
        count(*) as n_lower, 0 as n_higher,
        unnest([
            sum(coalesce(exact_match, 'nan') order by example_id), sum(coalesce(f1, 'nan') order by example_id)
        ]) as lower,
        0 as higher,
        unnest([
            sum(coalesce(other_exact_match, 'nan') order by example_id), sum(coalesce(other_f1, 'nan') order by example_id)
        ]) as other_lower,
        0 as other_higher
    from qa_bias_paired
    group by run, other_run, model, other_model, dataset, article
    union all
    select
        run, other_run, model, other_model, dataset, 'gap' as metric,
        heuristic, chosen.threshold, chosen.better_segment, article,
        count(*) filter (qa_attributes.value <= chosen.threshold) as n_lower,
        count(*) filter (qa_attributes.value > chosen.threshold) as n_higher,
        coalesce(sum(exact_match) filter (qa_attributes.value <= chosen.threshold), 0) as lower,
        coalesce(sum(exact_match) filter (qa_attributes.value > chosen.threshold), 0) as higher,
        coalesce(sum(other_exact_match) filter (qa_attributes.value <= chosen.threshold), 0) as other_lower,
        coalesce(sum(other_exact_match) filter (qa_attributes.value > chosen.threshold), 0) as other_higher
    from qa_bias_paired
    inner join qa_bias_comparison_thresholds as chosen using (run, other_run, model, other_model, dataset)
    inner join qa_attributes using (run, dataset, example_id, heuristic)
    where qa_attributes.is_measured and isfinite(qa_attributes.value)
    group by all
),

keyed as (
    select
        *,
        {
            'run': run, 'other_run': other_run, 'model': model, 'other_model': other_model, 'dataset': dataset,
            'metric': metric, 'heuristic': heuristic
        } as test
    from sums
),

totals as (
    select
        test, any_value(threshold) as threshold, any_value(better_segment) as better_segment,
        nullif(sum(lower order by article) / sum(n_lower) - coalesce(sum(higher) / nullif(sum(n_higher), 0), 0), 'nan') as difference,
        nullif(
            sum(other_lower order by article) / sum(n_lower)
            - coalesce(sum(other_higher) / nullif(sum(n_higher), 0), 0), 'nan'
        ) as other_difference,
        if(difference < 0, -1, 1) as side, if(other_difference < 0, -1, 1) as other_side, side * difference as value,
        other_side * other_difference as other_value, sum(n_lower + n_higher)::bigint as n_questions
    from keyed
    group by test
),

differences as (
    select
        'all' as family, test, dense_rank() over (order by dataset, article) - 1 as unit, n_lower, n_higher,
        other_side * other_lower - side * lower as lower, other_side * other_higher - side * higher as higher
    from keyed
    inner join totals using (test)
),

parts as (
    select * replace (nullif(part, 'nan') as part, nullif(moved, 'nan') as moved)
    from two_model_parts('differences')
),

tested as (
    select
        unnest(test),
        totals.* exclude (test, difference, other_difference, side, other_side),
        tests.* exclude (family, test)
    from two_model_tests('parts', 'comparison_sign_flips') as tests
    inner join totals using (test)
)

select
    run, model, other_run, other_model, dataset, metric, heuristic, threshold, better_segment, value, other_value,
    estimate, standard_error, low, high, p, p_adjusted, simultaneous_low, simultaneous_high, smallest_detectable,
    least_effect(metric) as least_effect,
    verdict(estimate, p_adjusted, simultaneous_low, simultaneous_high, n_units, least_effect(metric)) as verdict,
    'article' as unit, n_units, n_questions, p_adjusted as verdict_p, simultaneous_low as verdict_low,
    simultaneous_high as verdict_high, smallest_detectable as verdict_smallest_detectable
from both_directions('tested')
order by all
