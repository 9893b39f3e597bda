-- One row per (prompt, label): its log-likelihood (nats), summed and averaged over the tokens, with and without EOS.
-- Of scores that were imported the sum without EOS alone is known. Of the model itself; scores with adapters are in
-- adapted_scores.
select
    prompt_id, label, token_logprobs, n_label_tokens,
    log_likelihood(token_logprobs, n_label_tokens, 'sum', true) as logprob_sum,
    log_likelihood(token_logprobs, n_label_tokens, 'mean', true) as logprob_mean,
    log_likelihood(token_logprobs, n_label_tokens, 'sum', false) as logprob_sum_without_eos,
    log_likelihood(token_logprobs, n_label_tokens, 'mean', false) as logprob_mean_without_eos
from label_scores
