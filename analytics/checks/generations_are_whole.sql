-- Rows here: a majority prompt without one output for each asked mode, an output that nobody asked for, or a prediction
-- that is no label of the prompt. Constrained output always is a label.
with
asked as (
    select prompts.prompt_id, prompts.labels, modes.mode, adapted.adaptation, true as is_asked
    from prompts
    cross join (select unnest(predict) as mode from run_settings) as modes
    cross join (select unnest(adaptations) as adaptation from run_settings) as adapted
    where prompts.purpose = 'majority' and modes.mode <> 'likelihood'
),

written as (
    select prompt_id, mode, 'none' as adaptation, count(*) as n_outputs, any_value(prediction) as prediction
    from generations
    group by all
    union all
    select prompt_id, mode, 'lora' as adaptation, count(*) as n_outputs, any_value(prediction) as prediction
    from adapted_generations
    group by all
)

select
    case
        when is_asked is null then format('prompt {} has an output ({}) that was not planned', prompt_id, mode)
        when coalesce(n_outputs, 0) <> 1
            then format('prompt {} has {} outputs ({})', prompt_id, coalesce(n_outputs, 0), mode)
        else
            format('prompt {} ({}) has labels {} and the prediction {}',
                   prompt_id, mode, labels, coalesce(prediction, 'null'))
    end as problem,
    prompt_id, mode, adaptation
from asked
full join written using (prompt_id, mode, adaptation)
where
    is_asked is null
    or coalesce(n_outputs, 0) <> 1
    or not list_contains(labels, coalesce(prediction, labels[1]))
    or (mode = 'constrained' and prediction is null)
order by all
