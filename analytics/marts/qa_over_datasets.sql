-- One row per (model, role): qa_by_dataset, averaged over the data sets of a role that the model has answered, each
-- counted once. The sets are taken as they are: the error of their mean comes from their articles, which are different
-- ones. 95 % intervals by Student's t, with Satterthwaite's degrees of freedom; null where a set has a single article.
with
means as (
    select
        model, role, avg(columns('^(exact_match|f1)$') order by dataset) as "\1",
        sqrt(sum(variance order by dataset)) / count(*) as error,
        sqrt(sum(variance_f1 order by dataset)) / count(*) as error_f1,
        -- Without any error there are no degrees of freedom, and the interval is the mean itself.
        coalesce(t_quantile(
            power(sum(variance order by dataset), 2)
            / nullif(sum(power(variance, 2) / nullif(n_articles - 1, 0) order by dataset), 0)
        ), 0) as quantile,
        coalesce(t_quantile(
            power(sum(variance_f1 order by dataset), 2)
            / nullif(sum(power(variance_f1, 2) / nullif(n_articles - 1, 0) order by dataset), 0)
        ), 0) as quantile_f1,
        count(variance) = count(*) as has_error, count(*) as n_datasets, sum(n_rows)::bigint as n_rows,
        sum(n_missing)::bigint as n_missing
    from (select *, power(exact_match_error, 2) as variance, power(f1_error, 2) as variance_f1 from qa_by_dataset)
    group by all
)

select
    model, role, exact_match,
    if(has_error, greatest(0, exact_match - quantile * error), null) as exact_match_low,
    if(has_error, least(1, exact_match + quantile * error), null) as exact_match_high,
    f1,
    if(has_error, greatest(0, f1 - quantile_f1 * error_f1), null) as f1_low,
    if(has_error, least(1, f1 + quantile_f1 * error_f1), null) as f1_high,
    n_datasets, n_rows, n_missing
from means
order by all
