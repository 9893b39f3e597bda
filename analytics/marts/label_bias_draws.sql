-- One row per (model, suite, n_demos, method, draw): means over tasks, and demonstration sets, of a resample of tasks.
-- Every set has the same tasks (a check), so that it is one whether tasks or sets are averaged first.
-- A draw is the same for all numbers of demonstrations and methods, so that their differences have their bootstrap
-- distribution here; draw 0 is the suite itself. A mean is null where a task of the suite lacks the metric.
select * exclude (format)
from format_draws
where format = 'base'
order by all
