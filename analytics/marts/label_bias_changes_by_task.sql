-- One row per (model, task, n_demos, method, against_n_demos, against_method, metric): the differences that
-- label_bias_changes averages, of each task; metric: macro_f1, accuracy, rsd, bias_score, relative_variance or
-- squared_preference (label_bias_by_task).
-- standard_error: over the rows of the task, the same on both sides, resampled (paired_errors); low,
-- high: 95 % by Student's t with as many degrees of freedom as rows beyond the gold labels; p: that there is no
-- difference, the same way, null where no row makes a difference. All null where a side lacks the metric, and but the
-- estimate where rows of a gold label are too few (row_influences). A row says what one task shows: of many, some p are
-- small by chance (label_bias_verdicts counts them). n_rows, against_n_rows: predictions on either side, over its sets;
-- n_units: the rows that both sides have, each counted once; n_free: the degrees of freedom. noise_p: of BiasScore and its
-- partner, that no label is preferred on either side (the smaller bias_score_p, times two); null where neither has one.
with

errors as (

    select
        task,
        n_demos,
        method,
        against_n_demos,
        against_method,
        unnest(['macro_f1', 'accuracy', 'rsd', 'bias_score', 'relative_variance', 'squared_preference']) as metric,
        unnest([macro_f1, accuracy, rsd, bias_score, relative_variance, squared_preference]) as standard_error,
        unnest([n_free, n_free, n_free, n_free_bias_score, n_free, n_free_bias_score]) as n_free,
        unnest([n_main_rows, n_main_rows, n_main_rows, n_bias_score_rows, n_main_rows, n_bias_score_rows]) as n_units
    from paired_errors
    where format = 'base' and against_format = 'base'

),

differences as (

    select
        pairs.*,
        own.task,
        unnest(['macro_f1', 'accuracy', 'rsd', 'bias_score', 'relative_variance', 'squared_preference']) as metric,
        unnest([
            own.macro_f1 - other.macro_f1,
            own.accuracy - other.accuracy,
            own.rsd - other.rsd,
            own.bias_score - other.bias_score,
            own.relative_variance - other.relative_variance,
            own.squared_preference - other.squared_preference
        ]) as estimate,
        unnest([own.n_rows, own.n_rows, own.n_rows, own.n_bias_score_rows, own.n_rows, own.n_bias_score_rows]) as n_rows,
        unnest([
            other.n_rows, other.n_rows, other.n_rows, other.n_bias_score_rows, other.n_rows, other.n_bias_score_rows
        ]) as against_n_rows,
        noise_p(own.bias_score_p, other.bias_score_p) as noise_p
    from label_bias_pairs as pairs
    inner join label_bias_by_task_over_sets as own
        on
            pairs.model = own.model
            and pairs.n_demos = own.n_demos
            and pairs.method = own.method
    inner join label_bias_by_task_over_sets as other
        on
            pairs.model = other.model
            and pairs.against_n_demos = other.n_demos
            and pairs.against_method = other.method
            and own.task = other.task

)

select
    model,
    task,
    n_demos,
    method,
    against_n_demos,
    against_method,
    metric,
    estimate,
    standard_error,
    estimate - t_quantile(n_free) * standard_error as low,
    estimate + t_quantile(n_free) * standard_error as high,
    student_p(estimate / nullif(standard_error, 0), n_free) as p,
    n_rows,
    against_n_rows,
    n_units,
    n_free,
    if(is_guarded(metric), noise_p, null) as noise_p
from differences
left join errors using (task, n_demos, method, against_n_demos, against_method, metric)
order by all
