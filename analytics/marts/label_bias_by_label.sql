-- One row per (model, task, n_demos, demo_set, method, label): how often it is right, predicted and preferred.
-- recall is null where no main row has the label; mean_probability is over the bias_score rows (label_preferences).
with

settings as (

    select distinct
        task,
        n_demos,
        demo_set,
        method
    from prediction_counts

),

labels as (

    select
        task,
        unnest(labels) as label
    from tasks

),

gold_counts as (

    select
        task,
        n_demos,
        demo_set,
        method,
        gold as label,
        sum(n_rows)::bigint as n_gold,
        coalesce(sum(n_rows) filter (prediction = gold), 0)::bigint as n_correct
    from prediction_counts
    group by all

),

predicted_counts as (

    select
        task,
        n_demos,
        demo_set,
        method,
        prediction as label,
        sum(n_rows)::bigint as n_predicted
    from prediction_counts
    group by all

)

select
    run_settings.model,
    settings.task,
    settings.n_demos,
    settings.demo_set,
    settings.method,
    labels.label,
    coalesce(gold_counts.n_gold, 0) as n_gold,
    coalesce(predicted_counts.n_predicted, 0) as n_predicted,
    coalesce(gold_counts.n_correct, 0) as n_correct,
    gold_counts.n_correct / gold_counts.n_gold as recall,
    label_preferences.mean_probability,
    coalesce(label_preferences.n_rows, 0) as n_bias_score_rows
from settings
cross join run_settings
inner join labels using (task)
left join gold_counts using (task, n_demos, demo_set, method, label)
left join predicted_counts using (task, n_demos, demo_set, method, label)
left join label_preferences using (task, n_demos, demo_set, method, label)
order by all
