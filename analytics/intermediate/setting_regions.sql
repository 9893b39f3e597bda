-- One row per setting: tails, if its largest share is the largest of the grid; middle otherwise.
select
    setting,
    case when list_max(shares) >= max(list_max(shares)) over () - 1e-9 then 'tails' else 'middle' end as region
from settings
