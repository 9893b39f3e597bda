-- One row per search: its objective, whether more is better, and whether its query reads bias_score: sampling noise
-- alone makes it greater than 0, so no test compares trials by it. Of a search that an older version made for several,
-- the first.
select
    objectives[1] as objective, are_maximized[1] as is_maximized,
    coalesce(are_of_bias_score[1], false) as is_of_bias_score
from search_settings
