-- One row per (model, suite, task, n_demos, method, format, metric): the value of every metric of the run, averaged
-- over demonstration sets, of each task, and where task is null of the mean over the tasks of the suite; null where one
-- lacks it. metric: those of label_bias_by_task, with their partners, those that the spec names (analysis.metrics) and
-- its own files (analysis.sql). standard_error: over other rows of the same tasks (metric_errors). n_rows: predictions.
with
of_tasks as (
    select
        run_settings.model, suite, task, n_demos, method, format, metric, value, standard_error, 1 as n_tasks,
        n_sets as n_demo_sets, n_rows
    from metric_values_over_sets
    inner join suite_tasks using (task)
    cross join run_settings
    left join metric_errors using (metric, task, format, n_demos, method)
    where format <> 'sets of lora'
)

from of_tasks
union all
select
    model, suite, null as task, n_demos, method, format, metric, mean_of_all(value, task) as value,
    case when count(standard_error) = count(*) then sqrt(sum(standard_error ** 2 order by task)) / count(*) end as standard_error,
    count(*) as n_tasks, max(n_demo_sets) as n_demo_sets, sum(n_rows)::bigint as n_rows
from of_tasks
group by model, suite, n_demos, method, format, metric
order by all
