-- One row per ordered pair (run, other_run) of majority-bias runs over the same test rows and settings
-- (majority_bias_shared), n_demos, instruction, predict, method and metric that both have: the metric of each (value,
-- other_value); estimate: other_run minus run. metric: accuracy, a mean over settings and the seeds of each, where an output
-- that is no label is wrong; mean_f1, sd_f1, tails_f1 and middle_f1 (majority_row_values). standard_error to
-- smallest_detectable are of sign_flip_tests over the test rows, the same for all settings and seeds, by their
-- pseudo-values: what holds, holds for other test rows behind these draws of demonstrations; p_adjusted and the
-- simultaneous band are over all that is compared, of all pairs of runs together. Equal models differ by their luck with
-- demonstrations too: error_draws, the standard error over other draws of them (draw_errors: of the difference seed by
-- seed where both runs have the same seeds, else of both runs, as their errors add), and n_seeds, the fewest of a setting
-- and run; p_both, p_both_adjusted, both_low, both_high and both_smallest_detectable: by both errors (over_draws), null
-- where one seed tells nothing of draws.
-- verdict: of other_run against run (verdict), for other rows and other demonstrations: by the larger of p_adjusted and
-- p_both_adjusted, and the band of both; a difference below least_effect is negligible. reason: why there is none (null,
-- 'too few' or 'unclear'); null elsewhere: 'constant answer', sd_f1 where an answer is always the same, which has no spread
-- and is not robust; 'too few rows', below 6; 'no spread', sd_f1 where the settings of a side are all alike; 'other numbers
-- of seeds', sd_f1, which is the wider the fewer seeds it is over; 'too few seeds', where one seed cannot tell what draws
-- change.
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
        'all' as family,
        {
            'run': run,
            'other_run': other_run,
            'n_demos': n_demos,
            'instruction': instruction,
            'predict': predict,
            'method': method,
            'metric': metric
        } as test,
        dense_rank() over (order by row) - 1 as unit,
        other_value - value as value
    from paired

),

tests as materialized (

    from sign_flip_tests('units', 'comparison_sign_flips')

),

numbers_of_seeds as (

    select
        run,
        n_demos,
        count(distinct seed) as n_seeds
    from majority_predictions
    group by all

),

draws as (

    select
        run as own_run,
        * exclude (run, task, setting)
    from majority_draw_values

),

-- A seed that one side lacks adds to the other side alone.
changes as materialized (

    select
        'all' as family,
        {
            'run': pairs.run,
            'other_run': pairs.other_run,
            'n_demos': n_demos,
            'instruction': instruction,
            'predict': predict,
            'method': method,
            'metric': metric
        } as test,
        number,
        seed,
        any_value(draws.value) filter (own_run = pairs.run) as value,
        any_value(draws.value) filter (own_run = pairs.other_run) as other_value
    from pairs
    inner join draws on own_run in (pairs.run, pairs.other_run)
    group by all

),

errors as materialized (

    from draw_errors('changes')

),

tested as materialized (

    select
        test.run,
        test.other_run,
        test.n_demos,
        test.instruction,
        test.predict,
        test.method,
        test.metric,
        means.value,
        means.other_value,
        own.is_constant,
        other.is_constant as other_is_constant,
        own_seeds.n_seeds = other_seeds.n_seeds as has_as_many_seeds,
        tests.* exclude (family, test)
    from over_draws('tests', 'errors') as tests
    inner join means
        on
            test.run = means.run
            and test.other_run = means.other_run
            and test.n_demos = means.n_demos
            and test.instruction = means.instruction
            and test.predict = means.predict
            and test.method = means.method
            and test.metric = means.metric
    inner join majority_by_model as own
        on
            test.run = own.run
            and test.n_demos = own.n_demos
            and test.instruction = own.instruction
            and test.predict = own.predict
            and test.method = own.method
    inner join majority_by_model as other
        on
            test.other_run = other.run
            and test.n_demos = other.n_demos
            and test.instruction = other.instruction
            and test.predict = other.predict
            and test.method = other.method
    inner join numbers_of_seeds as own_seeds on test.run = own_seeds.run and test.n_demos = own_seeds.n_demos
    inner join numbers_of_seeds as other_seeds
        on test.other_run = other_seeds.run and test.n_demos = other_seeds.n_demos

),

judged as (

    select
        *,
        case
            when metric = 'sd_f1' and (is_constant or other_is_constant) then 'constant answer'
            when n_units < 6 then 'too few rows'
            when metric = 'sd_f1' and estimate is null then 'no spread'
            when metric = 'sd_f1' and not has_as_many_seeds then 'other numbers of seeds'
            when p_both is null then 'too few seeds'
        end as reason
    from both_directions('tested')

)

select
    run,
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
    least_effect(metric) as least_effect,
    case
        when reason in ('constant answer', 'other numbers of seeds') or estimate is null then null
        when reason like 'too few%' then 'too few'
        else verdict(estimate, greatest(p_adjusted, p_both_adjusted), both_low, both_high, n_units, least_effect)
    end as verdict,
    'row' as unit,
    n_units,
    is_constant,
    other_is_constant,
    error_draws,
    n_seeds,
    p_both,
    p_both_adjusted,
    both_low,
    both_high,
    both_smallest_detectable,
    reason
from judged
order by all
