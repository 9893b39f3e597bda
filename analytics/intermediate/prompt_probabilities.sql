-- One row per prompt: the labels in code-point order and the logarithms of their probabilities, not calibrated.
-- The likelihood is what run_settings says (as published: mean over the label's tokens and EOS). Logarithms, because
-- summed likelihoods of long labels leave the range of a double.
with

log_likelihoods as (

    select
        label_logprobs.prompt_id,
        label_logprobs.label,
        case
            when normalization = 'mean' and eos then logprob_mean
            when normalization = 'mean' then logprob_mean_without_eos
            when normalization = 'sum' and eos then logprob_sum
            when normalization = 'sum' then logprob_sum_without_eos
        end as log_likelihood
    from label_logprobs
    cross join run_settings

),

label_lists as (

    select
        prompt_id,
        list(label order by label) as labels,
        list(log_likelihood order by label) as log_likelihoods
    from log_likelihoods
    group by prompt_id

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
