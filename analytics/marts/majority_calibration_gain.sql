-- One row per (model, task, n_demos, instruction, predict, method): what calibration and adapters change over the
-- settings. Calibration changes likelihoods only. rb_at_10, mean_f1 and sd_f1 are those of the method minus those of
-- none: a positive rb_at_10 is a wider robustness boundary, a negative sd_f1 less spread over settings. Intervals are
-- over resamples of the test rows, the same for both; null with a single row. They are percentiles, which lean narrow
-- with few rows; those by Student's t are in majority_verdicts. Those of rb_at_10 and sd_f1 may lean to a side, and
-- even leave the estimate out: resampling adds noise to each setting, more where settings are close. *_sign: 1 or -1
-- where majority_verdicts says that it is higher or lower, 0 for no difference at all (tolerance 1e-9), else null.
-- is_above_constant: both sides have a setting that is shown to be better than an answer that is always the same, so
-- that rb_at_10 and sd_f1 are judged. has_enough_rows: with the method and without, so that rb_at_10 can be judged
-- (majority_by_model). n_rows counts the rows of all settings and seeds.
with
differences as (
    select
        model, task, n_demos, instruction, predict, calibrated.method, draw,
        calibrated.rb_at_10 - plain.rb_at_10 as rb_at_10, calibrated.mean_f1 - plain.mean_f1 as mean_f1,
        calibrated.sd_f1 - plain.sd_f1 as sd_f1
    from majority_draws_by_model as calibrated
    inner join majority_draws_by_model as plain using (model, task, n_demos, instruction, predict, draw)
    where calibrated.method <> 'none' and plain.method = 'none'
),

estimates as (
    select
        model, task, n_demos, instruction, predict, method,
        estimate(columns('^(rb_at_10|mean_f1|sd_f1)$'), draw) as "\1",
        interval_low(columns('^(rb_at_10|mean_f1|sd_f1)$'), draw) as "\1_low",
        interval_high(columns('^(rb_at_10|mean_f1|sd_f1)$'), draw) as "\1_high"
    from differences
    group by all
),

plain_models as (
    select model, task, n_demos, instruction, predict, has_enough_rows, is_any_setting_above_constant
    from majority_by_model
    where method = 'none'
),

signs as (
    from (
        select *, case verdict when 'higher' then 1 when 'lower' then -1 end as sign
        from majority_verdicts
        where against_method = 'none' and instruction = against_instruction
    ) pivot (
        any_value(sign) for metric in ('rb_at_10', 'mean_f1', 'sd_f1')
        group by model, task, n_demos, instruction, predict, method
    )
)

select
    model, task, n_demos, instruction, predict, method, estimates.rb_at_10, estimates.rb_at_10_low,
    estimates.rb_at_10_high, estimates.mean_f1, estimates.mean_f1_low, estimates.mean_f1_high, estimates.sd_f1,
    sd_f1_low, sd_f1_high,
    if(abs(estimates.rb_at_10) <= 1e-9, 0, signs.rb_at_10) as rb_at_10_sign,
    if(abs(estimates.mean_f1) <= 1e-9, 0, signs.mean_f1) as mean_f1_sign,
    if(abs(estimates.sd_f1) <= 1e-9, 0, signs.sd_f1) as sd_f1_sign,
    calibrated.has_enough_rows and plain_models.has_enough_rows as has_enough_rows,
    n_settings, n_seeds, n_rows,
    calibrated.is_any_setting_above_constant and plain_models.is_any_setting_above_constant as is_above_constant
from estimates
inner join majority_by_model as calibrated using (model, task, n_demos, instruction, predict, method)
inner join plain_models using (model, task, n_demos, instruction, predict)
left join signs using (model, task, n_demos, instruction, predict, method)
order by all
