-- One row per ordered pair of models (run, model, other_run, other_model) and question that both answered
-- (qa_bias_paired) where exactly one has an exact match: is_win: other_model has. input: the question; gold: the
-- answers. shuffled: puts the rows in an order that has nothing to do with them.
with
pairs as (from ordered_pairs('qa_bias_paired'))

select
    run, model, other_run, other_model, dataset, example_id,
    left(trim(regexp_replace(question, '\s+', ' ', 'g')), 200) as input,
    left(array_to_string(list_distinct(qa_examples.answers), ' / '), 200) as gold,
    left(prediction, 200) as prediction, left(other_prediction, 200) as other_prediction,
    other_exact_match = 1 as is_win,
    md5(concat_ws('/', dataset, example_id, model, other_model)) as shuffled
from paired_answers('qa_predictions', 'pairs', ['dataset', 'example_id'])
inner join qa_examples using (run, dataset, example_id)
where exact_match <> other_exact_match
