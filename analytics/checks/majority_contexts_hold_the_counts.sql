-- Rows here: a context of majority prompts whose demonstrations, before prompt.flip, are not the counts of its setting.
with
wanted as (
    select setting, list_filter(list_zip(labels, counts), lambda pair: pair[2] > 0) as label_counts
    from settings
),

compared as (
    select
        majority_contexts.context_id, majority_contexts.setting,
        list_sort(list_transform(map_entries(list_histogram(shown.demo_golds)), lambda entry: row(entry.key, entry.value::int)))::varchar as held,
        list_sort(list_transform(label_counts, lambda pair: row(pair[1], pair[2]::int)))::varchar as wanted
    from majority_contexts
    inner join contexts as shown using (context_id)
    left join wanted on majority_contexts.setting = wanted.setting
)

select
    format('context {} has the demonstrations {}, its setting {} {}',
           context_id, coalesce(held, '[]'), coalesce(setting, 'null'), coalesce(wanted, 'is not known')) as problem,
    context_id
from compared
where held is distinct from wanted
order by all
