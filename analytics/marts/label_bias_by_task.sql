-- One row per (model, task, n_demos, demo_set, method): performance and label bias (Reif & Schwartz 2024).
-- macro_f1 and rsd run over the labels that occur in gold, bias_score over the whole label set; rsd is 0 at accuracy 0.
with

labels as (

    select
        *,
        case when n_gold > 0 then 2 * n_correct / (n_gold + n_predicted) end as f1
    from label_bias_by_label

),

measured as (

    select
        model,
        task,
        n_demos,
        demo_set,
        method,
        avg(f1 order by label) as macro_f1,
        sum(n_correct) / sum(n_gold) as accuracy,
        stddev_pop(recall order by label) as recall_deviation,
        0.5 * sum(abs(mean_probability - 1 / n_labels) order by label) as bias_score,
        sum(n_gold)::bigint as n_rows,
        max(n_bias_score_rows) as n_bias_score_rows
    from labels
    inner join (select task, len(labels) as n_labels from tasks) using (task)
    group by all

)

select
    measured.model,
    measured.task,
    measured.n_demos,
    measured.demo_set,
    measured.method,
    measured.macro_f1,
    measured.accuracy,
    if(measured.accuracy = 0, 0, measured.recall_deviation / measured.accuracy) as rsd,
    measured.bias_score,
    measured.n_rows,
    measured.n_bias_score_rows,
    len(tasks.labels) as n_labels,
    tasks.category,
    tasks.is_semantically_equivalent
from measured
inner join tasks using (task)
order by all
