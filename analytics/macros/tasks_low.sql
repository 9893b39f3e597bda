-- tasks_low(estimate, error, n_tasks, single), tasks_high(…): where the 95 % interval of a mean over tasks begins and
-- ends, by t_reach; of one task single, what its rows say.
create macro tasks_low(estimate, error, n_tasks, single) as
    case when n_tasks > 1 then estimate - t_reach(error, n_tasks) else single end
