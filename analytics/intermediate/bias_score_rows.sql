-- One row per (task, format, n_demos, method, row) of the bias_score rows: how far a row moves BiasScore, averaged over demonstration
-- sets: influence values, whose mean over the n_gold rows with its gold label is 0. They are the change of half the sum of
-- |mean probability - 1 / labels|, with the signs as they are. mean_square: the mean over sets of their squares. Null where a
-- gold label has one row.
with

signs as (

    select
        task,
        format,
        n_demos,
        demo_set,
        method,
        list(sign(round(mean_probability - 1 / len(tasks.labels), 12)) order by label) as signs
    from label_preferences
    inner join tasks using (task)
    group by all

),

leaning as (

    select
        task,
        format,
        n_demos,
        demo_set,
        method,
        row,
        gold,
        0.5 * list_dot_product(probabilities, signs::double[]) as leaning
    from calibrated_predictions
    inner join signs using (task, format, n_demos, demo_set, method)
    where purpose = 'bias_score'

),

gold_means as (

    select
        task,
        format,
        n_demos,
        demo_set,
        method,
        gold,
        avg(leaning order by row) as mean_leaning,
        count(*) as n_gold
    from leaning
    group by all

),

weights as (

    select
        *,
        sum(n_gold) over settings / n_gold / count(*) over settings as weight
    from gold_means
    window settings as (partition by task, format, n_demos, demo_set, method)

),

moved as (

    select
        task,
        format,
        n_demos,
        method,
        row,
        any_value(gold) as gold,
        avg((leaning - mean_leaning) * weight order by demo_set) as bias_score,
        avg(((leaning - mean_leaning) * weight) ** 2 order by demo_set) as mean_square
    from leaning
    inner join weights using (task, format, n_demos, demo_set, method, gold)
    group by task, format, n_demos, method, row

),

counted as (

    select
        *,
        count(*) over (partition by task, format, n_demos, method, gold) as n_gold
    from moved

)

select
    task,
    format,
    n_demos,
    method,
    row,
    gold,
    n_gold,
    case when min(n_gold) over settings >= 2 then bias_score end as bias_score,
    case when min(n_gold) over settings >= 2 then mean_square end as mean_square
from counted
window settings as (partition by task, format, n_demos, method)
