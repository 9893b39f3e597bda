-- One row per (task, format, n_demos, demo_set, method, gold, prediction) that occurs on the main rows: how far one such row moves
-- each metric, times the number of rows: the influence values of resampled rows (infinitesimal jackknife, Efron 1982),
-- whose mean over the rows is 0. Gold labels are resampled too, as the rows are a sample: a model that always gives the
-- more frequent label is right by the luck of that. rsd: 0 where it does not depend on the rows, with accuracy 0, one gold
-- label or equal recalls. relative_variance: as rsd, 0 with accuracy 0; the numbers of rows of its labels as they are.
with

totals as (

    select
        task,
        format,
        n_demos,
        demo_set,
        method,
        label,
        n_gold,
        n_gold + n_predicted as n_either,
        case when n_gold > 0 then 2 * n_correct / (n_gold + n_predicted) end as f1,
        recall,
        count(*) filter (n_gold > 0) over setting as n_labels,
        sum(n_gold) over setting as n_rows,
        sum(n_correct) over setting / sum(n_gold) over setting as accuracy,
        avg(recall) over setting as mean_recall,
        stddev_pop(recall) over setting as deviation,
        -- What rows add to the variance of recalls, as in label_bias_by_task.
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
    counts.task,
    counts.format,
    counts.n_demos,
    counts.demo_set,
    counts.method,
    counts.gold,
    counts.prediction,
    counts.n_rows,
    (counts.gold = counts.prediction)::int as hit,
    hit - own.accuracy as accuracy,
    own.n_rows * case
        when hit = 1 then (2 - 2 * own.f1) / own.n_either
        else -own.f1 / own.n_either - coalesce(other.f1 / other.n_either, 0)
    end / own.n_labels as macro_f1,
    case
        when own.accuracy > 0 and own.deviation > 1e-9
            then own.n_rows / own.n_gold * (hit - own.recall)
            * (own.recall - own.mean_recall) / (own.n_labels * own.deviation) / own.accuracy
            - own.deviation / own.accuracy ** 2 * (hit - own.accuracy)
        else 0
    end as rsd,
    case
        when own.accuracy > 0
            then (
                own.n_rows / own.n_gold * (hit - own.recall) * (
                    2 / own.n_labels * (own.recall - own.mean_recall)
                    - (own.n_labels - 1) / own.n_labels ** 2 * coalesce((1 - 2 * own.recall) / nullif(own.n_gold - 1, 0), 0)
                )
                - 2 * (own.deviation ** 2 - own.noise) / own.accuracy * (hit - own.accuracy)
            ) / own.accuracy ** 2
        else 0
    end as relative_variance
from prediction_counts as counts
inner join totals as own
    on
        counts.task = own.task
        and counts.format = own.format
        and counts.n_demos = own.n_demos
        and counts.demo_set = own.demo_set
        and counts.method = own.method
        and counts.gold = own.label
inner join totals as other
    on
        counts.task = other.task
        and counts.format = other.format
        and counts.n_demos = other.n_demos
        and counts.demo_set = other.demo_set
        and counts.method = other.method
        and counts.prediction = other.label
