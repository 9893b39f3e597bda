-- One row per (model, suite, n_demos, method): means over tasks and demonstration sets.
-- The intervals are the middle 95 % of the same mean over 1,000 resamples of the tasks; null with a single task.
-- A mean is null where a task of the suite lacks the metric.
with

estimates as (

    select
        model,
        suite,
        n_demos,
        method,
        estimate(macro_f1, draw) as macro_f1,
        interval_low(macro_f1, draw) as macro_f1_low,
        interval_high(macro_f1, draw) as macro_f1_high,
        estimate(accuracy, draw) as accuracy,
        interval_low(accuracy, draw) as accuracy_low,
        interval_high(accuracy, draw) as accuracy_high,
        estimate(rsd, draw) as rsd,
        interval_low(rsd, draw) as rsd_low,
        interval_high(rsd, draw) as rsd_high,
        estimate(bias_score, draw) as bias_score,
        interval_low(bias_score, draw) as bias_score_low,
        interval_high(bias_score, draw) as bias_score_high
    from label_bias_draws
    group by all

),

counts as (

    select
        model,
        suite,
        n_demos,
        method,
        count(*) as n_tasks,
        max(n_demo_sets) as n_demo_sets,
        sum(n_rows)::bigint as n_rows,
        sum(n_bias_score_rows)::bigint as n_bias_score_rows
    from label_bias_by_task_over_sets
    inner join bootstrap_draws using (task)
    where draw = 0
    group by all

)

select *
from estimates
inner join counts using (model, suite, n_demos, method)
order by all
