-- One row per (metric, task, format, n_demos, method): the standard error of the mean over demonstration sets
-- (metric_values_over_sets), of resampled rows (metric_patterns): n_units of them, with n_free degrees of freedom, the
-- rows minus gold labels, as recalls and mean probabilities are means within gold labels. of_rows_alone: the part of
-- its square that comes from what rows do in one demonstration set and not in the others, which is in the variance
-- between sets too: (mean of the sets' squared errors - that of their mean) / (sets - 1); null with one.
with
summed as (
    select
        metric, task, format, n_demos, method, sum(n_rows)::bigint as n_units, n_units - count(distinct gold) as n_free,
        rows_error(sum(n_rows * spread * influence ** 2 order by pattern), n_units, max(n_taken)) as standard_error,
        rows_error(sum(n_rows * spread * mean_square order by pattern), n_units, max(n_taken)) as error_of_sets
    from metric_patterns
    group by all
)

select
    metric, task, format, n_demos, method, standard_error, n_units, n_free,
    clipped(error_of_sets ** 2 - standard_error ** 2, 0, null) / nullif(n_sets - 1, 0) as of_rows_alone
from summed
inner join metric_values_over_sets using (metric, task, format, n_demos, method)
order by all
