-- One row per (prompt of main, bias_score, held_out or majority, method): probabilities after calibration, and the prediction.
-- q = p * w / sum(p * w) with w = 1 / p_hat ^ strength; methods none and lora are p itself. On ties the first label in
-- code-point order.
with

log_weights as (

    select
        task,
        n_demos,
        demo_set,
        setting,
        instruction,
        adaptation,
        method,
        list(-strength * log_p_hat order by label) as log_weights
    from calibration_means
    group by all

),

unnormalized as (

    select
        *,
        adaptation as method,
        log_probabilities as logs
    from prompt_probabilities
    where purpose in ('main', 'bias_score', 'held_out', 'majority')

    union all by name

    select
        prompt_probabilities.*,
        log_weights.method,
        list_transform(log_probabilities, lambda x, i: x + log_weights[i]) as logs
    from prompt_probabilities
    inner join log_weights
        on
            prompt_probabilities.adaptation = log_weights.adaptation
            and prompt_probabilities.task = log_weights.task
            and prompt_probabilities.n_demos = log_weights.n_demos
            and prompt_probabilities.demo_set = log_weights.demo_set
            and prompt_probabilities.setting is not distinct from log_weights.setting
            and prompt_probabilities.instruction is not distinct from log_weights.instruction
    where purpose in ('main', 'bias_score', 'held_out', 'majority')

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
    setting,
    instruction,
    row,
    instance_id,
    gold,
    method,
    labels,
    list_transform(logs, lambda x: exp(x - peak) / total) as probabilities,
    labels[list_position(logs, peak)] as prediction
from normalizers
