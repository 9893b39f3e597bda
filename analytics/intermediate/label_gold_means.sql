-- One row per (task, format, n_demos, demo_set, method, gold, label): the mean probability of the label over the n_rows
-- bias_score rows with the gold label, and the variance of these.
with
label_probabilities as (
    select
        task, format, n_demos, demo_set, method, gold, row, unnest(labels) as label,
        unnest(probabilities) as probability
    from calibrated_predictions
    where purpose = 'bias_score'
)

select
    * exclude (row, probability),
    avg(probability order by row) as mean_probability, var_samp(probability order by row) as variance,
    count(*) as n_rows
from label_probabilities
group by all
