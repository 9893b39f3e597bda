-- One row per (model, task, n_demos, instruction, setting, seed, predict, method, draw): weighted F1 of a resample.
-- A draw holds the same test rows in every setting (row_draws), so that any statistic over settings and seeds has its
-- bootstrap distribution here; draw 0 is the rows themselves.
with
labels as (
    select unnest(labels) as label
    from settings
    where number = 0
),

draws as (
    select draw, n_drawn::double[] as n_drawn
    from row_draws
),

-- Lists over all test rows, in the order of the draws: a count is then a dot product, which is exact.
gold_lists as (
    select label, list((gold = label)::int::double order by row) as is_gold
    from (select distinct row, gold from majority_predictions)
    cross join labels
    group by all
),

-- Two counts in one dot product: predictions of a label, and 2^26 for each that is right.
label_lists as (
    select
        task, n_demos, instruction, setting, number, seed, predict, method, label,
        list(
            coalesce(prediction = label, false)::int
            + if(coalesce(gold = label and prediction = label, false), 67108864::double, 0)
            order by row
        ) as is_answered,
        count(*) as n_rows
    from majority_predictions
    cross join labels
    group by all
),

label_counts as (
    select
        label_lists.* exclude (is_answered), draws.draw, list_dot_product(is_answered, n_drawn) as n_answered,
        floor(n_answered / 67108864) as n_correct, n_answered - n_correct * 67108864 as n_predicted
    from label_lists
    cross join draws
),

weighted as (
    select
        * exclude (label, n_gold, n_answered, n_predicted, n_correct),
        sum(n_gold / n_rows * 2 * n_correct / (n_gold + n_predicted) order by label) as weighted_f1
    from label_counts
    inner join (select label, draw, list_dot_product(is_gold, n_drawn) as n_gold from gold_lists cross join draws)
        using (label, draw)
    where n_gold > 0
    group by all
)

select
    run_settings.model, weighted.task, weighted.n_demos, weighted.instruction, weighted.setting, weighted.number,
    weighted.seed, weighted.predict, weighted.method, weighted.draw, weighted.weighted_f1, weighted.n_rows
from weighted
cross join run_settings
order by all
