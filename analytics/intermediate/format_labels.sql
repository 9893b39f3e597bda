-- One row per (model, task, format, n_demos, demo_set, method, label): how often it is right, predicted and preferred
-- in each format of the prompt; the columns are those of label_bias_by_label, which explains them. Read once by name:
-- shells bind a view with all that is below it, each time that it is named.
with prediction_counts as materialized (from prediction_counts),

gold_counts as (
    select
        task, format, n_demos, demo_set, method, gold as label, sum(n_rows)::bigint as n_gold,
        coalesce(sum(n_rows) filter (prediction = gold), 0)::bigint as n_correct
    from prediction_counts
    group by all
),

predicted_counts as (
    select task, format, n_demos, demo_set, method, prediction as label, sum(n_rows)::bigint as n_predicted
    from prediction_counts
    group by all
)

select
    run_settings.model, settings.task, settings.format, settings.n_demos, settings.demo_set, settings.method,
    labels.label, coalesce(gold_counts.n_gold, 0) as n_gold, coalesce(predicted_counts.n_predicted, 0) as n_predicted,
    coalesce(gold_counts.n_correct, 0) as n_correct, gold_counts.n_correct / gold_counts.n_gold as recall,
    case
        when count(gold_counts.n_gold) over setting > 1 then hypergeometric_p(
            gold_counts.n_correct, gold_counts.n_gold, sum(gold_counts.n_correct) over setting,
            sum(gold_counts.n_gold) over setting
        )
    end as recall_p,
    label_preferences.mean_probability, label_preferences.standard_error,
    -- Below five rows of a label, t has to be more than twice what it has to be of many, and a test hardly finds anything.
    case
        when min(label_preferences.n_rows_of_label) over setting >= 5 then case
            when label_preferences.standard_error > 0 then student_p(
                (label_preferences.mean_probability - 1 / len(tasks.labels)) / label_preferences.standard_error,
                label_preferences.n_free
            )
            -- Without any variance it is what it is.
            else (abs(label_preferences.mean_probability - 1 / len(tasks.labels)) <= 1e-9)::int
        end
    end as preference_p,
    coalesce(label_preferences.n_gold_labels, 0) as n_gold_labels,
    coalesce(label_preferences.n_rows, 0) as n_bias_score_rows,
    coalesce(label_preferences.n_rows_of_label, 0) as n_bias_score_rows_of_label
from (select distinct task, format, n_demos, demo_set, method from prediction_counts) as settings
cross join run_settings
inner join (select task, unnest(labels) as label from tasks) as labels using (task)
inner join tasks using (task)
left join gold_counts using (task, format, n_demos, demo_set, method, label)
left join predicted_counts using (task, format, n_demos, demo_set, method, label)
left join label_preferences using (task, format, n_demos, demo_set, method, label)
window setting as (partition by settings.task, settings.format, settings.n_demos, settings.demo_set, settings.method)
