-- Rows here: a prompt whose scores are not one for each of its labels, or scores of a prompt that was not planned; of
-- the model itself, and of the model with the adapter of its context where that has one. Nothing is scored where the run predicts by
-- generation alone.
with
scored as (
    select 'none' as adaptation, prompt_id, list(label order by label) as labels
    from label_scores
    group by prompt_id
    union all
    select 'lora' as adaptation, prompt_id, list(label order by label) as labels
    from adapted_scores
    group by prompt_id
)

select
    case
        when planned.prompt_id is null then format('prompt {} is scored{} and was not planned', prompt_id, adapted)
        when scored.prompt_id is null then format('prompt {} has no score{}', prompt_id, adapted)
        else format('prompt {} has labels {} and scores{} for {}', prompt_id, planned.labels, adapted, scored.labels)
    end as problem,
    prompt_id, adaptation
from (select prompt_id, labels, adaptation from prompts inner join adapted_contexts using (context_id)) as planned
full join scored using (prompt_id, adaptation)
left join (values ('none', ''), ('lora', ' with its adapter')) as names (adaptation, adapted) using (adaptation)
where
    list_sort(planned.labels) is distinct from scored.labels
    and (select list_contains(predict, 'likelihood') from run_settings)
order by all
