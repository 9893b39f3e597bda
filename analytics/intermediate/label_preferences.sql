-- One row per (task, n_demos, demo_set, method, label): its mean probability on the bias_score rows.
-- Averaged within each gold label that occurs, then over those, so that an unbalanced sample does not count as bias.
with

label_probabilities as (

    select
        task,
        n_demos,
        demo_set,
        method,
        gold,
        row,
        unnest(labels) as label,
        unnest(probabilities) as probability
    from calibrated_predictions
    where purpose = 'bias_score'

),

gold_means as (

    select
        * exclude (row, probability),
        avg(probability order by row) as mean_probability,
        count(*) as n_rows
    from label_probabilities
    group by all

)

select
    task,
    n_demos,
    demo_set,
    method,
    label,
    avg(mean_probability order by gold) as mean_probability,
    sum(n_rows)::bigint as n_rows
from gold_means
group by all
