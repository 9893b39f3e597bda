-- One row per (prompt, adaptation): the labels in code-point order and the logarithms of their probabilities, not
-- calibrated. adaptation: none for the model itself, lora for the model with the adapter of the prompt's context.
-- The likelihood is what run_settings says (as published: mean over the label's tokens and EOS). Logarithms, because
-- summed likelihoods of long labels leave the range of a double.
with

scores as (

    select
        'none' as adaptation,
        *
    from label_scores

    union all by name

    select
        'lora' as adaptation,
        *
    from adapted_scores

),

log_likelihoods as (

    select
        adaptation,
        prompt_id,
        label,
        log_likelihood(token_logprobs, n_label_tokens, normalization, eos) as log_likelihood
    from scores
    cross join run_settings

),

label_lists as (

    select
        adaptation,
        prompt_id,
        list(label order by label) as labels,
        list(log_likelihood order by label) as log_likelihoods
    from log_likelihoods
    group by all

),

peaks as (

    select
        *,
        list_max(log_likelihoods) as peak
    from label_lists

),

normalizers as (

    select
        *,
        peak + ln(list_sum(list_transform(log_likelihoods, lambda x: exp(x - peak)))) as log_total
    from peaks

)

select
    prompts.prompt_id,
    normalizers.adaptation,
    prompts.task,
    prompts.purpose,
    prompts.n_demos,
    prompts.demo_set,
    contexts.setting,
    contexts.instruction,
    prompts.row,
    prompts.instance_id,
    prompts.gold,
    normalizers.labels,
    list_transform(normalizers.log_likelihoods, lambda x: x - log_total) as log_probabilities
from prompts
inner join normalizers using (prompt_id)
left join contexts using (context_id)
