-- One row per ordered pair (run, other_run) of majority-bias runs over the same test rows and settings
-- (majority_bias_shared), n_demos, instruction, predict, method and metric that both have: the metric of each (value,
-- other_value); estimate: other_run minus run. metric: accuracy, a mean over settings and the seeds of each, where an output
-- that is no label is wrong; mean_f1, sd_f1, tails_f1 and middle_f1 (majority_row_values). Tested by sign_flip_tests over
-- the test rows, the same for all settings and seeds, by their pseudo-values; p_adjusted and the simultaneous band hold for
-- all that is compared between the two runs. verdict: of other_run against run (verdict); a difference below least_effect is
-- negligible; null for sd_f1 where an answer is always the same, which has no spread and is not robust.
-- is_constant, other_is_constant: more than 95 % of the answers of run and of other_run are the same (majority_by_model).
-- All but these is null where a side lacks the metric.
with

pairs as (

    select
        run,
        other_run
    from majority_bias_shared
    where is_comparable and run < other_run

),

hits_of_seeds as (

    select
        run,
        n_demos,
        instruction,
        predict,
        method,
        row,
        setting,
        avg(coalesce(prediction = gold, false)::int order by seed) as hit
    from majority_predictions
    group by all

),

row_values as materialized (

    select
        run,
        n_demos,
        instruction,
        predict,
        method,
        'accuracy' as metric,
        row,
        avg(hit order by setting) as value
    from hits_of_seeds
    group by all

    union all by name

    select
        run,
        n_demos,
        instruction,
        predict,
        method,
        metric,
        row,
        value
    from majority_row_values

),

paired as materialized (

    select
        pairs.run,
        pairs.other_run,
        n_demos,
        instruction,
        predict,
        method,
        metric,
        row,
        own.value,
        other.value as other_value
    from pairs
    inner join row_values as own using (run)
    inner join row_values as other using (n_demos, instruction, predict, method, metric, row)
    where other.run = pairs.other_run

),

means as (

    select
        run,
        other_run,
        n_demos,
        instruction,
        predict,
        method,
        metric,
        nullif(avg(coalesce(value, 'nan') order by row), 'nan') as value,
        nullif(avg(coalesce(other_value, 'nan') order by row), 'nan') as other_value
    from paired
    group by all

),

units as (

    select
        {'run': run, 'other_run': other_run} as family,
        {
            'n_demos': n_demos,
            'instruction': instruction,
            'predict': predict,
            'method': method,
            'metric': metric
        } as test,
        dense_rank() over (partition by run, other_run order by row) - 1 as unit,
        other_value - value as value
    from paired

),

tested as materialized (

    select
        family.run,
        family.other_run,
        test.n_demos,
        test.instruction,
        test.predict,
        test.method,
        test.metric,
        means.value,
        means.other_value,
        tests.* exclude (family, test)
    from sign_flip_tests('units', 'comparison_sign_flips') as tests
    inner join means
        on
            family.run = means.run
            and family.other_run = means.other_run
            and test.n_demos = means.n_demos
            and test.instruction = means.instruction
            and test.predict = means.predict
            and test.method = means.method
            and test.metric = means.metric

),

constants as (

    select
        run,
        n_demos,
        instruction,
        predict,
        method,
        is_constant
    from majority_by_model

),

both_ways as (

    from tested

    union all by name

    select
        * replace (
            other_run as run,
            run as other_run,
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
    both_ways.run,
    other_run,
    n_demos,
    instruction,
    predict,
    method,
    metric,
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
    if(
        metric = 'sd_f1' and (own.is_constant or other.is_constant),
        null,
        verdict(estimate, p_adjusted, simultaneous_low, simultaneous_high, n_units, 0.01)
    ) as verdict,
    'row' as unit,
    n_units,
    own.is_constant,
    other.is_constant as other_is_constant
from both_ways
inner join constants as own using (run, n_demos, instruction, predict, method)
inner join constants as other using (n_demos, instruction, predict, method)
where other.run = both_ways.other_run
order by all
