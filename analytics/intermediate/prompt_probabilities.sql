-- One row per (prompt, adaptation): the labels in code-point order and the logarithms of their probabilities, not
-- calibrated. adaptation: none for the model itself, lora for the model with the adapter of the prompt's context. The
-- likelihood is what run_settings says (as published: mean over the label's tokens and EOS). Logarithms, because summed
-- likelihoods of long labels leave the range of a double. Scores meet their prompts before labels are gathered, so that
-- a question about a task or setting reads its parts alone.
with
scores as (
    select 'none' as adaptation, *
    from label_scores
    union all by name
    select 'lora' as adaptation, *
    from adapted_scores
),

label_lists as (
    select
        scores.adaptation, prompts.prompt_id, prompts.context_id, prompts.task, prompts.purpose, prompts.n_demos,
        prompts.demo_set, prompts.format, prompts.row, prompts.instance_id, prompts.gold,
        list(scores.label order by scores.label) as labels,
        log_likelihoods(scores.label, token_logprobs, n_label_tokens, normalization, eos) as log_likelihoods
    from prompts
    inner join scores
        on
            prompts.prompt_id = scores.prompt_id
            -- Says nothing more, and by it DuckDB leaves out the parts that hold none of the prompts asked for.
            and scores.prompt_id between prompts.prompt_id and prompts.prompt_id
    cross join run_settings
    group by all
),

peaks as (
    select *, list_max(log_likelihoods) as peak
    from label_lists
),

normalizers as (
    select *, peak + ln(list_sum(list_transform(log_likelihoods, lambda x: exp(x - peak)))) as log_total
    from peaks
)

select
    normalizers.prompt_id, normalizers.adaptation, normalizers.task, normalizers.purpose, normalizers.n_demos,
    normalizers.demo_set, normalizers.format, contexts.setting, contexts.instruction, normalizers.row,
    normalizers.instance_id, normalizers.gold, normalizers.labels,
    list_transform(normalizers.log_likelihoods, lambda x: x - log_total) as log_probabilities
from normalizers
left join contexts using (context_id)
