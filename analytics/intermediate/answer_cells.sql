-- One row per (task, format, n_demos, demo_set, method, gold, prediction) that occurs on the main rows: what metrics of
-- predictions are made of (analytics/metrics). n_rows: of the cell; hit: 1 where they are right. Of the setting: n_all
-- rows, n_gold_labels gold labels, accuracy, macro_f1, mean_recall, the standard deviation of recalls (deviation), and
-- what rows add to their variance (noise). Of the gold label: n_gold, recall, f1, n_either, the rows that have it plus
-- those that are predicted to. Of the predicted label: predicted_f1, predicted_n_either, predicted_n_gold,
-- predicted_n_predicted.
with
totals as materialized (
    select
        task, format, n_demos, demo_set, method, label, n_gold, n_predicted, recall, n_gold + n_predicted as n_either,
        case when n_gold > 0 then 2 * n_correct / (n_gold + n_predicted) end as f1,
        avg(f1) over setting as macro_f1, count(*) filter (n_gold > 0) over setting as n_labels,
        sum(n_gold) over setting as n_all,
        sum(n_correct) over setting / sum(n_gold) over setting as accuracy,
        avg(recall) over setting as mean_recall, stddev_pop(recall) over setting as deviation,
        -- A gold label of one row takes the variance of all hits.
        (n_labels - 1) / n_labels ** 2 * (
            coalesce(sum(recall * (1 - recall) / nullif(n_gold - 1, 0)) over setting, 0)
            + count(*) filter (n_gold = 1) over setting * accuracy * (1 - accuracy)
        ) as noise
    from format_labels
    window setting as (
        partition by task, format, n_demos, demo_set, method
        order by label
        rows between unbounded preceding and unbounded following
    )
)

select
    counts.*, (counts.gold = counts.prediction)::int as hit, own.n_all, own.n_labels as n_gold_labels, own.accuracy,
    own.macro_f1, own.mean_recall, own.deviation, own.noise, own.n_gold, own.recall, own.f1, own.n_either,
    other.f1 as predicted_f1, other.n_either as predicted_n_either, other.n_gold as predicted_n_gold,
    other.n_predicted as predicted_n_predicted
from prediction_counts as counts
inner join (select * rename (label as gold) from totals) as own
    using (task, format, n_demos, demo_set, method, gold)
inner join (select * rename (label as prediction) from totals) as other
    using (task, format, n_demos, demo_set, method, prediction)
