-- One row per (task, format, n_demos, method, pattern): the main rows with the same gold label and the same predictions in the
-- demonstration sets (main_answers; n_rows), and how far each of them moves the metrics, averaged over the sets: influence
-- values (prediction_influences), whose mean over the rows is 0. n_gold: rows with the gold label.
-- macro_f1, rsd and relative_variance are null where a gold label has fewer than 5 rows: each label counts as much as
-- the others there, and
-- they are not smooth in so few rows (simulated, intervals cover 76 % with two rows a label).
with

patterns as (

    select
        task,
        format,
        n_demos,
        method,
        pattern,
        any_value(gold) as gold,
        any_value(predictions) as predictions,
        count(*) as n_rows
    from main_answers
    group by task, format, n_demos, method, pattern

),

sets as (

    select
        * exclude (predictions),
        unnest(predictions) as prediction,
        unnest(range(1, len(predictions) + 1)) as place
    from patterns

),

influences as (

    select
        *,
        dense_rank() over (partition by task, format, n_demos, method order by demo_set) as place
    from prediction_influences

),

moved as (

    select
        sets.task,
        sets.format,
        sets.n_demos,
        sets.method,
        sets.pattern,
        any_value(sets.gold) as gold,
        any_value(sets.n_rows) as n_rows,
        avg(influences.accuracy order by sets.place) as accuracy,
        avg(influences.macro_f1 order by sets.place) as macro_f1,
        avg(influences.rsd order by sets.place) as rsd,
        avg(influences.relative_variance order by sets.place) as relative_variance
    from sets
    inner join influences
        on
            sets.task = influences.task
            and sets.format = influences.format
            and sets.n_demos = influences.n_demos
            and sets.place = influences.place
            and sets.method = influences.method
            and sets.gold = influences.gold
            and sets.prediction = influences.prediction
    group by sets.task, sets.format, sets.n_demos, sets.method, sets.pattern

),

counted as (

    select
        *,
        sum(n_rows) over (partition by task, format, n_demos, method, gold)::bigint as n_gold
    from moved

)

select
    task,
    format,
    n_demos,
    method,
    pattern,
    gold,
    n_rows,
    n_gold,
    accuracy,
    case when min(n_gold) over settings >= 5 then macro_f1 end as macro_f1,
    case when min(n_gold) over settings >= 5 then rsd end as rsd,
    case when min(n_gold) over settings >= 5 then relative_variance end as relative_variance
from counted
window settings as (partition by task, format, n_demos, method)
