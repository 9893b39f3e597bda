-- One row per (base, training set): its questions and the windows that they are cut into. n_without: windows that do
-- not hold all of the first answer, whose label is the first token. n_unanswerable: questions none of whose windows
-- holds it.
with
questions as (
    select
        base, dataset, example_id, count(*) as n_windows, count(*) filter (not has_answer) as n_without,
        sum(len(token_ids)) as n_tokens
    from qa_features
    group by all
)

select
    base, dataset, count(*) as n_questions, sum(n_windows)::bigint as n_windows, sum(n_without)::bigint as n_without,
    count(*) filter (n_without = n_windows) as n_unanswerable, sum(n_tokens)::bigint as n_tokens
from questions
group by all
