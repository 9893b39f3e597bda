-- One row per (model, task, n_demos, instruction, predict, method): what calibration and adapters change over the
-- settings. Calibration changes likelihoods only.
-- rb_at_10, mean_f1 and sd_f1 are those of the method minus those of none: a positive rb_at_10 is a wider robustness
-- boundary, a negative sd_f1 less spread over settings. Intervals are over resamples of the test rows, the same for
-- both; null with a single row. Those of rb_at_10 and sd_f1 may lean to a side, and even leave the estimate out:
-- resampling adds noise to each setting, more where settings are close. n_rows counts the rows of all settings and seeds.
with

differences as (

    select
        model,
        task,
        n_demos,
        instruction,
        predict,
        calibrated.method,
        draw,
        calibrated.rb_at_10 - plain.rb_at_10 as rb_at_10,
        calibrated.mean_f1 - plain.mean_f1 as mean_f1,
        calibrated.sd_f1 - plain.sd_f1 as sd_f1
    from majority_draws_by_model as calibrated
    inner join majority_draws_by_model as plain using (model, task, n_demos, instruction, predict, draw)
    where calibrated.method <> 'none' and plain.method = 'none'

),

estimates as (

    select
        model,
        task,
        n_demos,
        instruction,
        predict,
        method,
        estimate(rb_at_10, draw) as rb_at_10,
        interval_low(rb_at_10, draw) as rb_at_10_low,
        interval_high(rb_at_10, draw) as rb_at_10_high,
        estimate(mean_f1, draw) as mean_f1,
        interval_low(mean_f1, draw) as mean_f1_low,
        interval_high(mean_f1, draw) as mean_f1_high,
        estimate(sd_f1, draw) as sd_f1,
        interval_low(sd_f1, draw) as sd_f1_low,
        interval_high(sd_f1, draw) as sd_f1_high
    from differences
    group by all

)

select
    estimates.*,
    n_settings,
    n_seeds,
    n_rows
from estimates
inner join majority_by_model using (model, task, n_demos, instruction, predict, method)
order by all
