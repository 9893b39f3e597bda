-- One row per (model, dataset): the model on whose predictions its thresholds are searched. variant paper keeps those
-- of the first model of the spec that answers the dataset; reference searches them for each model (P3's code).
with

predicted as (

    select distinct
        model,
        dataset
    from qa_predictions

)

select
    predicted.model,
    predicted.dataset,
    case qa_settings.variant
        when 'reference' then predicted.model
        else first_value(predicted.model) over (partition by predicted.dataset order by qa_models.number)
    end as searched_on
from predicted
inner join qa_models using (model)
cross join qa_settings
