-- One row per ordered pair (run, other_run) of majority-bias runs over the same test rows and settings
-- (majority_bias_shared), n_demos, instruction, predict, method and metric that both have: the metric of each (value,
-- other_value); estimate: other_run minus run. method 'best', without the others: each run in its own setting of
-- majority_best, where the two have different ones. metric: accuracy, a mean over settings and the seeds of each, where an
-- output that is no label is wrong; mean_f1, sd_f1, tails_f1 and middle_f1 (majority_row_values); rb_at_10, the mean
-- over the seeds that both runs have of the RB@10 of each seed (majority_seed_boundaries), which is not that of the
-- means over seeds. standard_error to smallest_detectable are of sign_flip_tests over units (unit): 'row', the test
-- rows by their pseudo-values, the same for all settings and seeds: what holds, holds for other test rows with these
-- draws of demonstrations; of rb_at_10 'seed'. p_adjusted and the simultaneous band are over all that is compared by
-- units of that sort, of all pairs of runs together. Equal models differ by their luck with demonstrations too:
-- error_draws, the standard error over other draws of them (draw_errors: of the difference seed by seed where both runs
-- have the same seeds, else of both runs, as their errors add), and n_seeds, the fewest of a setting and run; p_both,
-- p_both_adjusted, both_low, both_high and both_smallest_detectable: by both errors (over_draws). All null of rb_at_10,
-- which seeds judge, and where one seed tells nothing of draws. verdict: of other_run against run (verdict), for other
-- rows and other demonstrations: by the larger of p_adjusted and p_both_adjusted, and the band of both (verdict_p to
-- verdict_smallest_detectable, as in label_bias_comparison); a difference below least_effect is negligible. rb_at_10 is
-- judged on seeds and on rows: higher or lower only where its difference over resamples of the rows is clear to the
-- same side (boundary_word). reason: why there is none (null, 'too few' or 'unclear'); null elsewhere: 'constant
-- answer', sd_f1 and rb_at_10 where no setting of a side is shown to be better than an answer that is always the same;
-- 'too few rows', below 6, or rb_at_10 where the settings' intervals are too wide (has_enough_rows); 'no spread', sd_f1
-- where the settings of a side are all alike; 'other numbers of seeds', sd_f1, which is the wider the fewer seeds it is
-- over; 'too few seeds', where one seed cannot tell what draws change, and below 6 of rb_at_10; 'not over other rows',
-- rb_at_10 that seeds alone show. is_above_constant, other_is_above_constant: run, and other_run, are better than the
-- best answer that is always the same (majority_by_model); true, false, or null where that is not shown. baseline: of
-- accuracy that of always giving the most frequent gold label, and of F1 that of the best constant answer; null of
-- other metrics.
with
-- place: of what a run measures; all below is by it.
measured_settings as (
    select *, {'n_demos': n_demos, 'instruction': instruction, 'predict': predict, 'method': method} as place
    from (select distinct run, n_demos, instruction, predict, method from majority_by_model)
    union all
    select
        run, n_demos, instruction, predict, method,
        {'n_demos': null, 'instruction': null, 'predict': null, 'method': 'best'} as place
    from majority_best
),

pairs as (
    select
        shared.run, other_run,
        (best.n_demos, best.instruction, best.predict, best.method)
        <> (other.n_demos, other.instruction, other.predict, other.method) as has_other_best
    from majority_bias_shared as shared
    left join majority_best as best using (run)
    left join majority_best as other on other_run = other.run
    where is_comparable and shared.run < other_run
),

hits_of_seeds as (
    select
        run, place, row, setting, avg(coalesce(prediction = gold, false)::int order by seed) as hit
    from majority_predictions
    inner join measured_settings using (run, n_demos, instruction, predict, method)
    group by all
),

unit_values as materialized (
    select run, place, 'accuracy' as metric, 'row' as family, row as unit, avg(hit order by setting) as value
    from hits_of_seeds
    group by all
    union all by name
    select run, place, metric, 'row' as family, row as unit, value
    from majority_row_values
    inner join measured_settings using (run, n_demos, instruction, predict, method)
    union all by name
    select run, place, 'rb_at_10' as metric, 'seed' as family, seed as unit, rb_at_10 as value
    from majority_seed_boundaries
    inner join measured_settings using (run, n_demos, instruction, predict, method)
),

paired as materialized (
    select
        family,
        {'run': pairs.run, 'other_run': pairs.other_run, 'place': place, 'metric': metric} as test,
        dense_rank() over (partition by family order by unit) - 1 as unit,
        own.value as own_value, other.value as other_value, other.value - own.value as value
    from pairs
    inner join unit_values as own using (run)
    inner join unit_values as other using (place, metric, family, unit)
    where other.run = pairs.other_run and (place.method <> 'best' or has_other_best)
),

means as (
    select test, mean_of_all(own_value, unit) as value, mean_of_all(other_value, unit) as other_value
    from paired
    group by test
),

tests as materialized (from sign_flip_tests('paired', 'comparison_sign_flips')),

-- A seed that one side lacks adds to the other side alone.
changes as materialized (
    select
        'row' as family,
        {'run': pairs.run, 'other_run': pairs.other_run, 'place': place, 'metric': metric} as test,
        number, seed,
        any_value(draws.value) filter (draws.run = pairs.run) as value,
        any_value(draws.value) filter (draws.run = pairs.other_run) as other_value
    from pairs
    inner join majority_draw_values as draws on draws.run in (pairs.run, pairs.other_run)
    inner join measured_settings as settings
        on
            draws.run = settings.run
            and (draws.n_demos, draws.instruction, draws.predict, draws.method)
            = (settings.n_demos, settings.instruction, settings.predict, settings.method)
    group by all
),

errors as materialized (from draw_errors('changes')),

sides as (
    select
        run, place, is_above_constant, is_any_setting_above_constant, has_enough_rows, majority_accuracy, constant_f1,
        numbers.n_seeds
    from majority_by_model
    inner join measured_settings using (run, n_demos, instruction, predict, method)
    inner join (
        select run, n_demos, count(distinct seed) as n_seeds
        from majority_predictions
        group by all
    ) as numbers using (run, n_demos)
),

draws as (
    select run, place, draw, rb_at_10
    from majority_draws_by_model
    inner join measured_settings using (run, n_demos, instruction, predict, method)
),

boundary_signs as (
    select
        {'run': pairs.run, 'other_run': pairs.other_run, 'place': place, 'metric': 'rb_at_10'} as test,
        clear_sign(
            estimate(other.rb_at_10 - own.rb_at_10, draw), interval_low(other.rb_at_10 - own.rb_at_10, draw),
            interval_high(other.rb_at_10 - own.rb_at_10, draw)
        ) as row_sign
    from pairs
    inner join draws as own using (run)
    inner join draws as other using (place, draw)
    where other.run = pairs.other_run
    group by all
),

tested as materialized (
    select
        unnest(test),
        means.value, means.other_value, own.is_above_constant, other.is_above_constant as other_is_above_constant,
        own.is_any_setting_above_constant and other.is_any_setting_above_constant as is_any_setting_above,
        own.n_seeds = other.n_seeds as has_as_many_seeds,
        own.has_enough_rows and other.has_enough_rows as has_enough_rows,
        case
            when test.metric = 'accuracy' then own.majority_accuracy
            when test.metric in ('mean_f1', 'tails_f1', 'middle_f1') then own.constant_f1
        end as baseline,
        row_sign, family as unit, tests.* exclude (family, test)
    from over_draws('tests', 'errors') as tests
    inner join means using (test)
    inner join sides as own on test.run = own.run and test.place = own.place
    inner join sides as other on test.other_run = other.run and test.place = other.place
    left join boundary_signs using (test)
),

judged as (
    select
        *,
        case
            when metric in ('sd_f1', 'rb_at_10') and not is_any_setting_above then 'constant answer'
            when metric = 'rb_at_10' and not has_enough_rows then 'too few rows'
            when n_units < 6 then format('too few {}s', unit)
            when metric in ('sd_f1', 'rb_at_10') and is_any_setting_above is null then 'constant answer'
            when metric = 'sd_f1' and estimate is null then 'no spread'
            when metric = 'sd_f1' and not has_as_many_seeds then 'other numbers of seeds'
            when metric <> 'rb_at_10' and p_both is null then 'too few seeds'
        end as reason,
        if(run < other_run, row_sign, 0 - row_sign) as sign_over_rows,
        if(metric = 'rb_at_10', p_adjusted, greatest(p_adjusted, p_both_adjusted)) as verdict_p,
        if(metric = 'rb_at_10', simultaneous_low, both_low) as verdict_low,
        if(metric = 'rb_at_10', simultaneous_high, both_high) as verdict_high,
        if(metric = 'rb_at_10', smallest_detectable, both_smallest_detectable) as verdict_smallest_detectable,
        verdict(estimate, verdict_p, verdict_low, verdict_high, n_units, least_effect(metric)) as word
    from both_directions('tested')
)

select
    run, other_run, unnest(place), metric, value, other_value, estimate, standard_error, low, high, p, p_adjusted,
    simultaneous_low, simultaneous_high, smallest_detectable, least_effect(metric) as least_effect,
    case
        when reason in ('constant answer', 'other numbers of seeds') or estimate is null then null
        when reason like 'too few%' then 'too few'
        when metric = 'rb_at_10' then boundary_word(word, sign_over_rows)
        else word
    end as verdict,
    unit, n_units, is_above_constant, other_is_above_constant, error_draws, n_seeds, p_both, p_both_adjusted, both_low,
    both_high, both_smallest_detectable,
    if(reason is null and metric = 'rb_at_10' and word <> boundary_word(word, sign_over_rows), 'not over other rows', reason) as reason,
    verdict_p, verdict_low, verdict_high, verdict_smallest_detectable, baseline
from judged
order by all
