-- One row per (model, suite, task, n_demos, method): which tasks of a suite are biased beyond the noise of their rows.
-- rsd_p_adjusted: of rsd_p (label_bias_by_task_over_sets), that recall does not depend on the label;
-- bias_score_p_adjusted: of bias_score_p. Both hold for all tasks of the suite in that setting together (holm), so that
-- the chance that any task is wrongly called biased there is 5 %. is_rsd_above, is_bias_score_above: at most 5 %. Null
-- where a task has no p.
with
tests as (
    select
        {'model': model, 'suite': suite, 'n_demos': n_demos, 'method': method, 'metric': metric} as family,
        task as test, p
    from (
        select *, unnest(['rsd', 'bias_score']) as metric, unnest([rsd_p, bias_score_p]) as p
        from label_bias_by_task_over_sets
        inner join suite_tasks using (task)
    )
),

adjusted as (
    select
        family.model, family.suite, test as task, family.n_demos, family.method,
        any_value(p_adjusted) filter (family.metric = 'rsd') as rsd_p_adjusted,
        any_value(p_adjusted) filter (family.metric = 'bias_score') as bias_score_p_adjusted
    from holm('tests')
    group by all
)

select *, rsd_p_adjusted <= 0.05 as is_rsd_above, bias_score_p_adjusted <= 0.05 as is_bias_score_above
from adjusted
order by all
