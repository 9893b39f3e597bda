-- One row per ordered pair of models (run, model, other_run, other_model) and question that both answered (qa_bias_paired)
-- where exactly one has an exact match: is_win: other_model has. input: the question; gold: the answers. shuffled: puts the
-- rows in an order that has nothing to do with them.
with

both_ways as (

    select
        run,
        other_run,
        model,
        other_model,
        dataset,
        example_id,
        other_exact_match = 1 as is_win
    from qa_bias_paired
    where exact_match <> other_exact_match

    union all by name

    select
        other_run as run,
        run as other_run,
        other_model as model,
        model as other_model,
        dataset,
        example_id,
        exact_match = 1 as is_win
    from qa_bias_paired
    where exact_match <> other_exact_match

)

select
    both_ways.run,
    both_ways.model,
    both_ways.other_run,
    both_ways.other_model,
    dataset,
    example_id,
    left(trim(regexp_replace(qa_examples.question, '\s+', ' ', 'g')), 200) as input,
    left(array_to_string(list_distinct(qa_examples.answers), ' / '), 200) as gold,
    left(own.prediction, 200) as prediction,
    left(other.prediction, 200) as other_prediction,
    both_ways.is_win,
    md5(concat_ws('/', dataset, example_id, both_ways.model, both_ways.other_model)) as shuffled
from both_ways
inner join qa_examples using (run, dataset, example_id)
inner join qa_predictions as own using (run, model, dataset, example_id)
inner join qa_predictions as other using (dataset, example_id)
where other.run = both_ways.other_run and other.model = both_ways.other_model
