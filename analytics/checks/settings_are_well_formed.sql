-- Rows here: a setting whose labels, shares and counts do not fit each other or the first's.
select
    format('setting {} ({}): {}', setting, number, {
        'labels': labels,
        'shares': shares,
        'counts': counts,
        'counts_asked': counts_asked
    }::varchar) as problem,
    setting
from settings
cross join (select arg_min(labels, number) as first_labels from settings)
where
    labels is distinct from first_labels
    or len(labels) is distinct from len(list_distinct(labels))
    or len(shares) is distinct from len(labels)
    or len(counts) is distinct from len(labels)
    or len(counts_asked) is distinct from len(labels)
    or not coalesce(abs(list_sum(shares) - 1) <= 1e-6 and list_min(shares) >= 0 and list_min(counts) >= 0, false)
    or not coalesce(list_sum(counts) <= list_sum(counts_asked), false)
order by all
