-- One row per (task, n_demos, method, metric, row): pseudo-values, whose mean over the rows of a task is its metric over
-- demonstration sets (label_bias_by_task_over_sets), and whose spread is that of resampled rows: the metric
-- plus row_influences. row: of the main rows, of bias_score for that
-- metric and its partner. n_rows: of the task.
with

metrics as (

    select
        task,
        n_demos,
        method,
        unnest(['accuracy', 'macro_f1', 'rsd', 'bias_score', 'relative_variance', 'squared_preference']) as metric,
        unnest([accuracy, macro_f1, rsd, bias_score, relative_variance, squared_preference]) as estimate,
        unnest(['main', 'main', 'main', 'bias_score', 'main', 'bias_score']) as purpose
    from label_bias_by_task_over_sets

),

influences as (

    select
        task,
        n_demos,
        method,
        purpose,
        row,
        count(*) over (partition by task, n_demos, method, purpose) as n_rows,
        unnest(['accuracy', 'macro_f1', 'rsd', 'bias_score', 'relative_variance', 'squared_preference']) as metric,
        unnest([accuracy, macro_f1, rsd, bias_score, relative_variance, squared_preference]) as influence
    from row_influences
    where format = 'base'

)

select
    task,
    n_demos,
    method,
    metric,
    row,
    estimate + influence as value,
    n_rows
from influences
inner join metrics using (task, n_demos, method, metric, purpose)
