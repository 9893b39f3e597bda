-- One row per context of majority prompts: the label of its last demonstration, and of the most (null on a tie).
with
label_counts as (
    select *, list_histogram(demo_labels) as n_demonstrations
    from contexts
    semi join (select context_id from prompts where purpose = 'majority') using (context_id)
),

largest as (
    select
        *,
        list_filter(
            map_entries(n_demonstrations),
            lambda entry: entry.value = list_max(map_values(n_demonstrations))
        ) as most_frequent
    from label_counts
)

select
    largest.context_id, largest.task, largest.n_demos, largest.instruction, largest.setting, settings.number,
    largest.demo_set as seed,
    case when len(most_frequent) = 1 then most_frequent[1].key end as majority_label,
    largest.demo_labels[-1] as last_label, largest.n_demonstrations
from largest
left join settings using (setting)
