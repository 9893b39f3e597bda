-- One row per (prompt of main or bias_score, method): the probabilities after calibration, and the prediction.
-- q = p * w / sum(p * w) with w = 1 / p_hat; method none is p itself. On ties the first label in code-point order.
with

log_weights as (

    select
        task,
        n_demos,
        demo_set,
        method,
        list(-log_p_hat order by label) as log_weights
    from calibration_means
    group by all

),

unnormalized as (

    select
        *,
        'none' as method,
        log_probabilities as logs
    from prompt_probabilities
    where purpose in ('main', 'bias_score')

    union all by name

    select
        prompt_probabilities.*,
        log_weights.method,
        list_transform(log_probabilities, lambda x, i: x + log_weights[i]) as logs
    from prompt_probabilities
    inner join log_weights using (task, n_demos, demo_set)
    where purpose in ('main', 'bias_score')

),

peaks as (

    select
        *,
        list_max(logs) as peak
    from unnormalized

),

normalizers as (

    select
        *,
        list_sum(list_transform(logs, lambda x: exp(x - peak))) as total
    from peaks

)

select
    prompt_id,
    task,
    purpose,
    n_demos,
    demo_set,
    row,
    instance_id,
    gold,
    method,
    labels,
    list_transform(logs, lambda x: exp(x - peak) / total) as probabilities,
    labels[list_position(logs, peak)] as prediction
from normalizers
