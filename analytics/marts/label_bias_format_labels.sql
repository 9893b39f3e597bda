-- One row per (model, task, n_demos, method, format): the label that is preferred in a format of the prompt: predicted
-- most beyond its share of the gold labels, over the demonstration sets (the first in code-point order on ties).
-- rsd_p_adjusted: that recall does not depend on the label there (rsd_p of label_bias_by_task, the smallest of the
-- sets' times their number), for all tasks and formats with the same n_demos and method together (holm); is_rsd_above:
-- at most 5 %. n_rows: predictions.
with
shares as (
    select
        model, task, n_demos, method, format, label, sum(n_gold) / sum(sum(n_gold)) over answers as gold_share,
        sum(n_predicted) / sum(sum(n_predicted)) over answers as predicted_share,
        sum(sum(n_gold)) over answers as n_rows
    from format_labels
    where format <> 'sets of lora'
    group by model, task, n_demos, method, format, label
    window answers as (partition by model, task, n_demos, method, format)
),

preferred as (
    from shares
    qualify row_number() over (
        partition by model, task, n_demos, method, format
        order by round(predicted_share - gold_share, 12) desc, label
    ) = 1
),

tests as (
    select
        {'model': model, 'n_demos': n_demos, 'method': method} as family,
        {'task': task, 'format': format} as test, rsd_p as p
    from format_metrics_over_sets
    where format <> 'sets of lora'
),

adjusted as (
    select unnest(family), unnest(test), p_adjusted as rsd_p_adjusted
    from holm('tests')
)

select
    model, task, n_demos, method, format, label, predicted_share, gold_share, rsd_p_adjusted,
    rsd_p_adjusted <= 0.05 as is_rsd_above, n_rows::bigint as n_rows
from preferred
inner join adjusted using (model, task, n_demos, method, format)
order by all
