-- log_likelihood(token_logprobs, n_label_tokens, normalization, eos): of a label (nats): 'mean' or 'sum' over its
-- tokens, with EOS or without (P1: the mean, with EOS). Null for another normalization. n_label_tokens null: of scores
-- that were imported there is one number, the sum without EOS, and so null for all else.
create macro log_likelihood(token_logprobs, n_label_tokens, normalization, eos) as
    list_transform(
        [case when eos or n_label_tokens is null then token_logprobs else token_logprobs[:n_label_tokens] end],
        lambda logs: case
            when n_label_tokens is null and (eos or normalization <> 'sum') then null
            when normalization = 'mean' then list_avg(logs)
            when normalization = 'sum' then list_sum(logs)
        end
    )[1]
