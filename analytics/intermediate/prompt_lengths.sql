-- One row per number of demonstrations: n_tokens, the mean tokens of the measured prompts in the default wording;
-- n_tokens_before: those before the row; times_as_long: over n_tokens with the fewest demonstrations of the run.
select
    prompts.n_demos, round(avg(prompts.n_tokens))::bigint as n_tokens, round(avg(contexts.n_tokens))::bigint as n_tokens_before,
    avg(prompts.n_tokens) / first_value(avg(prompts.n_tokens)) over (order by prompts.n_demos) as times_as_long
from prompts
inner join contexts using (context_id)
where purpose in ('main', 'majority') and prompts.format = 'base' and prompts.n_tokens is not null
group by prompts.n_demos
