-- One row per (model, task, n_demos, method, label): label_bias_by_label over all demonstration sets together.
-- The shares are of the main rows; mean_probability is null where a set lacks it.
with
totals as (
    select
        model, task, n_demos, method, label, sum(n_gold)::bigint as n_gold, sum(n_predicted)::bigint as n_predicted,
        sum(n_correct)::bigint as n_correct,
        nullif(avg(coalesce(mean_probability, 'nan') order by demo_set), 'nan') as mean_probability,
        sum(n_bias_score_rows)::bigint as n_bias_score_rows
    from label_bias_by_label
    group by all
)

select
    model, task, n_demos, method, label, n_gold, n_predicted, n_correct,
    n_gold / sum(n_gold) over setting as gold_share,
    n_predicted / sum(n_predicted) over setting as predicted_share,
    n_correct / nullif(n_gold, 0) as recall, mean_probability, n_bias_score_rows
from totals
window setting as (partition by model, task, n_demos, method)
order by all
