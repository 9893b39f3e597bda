-- One row per pair of models, one of each of two QA-bias runs (run before other_run by name), and question that both
-- answered: exact match and F1 (0 to 1) of each. The question is the same in both runs: dataset, id, question, context
-- and answers. A model is compared with the one of the same name in the other run; where there is none, with every
-- model there. article: of the question in run (as in qa_articles), numbered over all runs.
with
questions as (
    select
        run, dataset, example_id, hash(question, context, answers) as content,
        dense_rank() over (partition by dataset order by coalesce(nullif(title, ''), context)) - 1 as article
    from qa_examples
),

shared as (
    select questions.run, other.run as other_run, dataset, example_id, questions.article
    from questions
    inner join questions as other using (dataset, example_id, content)
    where questions.run < other.run
),

namesakes as (
    select own.run, other.run as other_run, model
    from qa_models as own
    inner join qa_models as other using (model)
    where own.run < other.run
),

pairs as (
    select own.run, own.model, other.run as other_run, other.model as other_model
    from qa_models as own
    inner join qa_models as other on own.run < other.run
    left join namesakes on own.run = namesakes.run and other.run = namesakes.other_run and own.model = namesakes.model
    left join namesakes as of_other
        on own.run = of_other.run and other.run = of_other.other_run and other.model = of_other.model
    where own.model = other.model or namesakes.model is null or of_other.model is null
)

select
    pairs.run, pairs.other_run, pairs.model, pairs.other_model, dataset, example_id, shared.article, own.exact_match,
    other.exact_match as other_exact_match, own.f1, other.f1 as other_f1
from pairs
inner join shared using (run, other_run)
inner join qa_predictions as own using (run, model, dataset, example_id)
inner join qa_predictions as other using (dataset, example_id)
where other.run = pairs.other_run and other.model = pairs.other_model
