-- Rows here: a prompt whose scores are not one for each of its labels, or scores of a prompt that was not planned.
-- Nothing is scored where the run predicts by generation alone.
with

scored as (

    select
        prompt_id,
        list(label order by label) as labels
    from label_scores
    group by prompt_id

)

select
    case
        when prompts.prompt_id is null then format('prompt {} is scored and was not planned', prompt_id)
        when scored.prompt_id is null then format('prompt {} has no score', prompt_id)
        else format('prompt {} has labels {} and scores for {}', prompt_id, prompts.labels, scored.labels)
    end as problem,
    prompt_id
from prompts
full join scored using (prompt_id)
where
    list_sort(prompts.labels) is distinct from scored.labels
    and (select list_contains(predict, 'likelihood') from run_settings)
order by all
