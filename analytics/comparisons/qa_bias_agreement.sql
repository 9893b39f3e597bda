-- One row per ordered pair of models (run, model, other_run, other_model) and dataset: of the n_predictions, questions that
-- both answered (qa_bias_paired), n_differing have another answer, as text.
with

counts as (

    select
        pairs.run,
        pairs.model,
        pairs.other_run,
        pairs.other_model,
        dataset,
        count(*) as n_predictions,
        count(*) filter (own.prediction is distinct from other.prediction) as n_differing
    from qa_bias_paired as pairs
    inner join qa_predictions as own using (run, model, dataset, example_id)
    inner join qa_predictions as other using (dataset, example_id)
    where other.run = pairs.other_run and other.model = pairs.other_model
    group by all

)

from counts

union all by name

select
    * replace (
        other_run as run,
        run as other_run,
        other_model as model,
        model as other_model
    )
from counts
order by all
