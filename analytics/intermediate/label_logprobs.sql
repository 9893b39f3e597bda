-- One row per (prompt, label): its log-likelihood (nats), summed and averaged over the tokens, with and without EOS.
-- Of the model itself; what it gives with adapters is in adapted_scores.
select
    prompt_id,
    label,
    token_logprobs,
    n_label_tokens,
    list_sum(token_logprobs) as logprob_sum,
    list_avg(token_logprobs) as logprob_mean,
    list_sum(token_logprobs[:n_label_tokens]) as logprob_sum_without_eos,
    list_avg(token_logprobs[:n_label_tokens]) as logprob_mean_without_eos
from label_scores
