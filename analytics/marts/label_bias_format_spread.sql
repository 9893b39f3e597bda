-- One row per (model, suite, task, n_demos, method, metric) of runs of several formats of the prompt: how far the
-- metric differs between them (Sclar et al. 2024), of each task, over its demonstration sets, and where task is null of
-- the mean over the tasks of the suite; metric: as in label_bias_changes_by_task. Only where there are two, and all
-- have it. minimum, maximum, their formats (the first in code-point order on ties) and range; deviation: the standard
-- deviation over formats. deviation_of_rows: the deviation that other rows of the same tasks give without any effect of
-- the wording (the paired errors of all pairs of formats, paired_errors); deviation_beyond_rows: the remainder, at
-- least 0; null where the errors are. How far a task's value moves, without what rows do: format_deviation, with
-- another format; set_deviation, with another demonstration set (in the base format; null with one set);
-- task_deviation, between tasks (label_bias_components; null of one task). Of the mean over tasks the first two are
-- root mean squares over the tasks: what goes up in one task and down in another is in them and not in deviation.
with
of_tasks as (
    select suite, run_settings.model, task, n_demos, method, format, n_sets as n_demo_sets, metric, value, n_rows
    from metric_values_over_sets
    inner join suite_tasks using (task)
    cross join run_settings
    where format <> 'sets of lora'
),

of_all as (
    select suite, model, task, n_demos, method, format, metric, value, 1 as n_tasks, n_demo_sets, n_rows
    from of_tasks
    union all
    select
        suite, model, null as task, n_demos, method, format, metric, mean_of_all(value, task) as value,
        count(*) as n_tasks, max(n_demo_sets) as n_demo_sets, sum(n_rows) as n_rows
    from of_tasks
    group by suite, model, n_demos, method, format, metric
),

spread as (
    select
        suite, model, task, n_demos, method, metric, count(*) as n_formats, min(value) as minimum,
        first(format order by round(value, 12), format) as minimum_format,
        max(value) as maximum,
        first(format order by round(value, 12) desc, format) as maximum_format,
        var_samp(value order by format) as variance,
        any_value(n_tasks) as n_tasks, max(n_demo_sets) as n_demo_sets, sum(n_rows)::bigint as n_rows
    from of_all
    group by all
    having count(*) > 1 and count(value) = count(*)
),

-- Half the mean square of the pairs' errors is what rows add to the variance.
noise as (
    select
        metric, task, n_demos, method,
        avg(coalesce(standard_error, 'nan') ** 2 order by format, against_format) / 2 as of_rows
    from paired_errors
    where format <> against_format
    group by metric, task, n_demos, method
),

between_sets as (
    select
        metric, task, n_demos, method,
        var_samp(value order by demo_set) - count(*) * any_value(errors.of_rows_alone) as variance
    from metric_values
    inner join metric_errors as errors using (metric, task, format, n_demos, method)
    where format = 'base'
    group by all
    having count(*) > 1 and count(value) = count(*)
),

of_each_task as (
    select
        suite, model, spread.task, n_demos, method, metric, nullif(noise.of_rows, 'nan') as of_rows,
        spread.variance - nullif(noise.of_rows, 'nan') as of_formats, between_sets.variance as of_sets
    from spread
    left join noise using (task, n_demos, method, metric)
    left join between_sets using (task, n_demos, method, metric)
    where spread.task is not null
),

parts as (
    from of_each_task
    union all
    select
        suite, model, null as task, n_demos, method, metric,
        case when count(of_rows) = count(*) then sum(of_rows order by task) / count(*) ** 2 end as of_rows,
        mean_of_all(of_formats, task) as of_formats, mean_of_all(of_sets, task) as of_sets
    from of_each_task
    group by suite, model, n_demos, method, metric
)

select
    spread.model, spread.suite, spread.task, spread.n_demos, spread.method, spread.metric, spread.n_formats,
    spread.minimum, spread.minimum_format, spread.maximum, spread.maximum_format,
    spread.maximum - spread.minimum as range, sqrt(spread.variance) as deviation,
    sqrt(parts.of_rows) as deviation_of_rows,
    sqrt(clipped(spread.variance - parts.of_rows, 0, null)) as deviation_beyond_rows,
    sqrt(clipped(parts.of_formats, 0, null)) as format_deviation,
    sqrt(clipped(parts.of_sets, 0, null)) as set_deviation,
    case when spread.task is null then sqrt(components.from_tasks) end as task_deviation,
    spread.n_tasks, spread.n_demo_sets, spread.n_rows
from spread
left join label_bias_components as components using (suite, model, n_demos, method, metric)
left join parts
    on
        spread.suite = parts.suite and spread.model = parts.model and spread.task is not distinct from parts.task
        and spread.n_demos = parts.n_demos and spread.method = parts.method and spread.metric = parts.metric
order by all
