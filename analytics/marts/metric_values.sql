-- One row per (metric, task, format, n_demos, demo_set, method): its value, null where the setting has none, and the
-- number of rows that it is of.
with
measured as (
    select metric, task, format, n_demos, demo_set, method, any_value(value) as value, sum(n_rows)::bigint as n_rows
    from metric_influences
    group by all
)

select heads.metric, settings.*, measured.value, coalesce(measured.n_rows, 0) as n_rows
from (select distinct task, format, n_demos, demo_set, method from prediction_counts) as settings
cross join run_metrics as heads
left join measured using (metric, task, format, n_demos, demo_set, method)
order by all
