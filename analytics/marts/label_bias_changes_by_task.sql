-- One row per (model, task, n_demos, method, against_n_demos, against_method, metric): the differences that
-- label_bias_changes averages, of each task; metric: macro_f1, accuracy, rsd, bias_score, relative_variance or
-- squared_preference (label_bias_by_task). standard_error: over the rows of the task, the same on both sides, resampled
-- (paired_errors); low, high: 95 % by Student's t with as many degrees of freedom as rows beyond the gold labels; p:
-- that there is no difference, the same way, null where no row makes a difference. All null where a side lacks the
-- metric, and but the estimate where rows of a gold label are too few (row_influences). A row says what one task shows:
-- of many, some p are small by chance (label_bias_verdicts counts them). n_rows, against_n_rows: predictions on either
-- side, over its sets; n_units: the rows that both sides have, each counted once; n_free: the degrees of freedom.
-- noise_p: of BiasScore and its partner, that no label is preferred on either side (the smaller bias_score_p, times
-- two); null where neither has one.
with
values_of as (
    select metrics.*, case when has_noise_p(metric) then bias_score_p end as bias_score_p
    from metric_values_over_sets as metrics
    inner join format_metrics_over_sets using (task, n_demos, method, format)
)

select
    pairs.model, own.task, pairs.n_demos, pairs.method, pairs.against_n_demos, pairs.against_method, own.metric,
    own.value - other.value as estimate, standard_error, estimate - t_quantile(n_free) * standard_error as low,
    estimate + t_quantile(n_free) * standard_error as high,
    student_p(estimate / nullif(standard_error, 0), n_free) as p, own.n_rows, other.n_rows as against_n_rows, n_units,
    n_free, noise_p(own.bias_score_p, other.bias_score_p) as noise_p
from label_bias_pairs as pairs
inner join (from values_of where format = 'base') as own using (n_demos, method)
inner join (
    select * rename (n_demos as against_n_demos, method as against_method, format as against_format) from values_of
) as other using (against_n_demos, against_method, against_format, task, metric)
left join (from paired_errors where format = 'base') as errors
    using (metric, task, n_demos, method, against_n_demos, against_method, against_format)
order by all
