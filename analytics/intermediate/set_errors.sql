-- One row per (task, n_demos, method): the part of the squared standard errors of label_bias_by_task_over_sets
-- (task_errors) that comes from what rows do in one demonstration set and not in the others, which is in the variance
-- between sets too: (mean of the sets' squared errors - that of their mean) / (sets - 1). n_sets: their number. Null with
-- one set.
with

main_sets as (

    select
        task,
        n_demos,
        demo_set,
        method,
        sum(n_rows) as n_all,
        sum(n_rows * accuracy ** 2 order by gold, prediction) / nullif(n_all - 1, 0) / n_all as accuracy,
        sum(n_rows * macro_f1 ** 2 order by gold, prediction) / nullif(n_all - 1, 0) / n_all as macro_f1,
        sum(n_rows * rsd ** 2 * n_gold / nullif(n_gold - 1, 0) order by gold, prediction) / n_all ** 2 as rsd,
        sum(n_rows * relative_variance ** 2 * n_gold / nullif(n_gold - 1, 0) order by gold, prediction) / n_all ** 2
            as relative_variance
    from (
        select
            *,
            sum(n_rows) over (partition by task, n_demos, demo_set, method, gold) as n_gold
        from prediction_influences
        where format = 'base'
    )
    group by all

),

main_errors as (

    select
        task,
        n_demos,
        method,
        count(*) as n_sets,
        avg(accuracy order by demo_set) as accuracy,
        avg(macro_f1 order by demo_set) as macro_f1,
        avg(rsd order by demo_set) as rsd,
        avg(relative_variance order by demo_set) as relative_variance
    from main_sets
    group by all

),

bias_errors as (

    select
        task,
        n_demos,
        method,
        sum(bias_score_mean_square * n_gold / nullif(n_gold - 1, 0) order by row) / count(*) ** 2 as bias_score,
        sum(squared_preference_mean_square * n_gold / nullif(n_gold - 1, 0) order by row) / count(*) ** 2
            as squared_preference
    from bias_score_rows
    where format = 'base'
    group by all

)

select
    task,
    n_demos,
    method,
    n_sets,
    clipped(main_errors.accuracy - task_errors.accuracy ** 2, 0, null) / nullif(n_sets - 1, 0) as accuracy,
    clipped(main_errors.macro_f1 - task_errors.macro_f1 ** 2, 0, null) / nullif(n_sets - 1, 0) as macro_f1,
    clipped(main_errors.rsd - task_errors.rsd ** 2, 0, null) / nullif(n_sets - 1, 0) as rsd,
    clipped(bias_errors.bias_score - task_errors.bias_score ** 2, 0, null) / nullif(n_sets - 1, 0) as bias_score,
    clipped(main_errors.relative_variance - task_errors.relative_variance ** 2, 0, null) / nullif(n_sets - 1, 0)
        as relative_variance,
    clipped(bias_errors.squared_preference - task_errors.squared_preference ** 2, 0, null) / nullif(n_sets - 1, 0)
        as squared_preference
from main_errors
inner join task_errors using (task, n_demos, method)
left join bias_errors using (task, n_demos, method)
