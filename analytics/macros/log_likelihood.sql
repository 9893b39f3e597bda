-- log_likelihood(token_logprobs, n_label_tokens, normalization, eos): of a label (nats): 'mean' or 'sum' over its tokens,
-- with EOS or without (P1: the mean, with EOS). Null for another normalization.
create macro log_likelihood(token_logprobs, n_label_tokens, normalization, eos) as
    list_transform(
        [case when eos then token_logprobs else token_logprobs[:n_label_tokens] end],
        lambda logs: case normalization when 'mean' then list_avg(logs) when 'sum' then list_sum(logs) end
    )[1]
