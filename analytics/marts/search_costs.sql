-- One row per state of trials: how many there are, and the optimizer steps that each made itself and all of them.
select state, count(*) as n_trials, sum(steps)::bigint as steps, min(steps) as fewest_steps, max(steps) as most_steps
from trials
group by all
order by state
