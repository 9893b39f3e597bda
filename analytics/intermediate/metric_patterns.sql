-- One row per (metric, task, format, n_demos, method, pattern): n_rows rows that move a metric alike, with the same
-- gold label (n_gold rows have it): those with the same predictions in the demonstration sets (main_answers), or a
-- single one where it counts by its probabilities. influence: how far each of them moves the metric, averaged over the
-- sets: influence values (metric_influences), whose mean over the rows is 0; mean_square: the mean over sets of their
-- squares. Null where a gold label has fewer rows than the metric needs (fewest_rows): each label counts as much as the
-- others in means over labels, which are not smooth in so few rows (simulated, intervals cover 76 % with two rows a
-- label). spread, n_taken: the squared error of a mean over N rows is the sum of n_rows * spread * influence^2, over N
-- (N - n_taken).
with metric_influences as materialized (from metric_influences),

answers as (
    select
        task, format, n_demos, method, pattern, any_value(gold) as gold, any_value(predictions) as predictions,
        count(*) as n_rows
    from main_answers
    group by all
),

predictions as (
    select * exclude (predictions), unnest(predictions) as prediction, unnest(range(1, len(predictions) + 1)) as place
    from answers
),

moved as (
    select
        influences.metric, task, format, n_demos, method, predictions.pattern, gold,
        any_value(predictions.n_rows) as n_rows, avg(influence order by place) as influence,
        avg(influence ** 2 order by place) as mean_square
    from predictions
    inner join (
        select *, dense_rank() over (partition by metric, task, format, n_demos, method order by demo_set) as place
        from metric_influences
        where prediction is not null
    ) as influences using (task, format, n_demos, method, place, gold, prediction)
    group by all
    union all
    select
        metric, task, format, n_demos, method, hash(row) as pattern, any_value(gold) as gold, 1 as n_rows,
        avg(influence order by demo_set) as influence, avg(influence ** 2 order by demo_set) as mean_square
    from metric_influences
    where row is not null
    group by metric, task, format, n_demos, method, row
),

counted as (
    select *, sum(n_rows) over (partition by metric, task, format, n_demos, method, gold)::bigint as n_gold
    from moved
)

select
    metric, heads.of_rows, task, format, n_demos, method, pattern, gold, n_rows, n_gold,
    case when min(n_gold) over settings >= heads.fewest_rows then influence end as influence,
    case when min(n_gold) over settings >= heads.fewest_rows then mean_square end as mean_square,
    case when heads.by_gold then n_gold / nullif(n_gold - 1, 0) else 1 end as spread,
    (not heads.by_gold)::int as n_taken
from counted
inner join run_metrics as heads using (metric)
window settings as (partition by metric, task, format, n_demos, method)
