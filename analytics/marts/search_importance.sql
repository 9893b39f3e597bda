-- One row per (objective, scope, searched key): how much of the variance of the objective over trials goes with the key
-- alone. share: epsilon squared, (between - (g - 1) * within mean square) / total over its g bins (search_bins), which
-- has no bias by their number (Kelley 1935); below 0 is 0. Null where every bin has one trial, or all trials came to
-- the same.
with
bins as (
    select objective, scope, key, bin, count(*) as n, var_pop(value order by trial) * count(*) as within
    from search_bins
    group by all
),

totals as (
    select objective, scope, key, var_pop(value order by trial) * count(*) as total
    from search_bins
    group by all
),

sums as (
    select objective, scope, key, sum(within order by bin) as within, sum(n)::bigint as n_trials, count(*) as n_bins
    from bins
    group by all
)

select
    objective, scope, key,
    case
        when n_trials > n_bins and total > 0
            then greatest(0, (total - within - (n_bins - 1) * within / (n_trials - n_bins)) / total)
    end as share,
    n_bins, n_trials
from sums
inner join totals using (objective, scope, key)
order by objective, scope, share desc nulls last, key
