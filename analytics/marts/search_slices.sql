-- One row per (objective, scope, searched key, bin of its values): what trials there came to, whatever the other keys.
-- Bins are values, or quarters of the trials for numbers with more than six; lowest and highest are of numbers.
select
    objective,
    scope,
    key,
    bin,
    min(number) as lowest,
    max(number) as highest,
    avg(value order by trial) as mean,
    min(value) as smallest,
    max(value) as largest,
    count(*) as n_trials
from search_bins
group by all
order by objective, scope, key, lowest, bin
