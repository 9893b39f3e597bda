-- One row per (model, task, n_demos, method, format): format_metrics, averaged over demonstration sets, as
-- label_bias_by_task_over_sets is of the base format.
select
    model,
    task,
    n_demos,
    method,
    format,
    nullif(avg(coalesce(macro_f1, 'nan') order by demo_set), 'nan') as macro_f1,
    nullif(avg(coalesce(accuracy, 'nan') order by demo_set), 'nan') as accuracy,
    nullif(avg(coalesce(rsd, 'nan') order by demo_set), 'nan') as rsd,
    nullif(avg(coalesce(bias_score, 'nan') order by demo_set), 'nan') as bias_score,
    nullif(avg(coalesce(relative_variance, 'nan') order by demo_set), 'nan') as relative_variance,
    nullif(avg(coalesce(squared_preference, 'nan') order by demo_set), 'nan') as squared_preference,
    nullif(avg(coalesce(rsd_floor, 'nan') order by demo_set), 'nan') as rsd_floor,
    nullif(avg(coalesce(rsd_excess, 'nan') order by demo_set), 'nan') as rsd_excess,
    nullif(avg(coalesce(bias_score_floor, 'nan') order by demo_set), 'nan') as bias_score_floor,
    bonferroni_p(min(rsd_p), count(rsd_p)) as rsd_p,
    max(share_most_frequent) as share_most_frequent,
    max(majority_accuracy) as majority_accuracy,
    max(majority_macro_f1) as majority_macro_f1,
    bonferroni_p(min(bias_score_p), count(bias_score_p)) as bias_score_p,
    count(*) as n_demo_sets,
    sum(n_rows)::bigint as n_rows,
    sum(n_bias_score_rows)::bigint as n_bias_score_rows
from format_metrics
group by all
