-- One row per setting: tails, if no setting has a larger share of its demonstrations from one label; middle otherwise.
-- Shares are those of the real counts: with few demonstrations 0/100 and 10/90 may be the same.
select
    setting,
    case
        when list_max(counts) / list_sum(counts) >= max(list_max(counts) / list_sum(counts)) over () - 1e-9 then 'tails'
        else 'middle'
    end as region
from settings
