-- log_likelihoods(label, token_logprobs, n_label_tokens, normalization, eos): an aggregate over the labels of a prompt,
-- the likelihood (nats) of each, in code-point order. 'where_unequal' (P1's text) is the mean over tokens if the labels
-- differ in number of tokens, else the sum, which is the mean times that number. EOS is as many tokens for each label.
create macro log_likelihoods(label, token_logprobs, n_label_tokens, normalization, eos) as
    list_transform(
        list(
            log_likelihood(
                token_logprobs, n_label_tokens, case normalization when 'where_unequal' then 'mean' else normalization end, eos
            )
            order by label
        ),
        lambda x: x * case
            when any_value(normalization) = 'where_unequal' and min(n_label_tokens) = max(n_label_tokens)
                then max(n_label_tokens + eos::int)
            else 1
        end
    )
