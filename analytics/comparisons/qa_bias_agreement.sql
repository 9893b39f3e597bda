-- One row per ordered pair of models (run, model, other_run, other_model) and dataset: of the n_predictions, questions
-- that both answered (qa_bias_paired), n_differing have another answer, as text.
with
pairs as (from ordered_pairs('qa_bias_paired'))

select
    run, model, other_run, other_model, dataset, count(*) as n_predictions,
    count(*) filter (prediction is distinct from other_prediction) as n_differing
from paired_answers('qa_predictions', 'pairs', ['dataset', 'example_id'])
group by all
order by all
