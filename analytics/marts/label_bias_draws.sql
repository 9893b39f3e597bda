-- One row per (model, suite, n_demos, method, draw): means over tasks, and demonstration sets, of a resample of tasks.
-- Every set has the same tasks (a check), so that it is one whether tasks or sets are averaged first.
-- A draw is the same for all numbers of demonstrations and methods, so that their differences have their bootstrap
-- distribution here; draw 0 is the suite itself. A mean is null where a task of the suite lacks the metric.
with
-- Lists over all tasks of the suite, in the order of the draws: a mean is then a dot product.
task_lists as (
    select
        model, suite, n_demos, method,
        list(coalesce(columns('^(macro_f1|accuracy|rsd|bias_score)$'), 'nan') order by task) as "\1",
        count(*) as n_tasks
    from (select distinct model, n_demos, method from label_bias_by_task_over_sets)
    cross join suite_tasks
    left join label_bias_by_task_over_sets using (model, task, n_demos, method)
    group by all
)

select
    model, suite, n_demos, method, draw,
    nullif(list_dot_product(columns('^(macro_f1|accuracy|rsd|bias_score)$'), n_drawn) / n_tasks, 'nan') as "\1"
from task_lists
inner join (select suite, draw, list(n_drawn::double order by task) as n_drawn from bootstrap_draws group by all)
    using (suite)
order by all
