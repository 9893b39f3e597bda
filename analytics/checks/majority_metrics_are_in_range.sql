-- Rows here: a metric of a setting or of the run outside its range, or null where there are rows to measure; or one that
-- two ways of computing it do not give alike.
with

settings_out_of_range as (

    select
        format('setting {}, seed {}, {}, {}: {}', setting, seed, predict, method, {
            'weighted_f1': weighted_f1,
            'weighted_f1_low': weighted_f1_low,
            'weighted_f1_high': weighted_f1_high,
            'accuracy': accuracy,
            'share_majority': share_majority,
            'share_last': share_last,
            'share_no_label': share_no_label
        }::varchar) as problem
    from majority_by_setting
    where
        not coalesce(weighted_f1 between 0 and 1 + 1e-9, false)
        or not coalesce(weighted_f1_low <= weighted_f1_high, n_rows = 1)
        or not coalesce(accuracy between 0 and 1 - share_no_label + 1e-9, false)
        or not coalesce(share_majority between 0 and 1, majority_label is null)
        or not coalesce(share_last between 0 and 1, false)
        or not coalesce(share_no_label between 0 and if(predict = 'generate', 1, 0), false)

),

-- The first draw is the rows themselves: one number, by the macro and by dot products.
draws_other_than_the_macro as (

    select
        format('setting {}, seed {}, {}, {}: weighted F1 {}, of draw 0 {}',
               setting, seed, predict, method, weighted_f1, draw_f1) as problem
    from majority_by_setting
    inner join (select * exclude (weighted_f1), weighted_f1 as draw_f1 from majority_draws where draw = 0)
        using (setting, seed, instruction, predict, method)
    where not abs(weighted_f1 - draw_f1) <= 1e-9

),

models_out_of_range as (

    select
        format('{} instruction, {}, {}: {}', if(instruction, 'with', 'without'), predict, method, {
            'mean_f1': mean_f1,
            'sd_f1': sd_f1,
            'max_f1': max_f1,
            'rb_at_10': rb_at_10,
            'rb_at_10_relative': rb_at_10_relative,
            'sd_f1_corrected': sd_f1_corrected,
            'proportions_p': proportions_p,
            'recency': recency
        }::varchar) as problem
    from majority_by_model
    where
        not coalesce(mean_f1 between 0 and max_f1 + 1e-9, false)
        or not coalesce(sd_f1 >= 0, n_settings = 1)
        or not coalesce(rb_at_10_relative between 1 / n_settings - 1e-9 and rb_at_10, false)
        or not coalesce(rb_at_10 <= 1, false)
        or not coalesce(sd_f1_corrected between 0 and sd_f1 + 1e-9, true)
        or not coalesce(proportions_p > 0 and proportions_p <= 1, true)
        or not coalesce(recency between -1 - 1e-9 and 1 + 1e-9, true)

),

differences as (

    select
        task,
        n_demos,
        instruction,
        instruction as against_instruction,
        predict,
        method,
        unnest(['mean_f1', 'sd_f1']) as metric,
        unnest([mean_f1, sd_f1]) as difference
    from majority_calibration_gain

    union all

    select
        task,
        n_demos,
        true as instruction,
        false as against_instruction,
        predict,
        method,
        format('{}_f1', region) as metric,
        gap as difference
    from majority_instruction_gap

),

-- The mean of the rows' pseudo-values is the difference itself.
verdicts_other_than_the_draws as (

    select format('verdict of {}, {}, {}: {}, of draw 0 {}', metric, predict, method, estimate, difference) as problem
    from majority_verdicts
    inner join differences using (task, n_demos, instruction, against_instruction, predict, method, metric)
    where abs(estimate - difference) > 1e-9

)

select * from settings_out_of_range
union all
select * from draws_other_than_the_macro
union all
select * from models_out_of_range
union all
select * from verdicts_other_than_the_draws
order by all
