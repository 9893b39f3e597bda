-- Rows here: a question, an attribute or a prediction that occurs twice, or two questions in one row of a dataset.
with

repeated as (

    select
        format('question {} of {} occurs {} times', example_id, dataset, count(*)) as problem
    from qa_examples
    group by dataset, example_id
    having count(*) > 1

    union all

    select
        format('row {} of {} is {} questions', coalesce(row::varchar, 'null'), dataset, count(*)) as problem
    from qa_examples
    group by dataset, row
    having count(*) > 1 or row is null

    union all

    select
        format('question {} of {} has {} times {}', example_id, dataset, count(*), heuristic) as problem
    from qa_attributes
    group by dataset, example_id, heuristic
    having count(*) > 1

    union all

    select
        format('question {} of {} has {} predictions of {}', example_id, dataset, count(*), model) as problem
    from qa_predictions
    group by model, dataset, example_id
    having count(*) > 1

)

select problem
from repeated
order by all
