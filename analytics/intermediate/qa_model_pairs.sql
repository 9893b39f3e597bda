-- One row per (pair of models, dataset that both answered questions of), the model before other_model in the spec's
-- order: n_answers of both together. Models are those of the spec and the standard readers that the run trained.
with
compared as (
    select qa_models.number, qa_models.model
    from qa_models
    left join trained_models using (model)
    where not qa_models.is_trained or trained_models.method = 'standard'
),

answered as (
    select model, compared.number, dataset, count(*) as n_answers
    from compared
    inner join qa_predictions using (model)
    group by all
)

select answered.model, others.model as other_model, dataset, answered.n_answers + others.n_answers as n_answers
from answered
inner join answered as others using (dataset)
where answered.number < others.number
