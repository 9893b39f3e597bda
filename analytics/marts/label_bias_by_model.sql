-- One row per (model, suite, n_demos, method): means over tasks and demonstration sets.
-- Every set has the same tasks (a check), so that it is one whether tasks or sets are averaged first.
-- The intervals are the middle 95 % of the same mean over 1,000 resamples of the tasks; null with a single task.
-- A mean is null where a task of the suite lacks the metric.
with

draws as (

    select
        suite,
        draw,
        list(n_drawn::double order by task) as n_drawn
    from bootstrap_draws
    group by all

),

suite_tasks as (

    select
        suite,
        task
    from bootstrap_draws
    where draw = 0

),

settings as (

    select distinct
        model,
        n_demos,
        method
    from label_bias_by_task_over_sets

),

-- Lists over all tasks of the suite, in the order of the draws: a mean is then a dot product.
task_lists as (

    select
        model,
        suite,
        n_demos,
        method,
        list(coalesce(macro_f1, 'nan') order by task) as macro_f1,
        list(coalesce(accuracy, 'nan') order by task) as accuracy,
        list(coalesce(rsd, 'nan') order by task) as rsd,
        list(coalesce(bias_score, 'nan') order by task) as bias_score,
        count(*) as n_tasks,
        max(n_demo_sets) as n_demo_sets,
        sum(n_rows)::bigint as n_rows,
        sum(n_bias_score_rows)::bigint as n_bias_score_rows
    from settings
    cross join suite_tasks
    left join label_bias_by_task_over_sets using (model, task, n_demos, method)
    group by all

),

means as (

    select
        task_lists.* exclude (macro_f1, accuracy, rsd, bias_score),
        draw,
        nullif(list_dot_product(macro_f1, n_drawn) / n_tasks, 'nan') as macro_f1,
        nullif(list_dot_product(accuracy, n_drawn) / n_tasks, 'nan') as accuracy,
        nullif(list_dot_product(rsd, n_drawn) / n_tasks, 'nan') as rsd,
        nullif(list_dot_product(bias_score, n_drawn) / n_tasks, 'nan') as bias_score
    from task_lists
    inner join draws using (suite)

),

estimates as (

    select * exclude (draw)
    from means
    where draw = 0

),

intervals as (

    select
        model,
        suite,
        n_demos,
        method,
        quantile_cont(macro_f1, [0.025, 0.975]) as macro_f1,
        quantile_cont(accuracy, [0.025, 0.975]) as accuracy,
        quantile_cont(rsd, [0.025, 0.975]) as rsd,
        quantile_cont(bias_score, [0.025, 0.975]) as bias_score
    from means
    where draw > 0
    group by all

)

select
    estimates.model,
    estimates.suite,
    estimates.n_demos,
    estimates.method,
    estimates.macro_f1,
    intervals.macro_f1[1] as macro_f1_low,
    intervals.macro_f1[2] as macro_f1_high,
    estimates.accuracy,
    intervals.accuracy[1] as accuracy_low,
    intervals.accuracy[2] as accuracy_high,
    estimates.rsd,
    intervals.rsd[1] as rsd_low,
    intervals.rsd[2] as rsd_high,
    estimates.bias_score,
    intervals.bias_score[1] as bias_score_low,
    intervals.bias_score[2] as bias_score_high,
    estimates.n_tasks,
    estimates.n_demo_sets,
    estimates.n_rows,
    estimates.n_bias_score_rows
from estimates
left join intervals using (model, suite, n_demos, method)
order by all
