-- One row per (model, task, n_demos, instruction, against_instruction, predict, method, against_method, metric): what a
-- paired difference on the page of a run may be said to show. A method against none, with the same instruction: metrics
-- mean_f1, sd_f1 and rb_at_10. With against without instruction, of the same method: tails_f1 and middle_f1, which are
-- the gaps of majority_instruction_gap (majority_pairs). F1 and shares are in [0, 1]. estimate to smallest_detectable
-- are of sign_flip_tests. Units of all but rb_at_10 are the test rows, by their pseudo-values (majority_row_values):
-- what holds, holds for other test rows with these draws of demonstrations. Those of sd_f1 are linear in the part of
-- a row, which is rough where settings are close. rb_at_10 has no such values. Its units are seeds: the estimate is the
-- mean over seeds of the difference of the RB@10 of each, which is not that of their means (majority_calibration_gain).
-- p_adjusted is over all tests of rows of the run, or all of seeds. Simultaneous bands lean narrow with one seed, where
-- the page shows none. Other draws of demonstrations change a difference too: error_draws, its standard error over them
-- (majority_draw_errors); p_both, p_both_adjusted, both_low and both_high: by the errors of rows and draws together
-- (over_draws). All null of rb_at_10, which seeds judge, and where draws are not distinguishable from settings.
-- verdict: as the macro has it, for a smallest effect of interest of 0.01, by the larger of p_adjusted and
-- p_both_adjusted, and the band of both. RB@10 is judged on seeds and on rows: it is higher or lower only where its
-- difference over resamples of the rows is clear to the same side too (boundary_word). reason: why a difference is not
-- judged (its verdict is 'too few' or 'unclear'); null elsewhere. 'constant answer': in sd_f1 and rb_at_10, a side of
-- which no setting is shown to be better than an answer that is always the same: that its settings are alike is no
-- robustness. 'too few rows': below 6, or rb_at_10 where the settings' intervals are too wide (has_enough_rows). 'too
-- few seeds': below 6 of rb_at_10; of others, where one seed cannot tell what draws change. 'no spread': the settings
-- of a side are all alike, where sd_f1 has no influences; the estimate is null too. n_rows counts the rows of all
-- settings and seeds of the method.
with
row_changes as (
    select
        majority_pairs.*, dense_rank() over (order by changed.row) - 1 as unit,
        round(changed.value - plain.value, 12) as value
    from majority_pairs
    inner join majority_row_values as changed using (task, n_demos, instruction, predict, method, metric)
    inner join (
        select * rename (instruction as against_instruction, method as against_method)
        from majority_row_values
    ) as plain using (task, n_demos, against_instruction, predict, against_method, metric, row)
),

seed_changes as (
    select
        task, n_demos, instruction, instruction as against_instruction, predict, changed.method,
        plain.method as against_method, 'rb_at_10' as metric, dense_rank() over (order by seed) - 1 as unit,
        round(changed.rb_at_10 - plain.rb_at_10, 12) as value
    from majority_seed_boundaries as changed
    inner join majority_seed_boundaries as plain using (task, n_demos, instruction, predict, seed)
    where changed.method <> 'none' and plain.method = 'none'
),

units as (
    select
        unit_of as family,
        {
            'task': task, 'n_demos': n_demos, 'instruction': instruction, 'against_instruction': against_instruction,
            'predict': predict, 'method': method, 'against_method': against_method, 'metric': metric
        } as test,
        unit, value
    from (
        select 'row' as unit_of, *
        from row_changes
        union all by name
        select 'seed' as unit_of, *
        from seed_changes
    )
),

tests as materialized (
    from sign_flip_tests('units', 'sign_flips')
),

boundary_signs as (
    select
        task, n_demos, instruction, predict, changed.method, 'rb_at_10' as metric,
        clear_sign(
            estimate(changed.rb_at_10 - plain.rb_at_10, draw), interval_low(changed.rb_at_10 - plain.rb_at_10, draw),
            interval_high(changed.rb_at_10 - plain.rb_at_10, draw)
        ) as row_sign
    from majority_draws_by_model as changed
    inner join majority_draws_by_model as plain using (task, n_demos, instruction, predict, draw)
    where changed.method <> 'none' and plain.method = 'none'
    group by all
),

errors as (
    select
        'row' as family,
        {
            'task': task, 'n_demos': n_demos, 'instruction': instruction, 'against_instruction': against_instruction,
            'predict': predict, 'method': method, 'against_method': against_method, 'metric': metric
        } as test,
        error_draws, draws_df, n_seeds
    from majority_draw_errors
),

widened as (
    select unnest(test), * exclude (test, n_seeds, both_smallest_detectable)
    from over_draws('tests', 'errors')
),

judged as (
    select
        tests.*, measured.n_rows,
        measured.is_any_setting_above_constant and plain.is_any_setting_above_constant as is_any_setting_above,
        case
            when tests.metric in ('sd_f1', 'rb_at_10') and not is_any_setting_above then 'constant answer'
            when tests.metric = 'rb_at_10' and not (measured.has_enough_rows and plain.has_enough_rows)
                then 'too few rows'
            when tests.n_units < 6 then format('too few {}s', tests.family)
            when tests.metric in ('sd_f1', 'rb_at_10') and is_any_setting_above is null then 'constant answer'
            when tests.metric = 'sd_f1' and tests.estimate is null then 'no spread'
            when tests.metric <> 'rb_at_10' and tests.p_both is null then 'too few seeds'
        end as reason,
        if(
            tests.metric = 'rb_at_10',
            verdict(estimate, p_adjusted, simultaneous_low, simultaneous_high, n_units, least_effect(metric)),
            verdict(estimate, greatest(p_adjusted, p_both_adjusted), both_low, both_high, n_units, least_effect(metric))
        ) as word,
        row_sign
    from widened as tests
    inner join majority_by_model as measured using (task, n_demos, instruction, predict, method)
    inner join (
        select * rename (instruction as against_instruction, method as against_method)
        from majority_by_model
    ) as plain using (task, n_demos, against_instruction, predict, against_method)
    left join boundary_signs using (task, n_demos, instruction, predict, method, metric)
)

select
    model, task, n_demos, instruction, against_instruction, predict, method, against_method, metric,
    judged.family as unit, n_units, estimate, standard_error, low, high, p, p_adjusted, simultaneous_low,
    simultaneous_high, smallest_detectable, error_draws, p_both, p_both_adjusted, both_low, both_high,
    case
        when word is null then null
        when reason like 'too few%' then 'too few'
        when reason is not null then 'unclear'
        when metric = 'rb_at_10' then boundary_word(word, row_sign)
        else word
    end as verdict,
    reason, n_rows
from judged
cross join (select model from run_settings)
order by all
