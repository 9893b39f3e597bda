-- One row per (model, task, n_demos, instruction, setting, seed, predict, method): performance, and the labels that
-- predictions follow. share_majority: predictions of the demonstrations' majority label (null on a tie); share_last: of
-- the last demonstration's label (recency); share_no_label: outputs that are no label, which are wrong. Intervals: the
-- middle 95 % over 1,000 resamples of the test rows; null with a single row. is_above_constant: it is better than the
-- best answer that is always the same: true where accuracy or weighted_f1 is shown to exceed that of such an answer
-- (majority_accuracy and constant_f1 of majority_by_model; constant_p, one-sided, adjusted for all settings and seeds
-- of the run), false where neither exceeds it, null where that is not shown (majority_constant_tests).
-- share_most_frequent: of the predictions, the most frequent one; no label counts as one.
with
intervals as (
    select
        task, n_demos, instruction, setting, seed, predict, method, interval_low(weighted_f1, draw) as weighted_f1_low,
        interval_high(weighted_f1, draw) as weighted_f1_high
    from majority_draws
    group by all
),

measured as (
    select
        task, n_demos, instruction, setting, number, seed, predict, method, majority_label, last_label,
        weighted_f1(list(gold), list(prediction)) as weighted_f1,
        count(*) filter (prediction = gold) / count(*) as accuracy,
        count(*) filter (prediction = majority_label) / nullif(count(majority_label), 0) as share_majority,
        count(*) filter (prediction = last_label) / count(*) as share_last,
        count(*) filter (prediction is null) / count(*) as share_no_label,
        list_max(map_values(histogram(coalesce(prediction, '')))) / count(*) as share_most_frequent,
        count(*) as n_rows
    from majority_predictions
    group by all
)

select
    run_settings.model, measured.task, measured.n_demos, measured.instruction, measured.setting, measured.number,
    measured.seed, measured.predict, measured.method, measured.weighted_f1, intervals.weighted_f1_low,
    intervals.weighted_f1_high, measured.accuracy, measured.share_majority, measured.share_last,
    measured.share_no_label, measured.majority_label, measured.last_label, measured.n_rows,
    measured.share_most_frequent, tests.constant_p, tests.is_above_constant
from measured
inner join majority_constant_tests as tests using (task, n_demos, instruction, setting, seed, predict, method)
inner join intervals using (task, n_demos, instruction, setting, seed, predict, method)
cross join run_settings
order by all
