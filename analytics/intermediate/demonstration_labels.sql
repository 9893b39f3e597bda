-- One row per (task, n_demos, demo_set, label): how many demonstrations of the set have the label. n_demos_used: of the
-- longest prompt. is_single_label: whether the set has two or more demonstrations, all with one and the same label.
with
sets as (
    select task, n_demos, demo_set, arg_max(demo_labels, len(demo_labels)) as demo_labels
    from contexts
    where format = 'base' and len(demo_labels) > 0
    group by all
),

shown as (select task, n_demos, demo_set, unnest(demo_labels) as label from sets),

labels as (select task, unnest(labels) as label from tasks)

select
    sets.task, sets.n_demos, sets.demo_set, labels.label, count(shown.label) as n_with_label,
    len(sets.demo_labels) as n_demos_used,
    len(sets.demo_labels) > 1 and len(list_distinct(sets.demo_labels)) = 1 as is_single_label
from sets
inner join labels using (task)
left join shown using (task, n_demos, demo_set, label)
group by all
