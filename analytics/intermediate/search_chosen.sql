-- One row per (scope, trial that has its objective): whether it is chosen, as the best on the data of the choice; of
-- equals the first.
select
    trial, scope,
    row_number() over (partition by scope order by case when is_maximized then -value else value end, trial) = 1 as is_chosen
from search_values
inner join search_objectives using (objective)
where sample = 'choice'
