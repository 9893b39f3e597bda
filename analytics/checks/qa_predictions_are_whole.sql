-- Rows here: a question without a prediction of a model that answers its dataset (unless the spec leaves such questions
-- out), a prediction of an unknown model or question, or one without F1, or whose exact match is neither 0 nor 1.
with
asked as (
    select qa_models.model, qa_examples.dataset, qa_examples.example_id, qa_models.on_missing
    from qa_models
    inner join qa_examples on qa_models.datasets is null or list_contains(qa_models.datasets, qa_examples.dataset)
)

select format('question {} of {} has no prediction of {}', example_id, dataset, model) as problem
from asked
anti join qa_predictions using (model, dataset, example_id)
where asked.on_missing <> 'drop'
union all
select
    format('question {} of {} has a prediction of {}, which was not asked for', example_id, dataset, model) as problem
from qa_predictions
anti join asked using (model, dataset, example_id)
union all
select
    format('question {} of {}, {}: exact match {}, F1 {}',
           example_id, dataset, model, coalesce(exact_match::varchar, 'null'), coalesce(f1::varchar, 'null')) as problem
from qa_predictions
where not coalesce(exact_match in (0, 1), false) or f1 is null
order by all
