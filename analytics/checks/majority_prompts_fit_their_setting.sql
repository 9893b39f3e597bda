-- Rows here: a majority prompt of an unknown setting, with other labels than its, or whose gold label is none of them.
with
texts as (
    select
        prompts.prompt_id, contexts.setting, list_sort(prompts.labels) as labels,
        prompts.gold, label_sets.setting_labels
    from prompts
    inner join contexts using (context_id)
    left join (select setting, list_sort(labels) as setting_labels from settings) as label_sets using (setting)
    where prompts.purpose = 'majority'
)

select
    format('prompt {} has setting {}, labels {}, gold {}; the labels of this setting are {}',
           prompt_id, coalesce(setting, 'null'), coalesce(labels::varchar, 'null'), coalesce(gold, 'null'),
           coalesce(setting_labels::varchar, 'not known')) as problem,
    prompt_id
from texts
where
    setting_labels is null
    or labels is distinct from setting_labels
    or not coalesce(list_contains(setting_labels, gold), false)
order by all
