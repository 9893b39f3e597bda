-- One row per (model, suite, n_demos, method, metric): where the variance of a task's value, over demonstration sets,
-- comes from (analysis of variance; Searle, Casella & McCulloch 1992), in squares of the metric's unit; metric:
-- macro_f1, accuracy, rsd, bias_score, relative_variance or squared_preference. variance: of the tasks' values, which
-- is what intervals over tasks are made of. from_rows: by other rows of the same tasks (metric_errors). from_sets: by
-- other demonstrations, the variance between sets over their number, without what rows do in one set alone
-- (metric_errors), which is in from_rows; at least 0. from_tasks: the remainder, at least 0, by other tasks. share_*:
-- of these three. More units of the largest share narrow intervals most. Null where a task lacks the metric or its
-- error, from_sets with one set.
with
by_task as (
    select
        metric, task, n_demos, method, mean_of_all(value, demo_set) as estimate,
        if(count(*) > 1 and count(value) = count(*), var_samp(value order by demo_set) / count(*), null) as of_sets,
        count(*) as n_sets
    from metric_values
    where format = 'base'
    group by all
),

parts as (
    select
        run_settings.model, suite, n_demos, method, metric,
        if(count(*) > 1 and count(estimate) = count(*), var_samp(estimate order by task), null) as variance,
        if(count(standard_error) = count(*), avg(standard_error ** 2 order by task), null) as from_rows,
        if(
            count(of_sets) = count(*) and count(of_rows_alone) = count(*),
            greatest(0, avg(of_sets order by task) - avg(of_rows_alone order by task)),
            null
        ) as from_sets,
        count(*) as n_tasks, max(n_sets) as n_sets
    from by_task
    inner join suite_tasks using (task)
    cross join run_settings
    left join (select * from metric_errors where format = 'base') using (task, n_demos, method, metric)
    group by all
),

divided as (
    select
        *,
        if(variance - from_rows - coalesce(from_sets, 0) < 0, 0, variance - from_rows - coalesce(from_sets, 0)) as from_tasks,
        nullif(from_tasks + from_rows + coalesce(from_sets, 0), 0) as total
    from parts
)

select
    model, suite, n_demos, method, metric, variance, from_tasks, from_sets, from_rows,
    from_tasks / total as share_tasks, from_sets / total as share_sets, from_rows / total as share_rows, n_tasks, n_sets
from divided
order by all
