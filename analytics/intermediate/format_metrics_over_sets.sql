-- One row per (model, task, n_demos, method, format): format_metrics, averaged over demonstration sets, as
-- label_bias_by_task_over_sets is of the base format.
select
    model, task, n_demos, method, format,
    mean_of_all(columns('^(macro_f1|accuracy|relative_variance|squared_preference|(?:rsd|bias_score)(?:_floor|_excess)?)$'), demo_set) as "\1",
    bonferroni_p(min(rsd_p), count(rsd_p)) as rsd_p, max(share_most_frequent) as share_most_frequent,
    max(majority_accuracy) as majority_accuracy, max(majority_macro_f1) as majority_macro_f1,
    bonferroni_p(min(bias_score_p), count(bias_score_p)) as bias_score_p,
    count(*) as n_demo_sets, sum(n_rows)::bigint as n_rows, sum(n_bias_score_rows)::bigint as n_bias_score_rows
from format_metrics
group by all
