-- One row per (task, n_demos, demo_set, method) of the base format: the smallest biases that tests of so many rows
-- distinguish from sampling noise in four of five runs, where one label is preferred, whichever it is.
-- rsd_smallest_detectable: by rsd_p, at the accuracy that was measured (visible_rsd). bias_score_smallest_detectable:
-- by bias_score_p, with the errors that were measured (visible_bias_score). *_of_sets: by the p of all sets of the
-- setting (Bonferroni), of which one alone has to show it. Null where that has no p, or no bias can be shown.
with
sets as (
    select
        labels.task, labels.n_demos, labels.demo_set, labels.method,
        sum(labels.n_correct) / sum(labels.n_gold) as accuracy,
        min(labels.n_gold) filter (labels.n_gold > 0) as n_fewest,
        sum(labels.n_gold) as n_rows, count(labels.recall) as n_gold_labels, count(*) as n_labels,
        case
            when count(labels.preference_p) = count(*)
                then list({'error': preferences.standard_error, 'df': preferences.n_free} order by labels.label)
        end as preferences
    from format_labels as labels
    left join label_preferences as preferences using (task, format, n_demos, demo_set, method, label)
    where labels.format = 'base'
    group by all
),

counted as (
    select
        *,
        case when n_gold_labels = 2 then 1 else n_gold_labels end as n_recalls,
        case when n_labels = 2 then 1 else n_labels end as n_preferences,
        count(*) over (partition by task, n_demos, method) as n_sets
    from sets
)

select
    task, n_demos, demo_set, method,
    visible_rsd(accuracy, n_fewest, n_rows, n_gold_labels, n_recalls) as rsd_smallest_detectable,
    visible_bias_score(preferences, n_preferences) as bias_score_smallest_detectable,
    visible_rsd(accuracy, n_fewest, n_rows, n_gold_labels, n_recalls * n_sets) as rsd_smallest_detectable_of_sets,
    visible_bias_score(preferences, n_preferences * n_sets) as bias_score_smallest_detectable_of_sets
from counted
