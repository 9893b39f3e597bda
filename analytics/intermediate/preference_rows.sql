-- One row per (task, format, n_demos, demo_set, method, row) of the bias_score rows: what metrics of mean probabilities
-- are made of (analytics/metrics), lists over the labels in code-point order. distances: of the mean probabilities from
-- 1 / labels, with their standard_errors (label_preferences); deviations: of the probabilities of the row from their
-- mean within its gold label. weight: what such a deviation counts for, the number of rows over that of the gold label,
-- over the number of gold labels, so that influence values have a mean of 0.
with
labelled as (
    select
        task, format, n_demos, demo_set, method,
        list(mean_probability - 1 / len(tasks.labels) order by label) as distances,
        list(standard_error order by label) as standard_errors,
        any_value(n_rows) as n_all, any_value(n_gold_labels) as n_gold_labels
    from label_preferences
    inner join tasks using (task)
    group by task, format, n_demos, demo_set, method, tasks.labels
),

gold_means as (
    select
        task, format, n_demos, demo_set, method, gold, list(mean_probability order by label) as means,
        any_value(n_rows) as n_gold
    from label_gold_means
    group by all
)

select
    predictions.task, predictions.format, predictions.n_demos, predictions.demo_set, predictions.method,
    predictions.row, predictions.gold, labelled.distances, labelled.standard_errors,
    list_transform(predictions.probabilities, lambda p, i: p - gold_means.means[i]) as deviations,
    labelled.n_all / gold_means.n_gold / labelled.n_gold_labels as weight
from calibrated_predictions as predictions
inner join labelled using (task, format, n_demos, demo_set, method)
inner join gold_means using (task, format, n_demos, demo_set, method, gold)
where predictions.purpose = 'bias_score'
