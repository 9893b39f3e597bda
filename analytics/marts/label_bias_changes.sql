-- One row per (model, suite, n_demos, method, against_n_demos, against_method): mean differences, paired by task.
-- A calibration stands against none at the same n_demos, none itself against none at the smallest n_demos.
-- Positive: higher than what it stands against. Intervals and nulls are as in label_bias_by_model.
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

pairs as (

    select
        settings.model,
        settings.n_demos,
        settings.method,
        against.n_demos as against_n_demos,
        against.method as against_method
    from settings
    inner join settings as against using (model)
    where
        against.method = 'none'
        and if(
            settings.method = 'none',
            settings.n_demos > against.n_demos and against.n_demos = (select min(n_demos) from settings),
            settings.n_demos = against.n_demos
        )

),

differences as (

    select
        pairs.*,
        suite_tasks.*,
        measured.macro_f1 - against.macro_f1 as macro_f1,
        measured.accuracy - against.accuracy as accuracy,
        measured.rsd - against.rsd as rsd,
        measured.bias_score - against.bias_score as bias_score,
        measured.n_rows,
        measured.n_bias_score_rows,
        against.n_rows as against_n_rows,
        against.n_bias_score_rows as against_n_bias_score_rows
    from pairs
    cross join suite_tasks
    left join label_bias_by_task_over_sets as measured
        on
            pairs.model = measured.model
            and suite_tasks.task = measured.task
            and pairs.n_demos = measured.n_demos
            and pairs.method = measured.method
    left join label_bias_by_task_over_sets as against
        on
            pairs.model = against.model
            and suite_tasks.task = against.task
            and pairs.against_n_demos = against.n_demos
            and pairs.against_method = against.method

),

-- Lists over all tasks of the suite, in the order of the draws: a mean is then a dot product.
task_lists as (

    select
        model,
        suite,
        n_demos,
        method,
        against_n_demos,
        against_method,
        list(coalesce(macro_f1, 'nan') order by task) as macro_f1,
        list(coalesce(accuracy, 'nan') order by task) as accuracy,
        list(coalesce(rsd, 'nan') order by task) as rsd,
        list(coalesce(bias_score, 'nan') order by task) as bias_score,
        count(*) as n_tasks,
        -- Means of equal numbers may differ by their rounding when they are over other numbers of sets.
        count(*) filter (rsd < -1e-9) as n_tasks_lower_rsd,
        sum(n_rows)::bigint as n_rows,
        sum(n_bias_score_rows)::bigint as n_bias_score_rows,
        sum(against_n_rows)::bigint as against_n_rows,
        sum(against_n_bias_score_rows)::bigint as against_n_bias_score_rows
    from differences
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
        against_n_demos,
        against_method,
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
    estimates.against_n_demos,
    estimates.against_method,
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
    estimates.n_tasks_lower_rsd,
    estimates.n_rows,
    estimates.n_bias_score_rows,
    estimates.against_n_rows,
    estimates.against_n_bias_score_rows
from estimates
left join intervals using (model, suite, n_demos, method, against_n_demos, against_method)
order by all
