-- Rows here: a score without one log-probability for each label token and EOS, or with one that is no number <= 0.
-- Rounding may lift the logarithm of a certain token a little above 0. Of a score that was imported, where the number
-- of tokens is null, there is one number, and the run must say that it is the sum without EOS.
select
    format(
        'prompt {}, label {}: log-probabilities {} for {} label tokens and EOS',
        prompt_id, label,
        coalesce(token_logprobs::varchar, 'null'),
        coalesce(n_label_tokens::varchar, 'null')
    ) as problem,
    prompt_id, label
from (from label_scores union all by name from adapted_scores)
cross join run_settings
where
    len(token_logprobs) is distinct from if(normalization = 'sum' and not eos, coalesce(n_label_tokens, 0), n_label_tokens) + 1
    or n_label_tokens < 1
    or len(token_logprobs) > list_count(token_logprobs)
    or not isfinite(list_sum(token_logprobs))
    or list_max(token_logprobs) > 1e-3
order by all
