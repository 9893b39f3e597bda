-- One row per (model, suite, n_demos, method, against_n_demos, against_method): mean differences, paired by task.
-- The pairs are those of label_bias_pairs. Positive: higher than the other side. Intervals, unit and nulls are
-- as in label_bias_by_model; their verdicts are in label_bias_verdicts.
with
-- A difference of means over the same tasks is the mean of the tasks' differences.
differences as (
    select
        pairs.*, suite, draw, measured.macro_f1 - against.macro_f1 as macro_f1,
        measured.accuracy - against.accuracy as accuracy, measured.rsd - against.rsd as rsd,
        measured.bias_score - against.bias_score as bias_score
    from label_bias_pairs as pairs
    inner join label_bias_draws as measured using (model, n_demos, method)
    inner join format_draws as against using (model, suite, draw)
    where against.n_demos = against_n_demos and against.method = against_method and against.format = against_format
),

estimates as (
    select
        model, suite, n_demos, method, against_n_demos, against_method,
        estimate(columns('^(macro_f1|accuracy|rsd|bias_score)$'), draw) as "\1",
        bootstrap_error(columns('^(macro_f1|accuracy|rsd|bias_score)$'), draw) as "\1_error"
    from differences
    group by all
),

counts as (
    select
        pairs.*, suite, count(*) as n_tasks,
        -- Means of equal numbers may differ by their rounding when they are over other numbers of sets.
        count(*) filter (measured.rsd - against.rsd < -1e-9) as n_tasks_lower_rsd,
        sum(measured.n_rows)::bigint as n_rows,
        sum(measured.n_bias_score_rows)::bigint as n_bias_score_rows,
        sum(against.n_rows)::bigint as against_n_rows,
        sum(against.n_bias_score_rows)::bigint as against_n_bias_score_rows
    from label_bias_pairs as pairs
    inner join label_bias_by_task_over_sets as measured using (model, n_demos, method)
    inner join format_metrics_over_sets as against using (model, task)
    inner join suite_tasks using (task)
    where against.n_demos = against_n_demos and against.method = against_method and against.format = against_format
    group by all
),

-- Of one task, over its rows.
single as (
    from (from label_bias_changes_by_task inner join suite_tasks using (task)) pivot (
        any_value(low) as low, any_value(high) as high for metric in ('macro_f1', 'accuracy', 'rsd', 'bias_score')
        group by suite, model, n_demos, method, against_n_demos, against_method
    )
)

select
    estimates.model, estimates.suite, estimates.n_demos, estimates.method, estimates.against_n_demos,
    estimates.against_method, estimates.macro_f1,
    tasks_low(estimates.macro_f1, macro_f1_error, counts.n_tasks, single.macro_f1_low) as macro_f1_low,
    tasks_high(estimates.macro_f1, macro_f1_error, counts.n_tasks, single.macro_f1_high) as macro_f1_high,
    estimates.accuracy,
    tasks_low(estimates.accuracy, accuracy_error, counts.n_tasks, single.accuracy_low) as accuracy_low,
    tasks_high(estimates.accuracy, accuracy_error, counts.n_tasks, single.accuracy_high) as accuracy_high,
    estimates.rsd,
    tasks_low(estimates.rsd, rsd_error, counts.n_tasks, single.rsd_low) as rsd_low,
    tasks_high(estimates.rsd, rsd_error, counts.n_tasks, single.rsd_high) as rsd_high,
    estimates.bias_score,
    tasks_low(estimates.bias_score, bias_score_error, counts.n_tasks, single.bias_score_low) as bias_score_low,
    tasks_high(estimates.bias_score, bias_score_error, counts.n_tasks, single.bias_score_high) as bias_score_high,
    counts.* exclude (model, suite, n_demos, method, against_n_demos, against_method, against_format),
    if(counts.n_tasks > 1, 'tasks', 'rows') as unit
from estimates
inner join counts using (model, suite, n_demos, method, against_n_demos, against_method)
left join single using (suite, model, n_demos, method, against_n_demos, against_method)
order by all
