-- One row per (task, n_demos, method): standard errors of label_bias_by_task_over_sets, of resampled rows (main_patterns,
-- bias_score_rows), and the degrees of freedom: rows minus gold labels, as recalls and mean probabilities are means within
-- gold labels.
with

main_errors as (

    select
        task,
        n_demos,
        method,
        sum(n_rows)::bigint as n_main_rows,
        n_main_rows - count(distinct gold) as n_free,
        sqrt(sum(n_rows * accuracy ** 2 order by pattern) / nullif(n_main_rows - 1, 0) / n_main_rows)
            as accuracy,
        sqrt(sum(n_rows * macro_f1 ** 2 order by pattern) / nullif(n_main_rows - 1, 0) / n_main_rows)
            as macro_f1,
        sqrt(sum(n_rows * rsd ** 2 * n_gold / nullif(n_gold - 1, 0) order by pattern)) / n_main_rows as rsd,
        sqrt(sum(n_rows * relative_variance ** 2 * n_gold / nullif(n_gold - 1, 0) order by pattern)) / n_main_rows
            as relative_variance
    from main_patterns
    where format = 'base'
    group by task, n_demos, method

),

bias_errors as (

    select
        task,
        n_demos,
        method,
        count(*) - count(distinct gold) as n_free_bias_score,
        sqrt(sum(bias_score ** 2 * n_gold / nullif(n_gold - 1, 0) order by row)) / count(*) as bias_score,
        sqrt(sum(squared_preference ** 2 * n_gold / nullif(n_gold - 1, 0) order by row)) / count(*) as squared_preference
    from bias_score_rows
    where format = 'base'
    group by task, n_demos, method

)

select
    task,
    n_demos,
    method,
    main_errors.accuracy,
    main_errors.macro_f1,
    main_errors.rsd,
    bias_errors.bias_score,
    main_errors.n_main_rows,
    main_errors.n_free,
    bias_errors.n_free_bias_score,
    main_errors.relative_variance,
    bias_errors.squared_preference
from main_errors
left join bias_errors using (task, n_demos, method)
