-- One row per (task, format, n_demos, demo_set, method, label): its mean probability on the bias_score rows. Averaged
-- within each gold label that occurs, then over those, so that an unbalanced sample does not count as bias.
-- n_gold_labels: gold labels that occur there. n_rows_of_label: rows whose gold label it is. standard_error: of the
-- mean, of rows resampled within gold labels, with n_free degrees of freedom, those of the gold label with the fewest
-- rows, the fewest that Welch's (1947) can be: with those themselves, small p-values of skewed probabilities came up
-- too often (simulated, 18 % for 5 % with 5 labels). A gold label of a single row takes the variance of the others.
-- Null where all are single.
with
pooled as (
    select
        *, sum(n_rows - 1) over labels as n_pooled,
        sum((n_rows - 1) * variance order by gold) over labels / nullif(n_pooled, 0) as pooled_variance,
        coalesce(variance, pooled_variance) / n_rows as error_squared,
        case when n_rows > 1 then n_rows - 1 else n_pooled end as n_free
    from label_gold_means
    window labels as (partition by task, format, n_demos, demo_set, method, label)
)

select
    task, format, n_demos, demo_set, method, label, avg(mean_probability order by gold) as mean_probability,
    sqrt(sum(error_squared order by gold)) / count(*) as standard_error,
    min(n_free) as n_free, count(*) as n_gold_labels, sum(n_rows)::bigint as n_rows,
    coalesce(any_value(n_rows) filter (gold = label), 0) as n_rows_of_label
from pooled
group by all
