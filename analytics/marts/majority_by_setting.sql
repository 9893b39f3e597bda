-- One row per (model, task, n_demos, instruction, setting, seed, predict, method): performance, and what is followed.
-- share_majority: predictions of the demonstrations' majority label (null on a tie); share_last: of the last
-- demonstration's label (recency); share_no_label: outputs that are no label, which are wrong. Intervals: the middle
-- 95 % over 1,000 resamples of the test rows; null with a single row.
with

intervals as (

    select
        task,
        n_demos,
        instruction,
        setting,
        seed,
        predict,
        method,
        interval_low(weighted_f1, draw) as weighted_f1_low,
        interval_high(weighted_f1, draw) as weighted_f1_high
    from majority_draws
    group by all

),

measured as (

    select
        task,
        n_demos,
        instruction,
        setting,
        number,
        seed,
        predict,
        method,
        majority_label,
        last_label,
        weighted_f1(list(gold), list(prediction)) as weighted_f1,
        count(*) filter (prediction = gold) / count(*) as accuracy,
        count(*) filter (prediction = majority_label) / nullif(count(majority_label), 0) as share_majority,
        count(*) filter (prediction = last_label) / count(*) as share_last,
        count(*) filter (prediction is null) / count(*) as share_no_label,
        count(*) as n_rows
    from majority_predictions
    group by all

)

select
    run_settings.model,
    measured.task,
    measured.n_demos,
    measured.instruction,
    measured.setting,
    measured.number,
    measured.seed,
    measured.predict,
    measured.method,
    measured.weighted_f1,
    intervals.weighted_f1_low,
    intervals.weighted_f1_high,
    measured.accuracy,
    measured.share_majority,
    measured.share_last,
    measured.share_no_label,
    measured.majority_label,
    measured.last_label,
    measured.n_rows
from measured
inner join intervals using (task, n_demos, instruction, setting, seed, predict, method)
cross join run_settings
order by all
