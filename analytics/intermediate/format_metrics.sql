-- One row per (model, task, format, n_demos, demo_set, method): performance and label bias in each format of the
-- prompt; the columns are those of label_bias_by_task, which explains them.
with
metrics as (
    from metric_values pivot (
        any_value(value)
        for metric in ('macro_f1', 'accuracy', 'rsd', 'bias_score', 'relative_variance', 'squared_preference')
        group by task, format, n_demos, demo_set, method
    )
),

measured as (
    select
        model, task, format, n_demos, demo_set, method, sum(1 / nullif(n_gold, 0) order by label) as sum_of_inverses,
        count(recall) as n_main_gold_labels, max(n_gold) / sum(n_gold) as majority_accuracy,
        max(n_predicted) / sum(n_predicted) as share_most_frequent,
        bonferroni_p(min(recall_p), case when count(recall) = 2 then 1 else count(recall) end) as rsd_p,
        sum(standard_error order by label) / sqrt(2 * pi()) as deviation_of_noise,
        bonferroni_p(min(preference_p), case when count(*) = 2 then 1 else count(*) end) as bias_score_p,
        max(n_gold_labels) as n_gold_labels, sum(n_gold)::bigint as n_rows, max(n_bias_score_rows) as n_bias_score_rows,
        case when max(n_bias_score_rows) > 0 then min(n_bias_score_rows_of_label) end as n_fewest_bias_score_rows,
        case when max(n_bias_score_rows) > 0 then first(label order by n_bias_score_rows_of_label, label) end
            as fewest_bias_score_label
    from format_labels
    group by all
),

floors as (
    select
        *,
        case
            when n_main_gold_labels > 1 and accuracy > 0 and accuracy < 1 then sqrt(
                (1 - accuracy) / accuracy * n_rows / (n_rows - 1)
                * (n_main_gold_labels - 1) / n_main_gold_labels ** 2 * sum_of_inverses
            )
        end as rsd_floor
    from measured
    inner join metrics using (task, format, n_demos, demo_set, method)
)

select
    floors.model, floors.task, floors.format, floors.n_demos, floors.demo_set, floors.method, floors.macro_f1,
    floors.accuracy, floors.rsd, floors.bias_score, floors.n_rows, floors.n_bias_score_rows,
    len(tasks.labels) as n_labels, tasks.category, tasks.is_semantically_equivalent, floors.rsd_floor,
    case
        when floors.rsd_floor is not null then sqrt(clipped(floors.rsd ** 2 - floors.rsd_floor ** 2, 0, null))
    end as rsd_excess,
    case when floors.rsd_floor is not null then floors.rsd_p end as rsd_p,
    case when floors.n_gold_labels = len(tasks.labels) then floors.deviation_of_noise end as bias_score_floor,
    floors.bias_score_p,
    case when floors.n_gold_labels > 0 then 1 - floors.n_gold_labels / len(tasks.labels) end as bias_score_of_perfect,
    floors.n_gold_labels, floors.n_main_gold_labels, floors.majority_accuracy,
    2 * floors.majority_accuracy / (1 + floors.majority_accuracy) / floors.n_main_gold_labels as majority_macro_f1,
    floors.share_most_frequent, floors.relative_variance, floors.squared_preference, floors.n_fewest_bias_score_rows,
    floors.fewest_bias_score_label
from floors
inner join tasks using (task)
