-- One row per (model, suite, n_demos, method, format, draw): label_bias_draws, which has the base format, and those of
-- none in the demonstration sets that have adapters (calibrated_predictions).
with
-- Lists over all tasks of the suite, in the order of the draws: a mean is then a dot product.
task_lists as (
    select
        model, suite, n_demos, method, format,
        list(coalesce(columns('^(macro_f1|accuracy|rsd|bias_score)$'), 'nan') order by task) as "\1",
        count(*) as n_tasks
    from (select distinct model, n_demos, method, format from format_metrics_over_sets)
    cross join suite_tasks
    left join format_metrics_over_sets using (model, task, n_demos, method, format)
    where format in ('base', 'sets of lora')
    group by all
)

select
    model, suite, n_demos, method, format, draw,
    nullif(list_dot_product(columns('^(macro_f1|accuracy|rsd|bias_score)$'), n_drawn) / n_tasks, 'nan') as "\1"
from task_lists
inner join (select suite, draw, list(n_drawn::double order by task) as n_drawn from bootstrap_draws group by all)
    using (suite)
