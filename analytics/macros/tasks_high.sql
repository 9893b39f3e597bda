-- tasks_high(estimate, error, n_tasks, single): the other end of tasks_low.
create macro tasks_high(estimate, error, n_tasks, single) as
    case when n_tasks > 1 then estimate + t_reach(error, n_tasks) else single end
