-- One row per (metric, task, format, n_demos, method): metric_values averaged over demonstration sets; null where a set
-- lacks it. n_rows: over all sets.
select
    metric, task, format, n_demos, method, mean_of_all(value, demo_set) as value, count(*) as n_sets,
    sum(n_rows)::bigint as n_rows
from metric_values
group by all
