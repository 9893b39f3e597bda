-- One row per (model, task, n_demos, method, label): label_bias_by_label over all demonstration sets together.
-- The shares are of the main rows; mean_probability is null where a set lacks it.
select
    model, task, n_demos, method, label, sum(n_gold)::bigint as n_gold, sum(n_predicted)::bigint as n_predicted,
    sum(n_correct)::bigint as n_correct, sum(n_gold) / sum(sum(n_gold)) over setting as gold_share,
    sum(n_predicted) / sum(sum(n_predicted)) over setting as predicted_share,
    sum(n_correct) / nullif(sum(n_gold), 0) as recall, mean_of_all(mean_probability, demo_set) as mean_probability,
    sum(n_bias_score_rows)::bigint as n_bias_score_rows
from label_bias_by_label
group by model, task, n_demos, method, label
window setting as (partition by model, task, n_demos, method)
order by all
