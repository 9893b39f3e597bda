-- Rows here: a prompt whose context is unknown, or of another task or setting.
select
    case
        when contexts.context_id is null
            then format('prompt {} has the unknown context {}', prompt_id, coalesce(context_id, 'null'))
        else format('prompt {} does not fit the task and setting of its context {}', prompt_id, context_id)
    end as problem,
    prompt_id, context_id
from prompts
left join contexts using (context_id)
where
    contexts.context_id is null
    or prompts.task is distinct from contexts.task
    or prompts.n_demos is distinct from contexts.n_demos
    or prompts.demo_set is distinct from contexts.demo_set
    or prompts.format is distinct from contexts.format
order by all
