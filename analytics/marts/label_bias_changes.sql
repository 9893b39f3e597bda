-- One row per (model, suite, n_demos, method, against_n_demos, against_method): mean differences, paired by task.
-- Every other method stands against none at the same n_demos, calibration of the adapted model (lora+cc) also against
-- lora alone; none itself stands against none at the smallest n_demos.
-- Positive: higher than what it stands against. Intervals and nulls are as in label_bias_by_model.
with

settings as (

    select distinct
        model,
        n_demos,
        method
    from label_bias_by_model

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
        if(
            settings.method = 'none',
            against.method = 'none'
            and settings.n_demos > against.n_demos
            and against.n_demos = (select min(n_demos) from settings),
            (against.method = 'none' or starts_with(settings.method, against.method || '+'))
            and settings.n_demos = against.n_demos
        )

),

-- A difference of means over the same tasks is the mean of the tasks' differences.
differences as (

    select
        pairs.*,
        suite,
        draw,
        measured.macro_f1 - against.macro_f1 as macro_f1,
        measured.accuracy - against.accuracy as accuracy,
        measured.rsd - against.rsd as rsd,
        measured.bias_score - against.bias_score as bias_score
    from pairs
    inner join label_bias_draws as measured using (model, n_demos, method)
    inner join label_bias_draws as against using (model, suite, draw)
    where against.n_demos = pairs.against_n_demos and against.method = pairs.against_method

),

estimates as (

    select
        model,
        suite,
        n_demos,
        method,
        against_n_demos,
        against_method,
        estimate(macro_f1, draw) as macro_f1,
        interval_low(macro_f1, draw) as macro_f1_low,
        interval_high(macro_f1, draw) as macro_f1_high,
        estimate(accuracy, draw) as accuracy,
        interval_low(accuracy, draw) as accuracy_low,
        interval_high(accuracy, draw) as accuracy_high,
        estimate(rsd, draw) as rsd,
        interval_low(rsd, draw) as rsd_low,
        interval_high(rsd, draw) as rsd_high,
        estimate(bias_score, draw) as bias_score,
        interval_low(bias_score, draw) as bias_score_low,
        interval_high(bias_score, draw) as bias_score_high
    from differences
    group by all

),

counts as (

    select
        pairs.*,
        suite,
        count(*) as n_tasks,
        -- Means of equal numbers may differ by their rounding when they are over other numbers of sets.
        count(*) filter (measured.rsd - against.rsd < -1e-9) as n_tasks_lower_rsd,
        sum(measured.n_rows)::bigint as n_rows,
        sum(measured.n_bias_score_rows)::bigint as n_bias_score_rows,
        sum(against.n_rows)::bigint as against_n_rows,
        sum(against.n_bias_score_rows)::bigint as against_n_bias_score_rows
    from pairs
    inner join label_bias_by_task_over_sets as measured using (model, n_demos, method)
    inner join label_bias_by_task_over_sets as against using (model, task)
    inner join bootstrap_draws using (task)
    where draw = 0 and against.n_demos = pairs.against_n_demos and against.method = pairs.against_method
    group by all

)

select *
from estimates
inner join counts using (model, suite, n_demos, method, against_n_demos, against_method)
order by all
