-- One row per (task, format, n_demos, method, row) of the bias_score rows: how far a row moves BiasScore and squared_preference,
-- averaged over demonstration sets: influence values, whose mean over the n_gold rows with its gold label is 0. They are the
-- change of half the sum of |mean probability - 1 / labels|, with the signs as they are, and of the sum of its squares.
-- *_mean_square: the mean over sets of their squares. Null where a gold label has one row.
with

distances as (

    select
        task,
        format,
        n_demos,
        demo_set,
        method,
        list(round(mean_probability - 1 / len(tasks.labels), 12) order by label) as distances
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
        list_dot_product(probabilities, list_transform(distances, lambda x: 0.5 * sign(x))) as bias_score,
        2 * list_dot_product(probabilities, distances) as squared_preference
    from calibrated_predictions
    inner join distances using (task, format, n_demos, demo_set, method)
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
        avg(bias_score order by row) as mean_bias_score,
        avg(squared_preference order by row) as mean_squared_preference,
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

moved_by_set as (

    select
        leaning.* exclude (bias_score, squared_preference),
        (bias_score - mean_bias_score) * weight as bias_score,
        (squared_preference - mean_squared_preference) * weight as squared_preference
    from leaning
    inner join weights using (task, format, n_demos, demo_set, method, gold)

),

moved as (

    select
        task,
        format,
        n_demos,
        method,
        row,
        any_value(gold) as gold,
        avg(bias_score order by demo_set) as bias_score,
        avg(squared_preference order by demo_set) as squared_preference,
        avg(bias_score ** 2 order by demo_set) as bias_score_mean_square,
        avg(squared_preference ** 2 order by demo_set) as squared_preference_mean_square
    from moved_by_set
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
    case when min(n_gold) over settings >= 2 then squared_preference end as squared_preference,
    case when min(n_gold) over settings >= 2 then bias_score_mean_square end as bias_score_mean_square,
    case when min(n_gold) over settings >= 2 then squared_preference_mean_square end as squared_preference_mean_square
from counted
window settings as (partition by task, format, n_demos, method)
