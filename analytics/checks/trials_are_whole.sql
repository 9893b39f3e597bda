-- Rows here: a trial whose state contradicts its other columns, or that is done and has no number of an objective.
select concat('trial ', trial, ' is ', state, ' and has ', coalesce(objectives, 'no objectives')) as problem
from trials
where
    state not in ('done', 'stopped', 'failed')
    or (state = 'done') <> (objectives is not null)
    or (state = 'done') <> (problem is null)
union all
select concat('trial ', trial, ': ', objective, ' on ', sample, ': ', coalesce(value::varchar, 'null')) as problem
from trial_values
where left_out is null and coalesce(not isfinite(value), scope = 'all' and sample = 'choice')
union all
select concat('trial ', trial, ' has ', n_objectives, ' objectives') as problem
from (
    select trial, count(distinct search_objectives.objective) as n_objectives
    from trials
    left join trial_values using (trial)
    left join search_objectives using (objective)
    where state = 'done'
    group by all
)
where n_objectives <> (select count(*) from search_objectives)
