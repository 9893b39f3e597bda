-- Rows here: a prompt of an unknown task, with other labels than its task's, or without the gold label it needs.
-- The gold of a main or held-out row is one of the labels; the other rows are drawn apart, and theirs need not be.
with
texts as (
    select
        prompts.*, tasks.task is not null as is_known,
        purpose in ('main', 'bias_score', 'held_out') or coalesce(leaves_one_out, false) as needs_gold,
        tasks.labels as task_labels, coalesce(prompts.task, 'null') as task_text,
        coalesce(prompts.gold, 'null') as gold_text, coalesce(prompts.labels::varchar, 'null') as labels_text
    from prompts
    left join tasks using (task)
    left join calibration_methods on prompts.purpose = calibration_methods.method
)

select
    case
        when not is_known then format('prompt {} has the unknown task {}', prompt_id, task_text)
        when labels is distinct from task_labels
            then format('prompt {} has labels {}, its task {}', prompt_id, labels_text, task_labels)
        else format('prompt {} ({}) has gold {}, labels {}', prompt_id, purpose, gold_text, task_labels)
    end as problem,
    prompt_id, task
from texts
where
    not is_known
    or labels is distinct from task_labels
    or (needs_gold and gold is null)
    or (purpose in ('main', 'held_out') and not list_contains(task_labels, gold))
order by all
