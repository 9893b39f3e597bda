-- One row per (model, task, n_demos, method): label_bias_by_task, averaged over demonstration sets.
-- A mean is null where a set lacks the metric. n_demo_sets_without_hit: sets with accuracy 0, whose rsd is 0 for that.
select
    model,
    task,
    n_demos,
    method,
    nullif(avg(coalesce(macro_f1, 'nan') order by demo_set), 'nan') as macro_f1,
    nullif(avg(coalesce(accuracy, 'nan') order by demo_set), 'nan') as accuracy,
    nullif(avg(coalesce(rsd, 'nan') order by demo_set), 'nan') as rsd,
    nullif(avg(coalesce(bias_score, 'nan') order by demo_set), 'nan') as bias_score,
    count(*) as n_demo_sets,
    count(*) filter (accuracy = 0) as n_demo_sets_without_hit,
    sum(n_rows)::bigint as n_rows,
    sum(n_bias_score_rows)::bigint as n_bias_score_rows,
    n_labels,
    category,
    is_semantically_equivalent
from label_bias_by_task
group by all
order by all
