-- One row per (task, n_demos, method, metric, row): pseudo-values, whose mean over the rows of a task is its metric
-- over demonstration sets (metric_values_over_sets), and whose spread is that of resampled rows: the metric plus
-- row_influences. row: of the main rows, or of bias_score for metrics of those. n_rows: of the task, n_sets: its sets.
select
    task, n_demos, method, metric, row, metrics.value + influence as value,
    count(*) over (partition by task, n_demos, method, metric) as n_rows, n_sets
from row_influences
inner join metric_values_over_sets as metrics using (metric, task, n_demos, method, format)
where format = 'base'
